"""The revisions: up, down and up again, equal to the tables, safe to run twice at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from store_cases import (
    DAY,
    T0,
    log_columns,
    page_columns,
    page_of,
    publish,
    read_schedule,
    register,
    same,
    save,
    schedule_columns,
)

from service.errors import SchemaAhead, SchemaBehind
from service.storage import migrations, open_store, tables
from service.storage.sqlite_log import OF_A_DAY


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


def test_migrating_again_changes_nothing(empty):
    migrations.upgrade(empty.engine)
    ids = register(empty, 3)
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


def test_the_revisions_end_in_one_head():
    assert len(ScriptDirectory.from_config(migrations.config()).get_heads()) == 1
    assert migrations.head()


def partition(connection):
    """Names of the tables that are partitions of others."""
    if connection.dialect.name != "postgresql":
        return set()
    query = "SELECT relname FROM pg_class WHERE relispartition"
    return set(connection.scalars(sa.text(query)))


def meant_for(dialect, item):
    """Of an index or a column that only one dialect has: whether it is this one."""
    condition = getattr(item, "_ddl_if", None)
    only = condition.dialect if condition else item.info.get("only", dialect)
    return only == dialect


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
        start.wait(10)
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


OLD_DATA = """
INSERT INTO hosts (host_id, host) VALUES (1, 'a.example'), (2, 'b.example');
INSERT INTO pages (page_id, key, url, host_id, importance, observability, min_crawl_rate,
    max_crawl_rate, created_at) VALUES
    (1, {key1}, 'https://a.example/1', 1, 1.5, 0, NULL, 2.0, {t0}),
    (2, {key2}, 'https://b.example/2', 2, 1e-300, 1, 0.25, NULL, {t1}),
    (7, {key7}, 'https://a.example/7', 1, 3.0, 2, NULL, NULL, {t1});
INSERT INTO page_states (page_id, last_crawl_at, last_observed_at, digest, gone, n_observations,
    n_changes, n_pings, last_ping_at, pings_since, ping_credit, recent_pings, real_pings,
    false_pings, trust, wanted_at, gap, estimate) VALUES
    (1, NULL, NULL, NULL, {no}, 0, 0, 0, NULL, {t0}, 0, 0, 0, 0, 0, NULL, 1, {estimate}),
    (2, {t1}, {t0}, -5, {yes}, 9, 4, 6, {t1}, {t0}, 0.5, 2, 1.5, -0.25, 3.75, {t1}, 0.96875,
        {estimate}),
    (7, {t1}, {t1}, 12, {no}, 3, 0, 0, NULL, {t1}, 0, 0, 0, 0, 0, NULL, 1.03125, {estimate});
INSERT INTO observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
    VALUES (1, {t0}, 0, NULL, NULL, NULL, 404), (2, {t0}, 1, NULL, NULL, 1.5, NULL),
    (2, {t1}, 0, 1, 0.125, 1.5, 200);
INSERT INTO epochs (epoch, status, requested_at, started_at, finished_at, n_pages, prior)
    VALUES (1, 'published', {t0}, {t0}, {t1}, 2, '{{"a": 0.5}}'),
    (2, 'requested', {t1}, NULL, NULL, NULL, NULL);
INSERT INTO schedule (epoch, page_id, change_rate, crawl_rate, crawl_probability)
    VALUES (1, 1, 0.5, 2.0, 0), (1, 2, 0.25, 0.0, 0.75)
"""
POSTGRES_WORDS = {
    "t0": "'2026-05-01T12:00:00.000001Z'", "t1": "'2026-06-02Z'", "yes": "true", "no": "false",
    "estimate": "'\\x000102030405060708090a0b0c0d0e0f'",
    **{f"key{i}": f"'0000000000000000000000000000000{i}'" for i in (1, 2, 7)},
}  # fmt: skip
SQLITE_WORDS = {
    "t0": "1777636800000001", "t1": "1780358400000000", "yes": "1", "no": "0",
    "estimate": "x'000102030405060708090a0b0c0d0e0f'",
    **{f"key{i}": f"x'0000000000000000000000000000000{i}'" for i in (1, 2, 7)},
}  # fmt: skip
POSTGRES_PARTITIONS = """
CREATE TABLE observations_2026_05 PARTITION OF observations
    FOR VALUES FROM ('2026-05-01Z') TO ('2026-06-01Z');
CREATE TABLE schedule_1 PARTITION OF schedule FOR VALUES IN (1);
SELECT setval('pages_page_id_seq', 7), setval('hosts_host_id_seq', 2), setval('epochs_epoch_seq', 2)
"""


BOUNDS = """
SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class
WHERE relispartition AND relkind = 'r'
"""


def write_old_data(engine):
    """Fill a database at revision 0001, in words that later revisions do not touch."""
    postgres = engine.dialect.name == "postgresql"
    words = POSTGRES_WORDS if postgres else SQLITE_WORDS
    script = (POSTGRES_PARTITIONS + ";" if postgres else "") + OLD_DATA.format(**words)
    with engine.begin() as connection:
        for statement in script.split(";"):
            connection.exec_driver_sql(statement.replace("%", "%%"))


def contents(engine):
    """Every row of every table as a dictionary, sorted, and the partitions with their bounds."""
    found = {}
    with engine.connect() as connection:
        for table in tables_in(engine):
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()
            found[table] = sorted((sorted(row.items()) for row in rows), key=str)
        if engine.dialect.name == "postgresql":
            found["partitions"] = sorted(connection.execute(sa.text(BOUNDS)).all())
    return found


def test_revision_2_and_back_loses_and_changes_nothing(empty):
    migrations.upgrade(empty.engine, "0001")
    write_old_data(empty.engine)
    before = contents(empty.engine)
    migrations.upgrade(empty.engine, "0002")
    assert contents(empty.engine) != before
    migrations.downgrade(empty.engine, "0001")
    assert contents(empty.engine) == before
    migrations.upgrade(empty.engine)
    empty.check()


def test_revision_4_puts_a_sqlite_log_under_its_days_and_back(empty):
    migrations.upgrade(empty.engine, "0001")
    write_old_data(empty.engine)
    migrations.upgrade(empty.engine, "0003")
    before = contents(empty.engine)
    migrations.upgrade(empty.engine, "0004")
    after = contents(empty.engine)
    if empty.engine.dialect.name == "sqlite":
        given = [dict(entry) for entry in after["observations"]]
        days = [(entry["page_id"], entry.pop("day")) for entry in given]
        assert sorted(days) == [(1, 20_574), (2, 20_574), (2, 20_606)]
        after["observations"] = sorted((sorted(entry.items()) for entry in given), key=str)
    assert after == before
    migrations.downgrade(empty.engine, "0003")
    assert contents(empty.engine) == before


def test_revision_5_adds_subscriptions_and_takes_them_away_and_nothing_else(empty):
    migrations.upgrade(empty.engine, "0001")
    write_old_data(empty.engine)
    migrations.upgrade(empty.engine, "0004")
    before = contents(empty.engine)
    migrations.upgrade(empty.engine, "0005")
    with empty.engine.begin() as connection:
        row = {"id": "a", "topic": "t", "hub": "h", "requested_at": instants_of("2026-06-02")}
        connection.execute(tables.websub.insert(), row)
    migrations.downgrade(empty.engine, "0004")
    assert contents(empty.engine) == before
    migrations.upgrade(empty.engine, "0005")
    assert contents(empty.engine) == {**before, "websub": []}


def test_what_the_first_release_wrote_is_read_after_migrating(empty):
    migrations.upgrade(empty.engine, "0001")
    write_old_data(empty.engine)
    migrations.upgrade(empty.engine)
    ids = np.array([1, 2, 7])
    with empty.begin() as tx:
        states = tx.lock_states(ids, scheduled=True)
        log = tx.log_of(ids)
        pages = [tx.page(i) for i in ids.tolist()]
        assert tx.epoch(2).requested_at == instants_of("2026-06-02")
    assert [int(p.observability) for p in pages] == states.observability.tolist() == [0, 1, 2]
    assert [p.url for p in pages] == [f"https://{h}.example/{i}" for h, i in ("a1", "b2", "a7")]
    assert [p.importance for p in pages] == [1.5, 1e-300, 3.0]
    assert [(p.min_crawl_rate, p.max_crawl_rate) for p in pages] == [
        (None, 2.0), (0.25, None), (None, None),
    ]  # fmt: skip
    assert states.n_pings.tolist() == [0, 6, 0]
    assert states.recent_pings.tolist() == [0, 2, 0]
    assert states.real_pings.tolist() == [0, 1.5, 0]
    assert states.false_pings.tolist() == [0, -0.25, 0]
    assert states.trust.tolist() == [0, 3.75, 0]
    assert states.ping_credit.tolist() == [0, 0.5, 0]
    assert states.digest.tolist() == [0, -5, 12]
    assert states.n_observations.tolist() == [0, 9, 3]
    np.testing.assert_array_equal(states.crawl_probability, [0.0, 0.75, np.nan])
    assert log.status.tolist() == [404, -1, 200]
    np.testing.assert_array_equal(log.crawl_rate, [np.nan, 1.5, 1.5])
    with empty.begin() as tx:  # and it goes on where it was
        assert tx.register(page_columns(["https://c.example/"]), T0).page_id.tolist() == [8]
        assert tx.start_epoch(T0).epoch == 2
        tx.delete_page(7)
        assert tx.lock_states(ids).page_id.tolist() == [1, 2]


def instants_of(day):
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def test_revision_6_forgets_where_pages_redirect_to_and_nothing_else(empty):
    migrations.upgrade(empty.engine)
    one, other = np.sort(register(empty, 2)).tolist()
    save(empty, [one], redirects_to=other, n_changes=3)
    migrations.downgrade(empty.engine, "0005")
    migrations.upgrade(empty.engine)
    page = page_of(empty, one)
    assert (page.redirects_to, page.n_changes) == (None, 3)


def test_revision_7_puts_each_day_of_a_sqlite_log_into_its_first_stretch_and_back(empty):
    migrations.upgrade(empty.engine, "0001")
    write_old_data(empty.engine)
    migrations.upgrade(empty.engine, "0006")
    before = contents(empty.engine)
    migrations.upgrade(empty.engine, "0007")
    after = contents(empty.engine)
    if empty.engine.dialect.name == "sqlite":
        given = [dict(entry) for entry in after["observations"]]
        for entry in given:
            entry["day"], number = divmod(entry.pop("stretch"), OF_A_DAY)
            assert number == 0
        after["observations"] = sorted((sorted(entry.items()) for entry in given), key=str)
    assert after == before
    migrations.downgrade(empty.engine, "0006")
    assert contents(empty.engine) == before


def test_the_stretches_of_a_day_become_one_day_when_revision_7_is_undone(empty, monkeypatch):
    monkeypatch.setattr("service.storage.sqlite_log.STRETCH", 1)
    migrations.upgrade(empty.engine)
    ids = np.sort(register(empty, 2))
    for hours in range(3):
        with empty.begin() as tx:
            tx.append_log(log_columns(ids, T0 + hours * DAY / 24))
    with empty.begin() as tx:
        before = tx.log_of(ids)
    migrations.downgrade(empty.engine, "0006")
    migrations.upgrade(empty.engine)
    with empty.begin() as tx:
        same(tx.log_of(ids), before)
    assert len(before) == 6


def test_revision_8_finds_the_sections_of_the_pages_that_are_there(empty, monkeypatch):
    migrations.upgrade(empty.engine)
    told = [f"https://a{i % 3}.example/d{i % 2}/{i}" for i in range(7)]
    with empty.begin() as tx:
        tx.register(page_columns(told), T0)
        before = tx.load_columns()
    publish(empty, schedule_columns(before.page_id), section_rate=np.ones(4, np.float32))
    migrations.downgrade(empty.engine, "0007")
    revision = ScriptDirectory.from_config(migrations.config()).get_revision("0008").module
    monkeypatch.setattr(revision, "BLOCK", 3)
    migrations.upgrade(empty.engine)
    with empty.begin(write=False) as tx:
        after = tx.load_columns()
        assert tx.section_rate(tx.number_in_force()) is None
    np.testing.assert_array_equal(after.section, before.section)
    assert len(set(after.section.tolist())) == 6


def test_revision_9_makes_the_rows_of_schedules_smaller_and_back(empty):
    migrations.upgrade(empty.engine)
    ids, rates = np.sort(register(empty, 4)), [0.0, 0.25, 2.0, 1e9]
    for _ in range(2):
        epoch = publish(empty, schedule_columns(ids, rates, rates[::-1], [0.0, 1.0, 1 / 3, 0.0]))
    rows = read_schedule(empty, epoch)
    migrations.downgrade(empty.engine, "0008")
    before = contents(empty.engine)
    assert len(before["schedule"]) == 8
    migrations.upgrade(empty.engine, "0009")
    size = size_of_rows(empty.engine)
    migrations.upgrade(empty.engine)
    assert read_schedule(empty, epoch) == rows
    migrations.downgrade(empty.engine, "0008")
    assert contents(empty.engine) == before
    if empty.engine.dialect.name == "postgresql":
        assert size_of_rows(empty.engine) == size + 8 * 8


def test_revision_10_starts_all_clocks_at_the_rates_that_are_in_force(empty):
    migrations.upgrade(empty.engine)
    ids = np.sort(register(empty, 3))
    save(empty, ids, last_crawl_at=T0, last_interval=2.5)
    publish(empty, schedule_columns(ids, crawl_rate=2.0, pace=[1.0, 4.0, 0.5]))
    migrations.downgrade(empty.engine, "0009")
    before = contents(empty.engine)
    migrations.upgrade(empty.engine)
    with empty.begin(write=False) as tx:
        epoch, loaded = tx.epoch_in_force(), tx.load_columns()
    assert epoch.certificate.haste == 1.0
    assert loaded.last_interval.tolist() == [0.0] * 3
    assert [page_of(empty, page_id).pace for page_id in ids] == [1.0] * 3
    due = {row.next_crawl_at for row in read_schedule(empty, epoch.epoch)}
    assert due == {T0 + timedelta(days=0.5)}
    migrations.downgrade(empty.engine, "0009")
    assert contents(empty.engine) == before


def size_of_rows(engine):
    """Bytes of all rows of the schedules; 0 on SQLite, where no revision changes them."""
    if engine.dialect.name != "postgresql":
        return 0
    with engine.connect() as connection:
        return connection.scalar(sa.text("SELECT sum(pg_column_size(schedule)) FROM schedule"))


def test_revision_9_takes_change_rates_that_no_short_number_holds(empty):
    migrations.upgrade(empty.engine, "0001")
    write_old_data(empty.engine)
    migrations.upgrade(empty.engine, "0008")
    with empty.engine.begin() as connection:
        extreme = "UPDATE schedule SET change_rate = CASE page_id WHEN 1 THEN 1e-300 ELSE 1e300 END"
        connection.exec_driver_sql(extreme)
    migrations.upgrade(empty.engine)
    low, high = (row.change_rate for row in read_schedule(empty, 1))
    assert low < 1e-37
    assert high > 1e38


def test_revision_11_makes_crawl_rates_short_and_keeps_the_schedules_in_their_order(empty):
    migrations.upgrade(empty.engine)
    ids, rates = np.sort(register(empty, 4)), [0.0, 0.25, 2.0, 1e9]
    for paces in ([1.0, 0.5, 4.0, 1000.0], [2.0, 1.0, 1.0, 0.25]):
        epoch = publish(empty, schedule_columns(ids, rates, rates[::-1], [0, 1, 1 / 3, 0], paces))
    rows, size = read_schedule(empty, epoch), size_of_rows(empty.engine)
    after = contents(empty.engine)
    migrations.downgrade(empty.engine, "0010")
    before = contents(empty.engine)
    assert len(before["schedule"]) == 8
    if empty.engine.dialect.name == "postgresql":
        assert size_of_rows(empty.engine) == size + 4 * 8  # and as much in padding
    migrations.upgrade(empty.engine)
    assert read_schedule(empty, epoch) == rows
    assert [page_of(empty, page_id).pace for page_id in ids] == paces
    assert contents(empty.engine)["schedule"] == after["schedule"]
    migrations.downgrade(empty.engine, "0010")
    assert contents(empty.engine) == before


def test_revision_11_takes_crawl_rates_that_no_short_number_holds(empty):
    migrations.upgrade(empty.engine)
    ids = np.sort(register(empty, 4))
    epoch = publish(empty, schedule_columns(ids, crawl_rate=1 / 3))
    migrations.downgrade(empty.engine, "0010")
    given = dict(zip(ids.tolist(), [0.0, 1e-300, 1 / 3, 1e300], strict=True))
    with empty.engine.begin() as connection:
        for page_id, rate in given.items():
            extreme = f"UPDATE schedule SET crawl_rate = {rate} WHERE page_id = {page_id}"
            connection.exec_driver_sql(extreme)
    migrations.upgrade(empty.engine)
    none, low, third, high = (row.crawl_rate for row in read_schedule(empty, epoch))
    assert none == 0
    assert 0 < low < 1.2e-38
    assert third == pytest.approx(1 / 3, rel=5e-7)
    assert high > 3.4e38
    assert len(register(empty, 5)) == 5
    publish(empty, schedule_columns(ids))
