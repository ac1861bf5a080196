"""Plans of other bandwidths: equal to what an epoch publishes, optimal, and read once an epoch."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from support.allocation_cases import magnitudes
from support.epoch_cases import Clock
from support.examples import examples
from support.plan_cases import basis_of
from support.store_cases import DAY, T0, page_of, read_schedule, register, save

from service.core.estimators.gamma import Gamma
from service.epochs.bandwidth_plans import MORE, planned
from service.epochs.plan import Plan
from service.epochs.requests import RequestCounts
from service.epochs.run import run_epoch
from service.epochs.what_if import WhatIf
from service.estimation.estimates import estimate_rates
from service.estimation.rules import fitted_last
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.model.arrays import instant
from service.model.domain import Observability, PagePatch, Timing
from service.model.errors import EpochNotFound, PlanTooLarge
from service.model.listing import PageTags

HOSTS = ("a.example", "b.example", "c.example", "d.example")
PLAN = Plan(Gamma(), bandwidth=20.0)
LATER = T0 + 30 * DAY


def crowded(store):
    """Four hosts of all kinds of pages with copies, with caps, a group, bounds, pings and tags."""
    copied = {"last_crawl_at": T0, "last_observed_at": T0}
    rng = np.random.default_rng(5)
    for host in HOSTS:
        importance = np.where(np.arange(20) == 11, 0.0, rng.pareto(1.5, 20) + 0.1)
        ids = register(store, 20, host=host, importance=importance)
        days = rng.uniform(5, 50, 20)
        changes = rng.poisson(rng.gamma(0.5, 0.4, 20) * days)
        save(store, ids, estimate=np.column_stack([changes, days]), n_observations=changes)
        complete = register(store, 2, host=host, observability=Observability.complete)
        save(store, np.concatenate([ids, complete]), **copied)
        save(store, ids[:2], n_pings=rng.integers(1, 50, 2))
        save(
            store,
            ids[4:8],
            n_pings=40,
            recent_pings=15.0,
            real_pings=20.0,
            false_pings=5.0,
            last_ping_at=LATER,
        )
        with store.begin() as tx:
            tx.change_page(int(ids[9]), PagePatch(min_crawl_rate=0.5), T0)
            tx.change_page(int(ids[10]), PagePatch(max_crawl_rate=0.05), T0)
            tx.add_tags(PageTags(page_id=ids[3:6], tag=np.array(["news"] * 3, object)))
            tx.add_tags(PageTags(page_id=ids[5:6], tag=np.array([host], object)))
    with store.begin() as tx:
        politeness = Politeness()
        members = ["c.example", "d.example"]
        change_host(tx, "a.example", {"max_crawl_rate": 1.0}, T0, politeness)
        change_group(tx, "server", {"max_crawl_rate": 8.0}, members, T0, politeness)


def published(store, epoch, plan, clock):
    """Return the crawls a day by host and by tag, of what an epoch has published."""
    rows = read_schedule(store, epoch.epoch)
    with store.begin(write=False) as tx:
        pages = tx.load_columns()
        estimator = fitted_last(tx, plan.estimator, epoch)
        tags = tx.tags_of(pages.page_id)
    estimates = estimate_rates(pages, estimator, instant(clock.at))
    complete = pages.observability == Observability.complete
    pings = np.where(complete, estimates.change_rate, estimates.ping_rate)
    crawls = np.array(
        [row.crawl_rate + row.crawl_probability * pings[i] for i, row in enumerate(rows)]
    )
    assert np.count_nonzero(pings) >= 4 * 4
    by_host, by_tag = defaultdict(float), defaultdict(float)
    for row, rate in zip(rows, crawls.tolist(), strict=True):
        by_host[page_of(store, row.page_id).host] += rate
    for page_id, tag in zip(tags.page_id.tolist(), tags.tag.tolist(), strict=True):
        by_tag[tag] += crawls[np.searchsorted(pages.page_id, page_id)]
    return by_host, by_tag, float(pages.importance.sum())


@pytest.mark.dear
@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, objective="binary")])
def test_a_plan_is_what_an_epoch_publishes_at_that_bandwidth(queue_store, plan):
    store, clock = queue_store, Clock(LATER)
    crowded(store)
    for _ in range(4):  # the means of URL groups take a step in each
        first = run_epoch(store, plan, clock)
    what_if = WhatIf(store, plan, clock)
    bandwidths = [8.0, 20.0, 60.0, 500.0]
    answer = what_if.ask(bandwidths, 100)
    assert (answer.epoch, answer.at, answer.n_hosts) == (first.epoch, clock.at, 4)
    assert answer.n_pages == first.certificate.n_pages
    assert answer.in_force == answer.items[1]
    for bandwidth, item in zip(bandwidths, answer.items, strict=True):
        epoch = run_epoch(store, replace(plan, bandwidth=bandwidth), clock)
        certificate = epoch.certificate
        assert item.feasible
        for name in ("bandwidth", "bandwidth_used", "multiplier", "harmonic_cost", "binary_cost"):
            planned_as, expected = getattr(item, name), getattr(certificate, name)
            infinite = planned_as is None and expected == np.inf
            assert infinite or planned_as == pytest.approx(expected, rel=1e-9), (name, bandwidth)
        by_host, by_tag, importance = published(store, epoch, plan, clock)
        assert item.fresh_share == pytest.approx(1 - certificate.binary_cost / importance, abs=1e-9)
        assert {h.host: h.crawl_rate for h in item.hosts} == pytest.approx(by_host, rel=1e-6)
        assert {t.tag: t.crawl_rate for t in item.tags} == pytest.approx(by_tag, rel=1e-6)
        assert sum(h.crawl_rate for h in item.hosts) == pytest.approx(item.bandwidth_used, rel=1e-9)
        assert [h.crawl_rate for h in item.hosts] == sorted(
            (h.crawl_rate for h in item.hosts), reverse=True
        )
        assert {h.n_pages for h in item.hosts} == {20}
        assert {t.tag: t.n_pages for t in item.tags} == {"news": 12, **dict.fromkeys(HOSTS, 1)}


@pytest.mark.dear
def test_caps_that_are_used_up_are_marked(queue_store):
    crowded(queue_store)
    clock = Clock(LATER)
    run_epoch(queue_store, PLAN, clock)
    what_if = WhatIf(queue_store, PLAN, clock)
    scarce, plenty = what_if.ask([4.0, 60.0], 10).items
    assert not any(host.at_cap for host in scarce.hosts)
    hosts = {host.host: host for host in plenty.hosts}
    assert {name for name in hosts if hosts[name].at_cap} == {"a.example", "c.example", "d.example"}
    caps = {name: host.max_crawl_rate for name, host in hosts.items()}
    assert caps == {**dict.fromkeys(HOSTS), "a.example": 1.0}
    assert hosts["a.example"].crawl_rate == pytest.approx(1.0)
    assert hosts["c.example"].crawl_rate + hosts["d.example"].crawl_rate == pytest.approx(8.0)
    few = what_if.ask([60.0], 2).items[0]
    assert (few.hosts, few.tags) == (plenty.hosts[:2], plenty.tags[:2])
    assert what_if.ask([60.0], 0).items[0].hosts == []


def test_a_bandwidth_below_the_minima_names_the_fewest_pages_that_starve(queue_store):
    store, clock = queue_store, Clock(LATER)
    ids = register(store, 8, min_crawl_rate=[0.5, 4.0, 0.1, 0.5, 2.0, np.nan, np.nan, 1.0])
    run_epoch(store, PLAN, clock)
    answer = WhatIf(store, PLAN, clock).ask([5.0, 8.1, 4.1], 2)
    assert answer.min_bandwidth == pytest.approx(8.1)
    starving, fitting, edge = answer.items
    assert fitting.feasible
    assert (fitting.n_starved, fitting.starved, fitting.reason) == (0, [], None)
    # 0.1 + 0.5 + 0.5 + 1 + 2 fit into 4.1 and into 5, the 4 of one page does not
    for item in (starving, edge):
        assert not item.feasible
        assert (item.harmonic_cost, item.hosts, item.tags) == (None, [], [])
        assert item.n_starved == 1
        assert [(s.page_id, s.min_crawl_rate) for s in item.starved] == [(ids[1], 4.0)]
    assert "8.1 crawls a day, 3.1 more" in starving.reason
    tight = WhatIf(store, PLAN, clock).ask([0.3], 2).items[0]
    assert tight.n_starved == 5
    assert [s.page_id for s in tight.starved] == [ids[1], ids[4]]
    failed = run_epoch(store, replace(PLAN, bandwidth=4.1), clock)
    assert "BandwidthInfeasible" in failed.reason


def test_pages_are_read_once_an_epoch_and_after_one_that_failed(queue_store, monkeypatch):
    store, clock = queue_store, Clock(LATER)
    what_if = WhatIf(store, PLAN, clock)
    with pytest.raises(EpochNotFound, match="POST /epochs"):
        what_if.ask([1.0], 1)
    ids = register(store, 6)
    run_epoch(store, PLAN, clock)
    reads = []
    read = what_if._read
    monkeypatch.setattr(what_if, "_read", lambda tx: reads.append(1) or read(tx))
    first = what_if.ask([1.0], 1)
    clock.at += DAY
    assert what_if.ask([1.0], 1) == first
    assert len(reads) == 1
    with store.begin() as tx:
        tx.change_page(int(ids[0]), PagePatch(min_crawl_rate=30.0), T0)
    assert what_if.ask([25.0], 1).items[0].feasible
    assert run_epoch(store, PLAN, clock).reason
    after = what_if.ask([25.0], 1)
    assert (after.epoch, after.at, len(reads)) == (first.epoch, clock.at, 2)
    assert not after.items[0].feasible
    assert not after.in_force.feasible
    (notice,) = after.plan_notices
    assert "stays that of epoch 1: the last one failed (BandwidthInfeasible: the min" in notice
    run_epoch(store, replace(PLAN, bandwidth=40.0), clock)
    other = what_if.ask([1.0], 1)
    assert (other.in_force.bandwidth, other.in_force.feasible) == (20.0, False)
    (notice,) = other.plan_notices
    assert "epoch 3, with 40 crawls a day; the budget has changed since (20 crawls a day)" in notice
    what_if.forget(what_if.n_questions - 1)
    what_if.ask([1.0], 1)
    assert len(reads) == 3
    what_if.forget(what_if.n_questions)
    what_if.ask([1.0], 1)
    assert len(reads) == 4
    with pytest.raises(PlanTooLarge, match=r"6 pages.*5 at most"):
        WhatIf(store, PLAN, clock, max_pages=5).ask([1.0], 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_generic_solver_finds_no_better_plan(seed):
    rng = np.random.default_rng(seed)
    n, caps, low = 7, [0.8, np.inf, 1.2], np.full(7, 0.02)
    host, importance = rng.integers(0, 3, n), rng.pareto(1.5, n) + 0.1
    change = np.exp(rng.normal(-1, 1, n))
    basis = basis_of(importance, change, host, caps, low, np.full(n, 1.5))
    bandwidth = 3.0
    found = planned(basis, replace(PLAN, timing=Timing.poisson), bandwidth)

    def cost(rate):
        return float(np.sum(importance * np.log1p(change / rate)))

    limits = [{"type": "ineq", "fun": lambda rate: bandwidth - rate.sum()}] + [
        {"type": "ineq", "fun": lambda rate, h=h, c=c: c - rate[host == h].sum()}
        for h, c in enumerate(caps)
        if np.isfinite(c)
    ]
    start, bounds = np.full(n, 0.1), [(0.02, 1.5)] * n
    precise = {"ftol": 1e-13, "maxiter": 2_000}
    best = minimize(cost, start, bounds=bounds, constraints=limits, method="SLSQP", options=precise)
    assert found.figures.harmonic_cost == pytest.approx(best.fun, rel=1e-6)
    by_host = dict(zip(found.hosts.position.tolist(), found.hosts.crawl_rate.tolist(), strict=True))
    expected = {i: best.x[host == h].sum() for i, h in enumerate(np.unique(host))}
    assert by_host == pytest.approx(expected, abs=2e-3)
    binary = float(np.sum(importance * change / (change + best.x)))
    assert found.figures.binary_cost == pytest.approx(binary, rel=1e-3)
    assert found.figures.fresh_share == pytest.approx(1 - binary / importance.sum(), abs=1e-3)


@st.composite
def instances(draw):
    n = draw(st.integers(1, 12))
    column = st.lists(magnitudes(3, zero=False), min_size=n, max_size=n)
    host = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    caps = draw(st.lists(st.sampled_from([0.01, 1.0, 100.0, np.inf]), min_size=3, max_size=3))
    low = np.array(draw(st.lists(st.sampled_from([np.nan, 1e-3, 0.1]), min_size=n, max_size=n)))
    complete = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    basis = basis_of(
        np.array(draw(column)), np.array(draw(column)), host, caps, low, complete=complete
    )
    return basis, sorted(draw(st.lists(magnitudes(3, zero=False), min_size=2, max_size=4)))


@pytest.mark.dear
@given(instances(), st.sampled_from(Timing))
@settings(deadline=None, max_examples=examples(40, 150))
def test_more_bandwidth_is_never_worse(instance, timing):
    basis, bandwidths = instance
    plan = replace(PLAN, timing=timing)
    plans = [planned(basis, plan, bandwidth) for bandwidth in bandwidths]
    feasible = [each.figures.feasible for each in plans]
    assert feasible == sorted(feasible)
    starved = [each.figures.n_starved for each in plans]
    assert starved == sorted(starved, reverse=True)
    assert all((n > 0) != ok for n, ok in zip(starved, feasible, strict=True))
    done = [each for each in plans if each.figures.feasible]
    for less, more in pairwise(done):
        before, after = less.figures, more.figures
        slack = 1 + 1e-9
        assert before.bandwidth_used <= after.bandwidth_used * slack
        assert after.bandwidth_used <= after.bandwidth * slack
        assert after.binary_cost <= before.binary_cost * slack + 1e-12
        assert (after.multiplier or 0) <= (before.multiplier or np.inf) * slack
        if before.harmonic_cost is not None:
            assert after.harmonic_cost <= before.harmonic_cost * slack + 1e-12
        fewer, further = (
            dict(zip(s.hosts.position.tolist(), s.hosts.crawl_rate.tolist(), strict=True))
            for s in (less, more)
        )
        assert all(fewer[host] <= further[host] * slack + 1e-12 for host in fewer)


def of_random_pages(seed, n=400):
    rng = np.random.default_rng(seed)
    return basis_of(rng.pareto(1.5, n) + 0.1, np.exp(rng.normal(-1, 1.5, n)))


def test_the_gain_of_one_page_on_time_is_the_slope_of_its_cost():
    found = planned(basis_of([1.0], [1.0]), PLAN, 1.0).figures
    # the slope of Ein(1/r) - 1 + r (1 - exp(-1/r)) in r is -exp(-1) at r = 1
    assert found.gain == pytest.approx(np.exp(-1), rel=MORE)
    assert found.multiplier == pytest.approx(0.5)


@pytest.mark.parametrize("timing", Timing)
@pytest.mark.parametrize("bandwidth", [4.0, 40.0, 400.0, 4_000.0])
def test_the_gain_is_the_difference_of_two_plans(timing, bandwidth):
    basis, plan = of_random_pages(1), replace(PLAN, timing=timing)
    found, more = (planned(basis, plan, bandwidth * each).figures for each in (1.0, 1.001))
    slope = (found.harmonic_cost - more.harmonic_cost) / (0.001 * bandwidth)
    assert found.gain == pytest.approx(slope, rel=2 * MORE)


@pytest.mark.parametrize("bandwidth", [4.0, 400.0, 4_000.0])
def test_with_crawls_at_random_times_the_gain_is_the_multiplier(bandwidth):
    found = planned(of_random_pages(2), replace(PLAN, timing=Timing.poisson), bandwidth).figures
    assert found.gain == pytest.approx(found.multiplier, rel=2 * MORE)


def test_the_gains_of_all_bandwidths_between_two_plans_are_the_difference_of_their_costs():
    basis, bandwidths = of_random_pages(3), np.geomspace(40.0, 400.0, 200)
    plans = [planned(basis, PLAN, float(each)).figures for each in bandwidths]
    saved = np.trapezoid([each.gain for each in plans], bandwidths)
    assert saved == pytest.approx(plans[0].harmonic_cost - plans[-1].harmonic_cost, rel=2 * MORE)


def test_plans_of_small_budgets_have_the_same_share_of_overhead():
    """The overhead of 43 of 667 crawls a day is no whole budget of 43."""
    seen = RequestCounts(n_reported=7 * 667.0, overhead=43.0, n_taught_nothing=7 * 43.0)
    basis = replace(of_random_pages(3), requests=seen)
    plans = [planned(basis, PLAN, r).figures for r in (30.0, 43.0, 60.0, 75.0, 667.0, 2_000.0)]
    assert [each.overhead for each in plans[-2:]] == [43.0, 43.0]
    assert plans[0].overhead == pytest.approx(30 * 43 / 667)
    gains = [each.gain for each in plans]
    assert gains == sorted(gains, reverse=True)


def test_no_more_is_gained_where_all_caps_are_used_up():
    basis = basis_of([1.0, 2.0], [1.0, 0.1], caps=[0.5])
    assert planned(basis, PLAN, 0.2).figures.gain > 0
    assert planned(basis, PLAN, 20.0).figures.gain == pytest.approx(0.0, abs=1e-9)
