"""LogNormal: golden steps, the integrated posterior, extremes."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from service.core.checks import InvalidInput
from service.core.estimators.lognormal import LogNormal, LogNormalState
from service.core.forecast import probability_unchanged
from service.core.prior import Prior, fit_gamma_prior

GOLDEN = [  # (log rate, precision, interval, changed) -> (log rate', precision')
    ((-1.2, 0.69, 1.0, True), (-0.24408710065436567, 0.9814664453448438)),
    ((-1.2, 0.69, 1.0, False), (-1.5176795503785205, 0.9092199861488125)),
    ((0.0, 5.0, 0.01, True), (0.1987825636391531, 5.006074780258569)),
    ((2.0, 1.0, 5.0, False), (0.15833176446299135, 6.857774052461097)),
]


def with_posterior(log_rate, precision):
    """An estimator whose prior is the log-normal of these parameters."""
    a = 1.0 / np.expm1(1.0 / precision)
    return LogNormal(Prior(a, a / np.exp(log_rate + 0.5 / precision)))


@pytest.mark.parametrize(("given_", "expected"), GOLDEN)
def test_one_update_gives_the_golden_posterior(given_, expected):
    log_rate, precision, interval, changed = given_
    lognormal = with_posterior(log_rate, precision)
    state = lognormal.update(lognormal.init(), interval, changed)
    np.testing.assert_allclose(lognormal.posterior(state), expected, rtol=1e-12)


def test_the_prior_has_the_mean_it_was_given():
    lognormal = LogNormal(Prior(0.5, 15.0))
    np.testing.assert_allclose(lognormal.change_rate(lognormal.init()), 0.5 / 15.0)


def test_with_some_evidence_the_posterior_is_the_integrated_one():
    rng = np.random.default_rng(1)
    lognormal = with_posterior(-0.5, 1.0)
    interval = rng.exponential(0.5, 50)
    changed = rng.random(50) < -np.expm1(-1.1 * interval)
    state = lognormal.init()
    for days, seen in zip(interval, changed, strict=True):
        state = lognormal.update(state, days, seen)
    theta = np.linspace(-4, 4, 20_001)
    x = np.exp(theta)[:, np.newaxis] * interval
    log_likelihood = np.where(changed, np.log(-np.expm1(-x)), -x).sum(axis=1)
    log_density = log_likelihood - 0.5 * (theta + 0.5) ** 2
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ theta
    np.testing.assert_allclose(lognormal.posterior(state)[0], mean, atol=0.06)
    deviation = np.sqrt(weight @ (theta - mean) ** 2)
    np.testing.assert_allclose(lognormal.posterior(state)[1] ** -0.5, deviation, rtol=0.1)


@given(st.floats(-20, 20), st.floats(0.05, 1e6), st.floats(1e-9, 1e5), st.booleans())
def test_evidence_is_finite_and_sharpens_the_posterior(log_rate, precision, interval, changed):
    lognormal = LogNormal()
    base = lognormal.posterior(lognormal.init())[1]
    state = LogNormalState((base + precision) * log_rate, precision)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = lognormal.update(state, interval, changed)
    assert np.isfinite(after).all()
    assert after.precision >= precision


def test_evidence_loses_half_of_its_weight_in_a_half_life():
    fading, steady = LogNormal(half_life_days=10.0), LogNormal()
    halved = steady.update(LogNormalState(1.0, 3.0), 10.0, changed=True)
    np.testing.assert_allclose(fading.update(LogNormalState(2.0, 6.0), 10.0, changed=True), halved)


def corpus(rng, estimator, change_rate, crawls, mean_interval):
    """Evidence of pages of known rates, crawled at random."""
    state = estimator.init(change_rate.size)
    for _ in range(crawls):
        interval = rng.exponential(mean_interval, change_rate.size)
        changed = rng.random(change_rate.size) < -np.expm1(-change_rate * interval)
        state = estimator.update(state, interval, changed)
    return state


def test_quiet_days_are_evidence_of_so_many_days_and_no_change():
    lognormal = LogNormal()
    state = lognormal.update(lognormal.init(2), [0.5, 20.0], changed=False)
    changes, days = lognormal.evidence(state)
    np.testing.assert_allclose(days, [0.5, 20.0], rtol=1e-12)
    np.testing.assert_allclose(changes, 0.0, atol=1e-2)  # the mode is two Newton steps away
    assert np.equal(lognormal.evidence(lognormal.init(1)), 0.0).all()


def test_a_page_watched_exactly_gives_its_evidence_back():
    lognormal, k, days = LogNormal(), 7.0, 40.0
    prior_log, precision = lognormal.posterior(lognormal.init())
    log_rate = brentq(lambda x: k - days * np.exp(x) - precision * (x - prior_log), -9, 9)
    curvature = days * np.exp(log_rate)
    slope = k - curvature
    state = LogNormalState(slope + curvature * log_rate, curvature)
    np.testing.assert_allclose(lognormal.evidence(state), [k, days], rtol=1e-10)


def test_evidence_does_not_depend_on_the_unit_of_time():
    rng = np.random.default_rng(3)
    interval, changed = rng.exponential(2.0, (10, 40)), rng.random((10, 40)) < 0.5
    found = []
    for unit in (1.0, 24.0):
        lognormal = LogNormal(Prior(0.5, 15.0 * unit))
        state = lognormal.init(40)
        for days, seen in zip(interval * unit, changed, strict=True):
            state = lognormal.update(state, days, seen)
        changes, days = lognormal.evidence(state)
        found.append((changes, days / unit))
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("median", "spread", "crawls", "mean_interval", "within"),
    [
        (0.3, 1.2, 10, 5.0, 0.4),
        (0.3, 1.2, 60, 5.0, 0.2),
        (0.005, 1.5, 50, 20.0, 0.15),
        (0.04, 0.5, 30, 10.0, 0.15),
    ],
)
def test_the_prior_fitted_to_a_corpus_has_its_mean_and_forecasts_better(
    median, spread, crawls, mean_interval, within
):
    rng = np.random.default_rng(4)
    change_rate = np.exp(rng.normal(np.log(median), spread, 4000))
    default = LogNormal()
    state = corpus(rng, default, change_rate, crawls, mean_interval)
    fitted = LogNormal(fit_gamma_prior(*default.evidence(state)))
    assert abs(np.log(fitted.prior.mean / change_rate.mean())) < within + 0.05
    fresh = np.exp(rng.normal(np.log(median), spread, 4000))  # pages that nobody has crawled yet

    def forecast(lognormal):
        score = 0.0
        for t in (1.0, mean_interval):
            unchanged = probability_unchanged(lognormal, lognormal.init(), t)
            happened = np.exp(-fresh * t).mean()
            score += happened * np.log(unchanged) + (1 - happened) * np.log1p(-unchanged)
        return score

    assert forecast(fitted) > forecast(default)


def test_epoch_after_epoch_the_fitted_prior_settles():
    """Learning on the last fit, as the service does, feeds nothing back."""
    rng = np.random.default_rng(5)
    change_rate = np.exp(rng.normal(np.log(2.0), 0.5, 1000))  # ten changes per crawl at first
    default = LogNormal()
    lognormal, state, means = default, default.init(1000), []
    for _ in range(60):
        interval = rng.exponential(5.0, 1000)
        changed = rng.random(1000) < -np.expm1(-change_rate * interval)
        state = lognormal.update(state, interval, changed)
        lognormal = LogNormal(fit_gamma_prior(*default.evidence(state)))
        means.append(lognormal.prior.mean)
    assert max(means) < 1.1 * change_rate.mean()
    assert abs(np.log(means[-1] / means[-2])) < 0.01
    np.testing.assert_allclose(means[-1], change_rate.mean(), rtol=0.2)


def test_the_interval_is_that_of_a_normal_and_the_prediction_its_average():
    lognormal = with_posterior(-1.0, 4.0)
    low, high = lognormal.credible_interval(lognormal.init(), mass=0.9)
    np.testing.assert_allclose(np.log([low, high]), [-1.0 - 0.8224268, -1.0 + 0.8224268], rtol=1e-6)
    rng = np.random.default_rng(2)
    rates = np.exp(rng.normal(-1.0, 0.5, 400_000))
    for t in (0.0, 0.1, 3.0, 100.0):
        predicted = probability_unchanged(lognormal, lognormal.init(), t)
        np.testing.assert_allclose(predicted, np.exp(-rates * t).mean(), atol=2e-3)


def test_parameters_outside_of_their_domain_are_refused():
    with pytest.raises(InvalidInput, match="half_life_days"):
        LogNormal(half_life_days=-1.0)
    with pytest.raises(InvalidInput, match="mass"):
        LogNormal().credible_interval(LogNormal().init(), mass=0.0)
