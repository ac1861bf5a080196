"""Budgets in bytes and money: what leases take, and what reports correct."""

from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import RUDE, queue, rng, rows
from support.store_cases import T0, publish, register, schedule_columns

from service.batching.lease_requests import LeaseRequest, lease_all
from service.budget.allotments import Allotment, Terms, fitting
from service.budget.keeper import Keeper
from service.budget.seen_costs import LEAST_TRIALS
from service.budget.spending import adopt_budget
from service.core.pace import TakenAmounts
from service.leases.dealt import WorkerRequest
from service.storage.budget.pace import days_since_1970
from service.storage.queue.columns import ALL_PAGES

MIDNIGHT = T0.replace(hour=0)
DAY = int(days_since_1970(MIDNIGHT))
HOUR = timedelta(hours=1)


def keeper_of(store, budget=4.0, unit="USD", **terms):
    with store.begin() as tx:
        tx.set_pace_unit(unit)
    return Keeper(store, Terms(budget, unit=unit, **terms), seconds=lambda: 0.0)


def leased(store, keeper, now, count=10):
    """Lease, and return the token of each page."""
    store.clock = lambda: now
    job = LeaseRequest(WorkerRequest("w", count, 9 * HOUR), ALL_PAGES)
    parts = lease_all(store, RUDE, rng(), [job], keeper=keeper)
    return {crawl.page_id: crawl.token for part in parts for crawl in rows(part.leased)}


def priced(store, *costs):
    """Register pages that were crawled a day ago at these costs, and are due, the first most."""
    then = MIDNIGHT - timedelta(days=1)
    ids = np.sort(register(store, len(costs), then))
    publish(store, schedule_columns(ids, crawl_rate=np.linspace(3.0, 2.0, len(costs))))
    with store.begin() as tx:
        for page_id, cost in zip(ids.tolist(), costs, strict=True):
            tx.run(
                "UPDATE page_states SET last_crawl_at = %(at)s, cost = %(cost)s "
                "WHERE page_id = %(page_id)s",
                at=then,
                cost=cost,
                page_id=page_id,
            )
    queue(store, ids, MIDNIGHT)
    return ids.tolist()


def pace_of(store):
    with store.begin(write=False) as tx:
        return tx.pace()


def test_leases_take_what_their_pages_cost(sql_store):
    a, b, c = priced(sql_store, 1.0, 2.5, 1.0)
    keeper = keeper_of(sql_store)
    assert set(leased(sql_store, keeper, MIDNIGHT)) == {a, b}
    keeper.give_back()
    assert pace_of(sql_store).spent == pytest.approx(3.5)
    assert c  # waits for the rest of a dollar


def test_a_page_that_does_not_fit_is_left_out_for_cheaper_ones(sql_store):
    a, dear, b = priced(sql_store, 2.0, 3.0, 1.5)
    keeper = keeper_of(sql_store)
    assert set(leased(sql_store, keeper, MIDNIGHT)) == {a, b}
    assert leased(sql_store, keeper, MIDNIGHT + HOUR) == {}
    other = keeper_of(sql_store)  # the amount of the first server is not lost
    assert leased(sql_store, other, MIDNIGHT + 2 * HOUR) == {}
    assert set(leased(sql_store, other, MIDNIGHT + 25 * HOUR, count=1)) == {a}
    assert dear not in leased(sql_store, other, MIDNIGHT + 26 * HOUR)


def test_a_page_dearer_than_a_day_waits_without_holding_up_others(sql_store):
    beyond, a = priced(sql_store, 5.0, 1.0)
    keeper = keeper_of(sql_store)
    assert set(leased(sql_store, keeper, MIDNIGHT, count=1)) | set(
        leased(sql_store, keeper, MIDNIGHT, count=1)
    ) == {a}
    with sql_store.begin(write=False) as tx:
        assert tx.next_ready_at(ALL_PAGES) <= MIDNIGHT + timedelta(days=1)
    assert beyond


def test_few_pages_of_unknown_cost_are_leased_until_costs_are_seen(sql_store):
    priced(sql_store, 1.0, 1.0, *[0.0] * 200)
    keeper = keeper_of(sql_store, 1e6, "seconds")
    tried = leased(sql_store, keeper, MIDNIGHT, count=200)
    # a request that finds no room for all is two transactions
    assert len(tried) == 2 + 2 * LEAST_TRIALS, "pages of known cost are no trials"
    keeper.count_reports(DAY, np.array(list(tried.values())), np.full(len(tried), 30.0))
    assert len(leased(sql_store, keeper, MIDNIGHT, count=200)) == 2 * len(tried)


@pytest.mark.parametrize("limit", [0, 1, 3, np.inf])
def test_trials_are_the_first_crawls_of_unknown_cost(limit):
    unknown = np.array([True, False, True, True, False, True])
    tried = Allotment(day=1, due=9.0, unit="USD", trials=limit).tries(unknown)
    assert tried[~unknown].all()
    assert np.flatnonzero(tried & unknown).tolist() == [0, 2, 3, 5][: int(min(limit, 4))]


@pytest.mark.parametrize(("took", "spent"), [(0.25, 0.25), (3.5, 3.5), (np.nan, 1.0)])
def test_a_report_corrects_what_its_lease_took(sql_store, took, spent):
    (page_id,) = priced(sql_store, 1.0)
    keeper = keeper_of(sql_store)
    token = leased(sql_store, keeper, MIDNIGHT)[page_id]
    keeper.count_reports(DAY, np.array([token]), np.array([took]))
    keeper.count_reports(DAY, np.array([token]), np.array([took]))  # a token counts once
    keeper.give_back()
    assert pace_of(sql_store).spent == pytest.approx(spent)


def test_a_report_without_a_lease_counts_whole(sql_store):
    priced(sql_store, 1.0)
    keeper = keeper_of(sql_store)
    leased(sql_store, keeper, MIDNIGHT)
    keeper.count_reports(DAY, np.array([0, 0]), np.array([0.5, np.nan]))
    keeper.give_back()
    assert pace_of(sql_store).spent == pytest.approx(1.0 + 0.5 + 1.0)  # a mean crawl took 1


@pytest.mark.dear
def test_what_a_day_leaves_is_not_for_the_next(sql_store):
    priced(sql_store, *[1.0] * 20)
    keeper, days = keeper_of(sql_store), []
    for hour in range(12, 96):
        days += [hour // 24] * len(leased(sql_store, keeper, MIDNIGHT + hour * HOUR, count=3))
    assert all(days.count(day) <= 4 for day in range(4))


def spend(store, amount, budget):
    store.clock = lambda: MIDNIGHT
    keeper = Keeper(store, Terms(budget), seconds=lambda: 0.0)
    with keeper.grant(amount) as grant:
        grant.taken = TakenAmounts(amount)
    keeper.close()


def test_another_unit_keeps_the_share_of_the_day_that_is_spent(sql_store):
    spend(sql_store, 25.0, budget=100.0)
    adopt_budget(sql_store, "USD", 4.0)
    adopt_budget(sql_store, "USD", 4.0)
    assert (pace_of(sql_store).spent, pace_of(sql_store).budget) == (1.0, 4.0)
    adopt_budget(sql_store, "crawls", 100.0)
    assert pace_of(sql_store).spent == 25.0


def test_another_budget_counts_from_the_start_of_the_service(sql_store):
    spend(sql_store, 24.0, budget=24.0)
    sql_store.clock = lambda: MIDNIGHT + 24 * HOUR
    adopt_budget(sql_store, "crawls", 240.0)
    sql_store.clock = lambda: MIDNIGHT + 30 * HOUR
    with Keeper(sql_store, Terms(240.0), seconds=lambda: 0.0).grant(1_000) as grant:
        # it was raised at midnight, so the whole day is one of the new budget
        assert grant.allotment.due == 240


def test_amounts_fit_in_their_order():
    rng_of_case = np.random.default_rng(3)
    for _ in range(200):
        amount, room = rng_of_case.exponential(1.0, 12), rng_of_case.uniform(0, 8)
        fit = fitting(amount, room)
        assert amount[fit].sum() <= room * (1 + 1e-12)
        assert not (amount[~fit] <= room - amount[fit].sum()).any()


def test_loans_of_bytes_are_within_their_days(sql_store):
    ids = priced(sql_store, *[400.0] * 8)
    urgent = schedule_columns(np.array(ids), crawl_rate=2.0, urgency=1.5)
    publish(sql_store, urgent)
    keeper = keeper_of(sql_store, 1000.0, "bytes", loan_days=1.0)
    assert len(leased(sql_store, keeper, MIDNIGHT)) == 4  # 800 of the day, 800 on loan
    assert pace_of(sql_store).debt == pytest.approx(800.0)
