"""Costs of crawls: the optimum within a budget of bytes, seconds or money."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq, minimize
from support.allocation_cases import golden_set, magnitudes

from service.core.allocation.certificate import Rates, certify
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.multipliers import grow
from service.core.allocation.problem import check_hosts, check_pages
from service.core.checks import BandwidthInfeasible, InvalidInput
from service.core.costs import costs

HOST = np.arange(12) % 4
CAPS = {"host": HOST, "host_bandwidth": np.array([0.2, 1.0, np.inf, 0.4])}
GROUPS = {**CAPS, "host_group": np.array([0, 1, 1, 0]), "group_bandwidth": np.array([0.5, np.inf])}
BOUNDS = {"min_crawl_rate": np.full(12, 0.01), "max_crawl_rate": np.full(12, 0.6)}
PINGS = {"ping_recall": np.linspace(0.1, 0.9, 12), "ping_precision": np.linspace(0.95, 0.5, 12)}


def pages(n=12, seed=5):
    rng = np.random.default_rng(seed)
    return rng.lognormal(size=n), rng.lognormal(-1, 1, n), np.arange(n) % 5 == 4


def prices(n=12, seed=6):
    return np.random.default_rng(seed).lognormal(0, 1.5, n)


def crawls(allocation, columns, ping_recall=0.0, ping_precision=1.0, **_):
    _, change_rate, complete = columns
    announced = np.where(complete, 1.0, ping_recall / ping_precision) * change_rate
    return allocation.crawl_rate + allocation.crawl_probability * announced


def cost_of(allocation, columns, ping_recall=None, ping_precision=None, **_):
    importance, change_rate, complete = columns
    rates = allocation.crawl_rate, allocation.crawl_probability
    noise = {"ping_recall": ping_recall, "ping_precision": ping_precision}
    return costs(importance, change_rate, *rates, complete, **noise).harmonic.sum()


def by_slsqp(columns, cost, budget, limits):
    """Return the least cost and the rates by a generic solver, for pages without pings."""
    importance, change_rate, _ = columns
    low, high = limits.get("min_crawl_rate"), limits.get("max_crawl_rate")
    n = len(cost)
    rows = [(cost, budget)]
    if "host" in limits:
        of_host = [limits["host"] == h for h in range(len(limits["host_bandwidth"]))]
        rows += zip(np.array(of_host, float), limits["host_bandwidth"], strict=True)
        for group, cap in enumerate(limits.get("group_bandwidth", ())):
            rows.append(
                (np.isin(limits["host"], np.flatnonzero(limits["host_group"] == group)), cap)
            )
    matrix, most = np.array([r for r, m in rows if m < np.inf], float), [m for _, m in rows]
    most = np.array([m for m in most if m < np.inf])
    low = np.full(n, 1e-9) if low is None else low
    high = np.full(n, np.inf) if high is None else high
    x = np.log(np.clip(np.full(n, 0.02), low, high))
    for _ in range(4):  # in ln rate, and again from the result: the last digits take restarts
        found = minimize(
            lambda x: (importance * np.log1p(change_rate * np.exp(-x))).sum(),
            x,
            jac=lambda x: -importance * change_rate / (np.exp(x) + change_rate),
            bounds=list(zip(np.log(low), np.log(high), strict=True)),
            constraints={
                "type": "ineq",
                "fun": lambda x: 1 - matrix @ np.exp(x) / most,
                "jac": lambda x: -matrix * np.exp(x) / most[:, None],
            },
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 1000},
        )
        x = found.x
    return found.fun, np.exp(x)


@pytest.mark.parametrize("limits", [{}, CAPS, GROUPS, BOUNDS, {**GROUPS, **BOUNDS}])
def test_the_cost_and_the_rates_are_those_of_a_generic_solver(limits):
    importance, change_rate, _ = pages()
    columns, cost = (importance, change_rate, np.zeros(12, bool)), prices()
    allocation = allocate_harmonic(*columns, 4.0, cost=cost, **limits)
    least, rates = by_slsqp(columns, cost, 4.0, limits)
    assert cost_of(allocation, columns) == pytest.approx(least, rel=1e-9)
    assert allocation.crawl_rate == pytest.approx(rates, rel=1e-6, abs=1e-6)
    assert allocation.bandwidth_used == pytest.approx(4.0, rel=1e-12)
    assert allocation.crawl_rate @ cost == pytest.approx(4.0, rel=1e-12)


def test_pages_without_caps_have_the_closed_form_at_multiplier_times_cost():
    importance, change_rate, _ = pages(1000)
    columns, cost = (importance, change_rate, np.zeros(1000, bool)), prices(1000)

    def rates(s):
        return (
            2 * importance * s / cost / (1 + np.sqrt(1 + 4 * importance * s / cost / change_rate))
        )

    s = np.exp(brentq(lambda x: rates(np.exp(x)) @ cost - 300.0, -20, 20, xtol=1e-14, rtol=1e-14))
    allocation = allocate_harmonic(*columns, 300.0, cost=cost)
    assert allocation.multiplier == pytest.approx(1 / s, rel=1e-11)
    assert allocation.crawl_rate == pytest.approx(rates(s), rel=1e-10)


EVERYTHING = {**GROUPS, **BOUNDS, **PINGS}


@pytest.mark.parametrize("limits", [{}, GROUPS, EVERYTHING])
def test_another_unit_of_costs_and_budget_changes_no_rate(limits):
    columns, cost = pages(), prices()
    before = allocate_harmonic(*columns, 4.0, cost=cost, **limits)
    after = allocate_harmonic(*columns, 4e6, cost=1e6 * cost, **limits)
    assert after.crawl_rate == pytest.approx(before.crawl_rate, rel=1e-9)
    assert after.crawl_probability == pytest.approx(before.crawl_probability, rel=1e-9)
    assert after.multiplier == pytest.approx(1e-6 * before.multiplier, rel=1e-9)


@pytest.mark.parametrize("limits", [{}, GROUPS, EVERYTHING])
def test_equal_costs_of_one_are_the_plain_problem_to_the_bit(limits):
    plain = allocate_harmonic(*pages(), 4.0, **limits)
    priced = allocate_harmonic(*pages(), 4.0, cost=np.ones(12), **limits)
    assert np.array_equal(priced.crawl_rate, plain.crawl_rate)
    assert np.array_equal(priced.crawl_probability, plain.crawl_probability)
    assert (priced.multiplier, priced.passes) == (plain.multiplier, plain.passes)


@pytest.mark.parametrize("limits", [{}, CAPS, GROUPS, BOUNDS, PINGS, EVERYTHING])
def test_equal_costs_of_two_are_the_plain_problem_at_half_of_the_budget(limits):
    plain = allocate_harmonic(*pages(), 2.0, **limits)
    priced = allocate_harmonic(*pages(), 4.0, cost=np.full(12, 2.0), **limits)
    assert priced.crawl_rate == pytest.approx(plain.crawl_rate, rel=1e-9, abs=1e-12)
    assert priced.multiplier == pytest.approx(plain.multiplier / 2, rel=1e-9)
    assert priced.kkt_residual < 1e-9


@pytest.mark.parametrize("limits", [{}, CAPS, GROUPS, BOUNDS, PINGS, EVERYTHING])
def test_the_certificate_of_costs_is_tight_and_every_limit_holds(limits):
    columns, cost = pages(), prices()
    allocation = allocate_harmonic(*columns, 4.0, cost=cost, **limits)
    each = crawls(allocation, columns, **limits)
    assert allocation.kkt_residual < 1e-9
    assert allocation.duality_gap < 1e-9 * cost_of(allocation, columns, **limits)
    assert each @ cost == pytest.approx(allocation.bandwidth_used, rel=1e-12)
    assert each @ cost <= 4.0 * (1 + 1e-12)
    if "host" in limits:
        of_host = np.bincount(HOST, each)
        assert (of_host <= limits["host_bandwidth"] * (1 + 1e-9)).all()
        full = allocation.host_multiplier > allocation.multiplier * (1 + 1e-9)
        assert full.any()
    if "host_group" in limits:
        assert (
            np.bincount(limits["host_group"], of_host) <= limits["group_bandwidth"] * (1 + 1e-9)
        ).all()


def test_the_certificate_sees_a_plan_that_ignores_costs():
    columns, cost = pages(), prices()
    blind = allocate_harmonic(*columns, 2.0, **CAPS)
    aware = allocate_harmonic(*columns, 4.0, cost=cost, **CAPS)
    checked = check_pages(*columns, cost=cost / cost.min())
    hosts = check_hosts(12, CAPS["host"], CAPS["host_bandwidth"], None, None)
    unit, s = cost.min(), 1 / aware.multiplier
    nu = aware.host_multiplier - aware.multiplier
    inverses = [np.array([s * 1.0]) / unit, 1 / (unit / s + nu)]
    levels = grow(4.0 / unit, hosts)
    good = certify(
        checked, levels, inverses, Rates(aware.crawl_rate, aware.crawl_probability), HOST
    )
    bad = certify(checked, levels, inverses, Rates(blind.crawl_rate, blind.crawl_probability), HOST)
    assert good.kkt_residual < 1e-9
    assert bad.kkt_residual > 0.1
    assert bad.duality_gap > 0.1


@st.composite
def priced(draw, n=6):
    column = hnp.arrays(np.float64, n, elements=magnitudes(4, zero=False))
    share = hnp.arrays(np.float64, n, elements=st.floats(0.05, 1))
    host = draw(hnp.arrays(np.intp, n, elements=st.integers(0, 2)))
    return {
        "importance": draw(column),
        "change_rate": draw(column),
        "complete": draw(hnp.arrays(np.bool_, n)),
        "bandwidth": draw(magnitudes(4, zero=False)),
        "cost": draw(column),
        "host": host,
        "host_bandwidth": draw(hnp.arrays(np.float64, 3, elements=magnitudes(4, zero=False))),
        "host_group": draw(hnp.arrays(np.intp, 3, elements=st.integers(0, 1))),
        "group_bandwidth": draw(hnp.arrays(np.float64, 2, elements=magnitudes(4, zero=False))),
        "ping_recall": draw(share),
        "ping_precision": draw(share),
    }


@pytest.mark.dear
@settings(max_examples=30, deadline=None)
@given(priced())
def test_any_problem_with_costs_and_caps_has_a_tight_certificate(problem):
    allocation = allocate_harmonic(**problem)
    assert allocation.kkt_residual < 1e-6
    assert allocation.bandwidth_used <= problem["bandwidth"] * (1 + 1e-9)


def test_a_large_budget_costs_nothing_at_the_margin():
    columns = pages()[:2], np.ones(12, bool)
    allocation = allocate_harmonic(*columns[0], columns[1], 1e6, cost=prices())
    assert allocation.multiplier == 0
    assert (allocation.crawl_probability == 1).all()


def test_minima_that_cost_more_than_the_budget_are_refused():
    with pytest.raises(BandwidthInfeasible, match=r"add up to .* more than the bandwidth 4"):
        allocate_harmonic(*pages(), 4.0, cost=np.full(12, 50.0), **BOUNDS)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_cost_that_is_not_positive_and_finite_is_refused(bad):
    with pytest.raises(InvalidInput, match="cost"):
        allocate_harmonic(*pages(), 4.0, cost=np.append(np.ones(11), bad))


@pytest.mark.parametrize("rate", [0.1, 0.2])
def test_dear_pages_lower_staleness_by_thirty_percent_at_equal_spend(rate):
    n, rng = 4000, np.random.default_rng(1)
    change_rate = rng.lognormal(np.log(0.3), 1.2, n)
    columns = np.ones(n), change_rate, np.zeros(n, bool)
    cost = np.where(rng.random(n) < 0.1, 20.0, 1.0)
    spend = rate * n * cost.mean()

    def staleness(crawl_rate):
        none = np.zeros(n)
        return costs(*columns[:2], crawl_rate, none, columns[2], timing="periodic").harmonic.mean()

    blind = brentq(lambda r: allocate_harmonic(*columns, r).crawl_rate @ cost - spend, 1, 10 * n)
    before = staleness(allocate_harmonic(*columns, blind).crawl_rate)
    after = staleness(allocate_harmonic(*columns, spend, cost=cost).crawl_rate)
    assert after <= 0.7 * before


def test_a_thousand_pages_take_few_passes():
    case = golden_set()
    host = np.arange(1000) % 40
    cost = prices(1000)
    allocation = allocate_harmonic(
        *case._replace(bandwidth=case.bandwidth * 3),
        cost=cost,
        host=host,
        host_bandwidth=np.where(np.arange(40) < 20, 2.0, np.inf),
    )
    assert allocation.kkt_residual < 1e-11
    assert allocation.passes < 100


@pytest.mark.parametrize("cost", [1e-3, 0.9])
def test_a_host_whose_pages_are_at_their_maxima_keeps_its_cap(cost):
    allocation = allocate_harmonic(
        *([0.1, 0.1], [1e-3, 1e-3], [False, False], 1.0),
        host=[0, 1],
        host_bandwidth=[np.inf, 1e-3],
        max_crawl_rate=[np.inf, 0.5],
        cost=[cost, cost],
    )
    assert allocation.crawl_rate[1] == pytest.approx(1e-3, rel=1e-9)
    assert allocation.crawl_rate.sum() * cost == pytest.approx(1.0, rel=1e-9)
    assert allocation.kkt_residual < 1e-9
