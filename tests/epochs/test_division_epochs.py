"""How epochs divide the budget: new pages, caps, and what the certificate says."""

from dataclasses import replace

import numpy as np
import pytest
from support.epoch_cases import watched
from support.store_cases import DAY, T0, columns, read_schedule, register, save

from service.budget.admission import admit_waiting
from service.core.budget_factor import Window
from service.core.common_values import alone
from service.core.division import Wanted
from service.core.estimators.gamma import Gamma
from service.epochs.division import division, n_first_crawled, wanted_within
from service.epochs.plan import Plan
from service.epochs.requests import NO_REQUESTS, RequestCounts
from service.epochs.run import run_epoch
from service.epochs.what_if import WhatIf
from service.leases.host_settings import change_host
from service.leases.politeness import Politeness
from service.model.arrays import NO_TIME, instant
from service.model.columns import CapColumns, EpochColumns

NOW = instant(T0)
PLAN = Plan(Gamma(), bandwidth=30.0)
NO_CAPS = CapColumns.empty()


def with_copies(store, at=T0 - 20 * DAY, **others):
    """Return the pages of `watched`, each with a copy and some crawls."""
    ids = watched(store)
    save(store, ids, last_observed_at=at, last_crawl_at=at, n_observations=5, **others)
    return ids


def rates(store, epoch):
    return {row.page_id: row.crawl_rate for row in read_schedule(store, epoch.epoch)}


def pages_of(n, **given):
    """Return columns of pages with a copy of long ago."""
    values = dict.fromkeys(("pings_since", "last_ping_at", "last_failure_at", "born_at"), NO_TIME)
    values |= dict.fromkeys(("min_crawl_rate", "max_crawl_rate", "last_age"), np.nan)
    values |= dict.fromkeys(
        ("n_pings", "recent_pings", "real_pings", "false_pings", "trust", "url_group", "cost"), 0
    )
    values |= {"page_id": np.arange(1, n + 1), "importance": 1.0, "observability": 0, "host_id": 1}
    values |= {"last_observed_at": T0 - 20 * DAY, "last_interval": -3.0, "n_observations": 5}
    values |= {"interval_factor": 1.0, "estimate": 0.0, "recent_pings": 0.0}
    return columns(EpochColumns, n, **(values | given))


def new(n, n_new):
    """Return columns of pages, the last of which have no copy."""
    crawled = np.full(n, NOW - 20 * np.timedelta64(1, "D"))
    crawled[n - n_new :] = NO_TIME
    return replace(pages_of(n), last_observed_at=crawled)


def cap(host_id, most, group=0, group_most=np.nan, first_share=None):
    return columns(
        CapColumns,
        1,
        host_id=host_id,
        host="h",
        max_crawl_rate=most,
        group_id=group,
        group="g" if group else "",
        group_max_crawl_rate=group_most,
        first_share=first_share,
    )


def test_new_pages_are_planned_at_the_multiplier_in_force(store, clock):
    with_copies(store)
    before = run_epoch(store, PLAN, clock)
    added = register(store, 12, host="new.example", importance=3.0)
    epoch = run_epoch(store, PLAN, clock)
    certificate, now = epoch.certificate, rates(store, epoch)
    assert certificate.planned == pytest.approx(30.0 - 12)
    assert certificate.bandwidth_used == pytest.approx(certificate.planned)
    assert certificate.first_crawls == 15.0
    shared = sum(rate for page_id, rate in now.items() if page_id not in set(added.tolist()))
    assert shared <= certificate.planned * (1 + 1e-9)
    own = [row for row in read_schedule(store, epoch.epoch) if row.page_id in set(added.tolist())]
    for row in own:  # the condition of the optimum: mu D / (rho (rho + D)) is the multiplier
        price = 3.0 * row.change_rate / (row.crawl_rate * (row.crawl_rate + row.change_rate))
        assert price == pytest.approx(certificate.multiplier, rel=1e-5)
    assert before.certificate.multiplier < certificate.multiplier


def test_a_page_has_a_share_from_its_first_copy_on(store, clock):
    ids = with_copies(store)
    save(store, ids[:20], last_observed_at=NO_TIME, n_observations=0)
    first = run_epoch(store, PLAN, clock).certificate
    save(store, ids[:20], last_observed_at=T0 - 5 * DAY)
    second = run_epoch(store, PLAN, clock).certificate
    assert (first.planned, second.planned) == (pytest.approx(15.0), pytest.approx(30.0))


def test_first_crawls_of_the_last_day_are_expected_again():
    pages = pages_of(40)
    ago = np.full(40, NOW - 20 * np.timedelta64(1, "D"))
    ago[:4], ago[4:9] = NOW - np.timedelta64(5, "h"), NOW - np.timedelta64(2, "h")
    observed = np.full(40, 5)
    observed[:4], observed[4:9] = 0, 1
    interval = np.full(40, -0.25)
    interval[8] = -1.5  # its first crawl was the day before
    factor = np.where(np.arange(40) < 4, 0.3, 1.0)
    observed[20], ago[20] = 0, NOW - np.timedelta64(2, "h")  # a later crawl that was no evidence
    pages = replace(pages, last_observed_at=ago, n_observations=observed, last_interval=interval)
    pages = replace(pages, interval_factor=factor)
    assert wanted_within(pages, NO_CAPS, 0.5, NOW).first_crawls == 8
    assert n_first_crawled(pages, Window(0.3, 0.1), NOW) == 4
    assert n_first_crawled(pages, Window(5 / 24, 5 / 24), NOW) == 0
    assert n_first_crawled(pages, Window(5 / 24, 0.2), NOW) == 4


def test_caps_limit_the_first_crawls_of_their_hosts():
    pages = replace(new(100, 60), host_id=np.where(np.arange(100) % 2 == 0, 1, 2))
    assert wanted_within(pages, NO_CAPS, 0.5, NOW).first_crawls == 60
    wants = wanted_within(pages, cap(1, 24.0), 0.5, NOW)
    assert (wants.n_copies, wants.n_waiting, wants.first_crawls) == (40, 60, 12 + 30)
    grouped = wanted_within(pages, cap(2, np.nan, 7, 10.0), 0.5, NOW)
    assert grouped.first_crawls == 30 + 5


@pytest.mark.parametrize(("own", "most"), [(np.nan, 12), (0.25, 6), (1.0, 24), (0.0, 4)])
def test_a_host_may_have_its_own_share_of_its_cap(own, most):
    pages = replace(new(100, 60), host_id=np.where(np.arange(100) % 2 == 0, 1, 2))
    wants = wanted_within(pages, cap(1, 24.0, first_share=own), 0.5, NOW)
    assert wants.first_crawls == most + 30
    grouped = wanted_within(pages, cap(1, 24.0, 7, 10.0, first_share=own), 0.5, NOW)
    assert grouped.first_crawls == min(most, 5) + 30, "the group has the share of the settings"


def test_pages_that_are_held_neither_wait_nor_have_a_share(sql_store):
    sql_store.holds_new = True
    register(sql_store, 40, host="new.example", min_crawl_rate=2.0)
    columns = loaded(sql_store)
    assert columns.importance.tolist() == [0.0] * 40
    assert np.isnan(columns.min_crawl_rate).all()
    assert wanted_within(columns, NO_CAPS, 0.5, NOW) == Wanted()
    admit_waiting(sql_store, T0)
    columns = loaded(sql_store)
    assert np.count_nonzero(columns.importance) == 9  # nine would stop a new host
    assert np.count_nonzero(columns.min_crawl_rate == 2.0) == 9
    assert wanted_within(columns, NO_CAPS, 0.5, NOW).n_waiting == 9


def loaded(store):
    with store.read_whole() as tx:
        return tx.load_columns()


def test_hosts_without_a_cap_want_first_crawls_whatever_their_share():
    pages = replace(new(100, 60), host_id=np.where(np.arange(100) % 2 == 0, 1, 2))
    assert wanted_within(pages, cap(1, 10.0), 0.0, NOW).first_crawls == 30
    assert wanted_within(pages, cap(1, 0.0), 1.0, NOW).first_crawls == 30


def test_a_host_of_new_pages_only_has_its_whole_cap_for_them():
    pages = replace(new(100, 60), host_id=np.where(np.arange(100) < 40, 1, 2))
    assert wanted_within(pages, cap(2, 24.0), 0.5, NOW).first_crawls == 24


def test_without_a_budget_pages_with_a_copy_count_and_nothing_limits_first_crawls():
    pages = new(100, 60)
    failing = RequestCounts(overhead=3.0)
    parts, wants = alone(division(pages, NO_CAPS, None, 0.5, failing, NOW))
    assert parts == (8.0, 8.0, 3.0, None)
    assert wants.n_copies == 40
    parts, _ = alone(division(new(100, 100), NO_CAPS, None, 0.5, NO_REQUESTS, NOW))
    assert parts.planned == 20.0


def test_copies_that_were_imported_want_no_first_crawls():
    """Their newest captures are of the last day, and no crawler has made them."""
    at = np.full(100, NOW - np.timedelta64(1, "h"))
    once = {"n_observations": np.ones(100, np.int64), "last_interval": np.zeros(100)}
    pages = replace(new(100, 0), last_observed_at=at, **once)
    parts, wants = alone(division(pages, NO_CAPS, 1_000.0, 0.5, NO_REQUESTS, NOW))
    assert (parts.planned, wants.first_crawls) == (1_000.0, 0.0)
    made = RequestCounts(n_reported=400.0, n_of_day=40.0)
    parts, wants = alone(division(pages, NO_CAPS, 1_000.0, 0.5, made, NOW))
    assert (parts.planned, wants.first_crawls) == pytest.approx((960.0, 40.0))
    parts, _ = alone(division(pages, NO_CAPS, 1_000.0, 0.5, made._replace(n_of_day=400.0), NOW))
    assert parts.planned == 900.0


def test_a_budget_below_the_overhead_keeps_its_share():
    """Of 700 crawls a week 430 taught nothing: a budget of 40 spends 15 on refreshes."""
    seen = RequestCounts(n_reported=700.0, overhead=430 / 7, n_taught_nothing=430.0)
    parts, _ = alone(division(new(100, 0), NO_CAPS, 35.0, 0.5, seen, NOW))
    assert (parts.overhead, parts.planned) == pytest.approx((21.5, 13.5))
    parts, _ = alone(division(new(100, 0), NO_CAPS, 1_000.0, 0.5, seen, NOW))
    assert parts.overhead == pytest.approx(430 / 7)


def test_pages_that_fail_before_their_first_copy_are_not_waiting():
    pages = new(100, 60)
    failed = np.where(np.arange(100) >= 90, NOW, NO_TIME)
    assert wanted_within(replace(pages, last_failure_at=failed), NO_CAPS, 0.5, NOW).n_waiting == 50


def test_minima_of_new_pages_are_no_part_of_the_plan(sql_store, clock):
    with_copies(sql_store)
    register(sql_store, 5, host="new.example", min_crawl_rate=100.0)
    epoch = run_epoch(sql_store, PLAN, clock)
    assert epoch.reason is None
    assert max(rates(sql_store, epoch).values()) == 100.0
    assert epoch.certificate.bandwidth_used == pytest.approx(epoch.certificate.planned)


def test_a_capped_host_has_its_own_price_for_new_pages(sql_store, clock):
    ids = with_copies(sql_store)
    save(sql_store, ids[20:25], last_observed_at=NO_TIME, n_observations=0)
    added = set(ids[20:25].tolist())
    free = run_epoch(sql_store, PLAN, clock)
    with sql_store.begin() as tx:
        change_host(tx, "example.org", {"max_crawl_rate": 1.0}, T0, Politeness())
    capped = run_epoch(sql_store, PLAN, clock)
    before, after = rates(sql_store, free), rates(sql_store, capped)
    assert 0 < sum(after[page] for page in added) < 0.3 * sum(before[page] for page in added)


def test_a_plan_of_the_bandwidth_in_force_has_the_parts_of_the_epoch(sql_store, clock):
    with_copies(sql_store)
    register(sql_store, 10, host="new.example")
    certificate = run_epoch(sql_store, PLAN, clock).certificate
    answer = WhatIf(sql_store, PLAN, clock).ask([30.0, 60.0], 5)
    assert answer.in_force.planned == certificate.planned
    assert answer.items[0].bandwidth_used == pytest.approx(certificate.bandwidth_used)
    assert answer.items[1].planned == pytest.approx(60.0 - 10.0)
    assert answer.items[1].first_crawls == 30.0


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, bandwidth=None)])
def test_no_plan_of_a_larger_budget_is_worse_while_new_pages_wait(sql_store, clock, plan):
    """Every plan pays for the pages that wait now, also that of the bandwidth in force."""
    with_copies(sql_store)
    certificate = run_epoch(sql_store, plan, clock).certificate
    register(sql_store, 9, host="new.example")
    in_force = certificate.bandwidth
    answer = WhatIf(sql_store, plan, clock).ask([in_force, 1.5 * in_force, 4 * in_force], 5)
    same, *larger = answer.items
    assert answer.in_force == same
    shares = [each.fresh_share for each in (same, *larger)]
    assert shares == sorted(shares)
    used = [each.bandwidth_used for each in (same, *larger)]
    assert used == sorted(used)
