import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from support.allocation_cases import Case, cases, golden_set, magnitudes, six_pages

from service.core.allocation import ALLOCATORS
from service.core.allocation.harmonic import allocate_harmonic
from service.core.checks import InvalidInput
from service.core.costs import costs


def total_rate(case, allocation):
    return allocation.crawl_rate + allocation.crawl_probability * case.change_rate


def assert_same_rates(case, one, rate):
    """Up to what the rounding of the bandwidth leaves undetermined."""
    assert total_rate(case, one) == pytest.approx(rate, rel=1e-9, abs=1e-11 * case.bandwidth)


def cost(case, allocation, of="harmonic"):
    both = costs(
        case.importance,
        case.change_rate,
        allocation.crawl_rate,
        allocation.crawl_probability,
        case.complete,
    )
    return getattr(both, of).sum()


def test_the_regenerated_set_is_the_published_one():
    case = golden_set()
    assert case.importance.sum() == pytest.approx(29679.816047807595, rel=1e-14)
    assert case.change_rate.sum() == pytest.approx(692.458593421638, rel=1e-14)
    assert np.flatnonzero(case.complete)[:6].tolist() == [14, 36, 47, 50, 67, 81]
    assert case.complete.sum() == 40


@pytest.mark.parametrize(
    ("n", "seed", "harmonic", "binary", "multiplier", "by_pings", "certain"),
    [
        (
            1000,
            20190619,
            20.464670689440187,
            12.466805628779392,
            64.27549740872513,
            8.491167709006533,
            13,
        ),
        (
            10000,
            20190620,
            18.671497295774614,
            11.768831286912675,
            60.34217879043133,
            69.1926792953853,
            162,
        ),
        (
            100000,
            20190621,
            19.22364468608764,
            12.043752122936827,
            61.87230122270354,
            750.4369487189333,
            1508,
        ),
    ],
)
def test_the_golden_sets_cost_what_was_published(
    n, seed, harmonic, binary, multiplier, by_pings, certain
):
    case = golden_set(n, seed)
    allocation = allocate_harmonic(*case)
    assert cost(case, allocation) / n == pytest.approx(harmonic, rel=1e-12)
    assert cost(case, allocation, "binary") / n == pytest.approx(binary, rel=1e-12)
    assert allocation.multiplier == pytest.approx(multiplier, rel=1e-12)
    assert allocation.bandwidth_used == pytest.approx(0.2 * n, rel=1e-12)
    pinged = allocation.crawl_probability * case.change_rate
    assert pinged.sum() == pytest.approx(by_pings, rel=1e-12)
    assert (allocation.crawl_probability == 1).sum() == certain
    assert allocation.kkt_residual < 1e-14
    assert allocation.duality_gap < 1e-14 * cost(case, allocation)


@pytest.mark.parametrize(
    ("bandwidth", "multiplier", "rates", "probabilities", "harmonic", "binary"),
    [
        (
            0.5,
            42.848315813145234,
            [0.1107424653239876, 0.10554991602027888, 0.023071981982141235, 0.062261445326908776],
            [0.7468204850698675, 0.00291726751980417],
            34.50849015657512,
            15.448135392253779,
        ),
        (
            2.0,
            4.618708298780387,
            [0.4179858443118636, 0.6543629205676346, 0.1970887606825885, 0.37230709919976945],
            [1.0, 0.027063843809535974],
            13.552829288538076,
            8.069207600960908,
        ),
        (
            10.0,
            0.35329379946554695,
            [1.6331534034943662, 3.295066125704971, 1.580893403337173, 1.825634377616155],
            [1.0, 0.3538131724618335],
            3.9828126301886817,
            3.2677079585581654,
        ),
    ],
)
def test_six_pages_by_hand(bandwidth, multiplier, rates, probabilities, harmonic, binary):
    case = six_pages(bandwidth)
    allocation = allocate_harmonic(*case)
    assert allocation.crawl_rate == pytest.approx([*rates, 0, 0], rel=1e-12)
    assert allocation.crawl_probability == pytest.approx([0, 0, 0, 0, *probabilities], rel=1e-12)
    assert allocation.multiplier == pytest.approx(multiplier, rel=1e-12)
    assert cost(case, allocation) == pytest.approx(harmonic, rel=1e-12)
    assert cost(case, allocation, "binary") == pytest.approx(binary, rel=1e-12)


@pytest.mark.dear
@given(cases(max_pages=6, decades=1, zero=False))
def test_no_generic_solver_finds_less_cost(case):
    assume(not case.complete.all())
    allocation = allocate_harmonic(*case)

    def objective(log_rate):
        rate = np.exp(log_rate)
        share = np.where(case.complete, case.change_rate / rate, 1 + case.change_rate / rate)
        return case.importance @ np.log(share)

    most = np.log(case.bandwidth) + 1
    limit = np.where(case.complete, np.minimum(np.log(case.change_rate), most), most)
    even = np.full(case.importance.size, case.bandwidth / case.importance.size)
    found = minimize(
        objective,
        np.minimum(np.log(even), limit),
        bounds=[(-40, high) for high in limit],
        constraints={"type": "ineq", "fun": lambda x: case.bandwidth - np.exp(x).sum()},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    feasible = np.exp(found.x).sum() <= case.bandwidth * (1 + 1e-9)
    assert not feasible or cost(case, allocation) <= found.fun + 1e-9 * case.importance.sum()


@pytest.mark.dear
@given(cases())
def test_every_input_meets_its_bandwidth_and_the_optimality_conditions(case):
    allocation = allocate_harmonic(*case)
    rate = total_rate(case, allocation)
    useful = (case.importance > 0) & (case.change_rate > 0)
    usable = np.where(case.complete, case.change_rate, np.inf)[useful].sum()
    assert rate.sum() == pytest.approx(min(case.bandwidth, usable), rel=1e-12)
    assert allocation.bandwidth_used == pytest.approx(rate.sum(), rel=1e-12)
    assert (allocation.crawl_probability <= 1).all()
    assert (rate[~useful] == 0).all()
    assert case.bandwidth == 0 or (rate[useful] > 0).all()
    assert allocation.kkt_residual < 1e-12
    assert allocation.duality_gap <= 1e-12 * allocation.multiplier * case.bandwidth or (
        case.bandwidth == 0
    )
    assert allocation.passes <= 30


@pytest.mark.dear
@given(cases(), magnitudes(6, zero=False), magnitudes(6, zero=False))
def test_units_of_importance_and_of_time_do_not_matter(case, weight, time):
    before = allocate_harmonic(*case)
    scaled = Case(
        case.importance * weight, case.change_rate * time, case.complete, case.bandwidth * time
    )
    after = allocate_harmonic(*scaled)
    assert_same_rates(scaled, after, total_rate(case, before) * time)


@pytest.mark.dear
@given(cases(), st.floats(1.0, 1e6))
def test_more_bandwidth_slows_no_page(case, factor):
    less = allocate_harmonic(*case)
    more = allocate_harmonic(*case._replace(bandwidth=case.bandwidth * factor))
    negligible = 1e-11 * case.bandwidth
    gained = total_rate(case, more) - total_rate(case, less)
    assert (gained >= -1e-9 * total_rate(case, less) - negligible).all()


@pytest.mark.dear
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_pages_does_not_matter(case, random):
    order = list(range(case.importance.size))
    random.shuffle(order)
    straight = allocate_harmonic(*case)
    moved = Case(*(column[order] for column in case[:3]), case.bandwidth)
    assert_same_rates(moved, allocate_harmonic(*moved), total_rate(case, straight)[order])


@pytest.mark.dear
@given(cases(), magnitudes(12))
@example(six_pages(2.0), 1e-30)
def test_an_old_multiplier_changes_the_passes_and_nothing_else(case, start):
    cold = allocate_harmonic(*case)
    warm = allocate_harmonic(*case, start=start)
    assert_same_rates(case, warm, total_rate(case, cold))


def test_a_start_near_the_optimum_saves_passes():
    case = golden_set()
    cold = allocate_harmonic(*case)
    warm = allocate_harmonic(*case, start=cold.multiplier * 1.01)
    assert warm.passes <= 3 < cold.passes


def test_complete_pages_alone_are_crawled_on_every_ping_when_bandwidth_allows():
    allocation = allocate_harmonic([1.0, 2.0], [3.0, 4.0], [True, True], 8.0)
    assert allocation.crawl_probability.tolist() == [1, 1]
    assert (allocation.multiplier, allocation.bandwidth_used) == (0, 7)
    assert (allocation.kkt_residual, allocation.duality_gap) == (0, 0)


def test_nothing_to_spend_or_nobody_to_spend_it_on_is_answered_with_zeros():
    broke = allocate_harmonic([1.0, 2.0], [3.0, 4.0], [True, False], 0.0)
    assert (broke.bandwidth_used, broke.multiplier) == (0, np.inf)
    assert not broke.crawl_rate.any()
    assert not broke.crawl_probability.any()
    assert allocate_harmonic([1.0], [1.0], [True], -1.0).bandwidth_used == 0
    idle = allocate_harmonic([1.0, 0.0], [0.0, 4.0], [True, False], 5.0)
    assert (idle.bandwidth_used, idle.multiplier) == (0, 0)
    assert allocate_harmonic([], [], np.zeros(0, bool), 5.0).crawl_rate.shape == (0,)


def test_inputs_are_neither_changed_nor_required_to_be_contiguous():
    case = golden_set()
    columns = np.stack([case.importance, case.change_rate])[:, ::2]
    columns.flags.writeable = False
    strided = allocate_harmonic(columns[0], columns[1], case.complete[::2], 100.0)
    copied = allocate_harmonic(
        columns[0].copy(), columns[1].copy(), case.complete[::2].copy(), 100.0
    )
    assert (strided.crawl_rate == copied.crawl_rate).all()


@pytest.mark.parametrize("allocate", ALLOCATORS.values(), ids=ALLOCATORS)
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"importance": [1.0, -1.0]}, r"importance must be .* \(entries 1\)"),
        ({"importance": [np.nan, 1e300]}, r"importance must be .* \(entries 0, 1\)"),
        ({"change_rate": [np.inf, 1.0]}, r"change_rate must be .* \(entries 0\)"),
        ({"change_rate": [1.0]}, r"change_rate has shape \(1,\), expected \(2,\)"),
        ({"complete": [True]}, r"complete is bool of shape \(1,\), expected bool of \(2,\)"),
        ({"complete": [0.0, 1.0]}, "complete is float64"),
        ({"bandwidth": np.nan}, "bandwidth must be"),
        ({"bandwidth": np.inf}, "bandwidth must be"),
    ],
)
def test_senseless_input_is_refused_by_name(allocate, problem, message):
    sane = {"importance": [1.0, 2.0], "change_rate": [0.1, 0.2], "complete": [True, False]}
    with pytest.raises(InvalidInput, match=message):
        allocate(**{**sane, "bandwidth": 1.0, **problem})


def test_baselines_cost_what_was_published():
    case = golden_set()
    for name, harmonic, binary in [
        ("uniform", 35.01452864155208, 18.124294891277067),
        ("change_rate", 44.39099535201003, 23.02856829993914),
    ]:
        allocation = ALLOCATORS[name](*case)
        assert cost(case, allocation) / 1000 == pytest.approx(harmonic, rel=1e-12)
        assert cost(case, allocation, "binary") / 1000 == pytest.approx(binary, rel=1e-12)
        assert allocation.bandwidth_used == pytest.approx(200, rel=1e-12)


def test_a_baseline_has_nothing_to_spend_on_pages_that_never_change():
    idle = Case(np.ones(2), np.zeros(2), np.zeros(2, bool), 1.0)
    assert ALLOCATORS["change_rate"](*idle).bandwidth_used == 0
