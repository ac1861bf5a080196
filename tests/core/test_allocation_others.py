from math import factorial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import lambertw
from support.allocation_cases import cases, golden_set, magnitudes, six_pages
from support.examples import examples

from recrawl_lab.reference import lambdacrawl
from recrawl_lab.reference.periodic import _changes_between_crawls, allocate_periodic
from service.core.allocation import ALLOCATORS
from service.core.allocation.alternatives import (
    allocate_approximate,
    allocate_binary,
    allocate_binary_floor,
)
from service.core.allocation.harmonic import allocate_harmonic
from service.core.checks import InvalidInput
from service.core.costs import costs

SETS = {1000: 20190619, 10000: 20190620}


def cost(case, allocation, of="harmonic", timing="poisson"):
    both = costs(
        case.importance,
        case.change_rate,
        allocation.crawl_rate,
        allocation.crawl_probability,
        case.complete,
        timing=timing,
    )
    return getattr(both, of).sum()


def total_rate(case, allocation):
    return allocation.crawl_rate + allocation.crawl_probability * case.change_rate


@pytest.mark.parametrize(
    ("name", "n", "harmonic", "binary"),
    [
        ("approximate", 1000, 22.80705985234477, 12.081268254966654),
        ("approximate", 10000, 21.73330261106279, 11.626507048980505),
        ("binary", 1000, np.inf, 11.872271012755194),
        ("binary", 10000, np.inf, 11.22335808189527),
        ("binary_floor", 1000, 24.899794790240303, 12.599191552763541),
        ("binary_floor", 10000, 22.19762906388524, 11.94285969827762),
    ],
)
def test_the_golden_sets_cost_what_was_published(name, n, harmonic, binary):
    case = golden_set(n, SETS[n])
    allocation = ALLOCATORS[name](*case)
    close = 1e-9 if name == "approximate" else 1e-12
    assert cost(case, allocation) / n == pytest.approx(harmonic, rel=close)
    assert cost(case, allocation, "binary") / n == pytest.approx(binary, rel=close)
    assert allocation.bandwidth_used == pytest.approx(0.2 * n, rel=1e-12)
    if name == "approximate":
        above = cost(case, allocation) - cost(case, allocate_harmonic(*case))
        assert allocation.duality_gap == pytest.approx(above, rel=1e-9)
        assert allocation.kkt_residual > 0.9
    else:
        assert allocation.kkt_residual < 1e-12


def test_what_the_golden_sets_say_of_multipliers_and_starved_pages():
    case = golden_set()
    binary = allocate_binary(*case)
    assert (binary.crawl_rate == 0).sum() == 431
    assert binary.multiplier == pytest.approx(22.92179900459894, rel=1e-12)
    floor = allocate_binary_floor(*case)
    assert floor.multiplier == pytest.approx(29.91343390406912, rel=1e-12)
    assert floor.crawl_rate.min() == pytest.approx(0.08, rel=1e-15)
    approximate = allocate_approximate(*case)
    assert approximate.multiplier == pytest.approx(62.33045816448865, rel=1e-7)


@pytest.mark.parametrize(
    ("bandwidth", "rates", "multiplier", "floor_rates"),
    [
        (
            0.5,
            [0.2520815280171308, 0, 0, 0, 0.2479184719828692, 0],
            8.067027162278464,
            [0.19685305303405146, 0.1 / 3, 0.1 / 3, 0.1 / 3, 0.16981361363261527, 0.1 / 3],
        ),
        (
            2.0,
            [0.5553162029396512, 0.4653315765301076, 0, 0.3025951586901475, 0.6767570618400943, 0],
            2.3286176645677252,
            [
                0.5099263360693723,
                0.36383674871849836,
                0.4 / 3,
                0.24700415202762638,
                0.6125660965178367,
                0.4 / 3,
            ],
        ),
        (
            10.0,
            [
                1.8000609185717888,
                3.2486653753172128,
                0.6870919203793049,
                1.8270898653523902,
                2.437091920379305,
                0,
            ],
            0.27699054799763223,
            [
                1.6900628746966226,
                3.002702271820337,
                2 / 3,
                1.6923703252531732,
                2.281531194896534,
                2 / 3,
            ],
        ),
    ],
)
def test_six_pages_of_binary_cost(bandwidth, rates, multiplier, floor_rates):
    case = six_pages(bandwidth)
    binary = allocate_binary(*case)
    assert binary.crawl_rate == pytest.approx(rates, rel=1e-12)
    assert binary.multiplier == pytest.approx(multiplier, rel=1e-12)
    floor = allocate_binary_floor(*case)
    assert floor.crawl_rate == pytest.approx(floor_rates, rel=1e-12)


@pytest.mark.dear
@settings(max_examples=50)
@given(cases(max_pages=6, decades=1, zero=False), st.sampled_from([0.0, 0.4, 1.0]))
def test_no_generic_solver_finds_less_binary_cost(case, floor_share):
    allocation = allocate_binary_floor(*case, floor_share=floor_share)
    n, floor = case.importance.size, floor_share * case.bandwidth / case.importance.size

    def objective(share):
        rate = share * case.bandwidth
        return (case.importance * case.change_rate / (case.change_rate + rate)).sum()

    found = minimize(
        objective,
        np.full(n, 1 / n),
        bounds=[(floor / case.bandwidth, 1)] * n,
        constraints={"type": "ineq", "fun": lambda share: 1 - share.sum()},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    ours = objective(allocation.crawl_rate / case.bandwidth)
    feasible = found.x.sum() <= 1 + 1e-12
    assert not feasible or ours <= found.fun * (1 + 1e-9)


@pytest.mark.dear
@given(cases(), st.sampled_from(["approximate", "binary", "binary_floor", "periodic"]))
def test_every_input_meets_its_bandwidth_and_the_optimality_conditions(case, name):
    allocation = {**ALLOCATORS, "periodic": allocate_periodic}[name](*case)
    rate = total_rate(case, allocation)
    assert (rate >= 0).all()
    assert (allocation.crawl_probability <= 1).all()
    useful = (case.importance > 0) & (case.change_rate > 0)
    if name in {"approximate", "periodic"}:
        usable = np.where(case.complete, case.change_rate, np.inf)[useful].sum()
    else:
        usable = np.inf if useful.any() or name == "binary_floor" else 0.0
    if name == "binary_floor" and not useful.any():
        usable = 0.4 * case.bandwidth
    assert rate.sum() == pytest.approx(min(case.bandwidth, usable), rel=1e-9)
    assert allocation.bandwidth_used == pytest.approx(rate.sum(), rel=1e-9)
    assert name == "approximate" or allocation.kkt_residual < 1e-9
    assert not np.isnan([allocation.duality_gap, allocation.multiplier]).any()


@pytest.mark.dear
@given(cases(), magnitudes(6, zero=False), magnitudes(6, zero=False))
def test_units_of_importance_and_of_time_do_not_matter(case, weight, time):
    for allocate in allocate_approximate, allocate_binary, allocate_binary_floor, allocate_periodic:
        before = allocate(*case)
        scaled = case._replace(
            importance=case.importance * weight,
            change_rate=case.change_rate * time,
            bandwidth=case.bandwidth * time,
        )
        rate = total_rate(scaled, allocate(*scaled)) / time
        close = 1e-10 * case.bandwidth
        if allocate in (allocate_binary, allocate_binary_floor):
            # pages enter at the level sqrt(change_rate / importance), known to its rounding
            close += 16 * np.finfo(float).eps * case.change_rate.sum()
        assert rate == pytest.approx(total_rate(case, before), rel=1e-8, abs=close)


@pytest.mark.dear
@given(cases(decades=2, zero=False))
def test_the_approximation_splits_the_bandwidth_as_a_search_would(case):
    """Golden-URL group search over the split, as K19's Algorithm 3 does."""
    assume(case.complete.any() and not case.complete.all())
    allocation = allocate_approximate(*case)
    clock = ~case.complete
    share = case.importance[clock] / case.importance[clock].sum()

    def of_split(log_share):
        to_clock = case.bandwidth * np.exp(log_share)
        rates = share * to_clock
        loss = case.importance[clock] @ np.log1p(case.change_rate[clock] / rates)
        left = min(case.bandwidth - to_clock, case.change_rate[case.complete].sum())
        if left <= 0:
            return np.inf
        p = lambdacrawl.complete_only(
            case.importance[case.complete], case.change_rate[case.complete], left
        )
        return loss - case.importance[case.complete] @ np.log(p)

    found = minimize_scalar(of_split, bounds=(-25, 0), method="bounded")
    assert cost(case, allocation) <= found.fun * (1 + 1e-9) + 1e-9 * case.importance.sum()


@pytest.mark.dear
@settings(max_examples=examples(20, 100))
@given(cases(max_pages=12, decades=1, zero=False))
def test_one_multiplier_solves_what_the_papers_three_algorithms_solve(case):
    assume(case.complete.any() and not case.complete.all())
    rate, probability = lambdacrawl.mixed(*case)
    theirs = costs(
        case.importance, case.change_rate, rate, probability, case.complete
    ).harmonic.sum()
    ours = cost(case, allocate_harmonic(*case))
    assert ours <= theirs + 1e-9 * (abs(theirs) + case.importance.sum())
    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5 * case.importance.sum())


def test_the_papers_algorithms_agree_on_the_golden_set():
    case = golden_set()
    rate, probability = lambdacrawl.mixed(*case)
    ours = allocate_harmonic(*case)
    assert rate == pytest.approx(ours.crawl_rate, rel=1e-5)
    assert probability == pytest.approx(ours.crawl_probability, rel=1e-5)
    clock, pinged = ~case.complete, case.complete
    by_clock = lambdacrawl.incomplete_only(
        case.importance[clock], case.change_rate[clock], ours.crawl_rate.sum()
    )
    assert by_clock == pytest.approx(ours.crawl_rate[clock], rel=1e-11)
    by_ping = lambdacrawl.complete_only(
        case.importance[pinged],
        case.change_rate[pinged],
        (ours.crawl_probability * case.change_rate).sum(),
    )
    assert by_ping == pytest.approx(ours.crawl_probability[pinged], rel=1e-12)


def test_optimal_periodic_rates_cost_what_was_published():
    case = golden_set()
    allocation = allocate_periodic(*case)
    harmonic = cost(case, allocation, timing="periodic") / 1000
    binary = cost(case, allocation, "binary", timing="periodic") / 1000
    assert (harmonic, binary) == pytest.approx((14.012, 10.000), abs=5e-4)
    poisson_rates = cost(case, allocate_harmonic(*case), timing="periodic") / 1000
    assert harmonic < poisson_rates
    assert allocation.kkt_residual < 1e-12


def test_changes_between_crawls_at_a_price():
    price = np.array([0.01, 0.5, 2.0])
    expected = [0.14483475106683477, 1.198290437315664, 2.9475309025422853]
    assert _changes_between_crawls(price) == pytest.approx(expected, rel=1e-13)


@given(st.floats(-30, 30))
def test_changes_between_crawls_solve_their_equation(log_price):
    price = 10.0**log_price
    x = _changes_between_crawls(np.array([price]))[0]
    if price > 1e-2:
        by_lambert = 1 + price + lambertw(-np.exp(-1 - price)).real
        assert x == pytest.approx(by_lambert, rel=1e-10)
    else:
        series = sum((-x) ** k / factorial(k) for k in range(2, 12))
        assert series == pytest.approx(price, rel=1e-10)


@pytest.mark.dear
@settings(max_examples=examples(12, 40))
@given(cases(max_pages=5, decades=1, zero=False))
def test_no_generic_solver_finds_less_periodic_cost(case):
    case = case._replace(complete=np.zeros(case.importance.size, bool))
    n = case.importance.size
    allocation = allocate_periodic(*case)

    def objective(share):
        rate = np.maximum(share, 1e-12) * case.bandwidth
        nothing = np.zeros(n)
        return costs(
            case.importance, case.change_rate, rate, nothing, case.complete, timing="periodic"
        ).harmonic.sum()

    found = minimize(
        objective,
        np.full(n, 1 / n),
        bounds=[(1e-9, 1)] * n,
        constraints={"type": "ineq", "fun": lambda share: 1 - share.sum()},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    if found.x.sum() <= 1 + 1e-12:
        assert objective(allocation.crawl_rate / case.bandwidth) <= found.fun * (1 + 1e-9)


def test_periodic_rates_need_bandwidth_and_pages_like_any_other():
    assert allocate_periodic([1.0], [1.0], [False], 0.0).multiplier == np.inf
    assert allocate_periodic([], [], np.zeros(0, bool), 1.0).bandwidth_used == 0
    full = allocate_periodic([1.0, 1.0], [1.0, 2.0], [True, True], 9.0)
    assert (full.multiplier, full.bandwidth_used) == (0, 3)


def test_a_floor_is_a_share():
    with pytest.raises(InvalidInput, match=r"floor_share is 1\.5"):
        allocate_binary_floor([1.0], [1.0], [False], 1.0, floor_share=1.5)
