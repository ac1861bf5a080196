"""MLE, MM and the binned MLE: golden rates, scalar root finding as oracle, bins against all."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from recrawl_lab.experiments.imaginary import ImaginaryIntervals, ImaginaryMLE
from recrawl_lab.experiments.runs import gather_history
from service.core.checks import InvalidInput
from service.core.estimators.history import History
from service.core.estimators.mle import MLE, BinnedMLE
from service.core.estimators.mm import MM
from service.core.prior import Prior

TAU, CHANGED = np.array([1.0, 2.0, 0.5, 1.0]), np.array([True, False, True, False])


def one_page(interval, changed):
    return gather_history(np.zeros(len(interval), int), interval, changed, n=1)


def random_history(rng, n=40, longest=30, change_rate=0.7):
    crawls = rng.integers(0, longest, n)
    page = rng.permutation(np.repeat(np.arange(n), crawls))
    interval = rng.exponential(1.5, page.size)
    changed = rng.random(page.size) < -np.expm1(-change_rate * interval)
    return page, interval, changed


def root_of_cg03(interval, changed, imaginary_changed, imaginary_unchanged):
    """K19 equation 10, by bracketing one page."""
    tau = np.append(interval[changed], imaginary_changed)
    quiet = interval[~changed].sum() + imaginary_unchanged

    def score(log_rate):
        x = np.exp(log_rate) * tau
        return np.sum(tau * np.exp(-x) / -np.expm1(-x)) / quiet - 1.0

    return np.exp(brentq(score, -60, 12, xtol=1e-14))


def test_half_a_day_each_gives_the_golden_rate():
    mle = ImaginaryMLE(imaginary=ImaginaryIntervals(0.5, 0.5))
    rate = mle.change_rate(one_page(TAU, CHANGED))
    np.testing.assert_allclose(rate, 0.6794158018724343, rtol=1e-12)


def test_three_changes_in_three_days_give_the_golden_rate():
    rate = MLE().change_rate(one_page(np.ones(3), [True] * 3))
    np.testing.assert_allclose(rate, 2.431178931545915, rtol=1e-9)  # by a generic solver


def test_vanishing_imaginary_intervals_add_one_change_at_a_known_time():
    mle = ImaginaryMLE(imaginary=ImaginaryIntervals(1e-12, 1e-12))
    rate = mle.change_rate(one_page(TAU, CHANGED))
    assert rate > 0.5414430876173044  # the golden rate without any imaginary interval


def test_every_page_of_a_ragged_history_is_the_root_of_its_own_equation():
    rng = np.random.default_rng(1)
    page, interval, changed = random_history(rng)
    rate = MLE().change_rate(gather_history(page, interval, changed, n=40))
    for i in range(40):
        mine = page == i
        if mine.any():
            half = interval[mine].mean() / 2
            expected = root_of_cg03(interval[mine], changed[mine], half, half)
            np.testing.assert_allclose(rate[i], expected, rtol=1e-10)
        else:
            assert rate[i] == MLE().prior.mean


@given(st.integers(1, 10_000), st.booleans(), st.floats(1e-6, 1e6))
def test_one_sided_histories_have_a_positive_finite_rate(k, changed, tau):
    rate = MLE().change_rate(one_page(np.full(k, tau), np.full(k, changed)))[0]
    half = tau / 2
    expected = root_of_cg03(np.full(k, tau) / tau, np.full(k, changed), half / tau, half / tau)
    np.testing.assert_allclose(rate * tau, expected, rtol=1e-9)


@pytest.mark.parametrize("estimator", [MLE(), MM()])
def test_growing_a_history_crawl_by_crawl_is_gathering_it(estimator):
    rng = np.random.default_rng(2)
    interval, changed = rng.exponential(1.0, (8, 5)), rng.random((8, 5)) < 0.5
    state = estimator.init(5)
    for row in range(8):
        state = estimator.update(state, interval[row], changed[row])
    page = np.tile(np.arange(5), 8)
    gathered = gather_history(page, interval.ravel(), changed.ravel(), n=5)
    rates = estimator.change_rate(state), estimator.change_rate(gathered)
    np.testing.assert_allclose(*rates, rtol=1e-13)
    assert len(state.interval) == 5 * 8


def test_moments_expect_as_many_unchanged_crawls_as_there_were():
    rng = np.random.default_rng(3)
    page, interval, changed = random_history(rng)
    rate = MM().change_rate(gather_history(page, interval, changed, n=40))
    for i in range(40):
        mine = page == i
        if 0 < changed[mine].sum() < mine.sum():
            expected = np.exp(-rate[i] * interval[mine]).sum()
            np.testing.assert_allclose(expected, (~changed[mine]).sum(), rtol=1e-10)


def test_moments_are_a_root_also_of_intervals_from_minutes_to_years():
    rng = np.random.default_rng(8)
    n, crawls = 300, 50
    interval = np.exp(rng.uniform(np.log(1e-3), np.log(1e3), (n, crawls)))
    changed = rng.random((n, crawls)) < rng.uniform(0.02, 0.98, (n, 1))
    changed[:, 0] = True
    page = np.repeat(np.arange(n), crawls)
    rate = MM().change_rate(gather_history(page, interval.ravel(), changed.ravel(), n=n))
    found = np.minimum(changed.sum(axis=1), crawls - 0.5)
    for i in range(n):
        root = brentq(lambda d, i=i: -np.expm1(-d * interval[i]).sum() - found[i], 0.0, 1e5)
        np.testing.assert_allclose(rate[i], root, rtol=1e-9)


def test_moments_are_zero_without_a_change_and_finite_without_a_rest():
    assert MM().change_rate(one_page([1.0, 2.0], [False, False])) == 0.0
    np.testing.assert_allclose(MM().change_rate(one_page([1.0] * 4, [True] * 4)), np.log(8.0))
    assert MM(prior=Prior(1.0, 4.0)).change_rate(MM().init(2)).tolist() == [0.25, 0.25]


def test_bins_agree_with_the_full_history_far_within_its_error():
    rng = np.random.default_rng(4)
    n, k = 200, 100
    change_rate = np.exp(rng.normal(-1.0, 1.5, n))
    binned, mle = BinnedMLE(), MLE()
    state, rows = binned.init(n), []
    for _ in range(k):
        interval = rng.exponential(2.0, n) + 0.01
        changed = rng.random(n) < -np.expm1(-change_rate * interval)
        state = binned.update(state, interval, changed)
        rows.append((interval, changed))
    interval, changed = (np.concatenate(column) for column in zip(*rows, strict=True))
    exact = mle.change_rate(gather_history(np.tile(np.arange(n), k), interval, changed, n))
    error = np.abs(binned.change_rate(state) / exact - 1.0)
    assert error[exact * 2.0 < 1.0].max() < 2e-3  # at most one change expected per interval
    assert error.max() < 0.01


def test_bins_of_one_page_and_of_many_agree():
    rng = np.random.default_rng(5)
    binned = BinnedMLE()
    many, one = binned.init(3), binned.init()
    for _ in range(20):
        interval, changed = rng.exponential(1.0, 3), rng.random(3) < 0.5
        many = binned.update(many, interval, changed)
        one = binned.update(one, interval[1], changed[1])
    np.testing.assert_allclose(binned.change_rate(many)[1], binned.change_rate(one), rtol=1e-14)


def test_intervals_beyond_the_bins_are_counted_in_the_outer_ones():
    binned = BinnedMLE(shortest=1.0)
    state = binned.update(binned.init(2), [1e-6, 1e9], [True, True])
    assert state.bin_changes[:, [0, -1]].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert (binned.change_rate(state) > 0).all()


def on_a_grid(interval, changed, mass):
    """Rates within chi²/2 of the likelihood's top, by looking everywhere."""
    rate = np.exp(np.linspace(np.log(1e-4), np.log(1e3), 60_001))
    log = np.zeros_like(rate)
    for tau, found in zip(interval, changed, strict=True):
        log += np.log(-np.expm1(-rate * tau)) if found else -rate * tau
    near = rate[log >= log.max() - scipy.stats.chi2.ppf(mass, 1) / 2]
    return near[0], near[-1]


@pytest.mark.parametrize("mass", [0.5, 0.9, 0.99])
def test_the_interval_is_where_the_likelihood_is_near_its_top(mass):
    rng = np.random.default_rng(6)
    for k, change_rate in ((6, 0.7), (30, 0.2), (30, 3.0), (200, 0.5)):
        interval = rng.exponential(1.5, k)
        changed = rng.random(k) < -np.expm1(-change_rate * interval)
        low, high = MLE().confidence_interval(one_page(interval, changed), mass)
        expected = on_a_grid(interval, changed, mass)
        np.testing.assert_allclose([low[0], high[0]], expected, rtol=5e-4)


def test_one_sided_histories_have_one_sided_intervals_in_closed_form():
    drop = scipy.stats.chi2.ppf(0.9, 1) / 2
    low, high = MLE().confidence_interval(one_page([1.0, 2.0, 5.0], [False] * 3))
    np.testing.assert_allclose([low[0], high[0]], [0.0, drop / 8.0], rtol=1e-9)
    low, high = MLE().confidence_interval(one_page([2.0] * 7, [True] * 7))
    np.testing.assert_allclose(low[0], -np.log(-np.expm1(-drop / 7)) / 2, rtol=1e-9)
    assert high[0] == np.inf
    assert np.isnan(MLE().confidence_interval(MLE().init(3))).all()


def test_intervals_hold_the_rate_as_often_as_they_say():
    rng = np.random.default_rng(7)
    n = 2000
    for k, expected, least in (
        (10, 0.3, 0.85),
        (100, 0.1, 0.87),
        (100, 1.0, 0.87),
        (100, 5.0, 0.87),
    ):
        interval = rng.exponential(1.0, n * k)
        changed = rng.random(n * k) < -np.expm1(-expected * interval)
        history = gather_history(np.repeat(np.arange(n), k), interval, changed, n)
        low, high = MLE().confidence_interval(history)
        held = ((low <= expected) & (expected <= high)).mean()
        assert least < held < 0.95, (k, expected)


@pytest.mark.parametrize("mass", [0.5, 0.9, 0.999])
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.booleans()), min_size=1, max_size=20),
    st.floats(1e-6, 1e6),
)
def test_intervals_hold_the_estimate_and_scale_with_time(mass, crawls, unit):
    interval, changed = map(np.array, zip(*crawls, strict=True))
    here, there = one_page(interval, changed), one_page(interval * unit, changed)
    low, high = MLE().confidence_interval(here, mass)
    assert low <= MLE().change_rate(here) <= high
    scaled = np.multiply(MLE().confidence_interval(there, mass), unit)
    np.testing.assert_allclose(scaled, [low, high], rtol=1e-5)


def test_the_interval_of_bins_is_nearly_that_of_the_history():
    rng = np.random.default_rng(8)
    interval, binned = rng.exponential(2.0, 300) + 0.01, BinnedMLE()
    changed = rng.random(300) < -np.expm1(-0.4 * interval)
    state = binned.init()
    for days, found in zip(interval, changed, strict=True):
        state = binned.update(state, days, found)
    exact = MLE().confidence_interval(one_page(interval, changed))
    np.testing.assert_allclose(binned.confidence_interval(state), np.ravel(exact), rtol=5e-3)
    assert np.isnan(binned.confidence_interval(binned.init(2))).all()


def test_an_interval_without_a_probability_is_refused():
    with pytest.raises(InvalidInput, match="mass"):
        MLE().confidence_interval(one_page(TAU, CHANGED), mass=1.0)


def test_an_empty_history_is_served():
    for estimator in (MLE(), MM()):
        assert estimator.change_rate(estimator.init(0)).shape == (0,)
    assert [end.shape for end in MLE().confidence_interval(MLE().init(0))] == [(0,), (0,)]
    assert isinstance(MLE().init(), History)


def test_senseless_histories_and_parameters_are_refused():
    with pytest.raises(InvalidInput, match="page must be below 2"):
        gather_history([0, 2], [1.0, 1.0], [True, True], n=2)
    with pytest.raises(InvalidInput, match="interval has shape"):
        gather_history([0, 1], [1.0], [True, True], n=2)
    with pytest.raises(InvalidInput, match="shortest"):
        BinnedMLE(shortest=0.0)
    with pytest.raises(InvalidInput, match=r"imaginary\.changed"):
        ImaginaryIntervals(0.0, 1.0)
