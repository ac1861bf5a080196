"""Bursty: the posterior by quadrature, Gamma as its limit, the corpus's dispersion, real bursts."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln

from service.core.checks import InvalidInput
from service.core.estimators.bursty import Bursty, BurstyState
from service.core.estimators.gamma import Gamma, GammaState
from service.core.estimators.lognormal import LogNormal
from service.core.estimators.naive import Naive
from service.core.forecast import probability_unchanged
from service.core.prior import MAX_DISPERSION, MIN_SHAPE, START_DISPERSION, Prior, fit_dispersion

PRIOR = Prior(0.5, 15.0)
amounts = st.floats(0.0, 1e4)
intervals = st.floats(1e-6, 1e4)


def crawled(estimator, intervals, changed):
    state = estimator.init()
    for interval, seen in zip(intervals, changed, strict=True):
        state = estimator.update(state, interval, seen)
    return state


def test_a_history_by_hand():
    """b: 15, 25, 35; then "changed in 10 days", then 10 quiet days.

    The moments are those of docs/theory.md#what-is-estimated.
    """
    a, b, w = 0.5, 35.0, 35.0 / 45.0
    e = [1 - w ** (a + i) for i in range(3)]
    mean, square = a / b * e[1] / e[0], a * (a + 1) / b**2 * e[2] / e[0]
    shape, rate = mean**2 / (square - mean**2), mean / (square - mean**2)
    state = crawled(Bursty(PRIOR), [10.0] * 4, [False, False, True, False])
    by_hand = shape - a, rate - 15.0 + 10.0, (shape - a) * 2**-0.5
    np.testing.assert_allclose(state, by_hand, rtol=1e-12)
    memory = 20.0 / np.log(2) * (1 - 2 ** (-by_hand[1] / 20.0))
    long_run = shape / (rate + 10.0)
    expected = long_run * (0.5 + by_hand[2]) / (0.5 + long_run * memory)
    found = Bursty(PRIOR, dispersion=0.5).change_rate(state)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("recent", [0.0, 0.7, 4.0])
def test_the_posterior_is_that_of_the_product_of_two_beliefs(recent):
    bursty = Bursty(PRIOR, dispersion=1.5)
    state = BurstyState(3.0, 80.0, recent)
    quantiles = (np.arange(2000) + 0.5) / 2000
    long_run = scipy.stats.gamma(3.5, scale=1 / 95.0).ppf(quantiles)
    expected = 3.5 / 95.0 * 20.0 / np.log(2) * (1 - 2 ** (-80.0 / 20.0))
    factor = scipy.stats.gamma(1.5 + recent, scale=1 / (1.5 + expected)).ppf(quantiles)
    product = np.outer(long_run, factor)
    a, b = bursty.posterior(state)
    np.testing.assert_allclose(bursty.expected(state), expected, rtol=1e-12)
    np.testing.assert_allclose(a / b, product.mean(), rtol=2e-3)
    np.testing.assert_allclose(a / b**2, product.var(), rtol=2e-2)
    np.testing.assert_allclose(bursty.change_rate(state), a / b)


def test_a_memory_of_exactly_watched_days_expects_what_was_to_come():
    """The exposure is the integral of the fading weight over the time that was watched."""
    bursty = Bursty(PRIOR, memory_days=7.0)
    for days in (0.1, 5.0, 70.0):
        ago = (np.arange(100_000) + 0.5) * days / 100_000
        watched = np.exp2(-ago / 7.0).mean() * days
        rate = (0.5 + 2.0) / (15.0 + days)
        given_ = bursty.expected(BurstyState(2.0, days, 0.0))
        np.testing.assert_allclose(given_, rate * watched, rtol=1e-8)


@given(st.lists(st.tuples(intervals, st.booleans()), max_size=12))
def test_on_a_steady_corpus_it_is_gamma(history):
    steady, bursty = Gamma(PRIOR), Bursty(PRIOR, dispersion=1e12)
    times, seen = zip(*history, strict=True) if history else ((), ())
    plain, state = crawled(steady, times, seen), crawled(bursty, times, seen)
    assert state[:2] == tuple(plain)
    np.testing.assert_allclose(bursty.posterior(state), steady.posterior(plain), rtol=1e-6)
    np.testing.assert_allclose(
        probability_unchanged(bursty, state, 9.0),
        probability_unchanged(steady, plain, 9.0),
        rtol=1e-5,
        atol=1e-12,
    )


@given(
    state=st.tuples(amounts, amounts, amounts),
    interval=intervals,
    changed=st.booleans(),
    dispersion=st.floats(0.05, 100.0),
    memory=st.floats(0.1, 1e3),
)
def test_nothing_is_ever_negative_or_lost_from_the_numbers(
    state, interval, changed, dispersion, memory
):
    bursty = Bursty(PRIOR, 365.0, memory, dispersion)
    after = bursty.update(BurstyState(*map(np.float64, state)), interval, changed)
    assert all(np.isfinite(number) and number >= 0 for number in after)
    assert 0 < bursty.change_rate(after) < np.inf
    low, high = bursty.credible_interval(after)
    assert 0 <= low <= high < np.inf


@given(interval=st.floats(0.01, 100.0))
def test_a_change_raises_the_rate_and_quiet_lowers_it(interval):
    bursty = Bursty(PRIOR, dispersion=0.5)
    state = crawled(bursty, [10.0] * 3, [False, True, False])
    now = bursty.change_rate(state)
    quiet = bursty.change_rate(bursty.update(state, interval, changed=False))
    assert quiet < now
    assert bursty.change_rate(bursty.update(state, interval, changed=True)) > quiet


def test_a_date_tells_how_recent_a_change_is():
    bursty, gamma = Bursty(PRIOR, 365.0, memory_days=20.0), Gamma(PRIOR, 365.0)
    intervals, ages = np.full(6, 10.0), [0.0, 2.0, 10.0, np.nan, 11.0, 2.0]
    changed = np.array([True] * 5 + [False])
    before = BurstyState(*np.full((3, 6), 4.0))
    after = bursty.update(before, intervals, changed, age=ages)
    long_run = gamma.update(GammaState(*before[:2]), intervals, changed, age=ages)
    np.testing.assert_array_equal(after[:2], long_run)
    old = 4.0 * 2**-0.5
    np.testing.assert_allclose(after.recent[:3], old + 2.0 ** -(np.array([0.0, 2.0, 10.0]) / 20))
    plain = bursty.update(before, intervals, changed)
    np.testing.assert_array_equal(np.array(after)[:, 3:], np.array(plain)[:, 3:])
    np.testing.assert_allclose(after.recent[5], old)


def bursts(n_pages, n_days, rng):
    """(n_pages, n_days) changes a day: bursts of 0.5 a day that last 20 days, one in 200 days."""
    begins = rng.random((n_pages, n_days)) < 1 / 200
    day = np.arange(n_days)
    begun = np.maximum.accumulate(np.where(begins, day, -1000), axis=1)
    rate = np.where(day - begun < 20, 0.5, 0.0)
    return rng.poisson(rate)


def log_loss(estimator, changes):
    """Of the forecasts of (N, days) pages crawled every 5 days, the first 100 days left out."""
    state, losses = estimator.init(len(changes)), []
    for day in range(0, changes.shape[1], 5):
        unchanged = np.clip(probability_unchanged(estimator, state, 5.0), 1e-9, 1 - 1e-9)
        seen = changes[:, day : day + 5].sum(axis=1) > 0
        losses.append(-np.log(np.where(seen, 1 - unchanged, unchanged)).mean())
        state = estimator.update(state, 5.0, seen)
        estimator = estimator.fit(state)
    return np.mean(losses[20:])


@pytest.mark.dear
def test_it_foresees_bursts_better_than_gamma_and_steady_pages_as_well():
    rng = np.random.default_rng(7)
    bursty, steady = bursts(600, 400, rng), rng.poisson(rng.gamma(0.5, 0.1, (600, 1)), (600, 400))
    assert log_loss(Bursty(), bursty) < 0.96 * log_loss(Gamma(), bursty)
    assert log_loss(Bursty(), steady) < 1.01 * log_loss(Gamma(), steady)


def test_the_fitted_dispersion_is_the_likeliest():
    rng = np.random.default_rng(3)
    expected = rng.exponential(2.0, 4000)
    recent = rng.poisson(rng.gamma(0.7, 1 / 0.7, 4000) * expected).astype(float)

    def unlikely(log_s):
        s = np.exp(log_s)
        pages = gammaln(s + recent) - gammaln(s) + s * np.log(s)
        pages -= (s + recent) * np.log(s + expected)
        start = digamma(START_DISPERSION) - np.log(START_DISPERSION)
        known = s * np.log(s) - gammaln(s) + (s - 1) * start - s
        return -(pages.sum() + 20.0 * known)

    best = np.exp(minimize_scalar(unlikely, bounds=(-3, 4), method="bounded").x)
    assert fit_dispersion(recent, expected) == pytest.approx(best, rel=1e-4)
    assert fit_dispersion(recent, expected) == pytest.approx(0.7, rel=0.15)


def test_the_fit_stays_within_its_bounds():
    assert fit_dispersion([], []) == pytest.approx(START_DISPERSION)
    assert fit_dispersion(np.full(100_000, 3.0), np.full(100_000, 3.0)) == MAX_DISPERSION
    silent = np.zeros(100_000)
    silent[0] = 1e9
    assert fit_dispersion(silent, np.full(100_000, 3.0)) == MIN_SHAPE
    with pytest.raises(InvalidInput):
        fit_dispersion([-1.0], [1.0])


@pytest.mark.parametrize(
    "estimator", [Gamma(half_life_days=9.0), Bursty(memory_days=3.0), LogNormal(), Naive()]
)
def test_what_is_fitted_is_put_down_and_taken_up_again(estimator):
    rng = np.random.default_rng(2)
    state = estimator.init(300)
    for _ in range(5):
        state = estimator.update(state, 2.0, rng.random(300) < 0.3)
    fitted = estimator.fit(state)
    assert estimator.with_corpus(fitted.corpus()) == fitted
    assert (fitted == estimator) == (estimator == Naive())
    assert estimator.with_corpus({}) == estimator


def test_a_corpus_that_gamma_put_down_is_of_use():
    corpus_prior = Gamma(Prior(2.0, 9.0)).corpus()
    assert Bursty().with_corpus(corpus_prior) == Bursty(Prior(2.0, 9.0))


@pytest.mark.parametrize("name", ["half_life_days", "memory_days", "dispersion"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_senseless_parameters_are_refused_by_name(name, value):
    with pytest.raises(InvalidInput, match=name):
        Bursty(**{name: value})


def test_its_long_run_is_the_gamma_that_learns_the_same():
    bursty = Bursty(PRIOR, half_life_days=30.0)
    state = crawled(bursty, [3.0, 5.0, 1.0], [True, False, True])
    assert bursty.steady == Gamma(PRIOR, 30.0)
    assert state[:2] == crawled(bursty.steady, [3.0, 5.0, 1.0], [True, False, True])
    assert bursty.evidence(state) == bursty.steady.evidence(GammaState(*state[:2]))
