"""An idle budget brings pages forward, those first that have waited longest."""

from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import RUDE, queue, report, rng, rows
from support.store_cases import T0, publish, register, schedule_columns

from service.batching.lease_requests import LeaseRequest, lease_all
from service.budget.allotments import Terms
from service.budget.keeper import Keeper
from service.core.pace import Pace
from service.leases.dealt import WorkerRequest
from service.leases.early import LEAST_WAIT, EarlyPages
from service.leases.queue import fill_queue
from service.storage.queue.columns import ALL_PAGES

pytestmark = pytest.mark.usefixtures("no_timers")

BUDGET = 10.0
MIDNIGHT = T0.replace(hour=0)
HOUR = timedelta(hours=1)
SOON = timedelta(minutes=20)


def take(store, keeper, now, count=100):
    store.clock = lambda: now
    job = LeaseRequest(WorkerRequest("w", count, HOUR), ALL_PAGES)
    parts = lease_all(store, RUDE, rng(), [job], keeper=keeper)
    return [crawl for part in parts for crawl in rows(part.leased)]


def crawled(store, intervals, **fields):
    """Register pages that were crawled at midnight, with these intervals in days."""
    ids = np.sort(register(store, len(intervals), MIDNIGHT, **fields))
    queue(store, ids, MIDNIGHT)
    report(store, take(store, None, MIDNIGHT), MIDNIGHT)
    with store.begin() as tx:
        tx.run("UPDATE page_states SET interval_factor = 1.0")
    publish(store, schedule_columns(ids, crawl_rate=1 / np.array(intervals)), now=MIDNIGHT)
    return ids.tolist()


def fill(store, early, now):
    store.clock = lambda: now
    fill_queue(store, now + SOON, early=early)


def keeper_of(store):
    """Return a keeper whose pace has begun at midnight."""
    keeper = Keeper(store, Terms(BUDGET), seconds=lambda: 0.0)
    assert take(store, keeper, MIDNIGHT) == []
    return keeper


def test_pages_that_have_waited_longest_are_brought_forward(sql_store):
    ids = crawled(sql_store, [2.0] * 3 + [3.0] * 3 + [20.0] * 10)
    keeper, early = keeper_of(sql_store), EarlyPages(BUDGET)
    noon = MIDNIGHT + 12 * HOUR
    fill(sql_store, early, noon)
    assert take(sql_store, keeper, noon) == []  # the first fill only counts
    fill(sql_store, early, noon)
    taken = [crawl.page_id for crawl in take(sql_store, keeper, noon + 6 * timedelta(seconds=1))]
    assert sorted(taken) == ids[:5]
    assert take(sql_store, keeper, noon + 12 * timedelta(seconds=1)) == []


def test_pages_that_are_due_come_before_all_that_are_not(sql_store):
    ids = crawled(sql_store, [0.25] * 4 + [2.0] * 20)
    keeper, early = keeper_of(sql_store), EarlyPages(BUDGET)
    noon = MIDNIGHT + 12 * HOUR
    for _ in range(2):
        fill(sql_store, early, noon)
    taken = [crawl.page_id for crawl in take(sql_store, keeper, noon, count=4)]
    assert sorted(taken) == ids[:4]


def test_pages_are_brought_forward_within_their_maximum_rate(sql_store):
    crawled(sql_store, [2.0] * 5, max_crawl_rate=0.5)
    keeper, early = keeper_of(sql_store), EarlyPages(BUDGET)
    noon = MIDNIGHT + 12 * HOUR
    for _ in range(2):
        fill(sql_store, early, noon)
    assert take(sql_store, keeper, noon) == []


def test_without_a_budget_nothing_is_brought_forward(sql_store):
    crawled(sql_store, [2.0] * 5)
    early = EarlyPages(None)
    noon = MIDNIGHT + 12 * HOUR
    for _ in range(2):
        fill(sql_store, early, noon)
    assert take(sql_store, None, noon) == []


def least(ahead, n_pages, budget=1e5):
    """Return the minimum share after a fill that counted so many pages in each bin."""
    early = EarlyPages(budget)
    early.n_pages[:] = n_pages
    early.begin(Pace(budget, at=1.0, tokens=0.0, ahead=ahead), at=1.0, horizon_days=0.0)
    return early.least


def test_about_as_many_pages_are_queued_as_the_idle_budget_may_bring_forward():
    step = (1 - LEAST_WAIT) / 90
    assert least(45_000, 10_000) == pytest.approx(1 - 5 * step)
    assert least(95_000, 1_000) == pytest.approx(LEAST_WAIT)
    assert least(-5_000, 400) == pytest.approx(1 - 3 * step)  # a thousand at least
    assert least(-5_000, 400, budget=0.5) == np.inf
    assert least(45_000, 0) == np.inf
