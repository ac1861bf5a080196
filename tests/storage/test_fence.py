"""A schema of another version's: named as such, and nothing is written under it."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa
from support.live_server import cloned
from support.store_cases import (
    T0,
    log_columns,
    page_columns,
    publish,
    register,
    schedule_columns,
    urls,
)

from service.model.errors import SchemaAhead, SchemaBehind, SchemaDiffers
from service.storage import Store, migrations, open_store

OTHERS = {"9999_future": SchemaAhead, None: SchemaBehind}
NEWER_COLUMNS = "ALTER TABLE epochs RENAME COLUMN status TO state"


@pytest.fixture(params=["sqlite", "postgres"])
def sql_store(request) -> Iterator[Store]:
    """A store whose database no other test uses: these change its tables."""
    if request.param == "sqlite":
        with closing(open_store(request.getfixturevalue("sqlite_url"), 2)) as store:
            yield store
        return
    server, template = map(request.getfixturevalue, ("postgres_server", "postgres_template"))
    with cloned(server, template) as url, closing(open_store(url, 2)) as store:
        yield store


def run(store, statement: str) -> None:
    """Run a statement past the store, as a migration does."""
    with store.engine.begin() as connection:
        connection.execute(sa.text(statement))


def set_revision(store, revision: str | None) -> None:
    run(store, "DELETE FROM alembic_version")
    if revision is not None:
        run(store, f"INSERT INTO alembic_version VALUES ('{revision}')")


def n_rows(store, table: str) -> int:
    with store.engine.connect() as connection:
        return connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))


WRITES = {
    "a registration": lambda tx, ids: tx.register(page_columns(urls(5)), T0),
    "a statement that waits for the commit": lambda tx, ids: tx.append_log(log_columns(ids, T0)),
    "a shared statement": lambda tx, ids: tx.request_epoch(T0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("revision", OTHERS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_nothing_is_written_under_another_revision_though_the_tables_fit(
    sql_store, write, revision
):
    ids = register(sql_store, 2)
    set_revision(sql_store, revision)

    def attempt(begin):
        with begin() as tx:
            write(tx, ids)

    with pytest.raises(OTHERS[revision]):
        attempt(sql_store.begin)
    with sql_store.lead() as lead, pytest.raises(OTHERS[revision]):
        attempt(lead.begin)
    assert (n_rows(sql_store, "pages"), n_rows(sql_store, "epochs")) == (2, 0)
    set_revision(sql_store, migrations.head())
    attempt(sql_store.begin)


def test_an_epoch_of_another_revision_is_not_published(sql_store):
    ids = register(sql_store, 2)
    epoch = publish(sql_store, schedule_columns(ids))
    set_revision(sql_store, "9999_future")
    with pytest.raises(SchemaAhead):
        publish(sql_store, schedule_columns(ids))
    with sql_store.begin(write=False) as tx:
        assert tx.number_in_force() == epoch


@pytest.mark.parametrize("write", [False, True])
def test_tables_of_another_revision_are_named_as_such(sql_store, write):
    run(sql_store, NEWER_COLUMNS)
    set_revision(sql_store, "9999_future")
    for _ in range(2):  # on a new connection, and on one that has failed
        with pytest.raises(SchemaAhead), sql_store.begin(write=write) as tx:
            tx.newest_epoch()


def test_a_statement_that_does_not_fit_our_own_schema_is_a_fault(sql_store):
    run(sql_store, NEWER_COLUMNS)
    with pytest.raises((sqlite3.Error, psycopg.Error)), sql_store.begin(write=False) as tx:
        tx.newest_epoch()
    with pytest.raises((sqlite3.Error, psycopg.Error)), sql_store.begin() as tx:
        tx.newest_epoch()


@pytest.mark.dear
def test_a_database_without_tables_is_behind(sql_store):
    migrations.downgrade(sql_store.engine, "base")
    with pytest.raises(SchemaBehind), sql_store.begin() as tx:
        tx.register(page_columns(urls(2)), T0)
    migrations.upgrade(sql_store.engine)
    assert len(register(sql_store, 2)) == 2


@pytest.mark.dear
def test_a_migration_waits_for_the_writers_that_have_passed_the_fence(sql_store):
    began, end = threading.Event(), threading.Event()

    def migrate():
        began.set()
        migrations.downgrade(sql_store.engine, "base")
        end.set()

    migrating = threading.Thread(target=migrate)
    with sql_store.begin() as tx:
        tx.register(page_columns(urls(2)), T0)
        migrating.start()
        assert began.wait(180)
        assert not end.wait(0.3)
        tx.register(page_columns(urls(4)), T0)
    migrating.join(180)
    assert end.is_set()
    migrations.upgrade(sql_store.engine)


def test_a_migration_does_not_wait_for_ever_behind_a_reader(postgres_store, monkeypatch):
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "50ms")
    with closing(psycopg.connect(postgres_store.url)) as reader:
        reader.execute("SELECT count(*) FROM alembic_version")
        with pytest.raises(Exception, match="lock timeout"):
            migrations.downgrade(postgres_store.engine, "base")
    assert len(register(postgres_store, 2)) == 2


REFUSED = {
    "ALTER TABLE epochs RENAME COLUMN status TO state": "epochs has no column status",
    "DROP TABLE api_keys": "there is no table api_keys",
    "ALTER TABLE change_hours RENAME TO clocks": "there is no table change_hours",
}
ALLOWED = (
    "CREATE INDEX my_index ON pages (url)",
    "CREATE TABLE my_table (n integer NOT NULL)",
    "ALTER TABLE pages ADD COLUMN mine text",
    "ALTER TABLE pages ADD COLUMN other integer NOT NULL DEFAULT 7",
    "CREATE VIEW shown AS SELECT url FROM pages",
)


@pytest.mark.parametrize("change", REFUSED)
def test_tables_that_are_not_those_of_the_revision_are_refused_by_name(sql_store, change):
    sql_store.check()
    run(sql_store, change)
    for check in (
        sql_store.check,
        sql_store.check_ready,
        lambda: migrations.upgrade(sql_store.engine),
    ):
        with pytest.raises(SchemaDiffers, match=REFUSED[change]) as refused:
            check()
        assert f"at revision {migrations.head()}" in str(refused.value)
        assert "restore a backup" in str(refused.value)


def test_indexes_tables_and_columns_of_the_operator_are_no_difference(sql_store):
    for change in ALLOWED:
        run(sql_store, change)
    sql_store.check()
    sql_store.check_ready()
    migrations.upgrade(sql_store.engine)
    assert len(register(sql_store, 3)) == 3


@pytest.mark.dear
@pytest.mark.parametrize(
    "change", ["ALTER observability TYPE text", "ADD more text NOT NULL", "DROP n_changes"]
)
def test_types_of_another_kind_and_columns_that_need_a_value_are_refused(
    postgres_server, postgres_template, change
):
    with cloned(postgres_server, postgres_template) as url, closing(open_store(url, 2)) as store:
        run(store, "ALTER TABLE page_states ALTER n_failures TYPE integer")
        store.check()  # another width is no difference
        run(store, f"ALTER TABLE page_states {change}")
        with pytest.raises(SchemaDiffers, match=f"page_states.*{change.split()[1]}"):
            store.check()


def test_a_database_whose_tables_differ_answers_503_and_names_them(sql_store):
    run(sql_store, "ALTER TABLE epochs RENAME COLUMN status TO state")
    with pytest.raises(SchemaDiffers) as refused:
        sql_store.check_ready()
    assert refused.value.extra["check"] == "schema"
