"""Batched reports: what the docstring of the batcher promises, on databases and with faults."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain

import numpy as np
import pytest
from support.faulty_store import PATIENCE_S, Faulty, recorder, writing
from support.live_server import until
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    page_columns,
    page_of,
    ping_columns,
    register,
    same,
    states_of,
    urls,
)

from recrawl_lab.memory.store import MemoryStore
from service.batching import reports
from service.batching.reports import CrawlReport, PingReport, batched
from service.ingest.page_names import PageNames
from service.model.columns import PageColumns
from service.model.domain import ItemVerdict
from service.model.errors import Overloaded, StoreFull, StoreUnavailable

ACCEPTED, DUPLICATE, LATE, UNKNOWN, *_ = (int(v) for v in ItemVerdict)


def by_id(page_id) -> PageNames:
    ids = np.array(page_id, np.int64)
    return PageNames(ids, np.full(len(ids), -1), PageColumns.empty())


def crawls(page_id, at, *, register=False, **outcome) -> CrawlReport:
    """One request's crawls of pages named by id."""
    columns = crawl_columns(page_id, at, **outcome)
    return CrawlReport(columns, by_id(page_id), register, T0)


def crawls_by_url(addresses, at, *, register=True) -> CrawlReport:
    """One request's crawls of pages named by URL, each named once."""
    pages = page_columns(addresses)
    names = PageNames(np.zeros(len(pages), np.int64), np.arange(len(pages)), pages)
    return CrawlReport(crawl_columns(names.page_id, at), names, register, T0)


def pings(page_id, at) -> PingReport:
    """One request's pings."""
    return PingReport(ping_columns(page_id, at), by_id(page_id), False, T0)


@pytest.fixture
def faulty():
    return Faulty()


@pytest.fixture
def limit(monkeypatch):
    """Change limits of batches."""

    def change(**limits):
        monkeypatch.setattr(reports, "LIMITS", replace(reports.LIMITS, **limits))

    return change


@contextmanager
def held_up(store, line, job):
    """Let a first job occupy the writer while the block puts others in the line."""
    while store.entered.acquire(blocking=False):
        pass
    store.open.clear()
    first = line.submit(job)
    assert store.entered.acquire(timeout=PATIENCE_S)
    try:
        yield first
    finally:
        store.open.set()


def verdicts(future) -> list[int]:
    return future.result(PATIENCE_S).verdict.tolist()


# -- answered means committed


def test_a_job_is_done_only_once_others_can_read_what_it_wrote(sql_store):
    page_id = register(sql_store, 3)
    with writing(sql_store) as line:
        for day in range(1, 4):
            assert verdicts(line.submit(crawls(page_id, T0 + day * DAY))) == [ACCEPTED] * 3
            last = page_of(sql_store, page_id[0]).last_crawl_at
            assert last == T0 + day * DAY


def test_a_commit_that_fails_leaves_nothing_and_nobody_is_answered(faulty):
    page_id = register(faulty, 1)
    before = states_of(faulty, page_id)
    faulty.at_commit = [StoreFull()]
    with writing(faulty) as line:
        with pytest.raises(StoreFull):
            line.submit(crawls(page_id, T0)).result(PATIENCE_S)
        same(states_of(faulty, page_id), before)
        assert verdicts(line.submit(crawls(page_id, T0))) == [ACCEPTED]


# -- batches


def test_what_shares_a_batch_is_recorded_as_if_one_request_had_brought_it(faulty):
    page_id = register(faulty, 4)
    flushes = []
    with (
        writing(faulty, watch=flushes.append) as line,
        held_up(faulty, line, crawls(page_id[:1], T0)),
    ):
        late = line.submit(crawls(page_id[[1, 0]], T0 - DAY))
        twice = [line.submit(crawls(page_id[1:3], T0 + DAY)) for _ in range(2)]
        unknown = line.submit(crawls([99, page_id[3]], T0))
    assert verdicts(late) == [ACCEPTED, LATE]
    assert [verdicts(one) for one in twice] == [[ACCEPTED] * 2, [DUPLICATE] * 2]
    assert verdicts(unknown) == [UNKNOWN, ACCEPTED]
    assert [(flush.n_jobs, flush.n_items) for flush in flushes] == [(1, 1), (4, 8)]
    assert unknown.result().page_id.tolist() == [99, page_id[3]]


def test_batched_or_one_by_one_the_states_are_the_same():
    rng = np.random.default_rng(5)
    stores = Faulty(), MemoryStore(2)
    ids, _ = (register(store, 6) for store in stores)
    jobs = [
        (rng.choice(ids, 4, replace=False), T0 + k * DAY, {"changed": int(rng.integers(2))})
        for k in range(1, 12)
    ]
    with writing(stores[0]) as line, held_up(stores[0], line, crawls(ids, T0)):
        folded = [line.submit(crawls(page_id, at, **outcome)) for page_id, at, outcome in jobs]
    with writing(stores[1]) as line:
        line.submit(crawls(ids, T0)).result(PATIENCE_S)
        alone = [
            verdicts(line.submit(crawls(page_id, at, **outcome))) for page_id, at, outcome in jobs
        ]
    assert [verdicts(one) for one in folded] == alone
    before, after = (states_of(store, ids) for store in stores)
    assert before.n_changes.sum() > 0
    for name in ("last_crawl_at", "n_observations", "n_changes", "estimate"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


def test_urls_of_several_requests_are_registered_once(sql_store):
    addresses = urls(5)
    with writing(sql_store, n_writers=2) as line:
        jobs = [
            line.submit(crawls_by_url([addresses[(k + i) % 5] for i in range(3)], T0 + k * DAY))
            for k in range(10)
        ]
        found = [job.result(PATIENCE_S).page_id.tolist() for job in jobs]
    page_ids = {
        url: page_id
        for k, ids in enumerate(found)
        for url, page_id in zip([addresses[(k + i) % 5] for i in range(3)], ids, strict=True)
    }
    assert sorted(page_ids.values()) == sorted(set(page_ids.values())) == sorted({*chain(*found)})
    assert 0 not in page_ids.values()


def test_urls_that_must_not_be_registered_share_no_batch_with_those_that_may(faulty):
    one, two = urls(2)
    with writing(faulty) as line, held_up(faulty, line, crawls_by_url([one], T0)):
        refused = line.submit(crawls_by_url([one, two], T0 + DAY, register=False))
        taken = line.submit(crawls_by_url([two], T0 + DAY))
    assert verdicts(refused) == [ACCEPTED, UNKNOWN]
    assert verdicts(taken) == [ACCEPTED]


def test_a_second_writer_helps_only_with_a_crowd(faulty, limit):
    limit(min_batch=3)
    page_id = register(faulty, 3)
    flushes = []
    with (
        writing(faulty, n_writers=2, watch=flushes.append) as line,
        held_up(faulty, line, crawls(page_id[:1], T0)),
    ):
        line.submit(crawls(page_id[:1], T0 + DAY))
        line.submit(crawls(page_id[1:], T0))
        assert faulty.entered.acquire(timeout=PATIENCE_S)
        assert line.n_waiting == 0
    assert sorted(flush.n_jobs for flush in flushes) == [1, 2]


def test_a_writer_waits_a_moment_for_as_many_as_it_has_just_answered(faulty, limit):
    limit(linger=1e6)
    page_id = register(faulty, 3)
    flushes = []
    with writing(faulty, watch=flushes.append) as line:
        with held_up(faulty, line, crawls(page_id, T0)):
            first = [line.submit(crawls([one], T0 + DAY)) for one in page_id]
        assert [verdicts(job) for job in first] == [[ACCEPTED]] * 3
        again = [line.submit(crawls([one], T0 + 2 * DAY)) for one in page_id]
        assert [verdicts(job) for job in again] == [[ACCEPTED]] * 3
        left = line.submit(crawls(page_id, T0 + 3 * DAY))
    assert verdicts(left) == [ACCEPTED] * 3
    assert [flush.n_jobs for flush in flushes] == [1, 3, 3, 1]


@pytest.mark.parametrize("n_writers", [1, 2])
def test_a_crowd_waits_for_more_only_where_nobody_else_can_write(faulty, limit, n_writers):
    limit(linger=1e6, min_batch=4)
    page_id = register(faulty, 4)
    flushes = []
    with writing(faulty, n_writers, watch=flushes.append) as line:
        with held_up(faulty, line, crawls(page_id, T0)):
            before = [line.submit(crawls([one], T0 + DAY)) for one in page_id[:3]]
        assert [verdicts(job) for job in before] == [[ACCEPTED]] * 3
        assert faulty.entered.acquire(blocking=False)
        crowd = line.submit(crawls(page_id, T0 + 2 * DAY))
        other_writes = n_writers > 1
        wait_s = PATIENCE_S if other_writes else 0.05
        assert faulty.entered.acquire(timeout=wait_s) == other_writes
        more = [line.submit(crawls([one], T0 + 3 * DAY)) for one in page_id[:2]]
    assert verdicts(crowd) == [ACCEPTED] * 4
    assert [verdicts(job) for job in more] == [[ACCEPTED]] * 2
    if n_writers == 1:
        assert [flush.n_jobs for flush in flushes] == [1, 3, 3]


# -- faults


def test_of_a_batch_only_the_poisonous_one_fails(faulty):
    page_id = register(faulty, 3)
    with writing(faulty) as line:
        with held_up(faulty, line, crawls(page_id[:1], T0)):
            faulty.poisonous = int(page_id[1])
            jobs = [line.submit(crawls([one], T0 + DAY)) for one in page_id]
        with pytest.raises(ZeroDivisionError):
            jobs[1].result(PATIENCE_S)
        assert [verdicts(jobs[0]), verdicts(jobs[2])] == [[ACCEPTED]] * 2
        assert verdicts(line.submit(crawls([page_id[0]], T0 + 2 * DAY))) == [ACCEPTED]


def test_while_the_database_is_away_all_fail_and_afterwards_all_is_well(faulty):
    page_id = register(faulty, 3)
    with writing(faulty) as line:
        with held_up(faulty, line, crawls(page_id[:1], T0)) as first:
            faulty.at_begin = [StoreUnavailable(), StoreUnavailable()]
            jobs = [line.submit(crawls([one], T0)) for one in page_id]
        for job in (first, *jobs):
            with pytest.raises(StoreUnavailable):
                job.result(PATIENCE_S)
        assert verdicts(line.submit(crawls(page_id, T0))) == [ACCEPTED] * 3


# -- the line


def test_a_full_line_refuses_and_what_was_in_it_is_still_written(faulty, limit):
    limit(max_waiting=5)
    page_id = register(faulty, 2)
    with writing(faulty) as line:
        with held_up(faulty, line, crawls(page_id[:1], T0)):
            jobs = [line.submit(crawls(page_id, T0 + k * DAY)) for k in (1, 2)]
            assert line.n_waiting == 4
            with pytest.raises(Overloaded):
                line.submit(crawls(page_id, T0 + 3 * DAY))
        assert [verdicts(job) for job in jobs] == [[ACCEPTED] * 2] * 2
        assert line.n_waiting == 0
        assert verdicts(line.submit(crawls(page_id, T0 + 3 * DAY))) == [ACCEPTED] * 2


def test_a_job_larger_than_the_line_is_taken_when_nobody_waits(faulty, limit):
    limit(max_waiting=1)
    page_id = register(faulty, 3)
    with writing(faulty) as line:
        assert verdicts(line.submit(crawls(page_id, T0))) == [ACCEPTED] * 3


def test_a_large_job_does_not_delay_the_small_ones_before_it(faulty, limit):
    """A batch is bounded, and takes from the front of the line."""
    limit(max_batch=4)
    page_id = register(faulty, 6)
    flushes = []
    with (
        writing(faulty, watch=flushes.append) as line,
        held_up(faulty, line, crawls(page_id[:1], T0)),
    ):
        for size in (1, 2, 6, 1, 1, 3, 1):
            line.submit(crawls(page_id[:size], T0))
    assert [flush.n_items for flush in flushes] == [1, 3, 6, 2, 4]


def test_one_clients_requests_keep_their_order(sql_store):
    """Each is sent when the one before has been answered, so none is late."""
    page_id = register(sql_store, 4)
    with writing(sql_store, n_writers=2) as line:

        def send(client: int) -> None:
            for k in range(15):
                outcome = verdicts(line.submit(crawls(page_id[[client]], T0 + k * DAY)))
                answers[client].append(outcome[0])

        answers = [[] for _ in range(4)]
        clients = [threading.Thread(target=send, args=(k,)) for k in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(PATIENCE_S)
    assert answers == [[ACCEPTED] * 15] * 4


@pytest.mark.dear
def test_writers_that_meet_on_the_same_pages_wait_and_none_is_lost(postgres_store, limit):
    """Crawls and pings of the same pages, by two writers each, in every order."""
    limit(max_batch=8)
    page_id = register(postgres_store, 8)
    rng = np.random.default_rng(3)
    with (
        writing(postgres_store, n_writers=2) as crawled,
        writing(postgres_store, n_writers=2, flush="flush_pings") as pinged,
    ):
        sent = [
            line.submit(make(rng.permutation(page_id), T0 + k * timedelta(hours=1)))
            for k in range(40)
            for line, make in ((crawled, partial(crawls, changed=1)), (pinged, pings))
        ]
        outcome = [job.result(PATIENCE_S).verdict for job in sent]
    n_accepted = sum(int((one == ACCEPTED).sum()) for one in outcome[::2])
    states = states_of(postgres_store, page_id)
    assert states.n_observations.sum() == n_accepted - len(page_id)
    assert states.n_pings.sum() == sum(int((one == ACCEPTED).sum()) for one in outcome[1::2])


def test_who_has_left_before_his_turn_is_not_written(faulty):
    page_id = register(faulty, 2)
    with writing(faulty) as line:
        with held_up(faulty, line, crawls(page_id[:1], T0)):
            left = line.submit(crawls(page_id[1:], T0))
            assert left.cancel()
            stayed = line.submit(crawls(page_id[:1], T0 + DAY))
        assert verdicts(stayed) == [ACCEPTED]
        assert line.n_waiting == 0
    assert page_of(faulty, page_id[1]).last_crawl_at is None


def test_stopping_writes_what_was_accepted_refuses_the_rest_and_leaves_no_thread(faulty):
    page_id = register(faulty, 2)
    line = batched("crawls", recorder(faulty).flush_crawls, 2)
    line.start()
    with held_up(faulty, line, crawls(page_id, T0)):
        jobs = [line.submit(crawls(page_id, T0 + k * DAY)) for k in range(1, 5)]
        stopping = threading.Thread(target=line.stop)
        stopping.start()

        def refused() -> bool:
            try:
                jobs.append(line.submit(crawls(page_id, T0)))
            except Overloaded:
                return True
            return False

        until(refused, "the line is closed")
    stopping.join(PATIENCE_S)
    assert all(job.done() for job in jobs)
    assert [verdicts(job) for job in jobs[:4]] == [[ACCEPTED] * 2] * 4
    assert not [t for t in threading.enumerate() if t.name.startswith("crawls-")]
