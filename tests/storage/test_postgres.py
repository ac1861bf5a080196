"""What only Postgres can do to us: lost connections, lost leads, time zones, partitions."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from support.store_cases import (
    CERTIFICATE,
    DAY,
    EVERYTHING,
    MICROSECOND,
    T0,
    due_of,
    instants,
    log_columns,
    page_columns,
    page_of,
    publish,
    read_schedule,
    register,
    same,
    save,
    schedule_columns,
    states_of,
    urls,
)

from service.core.allocation.harmonic import harmonic_optimum
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import Runner
from service.model.domain import EpochStatus
from service.model.errors import (
    EpochRunning,
    LeadershipLost,
    StoreFull,
    StoreUnavailable,
    TablesChanged,
)
from service.storage import migrations, open_store
from service.storage.dialect import EPOCHS_KEPT
from service.storage.log.partitions import next_month
from service.storage.postgres import connections
from service.storage.postgres import partitions as postgres_partitions
from service.storage.postgres.connections import LEAD_LOCK, LEAD_TIMEOUTS, taken, translated
from service.storage.stores.postgres import PostgresStore, PostgresTransaction


def pid_of(tx):
    return tx.driver.info.backend_pid


def kill(url, pid):
    """Terminate a backend and wait until it is gone."""
    with psycopg.connect(url, autocommit=True) as other:
        (gone,) = other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchone()
        assert gone


STEPS = {
    "a read of arrays": lambda tx, ids: tx.lock_states(ids),
    "a write of arrays": lambda tx, ids: tx.append_log(log_columns(ids, T0)),
    "a copy": lambda tx, ids: tx.load_columns(),
    "a shared statement": lambda tx, ids: tx.page(int(ids[0])),
    "a registration": lambda tx, ids: tx.register(page_columns(urls(5)), T0),
    "the commit": lambda tx, ids: None,
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_killed_backend_is_unavailable_and_the_next_transaction_works(
    postgres_store, postgres_url, step
):
    ids = np.sort(register(postgres_store, 3))

    def use():
        with postgres_store.begin() as tx:
            states = tx.lock_states(ids)
            tx.save_states(replace(states, n_pings=states.n_pings + 1))
            kill(postgres_url, pid_of(tx))
            step(tx, ids)

    with pytest.raises(StoreUnavailable):
        use()
    assert states_of(postgres_store, ids).n_pings.tolist() == [0, 0, 0]
    postgres_store.check()


def test_connections_killed_while_idle_are_replaced_unnoticed(postgres_store, postgres_url):
    register(postgres_store, 3)
    with postgres_store.begin(write=False) as tx:
        pid = pid_of(tx)
    kill(postgres_url, pid)
    assert len(register(postgres_store, 4)) == 4


def test_a_connection_that_comes_back_after_the_end_of_its_store_is_closed(postgres_url):
    store = open_store(postgres_url, 2)
    with taken(store.engine) as driver:
        store.close()
        assert not driver.closed
    assert driver.closed


@pytest.mark.parametrize("step", ["check_encoding", "check_own", "limit"])
def test_a_connection_whose_first_steps_fail_is_closed(postgres_url, monkeypatch, step):
    opened_ones = []

    def fails(driver, *_):
        opened_ones.append(driver)
        raise psycopg.errors.QueryCanceled

    monkeypatch.setattr(connections, step, fails)
    engine, _ = connections.opened(postgres_url, 1, connections.request_deadlines())
    with pytest.raises((sa.exc.OperationalError, psycopg.errors.QueryCanceled)):
        engine.raw_connection()
    assert [each.closed for each in opened_ones] == [True]


def test_a_server_that_does_not_listen_is_unavailable():
    store = PostgresStore("postgresql://postgres@127.0.0.1:1/nowhere", 2)
    with pytest.raises(StoreUnavailable):
        store.check()
    with pytest.raises(StoreUnavailable), store.begin():
        pass
    with pytest.raises(StoreUnavailable), store.lead():
        pass
    store.close()


def test_a_pool_without_a_free_connection_is_unavailable(postgres_url):
    store = PostgresStore(postgres_url, 2, pool_size=1)
    store.engine.pool._timeout = 0.01
    with store.begin(), store.begin(), pytest.raises(StoreUnavailable), store.begin():
        pass
    store.close()


@pytest.mark.parametrize("error", [psycopg.errors.DiskFull, psycopg.errors.OutOfMemory])
def test_a_server_without_room_is_full(error):
    with pytest.raises(StoreFull), translated():
        raise error
    with pytest.raises(StoreFull), translated():
        raise sa.exc.OperationalError("INSERT", {}, error())


def test_a_fence_that_stands_no_more_is_tried_again(postgres_store):
    """The schema was another one at the statement, and is right again at the check."""
    statement = migrations.fence().replace(migrations.head(), "0001")
    with pytest.raises(TablesChanged), postgres_store.begin() as tx:
        tx.once(statement)


def test_a_lead_whose_connection_died_is_lost_and_cannot_publish(postgres_store, postgres_url):
    ids = np.sort(register(postgres_store))
    old = publish(postgres_store, schedule_columns(ids, crawl_rate=1.0))
    with postgres_store.lead() as lead:
        with lead.begin() as tx:
            epoch, pid = tx.start_epoch(T0).epoch, pid_of(tx)
        kill(postgres_url, pid)
        with postgres_store.lead() as other, other.begin() as tx:  # the lead is free again
            newer = tx.start_epoch(T0).epoch
        for _ in range(3):
            with pytest.raises((LeadershipLost, StoreUnavailable)), lead.begin() as tx:
                tx.write_schedule(epoch, schedule_columns(ids, crawl_rate=9.0))
        with pytest.raises(LeadershipLost), lead.begin():
            pass
    with postgres_store.begin(write=False) as tx:
        assert tx.epoch_in_force().epoch == old
        assert tx.epoch(epoch).status is EpochStatus.failed
        assert tx.epoch(newer).status is EpochStatus.running
    assert {row.crawl_rate for row in read_schedule(postgres_store, old)} == {1.0}
    assert publish(postgres_store, schedule_columns(ids)) > newer


def test_the_server_watches_whether_the_leaders_host_is_still_there(postgres_store):
    """On TCP the values shown are those of the server's socket; a lead is free within 30 s."""
    with postgres_store.lead() as lead, lead.begin() as tx:
        shown = {name: tx.scalar(f"SHOW {name}") for name in LEAD_TIMEOUTS}
        over_tcp = tx.scalar("SELECT inet_client_addr() IS NOT NULL")
    assert shown["client_connection_check_interval"] == "5s"
    if over_tcp:
        idle, interval, count = (
            int(shown[f"tcp_keepalives_{n}"]) for n in ("idle", "interval", "count")
        )
        assert 0 < idle + interval * count <= 30
        assert shown["tcp_user_timeout"] == "25000"


def test_a_lead_lost_in_the_middle_of_publishing_publishes_nothing(postgres_store, postgres_url):
    ids = np.sort(register(postgres_store))
    old = publish(postgres_store, schedule_columns(ids, crawl_rate=1.0))

    def lose(lead, epoch):
        with lead.begin() as tx:
            tx.write_schedule(epoch, schedule_columns(ids, crawl_rate=9.0))
            tx.publish(epoch, CERTIFICATE, T0)
            kill(postgres_url, pid_of(tx))

    with postgres_store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(T0).epoch
        with pytest.raises(StoreUnavailable):
            lose(lead, epoch)
    assert {row.crawl_rate for row in read_schedule(postgres_store, old)} == {1.0}
    assert page_of(postgres_store, ids[0]).crawl_rate == 1.0
    assert publish(postgres_store, schedule_columns(ids, crawl_rate=2.0)) > epoch


@pytest.mark.dear
def test_the_lead_of_one_database_is_not_the_lead_of_another(postgres_store, empty_postgres_url):
    other = open_store(empty_postgres_url, 2)
    with postgres_store.lead(), other.lead():
        pass
    other.close()


def test_a_lead_is_released_to_the_pool_without_its_lock(postgres_url):
    store = PostgresStore(postgres_url, 2, pool_size=1)
    for _ in range(4):
        with store.lead(), pytest.raises(EpochRunning), store.lead():
            pass
    store.close()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "Europe/Berlin"])
def test_the_time_zone_of_the_server_moves_no_instant(postgres_url, zone):
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE {name} SET timezone = '{zone}'")
    store = open_store(postgres_url, 2)
    try:
        last = datetime(2026, 3, 1, 3, 30, tzinfo=UTC)
        (page_id,) = register(store, 1, now=last)
        publish(store, schedule_columns([page_id], crawl_rate=1 / 64))
        save(store, [page_id], last_crawl_at=last)
        assert due_of(store, page_id) == last + 64 * DAY  # past the summer time
        assert page_of(store, page_id).created_at == last
        midnight = datetime(2026, 4, 1, tzinfo=UTC)
        with store.begin() as tx:
            tx.housekeep(None, last)
            edges = [midnight - timedelta(microseconds=1), midnight]
            tx.append_log(log_columns([page_id] * 2, edges))
            where = "SELECT tableoid::regclass::text FROM observations ORDER BY observed_at"
            tables = [name for (name,) in tx.run(where)]
        assert tables == ["observations_2026_03", "observations_2026_04"]
    finally:
        store.close()
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} RESET timezone")


def partitions(store, parent):
    with store.begin(write=False) as tx:
        return sorted(postgres_partitions.partitions(tx, parent))


def test_housekeeping_makes_months_ahead_and_drops_old_partitions(postgres_store):
    ids = np.sort(register(postgres_store))
    epochs = [publish(postgres_store, schedule_columns(ids)) for _ in range(5)]
    assert partitions(postgres_store, "schedule") == [f"schedule_{e}" for e in epochs]
    with postgres_store.begin() as tx:
        tx.housekeep(None, T0)
    assert partitions(postgres_store, "schedule") == [
        f"schedule_{e}" for e in epochs[-EPOCHS_KEPT:]
    ]
    months = ["observations_2026_05", "observations_2026_06", "observations_2026_07"]
    assert partitions(postgres_store, "observations") == [*months, "observations_default"]
    with postgres_store.begin() as tx:
        tx.housekeep(T0 + 50 * DAY, T0 + 60 * DAY)
    later = ["observations_2026_06", "observations_2026_07", "observations_2026_08"]
    assert partitions(postgres_store, "observations") == [*later, "observations_default"]


@pytest.mark.dear
def test_housekeeping_leaves_to_the_next_round_what_a_reader_holds(postgres_store, monkeypatch):
    monkeypatch.setattr("service.storage.postgres.partitions.LOCK_TIMEOUT", "20ms")
    ids = np.sort(register(postgres_store))
    epochs = [publish(postgres_store, schedule_columns(ids)) for _ in range(EPOCHS_KEPT)]
    with postgres_store.begin() as reader:
        assert len(reader.schedule(epochs[0], 0, 9, EVERYTHING).pages) == 3
        publish(postgres_store, schedule_columns(ids))
        with postgres_store.begin() as tx:
            tx.housekeep(None, T0)
        assert f"schedule_{epochs[0]}" in partitions(postgres_store, "schedule")
    with postgres_store.begin() as tx:
        tx.housekeep(None, T0)
    assert f"schedule_{epochs[0]}" not in partitions(postgres_store, "schedule")


@pytest.mark.dear
def test_housekeeping_and_deletion_of_pages_wait_for_each_other_without_harm(postgres_store):
    ids = np.sort(register(postgres_store, 60))
    done = threading.Event()
    failures = []

    def delete():
        for page_id in ids.tolist():
            try:
                with postgres_store.begin() as tx:
                    states = tx.lock_states(np.array([page_id]))
                    tx.append_log(log_columns(states.page_id, T0))
                with postgres_store.begin() as tx:
                    tx.delete_page(page_id)
            except (StoreUnavailable, psycopg.Error, sa.exc.DBAPIError) as error:
                failures.append(error)
        done.set()

    worker = threading.Thread(target=delete)
    worker.start()
    at = T0
    while not done.is_set():
        publish(postgres_store, schedule_columns(ids))
        at = min(at + 30 * DAY, T0 + 600 * DAY)
        with postgres_store.lead() as lead:
            lead.housekeep(None, at)
    worker.join()
    assert failures == []


def test_an_epochs_table_cannot_hold_rows_of_another_epoch(postgres_store):
    ids = np.sort(register(postgres_store))
    epoch = publish(postgres_store, schedule_columns(ids))
    with postgres_store.begin(write=False) as tx:
        found = list(tx.run("SELECT DISTINCT epoch FROM schedule"))
        attached = tx.scalar(
            "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = %(name)s",
            name=f"schedule_{epoch}",
        )
    assert found == [(epoch,)]
    assert attached == f"FOR VALUES IN ({epoch})"


@pytest.mark.dear
def test_states_are_rewritten_in_place(postgres_store, postgres_url):
    """No index but the primary key, and room in each block: at least 90 % are heap-only."""
    ids = np.sort(register(postgres_store, 2000))
    rng = np.random.default_rng(1)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_stat_reset_single_table_counters('page_states'::regclass)")
        for i in range(60):
            some = np.sort(rng.choice(ids, 100, replace=False))
            with postgres_store.begin() as tx:
                states = replace(
                    tx.lock_states(some),
                    last_crawl_at=instants([T0 + i * DAY] * 100),
                    last_observed_at=instants([T0 + i * DAY] * 100),
                    digest=some,
                )
                tx.save_states(states)
                tx.run("SELECT pg_stat_force_next_flush()")
            other.execute("VACUUM page_states")  # as autovacuum does when 5 % were updated
        query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s"
        updated, in_place = other.execute(query, ["page_states"]).fetchone()
    assert updated == 60 * 100
    assert in_place >= 0.9 * updated


@pytest.mark.dear
def test_an_epoch_whose_connection_dies_publishes_nothing_and_the_next_round_recovers(
    postgres_store, postgres_url, monkeypatch
):
    register(postgres_store, 20)
    runner = Runner(postgres_store, Plan(Gamma()), DAY, lambda: T0)
    old = runner.run_once()

    def lose(*_pages, **_given):
        with psycopg.connect(postgres_url, autocommit=True) as other:
            query = (
                "SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database "
                "WHERE locktype = 'advisory' AND objid = %s AND datname = current_database()"
            )
            (pid,) = other.execute(query, [LEAD_LOCK & 0xFFFFFFFF]).fetchone()
        kill(postgres_url, pid)
        return harmonic_optimum(*_pages, **_given)

    monkeypatch.setattr("service.epochs.optimum.harmonic_optimum", lose)
    with postgres_store.begin() as tx:
        asked = tx.request_epoch(T0)
    with pytest.raises((StoreUnavailable, LeadershipLost)):
        runner.run_once()
    with postgres_store.begin(write=False) as tx:
        assert tx.epoch_in_force() == old
        assert tx.epoch(asked.epoch).status is EpochStatus.running
    monkeypatch.undo()
    assert runner.run_once().status is EpochStatus.published
    with postgres_store.begin(write=False) as tx:
        assert tx.epoch(asked.epoch).status is EpochStatus.failed


def test_a_month_is_made_though_the_default_partition_holds_some_of_it(postgres_store):
    ids = np.sort(register(postgres_store))
    first = T0.replace(day=1, hour=0)
    edges = [first - MICROSECOND, first, T0, next_month(first) - MICROSECOND, next_month(first)]
    with postgres_store.begin() as tx:
        for at in edges:
            tx.append_log(log_columns(ids, at))
        before = tx.log_of(ids)
        assert partitions_of_log(tx) == {"observations_default": 5 * len(ids)}
    with postgres_store.lead() as lead:
        lead.housekeep(None, T0)
    with postgres_store.begin() as tx:
        same(tx.log_of(ids), before)
        assert partitions_of_log(tx) == {
            "observations_default": len(ids),  # of the month before
            "observations_2026_05": 3 * len(ids),
            "observations_2026_06": len(ids),
        }


def test_too_much_to_move_stays_in_the_default_partition_and_is_cut_there(
    postgres_store, monkeypatch
):
    monkeypatch.setattr("service.storage.log.partitions.MOST_MOVED", 5)
    ids = np.sort(register(postgres_store))
    with postgres_store.begin() as tx:
        tx.append_log(log_columns(ids, T0))
        tx.append_log(log_columns(ids, T0 + DAY))
    with postgres_store.lead() as lead:
        lead.housekeep(None, T0)
    months = ["observations_2026_06", "observations_2026_07", "observations_default"]
    assert partitions(postgres_store, "observations") == months
    with postgres_store.lead() as lead:
        lead.housekeep(T0 + DAY / 2, T0 + DAY)
    made = ["observations_2026_05", *months]
    with postgres_store.lead() as lead:
        lead.housekeep(T0 + DAY / 2, T0 + DAY)
    assert partitions(postgres_store, "observations") == made
    with postgres_store.begin() as tx:
        assert partitions_of_log(tx) == {"observations_2026_05": len(ids)}


def partitions_of_log(tx):
    query = "SELECT tableoid::regclass::text, count(*) FROM observations GROUP BY 1"
    return dict(tx.run(query))


def test_an_epoch_loads_in_a_transaction_that_cannot_write(postgres_store, monkeypatch):
    register(postgres_store, 3)
    plain, told = PostgresTransaction.load_columns, []

    def load(tx):
        told.append(tx.scalar("SHOW transaction_read_only"))
        return plain(tx)

    monkeypatch.setattr(PostgresTransaction, "load_columns", load)
    runner = Runner(postgres_store, Plan(Gamma()), DAY, lambda: T0)
    assert runner.run_once().status is EpochStatus.published
    assert told == ["on"]


def test_nobody_waits_while_a_schedule_is_written(postgres_store, monkeypatch):
    """Readers and deletions go on until the commit, with the new partition attached."""
    ids = np.sort(register(postgres_store))
    old = publish(postgres_store, schedule_columns(ids))
    with postgres_store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(T0).epoch
        with lead.begin() as tx:
            tx.write_schedule(epoch, schedule_columns(ids))
            with postgres_store.begin() as other:
                other.run("SET LOCAL lock_timeout = '50ms'")
                assert len(other.lock_states(ids)) == 3
                assert other.page(int(ids[0])).crawl_rate == 1.0
                other.delete_page(int(ids[0]))
                assert len(other.schedule(old, 0, 9, EVERYTHING).pages) == 2


def test_a_schedule_is_written_once_and_never_vacuumed(postgres_store):
    """COPY FREEZE into a table of the same transaction: nothing is left to do for autovacuum."""
    epoch = publish(postgres_store, schedule_columns(np.sort(register(postgres_store))))
    with postgres_store.begin(write=False) as tx:
        ((options, n_visible),) = tx.run(
            "SELECT reloptions, relallvisible FROM pg_class WHERE relname = %(name)s",
            name=f"schedule_{epoch}",
        )
        frozen = tx.scalar(f"SELECT bool_and(xmin = '2') FROM schedule_{epoch}")
    assert options == ["autovacuum_enabled=false"]
    assert n_visible == 1 or frozen
