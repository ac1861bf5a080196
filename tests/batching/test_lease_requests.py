"""The line of workers that ask for crawls: who is waited with, and who is not."""

import threading
from functools import partial

import numpy as np
import pytest
from support.crawl_cases import RUDE, TTL, queue, rng
from support.store_cases import T0, register

from service.batching.batcher import Batcher, Flush
from service.batching.lease_requests import LIMITS, LeaseRequest, lease_all
from service.leases.dealt import WorkerRequest
from service.model.errors import Overloaded
from service.storage.queue.columns import ALL_PAGES

PATIENCE_S = 180
LONG_S = 600.0


@pytest.fixture
def rounds(queue_store, monkeypatch):
    """Count the transactions that lease."""
    begun = []
    begin = queue_store.begin

    def counted(*, write=True):
        if write and threading.current_thread().name == "leases-0":
            begun.append(write)
        return begin(write=write)

    monkeypatch.setattr(queue_store, "begin", counted)
    return begun


@pytest.fixture
def leasing(queue_store):
    """A line in front of a hundred due pages."""
    queue_store.clock = lambda: T0
    queue(queue_store, register(queue_store, 100), T0)
    line = Batcher("leases", partial(leased, queue_store), LIMITS)
    line.start()
    yield line
    line.stop()


def leased(store, jobs):
    """Return the pages that each job receives."""
    dealt = lease_all(store, RUDE, rng(), jobs)
    page_id = np.concatenate([part.leased.pages.page_id for part in dealt])
    to = np.concatenate([part.to for part in dealt])
    return [page_id[to == i].tolist() for i in range(len(jobs))]


def asking(count=1, worker="w"):
    return LeaseRequest(WorkerRequest(worker, count, TTL), ALL_PAGES)


def pages(future):
    return future.result(PATIENCE_S)


def test_those_who_ask_for_few_are_served_together(leasing, rounds):
    leasing._last = Flush(2, 2, LONG_S)
    first = leasing.submit(asking(worker="a"))
    second = leasing.submit(asking(worker="b"))
    assert len({*pages(first), *pages(second)}) == 2
    assert len(rounds) == 1


def test_nobody_is_waited_for_longer_than_a_part_of_the_last_round(leasing, rounds):
    leasing._last = Flush(2, 2, 1e-3)
    assert len(pages(leasing.submit(asking()))) == 1
    assert len(rounds) == 1


def test_who_asks_for_many_waits_for_nobody(leasing):
    leasing._last = Flush(2, 2, LONG_S)
    assert len(pages(leasing.submit(asking(LIMITS.min_batch)))) == LIMITS.min_batch


def test_a_round_alone_is_followed_by_a_round_alone(leasing):
    pages(leasing.submit(asking()))
    leasing._last = leasing._last._replace(seconds=LONG_S)
    assert len(pages(leasing.submit(asking()))) == 1


def test_who_has_left_gets_nothing_and_holds_nobody_up(leasing, rounds):
    leasing._last = Flush(2, 2, LONG_S)
    left = leasing.submit(asking())
    assert left.cancel()
    assert len(pages(leasing.submit(asking()))) == 1
    leasing._last = Flush(1, 1, LONG_S)
    with leasing._changed:  # the thread finds it cancelled
        gone = leasing.submit(asking())
        assert gone.cancel()
    assert len(pages(leasing.submit(asking(3)))) == 3
    assert len(rounds) == 2


def test_who_waits_is_served_when_the_line_is_closed_and_nobody_after(leasing):
    leasing._last = Flush(2, 2, LONG_S)
    waiting = leasing.submit(asking())
    leasing.stop()
    assert len(pages(waiting)) == 1
    with pytest.raises(Overloaded):
        leasing.submit(asking())
