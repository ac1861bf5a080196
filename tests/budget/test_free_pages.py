"""Pages that cost nothing are leased while a budget of money is spent; the others wait for it."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import RUDE, rng, rows
from test_costs_of_leases import MIDNIGHT, keeper_of, pace_of, priced

from service.batching.lease_requests import LeaseRequest, lease_all, next_ready
from service.budget.spending import adopt_pace
from service.core.prices import LEAST
from service.leases.dealt import WorkerRequest
from service.leases.politeness import Politeness
from service.storage.queue.columns import ALL_PAGES

HOUR = timedelta(hours=1)
ONE_AT_A_TIME = Politeness(delay_s=1.0, concurrency=1)


def leased(store, keeper, now, count=10, polite=RUDE):
    store.clock = lambda: now
    job = LeaseRequest(WorkerRequest("w", count, timedelta(minutes=5)), ALL_PAGES)
    parts = lease_all(store, polite, rng(), [job], keeper=keeper)
    return [crawl.page_id for part in parts for crawl in rows(part.leased)]


def spent(store, *costs, budget=1.0):
    """Return a keeper whose day is spent by the first page, and the other pages."""
    first, *others = priced(store, budget, *costs)
    keeper = keeper_of(store, budget)
    assert leased(store, keeper, MIDNIGHT, count=1) == [first]
    return keeper, others


@pytest.mark.parametrize("free", [1, 40])
def test_free_pages_go_on_and_paid_ones_wait_for_the_next_day(sql_store, free):
    keeper, (paid, *others) = spent(sql_store, 1.0, *[LEAST] * free)
    assert sorted(leased(sql_store, keeper, MIDNIGHT + HOUR, count=50)) == others
    assert leased(sql_store, keeper, MIDNIGHT + 23 * HOUR, count=1) != [paid]
    next_day = leased(sql_store, keeper, MIDNIGHT + 24 * HOUR, count=50)
    assert len({paid - 1, paid} & set(next_day)) == 1  # a day pays one of the two
    keeper.give_back()
    assert pace_of(sql_store).spent <= 1.0


def test_a_free_page_behind_paid_ones_of_its_host_is_found(sql_store):
    keeper, others = spent(sql_store, *[1.0] * 30, LEAST)
    assert leased(sql_store, keeper, MIDNIGHT + HOUR, count=1, polite=ONE_AT_A_TIME) == others[-1:]


def test_pages_of_unknown_cost_wait(sql_store):
    keeper, (unknown, free) = spent(sql_store, 0.0, LEAST)
    assert leased(sql_store, keeper, MIDNIGHT + HOUR) == [free]
    assert leased(sql_store, keeper, MIDNIGHT + 23 * HOUR, count=1) != [unknown]


def test_every_server_leases_free_pages_of_a_spent_day(sql_store):
    _, others = spent(sql_store, 1.0, LEAST, LEAST)
    other = keeper_of(sql_store, 1.0)
    found = leased(sql_store, other, MIDNIGHT + HOUR, count=1)
    third = keeper_of(sql_store, 1.0)
    found += leased(sql_store, third, MIDNIGHT + HOUR, count=5)
    assert sorted(found) == others[1:]


def test_a_worker_waits_for_the_next_free_page_not_for_the_next_day(sql_store):
    keeper, _ = spent(sql_store, 1.0, LEAST)
    at = MIDNIGHT + HOUR
    leased(sql_store, keeper, at)
    assert keeper.spent_until() is None
    assert next_ready(sql_store, ALL_PAGES) <= at + timedelta(minutes=2)


def test_a_raised_budget_goes_on_within_minutes(sql_store):
    keeper, (paid, _) = spent(sql_store, 1.0, LEAST)
    at = MIDNIGHT + HOUR
    leased(sql_store, keeper, at)
    raised = replace(keeper.terms, budget=100.0)
    with sql_store.begin() as tx:
        adopt_pace(tx, raised)
    keeper.adopt(raised)
    assert paid in leased(sql_store, keeper, at + HOUR)


def test_a_free_lease_leaves_the_least_amount_of_a_crawl(sql_store):
    keeper, _ = spent(sql_store, *[LEAST] * 3)
    before = keeper._costs.floor
    leased(sql_store, keeper, MIDNIGHT + HOUR)
    assert keeper._costs.floor == before == pytest.approx(1e-3)
    assert np.isfinite(keeper._costs.each)
