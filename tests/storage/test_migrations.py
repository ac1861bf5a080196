"""The revisions: up, down and up again, equal to the tables, safe to run twice at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from support.own_postgres import EMPTY
from support.store_cases import (
    T0,
    page_of,
    publish,
    register,
    save,
    schedule_columns,
)

from service.leases.host_settings import change_host
from service.leases.politeness import Politeness
from service.model.errors import SchemaAhead, SchemaBehind
from service.model.webhooks import OldSecret, Webhook
from service.storage import Subscription, migrations, open_store, tables

pytestmark = pytest.mark.dear


@pytest.fixture
def empty(empty_database_url):
    """A store on a database without tables."""
    store = open_store(empty_database_url, 2)
    yield store
    store.close()


def test_a_new_database_is_behind_and_the_message_says_what_to_run(empty):
    empty.engine.connect().close()  # of SQLite, makes an empty file
    with pytest.raises(SchemaBehind, match=r"at revision none.* run `recrawl migrate`"):
        empty.check()


def test_migrating_makes_it_serve(empty):
    migrations.upgrade(empty.engine)
    empty.check()
    ids = register(empty, 3)
    publish(empty, schedule_columns(np.sort(ids)))
    assert page_of(empty, ids[0]).crawl_rate == 1.0


def test_migrating_again_changes_nothing_and_reads_no_revision(empty, monkeypatch):
    migrations.upgrade(empty.engine)
    ids = register(empty, 3)
    monkeypatch.setattr(migrations, "config", None)
    migrations.upgrade(empty.engine)
    assert page_of(empty, ids[0]).created_at == T0


def tables_in(engine):
    return {t for t in sa.inspect(engine).get_table_names() if t != "alembic_version"}


def test_every_revision_goes_up_down_and_up_again(empty):
    revisions = [
        r.revision for r in ScriptDirectory.from_config(migrations.config()).walk_revisions()
    ]
    for revision in revisions[::-1]:
        migrations.upgrade(empty.engine, revision)
        before = tables_in(empty.engine)
        migrations.downgrade(empty.engine, "-1")
        migrations.upgrade(empty.engine, revision)
        assert tables_in(empty.engine) == before
    empty.check()
    register(empty, 2)
    publish(empty, schedule_columns(np.array([1, 2])))
    migrations.downgrade(empty.engine, "base")
    assert tables_in(empty.engine) == set()
    with pytest.raises(SchemaBehind):
        empty.check()
    migrations.upgrade(empty.engine)
    empty.check()
    assert len(register(empty, 2)) == 2


def test_old_secrets_of_webhooks_go_up_and_down(empty):
    """The last old secret of a webhook keeps its end; of several, the last one goes down."""
    migrations.upgrade(empty.engine)
    until = T0 + timedelta(hours=5, microseconds=7)
    last, first = OldSecret("whsec_b", until), OldSecret("whsec_a", T0)
    webhook = Webhook(
        id="many", url="https://a.example/", secret="", most=1, created_at=T0, next_at=T0
    )
    with empty.begin() as tx:
        tx.add_webhook(replace(webhook, old_secrets=(last, first)))
        tx.add_webhook(replace(webhook, id="none"))
    migrations.downgrade(empty.engine, "0002")
    with empty.engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT old_secret FROM webhooks ORDER BY id"))
        assert [row[0] for row in rows] == ["whsec_b", None]
    migrations.upgrade(empty.engine)
    with empty.begin() as tx:
        assert tx.webhook("many").old_secrets == (last,)
        assert tx.webhook("none").old_secrets == ()


def test_subscriptions_of_before_need_somebody_at_the_end_of_their_lease(empty):
    """Nobody renews them, because they have no public address."""
    migrations.upgrade(empty.engine)
    one = Subscription("a", "https://a.example/", None, "https://hub.example/", T0, T0, T0)
    with empty.begin() as tx:
        tx.add_subscription(replace(one, n_taken=3, public_url="https://r.example"))
        tx.add_subscription(replace(one, id="b", expires_at=None))
    migrations.downgrade(empty.engine, "0021")
    migrations.upgrade(empty.engine)
    with empty.begin() as tx:
        assert tx.subscriptions("", 3) == [
            replace(one, warn_at=T0),
            replace(one, id="b", expires_at=None),
        ]


def test_requests_of_1970_are_no_requests_and_come_back_on_the_way_down(empty):
    """Pages that had never had content were due by such a request."""
    migrations.upgrade(empty.engine)
    ids = np.sort(register(empty, 3))
    save(empty, ids[:2], last_crawl_at=T0, n_failures=1, requested_at=[None, T0])
    requests = {
        "sqlite": "requested_at / 1000000",
        "postgresql": "extract(epoch FROM requested_at)",
    }
    query = f"SELECT {requests[empty.engine.dialect.name]} FROM page_states ORDER BY page_id"
    migrations.downgrade(empty.engine, "0005")
    with empty.engine.connect() as connection:
        assert [*connection.scalars(sa.text(query))] == [0, T0.timestamp(), None]
    migrations.upgrade(empty.engine)
    requested_at = [page_of(empty, page_id).requested_at for page_id in ids]
    assert requested_at == [None, T0, None]
    assert [page_of(empty, page_id).retry_rate for page_id in ids] == [0, 0, 0]


def test_digests_of_pages_are_known_after_the_migration_and_no_page_is_held(empty):
    migrations.upgrade(empty.engine)
    ids = np.sort(register(empty, 4))
    save(empty, ids[:3], last_crawl_at=T0, last_observed_at=T0, digest=np.array([7, 7, 0]))
    migrations.downgrade(empty.engine, "0011")
    migrations.upgrade(empty.engine)
    with empty.begin() as tx:
        assert tx.lock_states(ids).held.tolist() == [0, 0, 0, 0]
        assert tx.add_digests(np.array([7, 8])).tolist() == [8]


def test_waits_after_unfinished_leases_go_down_as_pages_that_are_due(empty):
    migrations.upgrade(empty.engine)
    waits, runs = register(empty, 2).tolist()
    until = T0 + timedelta(hours=5)
    row = sa.text(
        "INSERT INTO due_pages (page_id, queue_id, next_at, requested, token, worker, leased_at, "
        "expires_at, n_unfinished, ending, waits) VALUES (:page, 1, :until, false, :token, "
        "'w', :until, :until, 2, 1, true)"
    )
    at = until if empty.engine.dialect.name == "postgresql" else 1_777_777_777_000_000
    with empty.engine.begin() as connection:
        for page, token in ((waits, None), (runs, 7)):
            connection.execute(row, {"page": page, "token": token, "until": at})
    migrations.downgrade(empty.engine, "0005")
    left = sa.text("SELECT page_id, worker, leased_at IS NULL FROM due_pages ORDER BY page_id")
    with empty.engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(left)]
    assert rows == sorted([(waits, None, True), (runs, "w", False)])
    migrations.upgrade(empty.engine)
    with empty.begin(write=False) as tx:
        assert tx.last_leases(np.array(sorted([waits, runs]))).n_unfinished.tolist() == [0]


def test_pings_so_far_become_recent_ones_as_if_their_rate_had_been_steady(empty):
    migrations.upgrade(empty.engine)
    ids = np.sort(register(empty, 3))
    last = [T0 + timedelta(days=5), T0 + timedelta(days=101), None]
    save(empty, ids, n_pings=[10, 200, 0], recent_pings=1.0, last_ping_at=last)
    migrations.downgrade(empty.engine, "0011")
    migrations.upgrade(empty.engine)
    found = [page_of(empty, page_id).recent_pings for page_id in ids]
    assert found == pytest.approx([10.0, 20.0, 0.0])


def test_a_pause_is_of_the_site_or_of_an_operator_after_the_way_down_and_up(empty):
    """Before, a host queue had one end; the start of the pause told whose it was."""
    migrations.upgrade(empty.engine)
    hour = timedelta(hours=1)
    by_operator, by_site = T0 + 2 * hour, T0 + 3 * hour
    ends = {"operator": (by_operator, None), "site": (None, by_site)}
    ends |= {"both": (by_operator, by_site), "longer": (by_site + hour, by_site)}
    with empty.begin() as tx:
        for name, (blocked, paused) in ends.items():
            settings = {"blocked_until": blocked, "paused_until": paused}
            change_host(tx, name, settings, T0, Politeness())
    migrations.downgrade(empty.engine, "0018")
    migrations.upgrade(empty.engine)
    with empty.begin(write=False) as tx:
        queues = [tx.host(name).host_queue for name in ends]
    assert [(each.blocked_until, each.paused_until) for each in queues] == [
        (by_operator, None),
        (None, by_site),
        (None, by_site),
        (by_site + hour, None),
    ]


def test_the_revisions_end_in_one_head():
    assert len(ScriptDirectory.from_config(migrations.config()).get_heads()) == 1
    assert migrations.head()


def partition(connection):
    """Names of the tables that are partitions of others, or were."""
    if connection.dialect.name != "postgresql":
        return set()
    query = "SELECT relname FROM pg_class WHERE relispartition"
    return {*connection.scalars(sa.text(query)), "sealed_observations"}


def meant_for(dialect, item):
    """Of an index or a column that only one dialect has: whether it is this one."""
    condition = getattr(item, "_ddl_if", None)
    only = condition.dialect if condition else item.info.get("only", dialect)
    return only == dialect


@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based")
def test_the_head_equals_the_tables(empty):
    migrations.upgrade(empty.engine)
    with empty.engine.connect() as connection:
        partitions = partition(connection)
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": connection.dialect.name == "postgresql",
                "include_name": lambda name, kind, _: kind != "table" or name not in partitions,
                "include_object": lambda item, *_: meant_for(connection.dialect.name, item),
            },
        )
        assert compare_metadata(context, tables.metadata) == []


@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based")
def test_the_comparison_would_see_a_difference(empty):
    migrations.upgrade(empty.engine)
    other = sa.MetaData(naming_convention=tables.metadata.naming_convention)
    for table in tables.metadata.tables.values():
        table.to_metadata(other)
    other.tables["meta"].append_column(sa.Column("more", sa.Text))
    with empty.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), other)
    assert ("add_column", None, "meta") in [change[:3] for change in found if type(change) is tuple]


def test_what_create_table_options_say_is_the_same_by_both_ways(sqlite_store, tmp_path):
    """Options that no comparison of metadata sees: AUTOINCREMENT, WITHOUT ROWID, CASCADE."""
    direct = sa.create_engine(f"sqlite:///{tmp_path / 'direct.db'}")
    tables.metadata.create_all(direct)

    def options(engine):
        query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        with engine.connect() as connection:
            rows = connection.execute(sa.text(query)).all()
        words = ("AUTOINCREMENT", "WITHOUT ROWID", "ON DELETE CASCADE", "WHERE status")
        return {
            name: [word for word in words if word in sql]
            for name, sql in rows
            if name not in ("alembic_version", "sqlite_sequence")
        }

    migrated = options(sqlite_store.engine)
    assert migrated == options(direct)
    assert migrated["pages"] == ["AUTOINCREMENT"]
    assert migrated["schedule"] == migrated["observations"] == ["WITHOUT ROWID"]
    direct.dispose()


def test_two_migrations_at_once_take_turns(empty_database_url):
    stores = [open_store(empty_database_url, 2) for _ in range(3)]
    start = threading.Barrier(3)

    def migrate(store):
        start.wait(180)
        migrations.upgrade(store.engine)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(migrate, stores))
    for store in stores:
        store.check()
        store.close()


def test_a_revision_that_fails_leaves_nothing_half_done(empty, monkeypatch):
    def breaks(*_args, **_kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("alembic.op.create_index", breaks)
    with pytest.raises(ZeroDivisionError):
        migrations.upgrade(empty.engine)
    assert tables_in(empty.engine) == set()
    monkeypatch.undo()
    migrations.upgrade(empty.engine)
    empty.check()


def test_a_database_of_a_newer_version_is_refused(empty):
    migrations.upgrade(empty.engine)
    with empty.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaAhead, match=r"at revision 9999.* newer"):
        empty.check()
    with pytest.raises(SchemaAhead, match="newer"):
        migrations.upgrade(empty.engine)
    with pytest.raises(SchemaAhead, match="newer"):
        migrations.downgrade(empty.engine, "base")
    assert "pages" in tables_in(empty.engine)


def test_what_a_running_process_needs_does_not_change_with_its_files(empty, monkeypatch, tmp_path):
    migrations.upgrade(empty.engine)
    monkeypatch.setattr(migrations, "SCRIPTS", tmp_path / "replaced by another version")
    empty.check()


def test_between_tests_every_table_is_emptied():
    dropped = {"schedule"}  # its partitions are dropped
    kept = set(tables.metadata.tables) - dropped
    assert {name for name in kept if f"DELETE FROM {name};" not in EMPTY} == set()
