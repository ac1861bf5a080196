"""What only a SQLite file can do to us: other processes, a full disk, its limits."""

import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from support.live_server import until
from support.store_cases import (
    DAY,
    MICROSECOND,
    T0,
    log_columns,
    page_columns,
    page_of,
    publish,
    read_schedule,
    register,
    schedule_columns,
    states_of,
    urls,
)

from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.model.arrays import instant
from service.model.columns import EpochColumns
from service.model.domain import EpochStatus
from service.model.errors import (
    InvalidSettings,
    NoDatabase,
    SchemaBehind,
    StoreFull,
    StoreUnavailable,
)
from service.storage import migrations, open_store
from service.storage.dialect import EPOCHS_KEPT
from service.storage.log.sqlite import OF_A_DAY
from service.storage.sqlite import connections
from service.storage.sqlite.connections import WAL_BYTES, WAL_KEPT, Turns, prepare
from service.storage.sqlite.sql import TOGETHER, add_rows
from service.storage.stores.sqlite import SqliteStore, SqliteTransaction


def pragma(store, name):
    with store.begin(write=False) as tx:
        return tx.scalar(f"PRAGMA {name}")


def test_every_connection_is_durable_and_keeps_foreign_keys(
    sqlite_url, durable_pragmas, monkeypatch
):
    monkeypatch.setattr(connections, "PRAGMAS", durable_pragmas)
    with closing(open_store(sqlite_url, 2)) as store:
        assert pragma(store, "journal_mode") == "wal"
        assert pragma(store, "synchronous") == 2  # FULL
        assert pragma(store, "foreign_keys") == 1
        assert pragma(store, "busy_timeout") == 10_000


@pytest.fixture
def cramped(sqlite_url):
    """A store whose file may grow by a few pages only."""
    store = SqliteStore(sqlite_url, 2)

    def limit(driver, _record):
        (n_pages,) = driver.execute("PRAGMA page_count").fetchone()
        driver.execute(f"PRAGMA max_page_count = {max(n_pages, 30) + 12}")
        driver.execute("PRAGMA cache_size = 5")

    sa.event.listen(store.engine, "connect", limit)
    yield store
    store.close()


FILLING = {
    "registering pages": lambda tx, ids: tx.register(page_columns(urls(9_000, "big.example")), T0),
    "appending to the log": lambda tx, ids: [
        tx.append_log(log_columns(ids, T0 + i * DAY)) for i in range(1, 20_000)
    ],
    "writing a schedule": lambda tx, ids: tx.write_schedule(
        tx.start_epoch(T0).epoch, schedule_columns(np.arange(1, 50_000))
    ),
    "a shared statement": lambda tx, ids: [
        tx.fail_epoch(tx.start_epoch(T0).epoch, "x" * 100_000, T0) for _ in range(20)
    ],
}


@pytest.mark.parametrize("fill", FILLING.values(), ids=FILLING.keys())
def test_a_full_disk_is_told_and_the_database_stays_intact(cramped, fill):
    ids = np.sort(register(cramped, 2))
    epoch = publish(cramped, schedule_columns(ids))
    before = states_of(cramped, ids)
    rows = read_schedule(cramped, epoch)
    with pytest.raises(StoreFull), cramped.begin() as tx:
        fill(tx, ids)
    assert pragma(cramped, "integrity_check") == "ok"
    with cramped.begin() as tx:  # and small transactions still fit
        assert len(tx.log_of(ids)) == 0
        assert tx.newest_epoch().epoch == epoch
        assert tx.page_ids(page_columns(urls(2, "big.example")).key).tolist() == [0, 0]
        tx.append_log(log_columns(ids, T0))
        assert len(tx.log_of(ids)) == 2
    assert (states_of(cramped, ids).page_id == before.page_id).all()
    assert read_schedule(cramped, epoch) == rows


def test_new_pages_lie_in_the_order_of_their_keys(sqlite_store):
    given = page_columns(urls(200, "a.example") + urls(50, "b.example"))
    with sqlite_store.begin() as tx:
        page_id = tx.register(given, T0).page_id
        rows = tx.run(
            "SELECT key, url, host FROM pages JOIN hosts USING (host_id) ORDER BY page_id"
        ).fetchall()
        assert tx.page_ids(given.key).tolist() == page_id.tolist()
    keys = [key for key, _, _ in rows]
    assert keys == sorted(keys)
    assert [rows[i - 1][1:] for i in page_id.tolist()] == [
        *zip(given.url.tolist(), given.host.tolist(), strict=True)
    ]


def test_a_file_locked_by_another_process_is_unavailable(sqlite_store, sqlite_url):
    sqlite_store.timeout_s = 0.1
    register(sqlite_store, 1)
    stranger = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable), sqlite_store.begin():
        pass
    with sqlite_store.begin(write=False) as tx:
        assert tx.load_columns().page_id.tolist() == [1]
    sqlite_store.check()
    stranger.execute("ROLLBACK")
    stranger.close()
    assert len(register(sqlite_store, 2)) == 2


def test_a_directory_that_is_not_there_is_unavailable(tmp_path):
    store = SqliteStore(f"sqlite:///{tmp_path / 'missing' / 'recrawl.db'}", 2)
    with pytest.raises(StoreUnavailable), store.begin():
        pass
    store.close()


def test_a_file_that_is_no_database_is_not_taken_for_one(tmp_path):
    path = tmp_path / "recrawl.db"
    path.write_bytes(b"something else entirely, " * 100)
    store = SqliteStore(f"sqlite:///{path}", 2)
    with pytest.raises(StoreUnavailable):
        store.check()
    store.close()
    assert path.read_bytes() == b"something else entirely, " * 100


def test_who_opens_a_new_file_waits_for_others_that_do(tmp_path, monkeypatch):
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waits = []

    def wait(seconds):
        waits.append(seconds)
        other.execute("COMMIT")

    monkeypatch.setattr("service.storage.sqlite.connections.time.sleep", wait)
    at_once = sqlite3.connect(tmp_path / "new.db", timeout=0)
    with closing(other), closing(at_once) as driver:
        prepare(driver)
        assert driver.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert len(waits) == 1


def test_two_stores_on_one_file_see_each_others_commits(sqlite_url):
    one, other = SqliteStore(sqlite_url, 2), SqliteStore(sqlite_url, 2)
    ids = np.sort(register(one, 3))
    for store in (one, other) * 5:
        with store.begin() as tx:
            states = tx.lock_states(ids)
            tx.save_states(replace(states, n_pings=states.n_pings + 1))
    assert page_of(one, ids[0]).n_pings == page_of(other, ids[0]).n_pings == 10
    one.close()
    other.close()


def test_more_keys_than_a_statement_has_variables(sqlite_store):
    with sqlite_store.begin() as tx:
        tx.driver.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)
        ids = tx.register(page_columns(urls(3)), T0).page_id
        key = np.random.default_rng(1).bytes(16 * 70_000)
        key = np.frombuffer(key, "V16").copy()
        key[[0, 40_000, 69_999]] = page_columns(urls(3)).key
        found = tx.page_ids(key)
    assert found[[0, 40_000, 69_999]].tolist() == ids.tolist()
    assert np.count_nonzero(found) == 3


def test_a_page_deleted_takes_its_state_along(sqlite_store):
    (page_id,) = register(sqlite_store, 1)
    with sqlite_store.begin() as tx:
        tx.delete_page(int(page_id))
        assert tx.scalar("SELECT count(*) FROM page_states") == 0
        assert isinstance(tx.load_columns(), EpochColumns)


def test_the_tables_are_clustered_along_their_keys(sqlite_store):
    with sqlite_store.begin(write=False) as tx:
        plans = [
            tx.run(f"EXPLAIN QUERY PLAN {query}").fetchall()[0][3]
            for query in (
                "SELECT * FROM schedule WHERE epoch = 1 AND page_id > 5 ORDER BY page_id LIMIT 9",
                "SELECT * FROM observations WHERE stretch = 1 AND page_id = 1 ORDER BY observed_at",
                "SELECT * FROM pages WHERE key = x'00'",
            )
        ]
    assert plans == [
        "SEARCH schedule USING PRIMARY KEY (epoch=? AND page_id>?)",
        "SEARCH observations USING PRIMARY KEY (stretch=? AND page_id=?)",
        "SEARCH pages USING INDEX sqlite_autoindex_pages_1 (key=?)",
    ]


def test_the_log_of_a_page_is_looked_up_in_each_stretch(sqlite_store):
    page_id = int(register(sqlite_store, 1)[0])
    with sqlite_store.begin() as tx:
        for day in range(3):
            tx.append_log(log_columns([page_id], T0 + day * DAY))
        queries = []
        tx.driver.set_trace_callback(queries.append)  # with the values in their places
        assert [entry.observed_at for entry in tx.page_log(page_id, 1)] == [T0 + 2 * DAY]
        tx.driver.set_trace_callback(None)
        (query,) = queries
        steps = [row[3] for row in tx.run(f"EXPLAIN QUERY PLAN {query}")]
    assert steps[0] == "SEARCH observations USING PRIMARY KEY (stretch=? AND page_id=?)"
    assert not [step for step in steps if step == "SCAN observations"]


def stretches(store):
    """How many entries each stretch of the log has: day since the first, number, entries."""
    with store.begin(write=False) as tx:
        rows = tx.run("SELECT stretch, count(*) FROM observations GROUP BY stretch").fetchall()
    first = rows[0][0] // OF_A_DAY
    return [(at // OF_A_DAY - first, at % OF_A_DAY, n) for at, n in rows]


def test_a_day_of_the_log_is_kept_in_stretches_of_what_came_together(sqlite_store, monkeypatch):
    monkeypatch.setattr("service.storage.log.sqlite.STRETCH", 10)
    ids = np.sort(register(sqlite_store, 4))
    minutes = [T0 + timedelta(minutes=i) for i in range(6)]
    for at in minutes:
        with sqlite_store.begin() as tx:
            tx.append_log(log_columns(ids, at))
    assert stretches(sqlite_store) == [(0, 0, 8), (0, 1, 8), (0, 2, 8)]
    with sqlite_store.begin() as tx:  # what is late goes to the newest stretch of its day
        tx.append_log(log_columns(ids[[0, 0, 1]], [T0 + DAY, T0, T0 + 2 * DAY]))
        assert tx.log_of(ids[:1]).observed_at.tolist() == [
            instant(at).item() for at in sorted([T0, *minutes, T0 + DAY])
        ]
        assert [e.observed_at for e in tx.page_log(int(ids[0]), 3)] == [
            T0 + DAY,
            minutes[-1],
            minutes[-2],
        ]
    assert stretches(sqlite_store) == [(0, 0, 8), (0, 1, 8), (0, 2, 9), (1, 0, 1), (2, 0, 1)]


def test_a_process_that_starts_goes_on_with_the_newest_stretch(
    sqlite_store, sqlite_url, monkeypatch
):
    monkeypatch.setattr("service.storage.log.sqlite.STRETCH", 4)
    ids = np.sort(register(sqlite_store, 3))
    with sqlite_store.begin() as tx:
        tx.append_log(log_columns(ids, T0))
    other = SqliteStore(sqlite_url, 2)
    with other.begin() as tx:
        tx.append_log(log_columns(ids[:1], T0 + MICROSECOND))
        tx.append_log(log_columns(ids[:1], T0 + 2 * MICROSECOND))
    other.close()
    assert stretches(sqlite_store) == [(0, 0, 4), (0, 1, 1)]


def test_the_stretches_of_a_day_end_with_its_numbers(sqlite_store, monkeypatch):
    monkeypatch.setattr("service.storage.log.sqlite.STRETCH", 1)
    monkeypatch.setattr("service.storage.log.sqlite.OF_A_DAY", 2)
    (page_id,) = register(sqlite_store, 1)
    for i in range(4):
        with sqlite_store.begin() as tx:
            tx.append_log(log_columns([page_id], T0 + i * MICROSECOND))
    with sqlite_store.begin() as tx:
        counts = tx.run("SELECT stretch %% 2, count(*) FROM observations GROUP BY 1").fetchall()
        assert counts == [(0, 1), (1, 3)]
        tx.housekeep(T0 + DAY, T0 + DAY)
        assert len(tx.log_of(np.array([page_id]))) == 0


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "not a url", "", "postgres", "sqlite:///"],
)
def test_a_url_that_names_no_database_of_ours_is_refused(url):
    with pytest.raises(InvalidSettings, match="RECRAWL_DATABASE_URL"):
        open_store(url, 2)


def test_a_refused_url_does_not_show_its_password():
    with pytest.raises(InvalidSettings) as refused:
        open_store("mysql://me:s3cret@host/db", 2)
    assert "s3cret" not in str(refused.value)


def test_an_empty_file_is_behind(tmp_path):
    (tmp_path / "new.db").touch()
    store = SqliteStore(f"sqlite:///{tmp_path / 'new.db'}", 2)
    with pytest.raises(SchemaBehind, match="recrawl migrate"):
        store.check()
    store.close()


def test_a_file_that_is_not_there_is_not_made_by_a_look(tmp_path):
    store = SqliteStore(f"sqlite:///{tmp_path / 'new.db'}", 2)
    with pytest.raises(NoDatabase, match=r"there is no database .*new.db"):
        store.check()
    store.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_into_a_file_that_was_moved_away(sqlite_store, sqlite_url, replaced):
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    register(sqlite_store, 1)
    path.rename(away := path.with_suffix(".away"))
    if replaced:
        shutil.copy(away, path)
    with pytest.raises(StoreUnavailable, match="moved or replaced"):
        register(sqlite_store, 2)
    with pytest.raises((StoreUnavailable, NoDatabase)):
        sqlite_store.check()
    path.unlink(missing_ok=True)
    away.rename(path)
    assert len(register(sqlite_store, 2)) == 2
    sqlite_store.check()


def test_a_damaged_file_is_told_with_what_to_do(sqlite_store, sqlite_url):
    ids = register(sqlite_store, 500)
    sqlite_store.close()
    path = Path(sa.make_url(sqlite_url).database)
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xa5" * (path.stat().st_size - 4_096))
    store = SqliteStore(sqlite_url, 2)
    with (
        pytest.raises(StoreUnavailable, match=r"damaged .*malformed.* restore a backup"),
        store.begin() as tx,
    ):
        tx.page(int(ids[0]))
    store.close()


def test_an_epoch_loads_without_keeping_writers_out(sqlite_store, sqlite_url, monkeypatch):
    ids = np.sort(register(sqlite_store, 3))
    plain, told = SqliteTransaction.load_columns, []

    def load(tx):
        columns = plain(tx)
        stranger = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=0)
        stranger.execute("BEGIN IMMEDIATE")
        stranger.close()
        told.append(columns.page_id.tolist())
        return columns

    monkeypatch.setattr(SqliteTransaction, "load_columns", load)
    epoch = run_epoch(sqlite_store, Plan(Gamma()), lambda: T0)
    assert epoch.status is EpochStatus.published
    assert told == [ids.tolist()]


def test_an_epoch_lets_other_writers_in_between_its_blocks(sqlite_store, monkeypatch):
    for module in ("stores.sqlite", "epochs.sqlite"):
        monkeypatch.setattr(f"service.storage.{module}.BLOCK", 7)
    ids = np.sort(register(sqlite_store, 40))
    for _ in range(EPOCHS_KEPT + 1):
        publish(sqlite_store, schedule_columns(ids))
    n_begun = []
    plain = SqliteStore.begin

    def begin(store, *, write=True):
        n_begun.append(write)
        return plain(store, write=write)

    monkeypatch.setattr(SqliteStore, "begin", begin)
    with sqlite_store.lead() as lead:
        with lead.begin() as tx:
            died = tx.start_epoch(T0).epoch
        n_begun.clear()
        lead.write_schedule(died, schedule_columns(ids))
        assert n_begun == [True] * 6
        with lead.begin() as tx:
            for day in (-2, -1, 0):
                tx.append_log(log_columns(ids, T0 + day * DAY))
        n_begun.clear()
        lead.housekeep(T0, T0)
    n_blocks = {"of the oldest schedule": 6, "of the dead run": 6, "of two days": 12, "the ends": 2}
    assert len(n_begun) == sum(n_blocks.values())
    with sqlite_store.begin(write=False) as tx:
        counts = tx.run("SELECT epoch, count(*) FROM schedule GROUP BY epoch").fetchall()
        assert tx.log_of(ids).observed_at.tolist() == [instant(T0).item()] * 40
    assert [n for _, n in counts] == [40] * EPOCHS_KEPT


def test_writers_take_their_turns_in_the_order_they_came():
    turns, order, waiting = Turns(), [], []

    def take(i):
        with turns:
            order.append(i)

    with turns:
        for i in range(5):
            thread = threading.Thread(target=take, args=(i,))
            thread.start()
            until(lambda i=i: len(turns.waiting) == i + 1, "the writer waits")
            waiting.append(thread)
        order.append("first")
    for thread in waiting:
        thread.join(180)
    assert order == ["first", 0, 1, 2, 3, 4]
    with turns:  # and it is free again
        pass


def test_the_log_of_writes_is_cut_once_it_starts_over(sqlite_store):
    """A burst makes it large; a commit after a checkpoint gives the room beyond the limit back."""
    wal = Path(f"{sqlite_store.engine.url.database}-wal")
    assert pragma(sqlite_store, "journal_size_limit") == WAL_BYTES
    with sqlite_store.begin() as tx:
        tx.driver.execute(f"PRAGMA journal_size_limit = {2**20}")
        tx.driver.execute("CREATE TABLE filler (content)")
        tx.driver.execute(f"INSERT INTO filler VALUES (zeroblob({2**22}))")
    assert wal.stat().st_size > 2**22
    with sqlite_store.reading.connect() as connection:
        connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    with sqlite_store.begin() as tx:
        tx.driver.execute("INSERT INTO filler VALUES (1)")
    assert wal.stat().st_size <= 2**20


def test_a_log_of_writes_that_is_full_is_not_cut(sqlite_store):
    """Otherwise a steady load would have it cut and grow all the time."""
    frame = pragma(sqlite_store, "page_size") + 24
    fold = 20_000  # pages: a fold of MAX_FOLD items, of which each changes a state and the log
    assert (pragma(sqlite_store, "wal_autocheckpoint") + fold) * frame <= WAL_BYTES


def test_a_checkpoint_of_an_epoch_leaves_the_writers_connection_alone(sqlite_store):
    """Were there two that write in turn, each would find its cache of pages outdated."""
    ids = np.sort(register(sqlite_store, 3))
    with sqlite_store.lead() as lead, sqlite_store.begin() as tx:
        lead.checkpoint()
        tx.append_log(log_columns(ids, T0))
    assert sqlite_store.engine.pool.checkedin() == 1


def test_the_log_of_writes_holds_as_many_bytes_whatever_a_file_s_pages_are(tmp_path):
    with closing(sqlite3.connect(tmp_path / "small.db")) as made_before:
        made_before.execute("PRAGMA page_size = 1024")
        made_before.execute("CREATE TABLE there (content)")
    for name, page_size in (("small.db", 1024), ("new.db", 4096)):
        store = SqliteStore(f"sqlite:///{tmp_path / name}", 2)
        migrations.upgrade(store.engine)
        assert pragma(store, "page_size") == page_size
        assert pragma(store, "wal_autocheckpoint") == WAL_KEPT // page_size
        store.close()


@pytest.mark.parametrize("n", [0, 1, TOGETHER - 1, TOGETHER, 2 * TOGETHER + 3])
def test_rows_go_in_whole_and_in_order_however_many(n):
    with closing(sqlite3.connect(":memory:")) as driver:
        driver.execute("CREATE TABLE taken (a, b)")
        add_rows(driver, "INSERT INTO taken (a, b) VALUES (?, nullif(?, 1))", range(n), range(n))
        rows = driver.execute("SELECT a, b FROM taken ORDER BY rowid").fetchall()
    assert rows == [(i, None if i == 1 else i) for i in range(n)]


def test_who_may_not_write_beside_the_database_is_told_which_file(sqlite_store):
    path = Path(f"{sqlite_store.engine.url.database}-lead")
    path.unlink(missing_ok=True)
    path.mkdir()
    with (
        pytest.raises(StoreUnavailable, match=r"-lead cannot be opened: .*directory"),
        sqlite_store.lead(),
    ):
        pass
