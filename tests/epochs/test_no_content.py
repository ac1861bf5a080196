"""Pages without content: no share in an allocation, which goes to the other pages."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.epoch_cases import watched
from support.ingest_cases import rules
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    page_of,
    read_schedule,
    register,
    save,
)

from service.core.allocation import ALLOCATORS
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.epochs.what_if import WhatIf
from service.ingest.record import record
from service.leases.due import due_at
from service.leases.host_settings import change_host
from service.leases.politeness import Politeness
from service.model.arrays import instant
from service.model.domain import PagePatch

PLAN = Plan(Gamma(), bandwidth=7.5)


@pytest.mark.parametrize("objective", [name for name in ALLOCATORS if name != "binary_floor"])
def test_pages_without_content_cost_no_bandwidth(store, clock, objective):
    """Neither a minimum, nor pings, nor a site that announces its changes buys a share."""
    ids = watched(store)
    lacking = ids[[0, 3, 5, 30, 40, 59]]
    late = T0 + 29 * DAY
    save(
        store,
        ids[28:42],
        n_pings=40,
        recent_pings=15.0,
        real_pings=20.0,
        false_pings=5.0,
        last_ping_at=late,
    )
    save(store, lacking, n_failures=[3, 4, 40, 3, 3, 9], last_crawl_at=T0)
    with store.begin() as tx:
        tx.change_page(int(ids[0]), PagePatch(min_crawl_rate=0.5), T0)
    clock.at = T0 + 30 * DAY
    epoch = run_epoch(store, replace(PLAN, objective=objective), clock)
    rows = {row.page_id: row for row in read_schedule(store, epoch.epoch)}
    assert [rows[page_id].crawl_rate for page_id in lacking.tolist()] == [0] * 6
    assert [rows[page_id].crawl_probability for page_id in lacking.tolist()] == [0] * 6
    assert epoch.certificate.bandwidth_used == pytest.approx(7.5)
    assert page_of(store, ids[0]).importance > 0


def _rows(store, clock):
    return read_schedule(store, run_epoch(store, PLAN, clock).epoch)


def test_two_crawls_without_content_leave_a_page_its_share(store, clock):
    ids = watched(store)
    expected = [row.crawl_rate for row in _rows(store, clock)]
    save(store, ids, n_failures=2, last_crawl_at=T0)
    found = [row.crawl_rate for row in _rows(store, clock)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)  # the prior is fitted again


def test_an_epoch_equals_that_of_a_store_whose_pages_without_content_are_gone(sql_store, clock):
    """What a gone page means for priors, siblings, caps and the certificate is the same here."""
    ids = watched(sql_store)
    with sql_store.begin() as tx:
        change_host(tx, "example.org", {"max_crawl_rate": 4.0}, T0, Politeness())
    numbers = []
    for changes in ({"n_failures": 3}, {"n_failures": 0, "gone": True}):
        save(sql_store, ids[::3], last_crawl_at=T0, **changes)
        epoch = run_epoch(sql_store, PLAN, clock)
        certificate = replace(epoch.certificate, seconds={}, passes=0, multiplier=0.0)
        numbers.append(
            (certificate, [row.crawl_rate for row in read_schedule(sql_store, epoch.epoch)])
        )
    (one, rates), (other, expected) = numbers
    np.testing.assert_allclose(rates, expected, rtol=1e-6, atol=1e-12)
    assert one.bandwidth_used == pytest.approx(other.bandwidth_used)
    assert one.harmonic_cost == pytest.approx(other.harmonic_cost)


def test_an_epoch_without_any_content_spends_nothing(store, clock):
    save(store, register(store, 3), n_failures=3, last_crawl_at=T0)
    certificate = run_epoch(store, PLAN, clock).certificate
    assert (certificate.bandwidth_used, certificate.harmonic_cost) == (0, 0)


def test_a_plan_knows_pages_without_content(sql_store, clock):
    ids = watched(sql_store)
    with sql_store.begin() as tx:
        tx.change_page(int(ids[0]), PagePatch(min_crawl_rate=5.0), T0)
    save(sql_store, ids, n_observations=1, last_crawl_at=T0, last_observed_at=T0)
    save(sql_store, ids[:20], n_failures=3)
    epoch = run_epoch(sql_store, PLAN, clock)
    answer = WhatIf(sql_store, PLAN, clock).ask([7.5], 10)
    assert answer.min_bandwidth == 0
    (plan,) = answer.items
    assert plan.harmonic_cost == pytest.approx(epoch.certificate.harmonic_cost, rel=1e-6)
    assert [page.page_id for page in plan.starved] == []


@pytest.mark.dear
def test_pages_that_time_out_for_good_leave_the_budget_to_the_others(sql_store, clock):
    """Three of ten pages never answer again; due pages are crawled every other hour for 20 days."""
    ids = np.sort(register(sql_store, 20))
    dead, budget, settled = set(ids[::3][:6].tolist()), 10.0, T0 + 8 * DAY
    crawls, rates = Counter(), None
    plan, how = replace(PLAN, bandwidth=budget, url_groups=False), rules()
    for hour in range(0, 20 * 24, 2):
        clock.at = now = T0 + timedelta(hours=hour)
        if hour % 24 == 0:
            rates = {row.page_id: row.crawl_rate for row in _rows_of(sql_store, plan, clock)}
        with sql_store.begin() as tx:
            pages = tx.due_columns(ids)
            due = ids[due_at(pages) <= instant(now)]
            if not len(due):
                continue
            lost = np.isin(due, list(dead)) & (hour > 0)
            digest = np.where(lost, 0, 1_000 * due + 1 + hour // 48)  # no two pages are alike
            crawled = crawl_columns(due, now, digest=digest, status=np.where(lost, 0, 200))
            record(tx, crawled, how)
        if now >= settled:
            crawls.update(page_id in dead for page_id in due.tolist())
    assert sum(rates[page_id] for page_id in dead) == 0
    assert sum(rates.values()) == pytest.approx(budget)
    assert crawls[True] <= 2 * len(dead)
    assert crawls[False] / 12 == pytest.approx(budget, rel=0.15)


def _rows_of(store, plan, clock):
    return read_schedule(store, run_epoch(store, plan, clock).epoch)
