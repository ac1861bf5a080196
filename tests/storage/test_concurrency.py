"""Several writers and readers at once, in real threads and processes, on both databases."""

import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from support.crawl_cases import HOUR, ids, queue, report, take
from support.store_cases import (
    DAY,
    EVERYTHING,
    T0,
    log_columns,
    page_columns,
    page_of,
    publish,
    read_schedule,
    register,
    save,
    schedule_columns,
    states_of,
    urls,
)

from service.leases.due import due_at
from service.leases.queue import fill_block, queue_rows
from service.model.domain import EpochStatus, Observability, PagePatch
from service.model.errors import CursorExpired, EpochRunning, PageNotFound
from service.storage import open_store
from service.storage.postgres.partitions import partitions

PATIENCE_S = 180


def together(*tasks):
    """Run the tasks in threads that start at the same moment; what one raises is raised here."""
    start = threading.Barrier(len(tasks))

    def run(task):
        start.wait(PATIENCE_S)
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [f.result(PATIENCE_S) for f in [pool.submit(run, task) for task in tasks]]


def count_up(store, ids, rounds):
    for _ in range(rounds):
        with store.begin() as tx:
            states = tx.lock_states(ids)
            tx.save_states(replace(states, n_pings=states.n_pings + 1))


def test_writers_of_the_same_pages_never_lose_an_update(sql_store):
    ids = np.sort(register(sql_store, 50))
    rng = np.random.default_rng(1)
    shares = [np.sort(rng.choice(ids, 40, replace=False)) for _ in range(4)]
    together(*(lambda share=share: count_up(sql_store, share, 15) for share in shares))
    expected = 15 * sum(np.isin(ids, share).astype(int) for share in shares)
    assert states_of(sql_store, ids).n_pings.tolist() == expected.tolist()


def test_a_writer_waits_for_the_locks_of_another(sql_store):
    (page_id,) = ids = register(sql_store, 1)
    locked, go_on = threading.Event(), threading.Event()

    def first():
        with sql_store.begin() as tx:
            states = tx.lock_states(ids)
            locked.set()
            assert go_on.wait(PATIENCE_S)
            tx.save_states(replace(states, n_pings=states.n_pings + 1))

    def second():
        assert locked.wait(PATIENCE_S)
        go_on.set()
        with sql_store.begin() as tx:
            states = tx.lock_states(ids)
            tx.save_states(replace(states, n_pings=states.n_pings * 10))

    together(first, second)
    assert page_of(sql_store, page_id).n_pings == 10


def test_reports_do_not_wait_for_who_leases_from_the_same_hosts(postgres_store):
    queue(postgres_store, register(postgres_store, 2), T0)
    given = take(postgres_store, T0, 1)
    with ThreadPoolExecutor(1) as pool, postgres_store.begin() as tx:
        assert len(tx.ready(T0, 1, 1)[0]) == 1
        assert pool.submit(report, postgres_store, given, T0).result(PATIENCE_S) == [True]


def test_filling_the_queue_and_queueing_pages_wait_for_each_other_without_deadlock(postgres_store):
    """One queues the lower of two pages and then the other, which is being taken out."""
    low, high = np.sort(register(postgres_store, 2)).tolist()
    publish(postgres_store, schedule_columns([low, high], crawl_rate=[1.0, 1.0]))
    save(postgres_store, np.array([low, high]), last_crawl_at=[T0, T0], interval_factor=1.0)
    save(postgres_store, np.array([low]), last_crawl_at=[T0 - DAY])
    queue(postgres_store, [high], T0)
    started = threading.Event()

    def fill():
        with postgres_store.begin() as tx:
            started.set()
            fill_block(tx, 0, high, T0 + HOUR)

    with ThreadPoolExecutor(1) as pool:
        with postgres_store.begin() as tx:
            bounds = put(tx, low)
            filling = pool.submit(fill)
            assert started.wait(PATIENCE_S)
            wait_for_a_lock(postgres_store)
            put(tx, high)
            tx.lower_host_queues(bounds)
        filling.result(PATIENCE_S)
    assert ids(take(postgres_store, T0 + HOUR)) == [low]


def put(tx, page_id):
    """Queue a page whenever it is due."""
    pages = tx.due_columns(np.array([page_id]))
    return tx.enqueue(queue_rows(pages, due_at(pages)))


def wait_for_a_lock(store):
    """Return once somebody waits for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with store.begin(write=False) as tx:
            if tx.scalar(waiting):
                return
    raise AssertionError("nobody waits")


def test_states_are_saved_where_they_lie_though_others_write_and_vacuum(
    postgres_store, postgres_url
):
    """Rows move at every update, and vacuum gives the places of the old ones to others."""
    ids = np.sort(register(postgres_store, 60))
    shares = ids[:40], ids[20:]

    def vacuum():
        with psycopg.connect(postgres_url, autocommit=True) as other:
            for _ in range(20):
                other.execute("VACUUM (TRUNCATE off) page_states")

    together(vacuum, *(lambda share=share: count_up(postgres_store, share, 30) for share in shares))
    states = states_of(postgres_store, ids)
    assert states.page_id.tolist() == ids.tolist()
    assert states.n_pings.tolist() == [30] * 20 + [60] * 20 + [30] * 20


def test_states_locked_before_a_vacuum_are_saved_after_it(postgres_store, postgres_url):
    ids = np.sort(register(postgres_store, 60))
    count_up(postgres_store, ids, 3)
    with (
        postgres_store.begin() as tx,
        psycopg.connect(postgres_url, autocommit=True) as other,
    ):
        states = tx.lock_states(ids[::2])
        count_up(postgres_store, ids[1::2], 2)
        other.execute("VACUUM (TRUNCATE off) page_states")
        tx.save_states(replace(states, n_pings=states.n_pings + 10))
    assert states_of(postgres_store, ids).n_pings.tolist() == [13, 5] * 30


def test_readers_do_not_wait_for_writers_and_see_nothing_uncommitted(sql_store):
    ids = np.sort(register(sql_store))
    epoch = publish(sql_store, schedule_columns(ids))
    with sql_store.begin() as tx:
        states = tx.lock_states(ids)
        tx.save_states(replace(states, n_pings=states.n_pings + 1))
        tx.change_page(int(ids[0]), PagePatch(importance=5.0), T0)
        tx.append_log(log_columns(ids, T0))
        tx.register(page_columns(urls(5)), T0)
        with sql_store.begin(write=False) as reader:
            assert reader.page(int(ids[0])).importance == 1.0
            assert reader.load_columns().n_pings.tolist() == [0, 0, 0]
            assert len(reader.log_of(ids)) == 0
            assert len(reader.schedule(epoch, 0, 9, EVERYTHING).pages) == 3
            assert reader.page_ids(page_columns(urls(5)).key)[3:].tolist() == [0, 0]
        sql_store.check()


def test_writers_do_not_wait_for_readers(sql_store):
    ids = np.sort(register(sql_store))
    epoch = publish(sql_store, schedule_columns(ids))
    with sql_store.begin(write=False) as reader:
        assert len(reader.schedule(epoch, 0, 9, EVERYTHING).pages) == 3
        assert reader.page(int(ids[0])).n_pings == 0
        count_up(sql_store, ids, 2)
        assert publish(sql_store, schedule_columns(ids)) > epoch


def test_pages_registered_by_many_at_once_exist_once_and_never_deadlock(sql_store):
    def task(order):
        with sql_store.begin() as tx:
            return tx.register(page_columns(np.array(urls(300))[order].tolist()), T0)

    forth, back = np.arange(300), np.arange(300)[::-1]
    for _ in range(3):
        results = together(*(lambda o=o: task(o) for o in (forth, back, forth, back)))
        by_url = [r.page_id[o] for r, o in zip(results, (forth, back, forth, back), strict=True)]
        assert all((ids == by_url[0]).all() for ids in by_url)
        created = [r.created[o] for r, o in zip(results, (forth, back, forth, back), strict=True)]
        assert np.sum(created, axis=0).max() <= 1
    with sql_store.begin(write=False) as tx:
        assert len(tx.next_page_ids(0, 1000)) == 300


@pytest.mark.dear
def test_registrations_that_change_pages_do_not_deadlock_with_each_other_or_with_observations(
    sql_store,
):
    n = 400
    ids = np.sort(register(sql_store, n))

    def tell(order, observability):
        for i in range(6):
            with sql_store.begin() as tx:
                asked = page_columns(
                    np.array(urls(n))[order].tolist(),
                    importance=2.0 + i,
                    observability=observability,
                )
                tx.register(asked, T0)

    def patch():
        for i in range(40):
            with sql_store.begin() as tx:
                kind = Observability(i % 3)
                tx.change_page(int(ids[i * 7 % n]), PagePatch(observability=kind), T0)

    rng = np.random.default_rng(2)
    together(
        lambda: tell(rng.permutation(n), 1),
        lambda: tell(np.arange(n)[::-1], 2),
        lambda: count_up(sql_store, ids, 6),
        patch,
    )


def test_one_request_for_an_epoch_wins_whoever_asks(sql_store):
    def ask():
        with sql_store.begin() as tx:
            return tx.request_epoch(T0).epoch

    assert len(set(together(*[ask] * 4))) == 1


def test_requests_and_starts_of_epochs_do_not_trip_over_each_other(sql_store):
    def ask():
        for _ in range(25):
            with sql_store.begin() as tx:
                assert tx.request_epoch(T0).status is EpochStatus.requested

    def start():
        for _ in range(25):
            with sql_store.begin() as tx:
                tx.start_epoch(T0)

    together(ask, ask, start)


def test_of_many_that_want_the_lead_one_has_it(sql_store):
    with ExitStack() as held:
        lock = threading.Lock()

        def want():
            try:
                lead = sql_store.lead()
                lead.__enter__()
            except EpochRunning:
                return 0
            with lock:
                held.push(lead)
            return 1

        assert sum(together(*[want] * 4)) == 1


@pytest.mark.slow
def test_readers_see_whole_epochs_during_publishing(sql_store):
    n = 700
    ids = np.sort(register(sql_store, n))
    save(sql_store, ids, last_crawl_at=T0)
    publish(sql_store, schedule_columns(ids, crawl_rate=1.0))
    done = threading.Event()

    def write():
        try:
            for i in range(2, 25):
                publish(sql_store, schedule_columns(ids, 0.5, float(i), 1.0 / i))
                with sql_store.begin() as tx:
                    tx.housekeep(None, T0)
        finally:
            done.set()

    def read():
        seen = set()
        while not done.is_set():
            with sql_store.begin(write=False) as tx:
                epoch = tx.epoch_in_force().epoch
            try:
                rows = read_schedule(sql_store, epoch, limit=n)
                half = read_schedule(sql_store, epoch, int(ids[n // 2]), n)
            except CursorExpired:
                continue
            assert len(rows) == n
            assert len(half) == n - n // 2 - 1
            assert len({row.crawl_rate for row in rows + half}) == 1
            seen.add(rows[0].crawl_rate)
        return seen

    def ingest():
        while not done.is_set():
            with sql_store.begin() as tx:
                rates = tx.lock_states(ids, scheduled=True)
                assert len(set(rates.crawl_rate.tolist())) == 1
                assert not np.isnan(rates.crawl_probability).any()
                tx.save_states(rates)

    _, seen, other, _ = together(write, read, read, ingest)
    assert len(seen | other) > 1


def replace_epochs(store, ids):
    """Publish until an epoch in force before is no longer kept, then keep house."""
    for rate in (2.0, 3.0):
        publish(store, schedule_columns(ids, crawl_rate=rate))
    with store.lead() as lead:
        lead.housekeep(None, T0)


@pytest.mark.dear
def test_a_writer_sees_the_epoch_that_it_asked_for_whatever_is_published_meanwhile(postgres_store):
    ids = np.sort(register(postgres_store, 3))
    first = publish(postgres_store, schedule_columns(ids, crawl_rate=1.0))
    with postgres_store.begin() as tx:
        assert tx.number_in_force() == first
        replace_epochs(postgres_store, ids)
        assert tx.lock_states(ids, scheduled=True).crawl_rate.tolist() == [1.0] * 3
        assert tx.due_columns(ids).due_rate.tolist() == [1.0] * 3
    with postgres_store.lead() as lead:
        lead.housekeep(None, T0)
    with postgres_store.begin() as tx:
        assert f"schedule_{first}" not in partitions(tx, "schedule")
        assert tx.lock_states(ids, scheduled=True).crawl_rate.tolist() == [3.0] * 3


def test_a_reader_whose_epoch_was_dropped_reads_the_next(postgres_store):
    ids = np.sort(register(postgres_store, 3))
    save(postgres_store, ids, n_observations=1, last_observed_at=T0)
    first = publish(postgres_store, schedule_columns(ids, crawl_rate=1.0))
    with postgres_store.begin(write=False) as tx:
        assert tx.number_in_force() == first
        replace_epochs(postgres_store, ids)
        page = tx.page(int(ids[0]))
        assert page.crawl_rate == 3.0
    with postgres_store.begin(write=False) as tx:
        assert tx.number_in_force() == first + 2
        replace_epochs(postgres_store, ids)
        assert tx.host_pages(tx.host(page.host), T0).crawl_rate >= 3.0


def test_a_page_deleted_while_it_is_observed_is_gone_with_its_log(sql_store):
    for i in range(8):
        (page_id,) = ids = register(sql_store, 1)

        def observe(ids=ids, i=i):
            with sql_store.begin() as tx:
                states = tx.lock_states(ids)
                tx.save_states(states)
                tx.append_log(log_columns(states.page_id, T0))

        def delete(page_id=page_id):
            with sql_store.begin() as tx:
                tx.delete_page(int(page_id))

        together(observe, delete)
        with pytest.raises(PageNotFound):
            page_of(sql_store, page_id)
        with sql_store.begin(write=False) as tx:
            assert len(tx.log_of(ids)) == 0


def _count_up_in_a_process(url, ids, rounds):
    store = open_store(url, 2)
    count_up(store, ids, rounds)
    store.close()


@pytest.mark.slow
def test_two_processes_on_one_database_lose_nothing(database_url):
    store = open_store(database_url, 2)
    ids = np.sort(register(store, 20))
    spawn = multiprocessing.get_context("spawn")
    other = spawn.Process(target=_count_up_in_a_process, args=(database_url, ids, 20))
    other.start()
    count_up(store, ids, 20)
    other.join(PATIENCE_S)
    assert other.exitcode == 0
    assert set(states_of(store, ids).n_pings.tolist()) == {40}
    store.close()


def test_the_lead_holds_between_stores(database_url):
    one, other = open_store(database_url, 2), open_store(database_url, 2)
    with one.lead():
        with pytest.raises(EpochRunning), other.lead():
            pass
        register(other, 3)
    with other.lead() as lead, lead.begin() as tx:
        assert len(tx.load_columns()) == 3
    one.close()
    other.close()


def _lead_and_die(url, started):
    with open_store(url, 2).lead() as lead:
        with lead.begin() as tx:
            tx.start_epoch(T0)
        started.set()
        threading.Event().wait()


@pytest.mark.slow
def test_the_lead_of_a_killed_process_is_free_and_its_run_has_failed(database_url):
    store = open_store(database_url, 2)
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Event()
    other = spawn.Process(target=_lead_and_die, args=(database_url, started))
    other.start()
    assert started.wait(PATIENCE_S)
    with pytest.raises(EpochRunning), store.lead():
        pass
    other.kill()
    other.join(PATIENCE_S)
    epoch = _when_free(lambda: publish(store, schedule_columns(np.zeros(0, np.int64))))
    with store.begin(write=False) as tx:
        assert [(e.epoch, e.status) for e in tx.epochs(None, 5)] == [
            (epoch, EpochStatus.published),
            (epoch - 1, EpochStatus.failed),
        ]
    store.close()


def _when_free(task):
    """Postgres notices a dead client a moment later."""
    while True:
        try:
            return task()
        except EpochRunning:
            continue
