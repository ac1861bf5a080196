"""Weights of changes: every estimator learns the rate of the changes that matter."""

import numpy as np
import pytest

from service.core.estimators import ESTIMATORS, make_estimator
from service.core.prior import Prior
from service.core.weights import kept, thinned, whole

KINDS = {
    "flicker": lambda rng, n: np.where(rng.random(n) < 0.9, 0.01, 1.0),
    "any": lambda rng, n: rng.beta(0.5, 0.5, n),
    "halves": lambda rng, n: np.full(n, 0.5),
}
MEAN = {"flicker": 0.109, "any": 0.5, "halves": 0.5}


def crawled(rng, rate, interval, weights):
    """Labels of one crawl of each page: several changes are one with the weight of any."""
    n_changes = rng.poisson(rate * interval)
    page = np.repeat(np.arange(len(rate)), n_changes)
    each = np.minimum(weights(rng, len(page)), 1 - 1e-15)
    return -np.expm1(np.bincount(page, np.log1p(-each), len(rate)))


def learnt(name, rate, weights, n_crawls, prior):
    """The states after the same crawls, by their weights and by whole changes of a sample."""
    rng = np.random.default_rng(5)
    estimator = make_estimator(name, prior=prior)
    soft = hard = estimator.init(len(rate))
    every = np.full(len(rate), 1.0)
    for _ in range(n_crawls):
        interval = rng.exponential(1.0, len(rate))
        part = crawled(rng, rate, interval, weights)
        soft = estimator.update(soft, interval, part, every)
        hard = estimator.update(hard, interval, rng.random(len(rate)) < part, every)
    return estimator, soft, hard


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"complete"}))
def test_the_mean_of_the_estimates_is_that_of_whole_changes_of_the_same_rate(name, kind):
    matters = 0.8 * MEAN[kind]
    n = 150 if name in {"mle", "mm"} else 1_000
    prior = Prior(1.0, 1.0 / matters)
    estimator, soft, hard = learnt(name, np.full(n, 0.8), KINDS[kind], 150, prior)
    by_weights, by_sample = (estimator.change_rate(state).mean() for state in (soft, hard))
    noise = 2.0 / np.sqrt(n * 150 * matters)  # of the sample
    assert by_weights == pytest.approx(by_sample, rel=0.02 + noise)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_the_estimates_is_the_rate_of_the_changes_that_matter(kind):
    matters = 0.8 * MEAN[kind]
    prior = Prior(1.0, 1.0 / matters)
    estimator, soft, _ = learnt("gamma", np.full(2_000, 0.8), KINDS[kind], 250, prior)
    assert estimator.change_rate(soft).mean() == pytest.approx(matters, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gamma", "lognormal", "bursty", "mle", "binned_mle"])
def test_intervals_hold_the_rate_at_least_as_often_as_those_of_whole_changes(name, kind):
    rng = np.random.default_rng(8)
    rate = rng.gamma(2.0, 0.1, 1_500)
    # the prior is that of the rates that matter
    prior = Prior(2.0, 10.0 / MEAN[kind])
    estimator, *states = learnt(name, rate, KINDS[kind], 60, prior)
    interval = getattr(estimator, "credible_interval", None) or estimator.confidence_interval
    held = []
    for state in states:
        low, high = interval(state, 0.9)
        held.append(((low <= rate * MEAN[kind]) & (rate * MEAN[kind] <= high)).mean())
    assert held[0] >= held[1] - 0.02
    if name == "gamma":
        assert held[0] >= 0.88


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"complete"}))
def test_a_weight_of_one_or_zero_is_a_change_or_none(name):
    estimator = make_estimator(name)
    states = []
    for changed in (np.array([True, False]), np.array([1.0, 0.0])):
        state = estimator.init(2)
        for _ in range(3):
            state = estimator.update(state, np.full(2, 2.0), changed, np.full(2, 0.5))
        states.append(estimator.change_rate(state))
    np.testing.assert_array_equal(*states)


def test_a_whole_change_counts_always_and_none_never():
    n = 10_000
    page, at = np.arange(n), np.arange(n) * 86_400_000_000
    assert thinned(np.full(n, np.nan), page, at).all()
    assert not thinned(np.zeros(n), page, at).any()
    for weight in (0.01, 0.25, 0.9):
        share = thinned(np.full(n, weight), page, at).mean()
        assert share == pytest.approx(weight, abs=4 * np.sqrt(weight * (1 - weight) / n))


def test_a_sample_depends_on_page_and_instant_alone():
    at = np.arange(1_000)
    one, other = (thinned(np.full(1_000, 0.5), np.full(1_000, page), at) for page in (7, 8))
    np.testing.assert_array_equal(one, thinned(np.full(1_000, 0.5), np.full(1_000, 7), at))
    assert 400 < (one == other).sum() < 600


def test_weights_have_six_digits_and_one_is_no_weight():
    assert kept(np.array([1.0, np.nan, 0.9999999])) is None
    np.testing.assert_array_equal(kept(np.array([1 / 3, 1.0])), [0.333333, np.nan])
    np.testing.assert_array_equal(whole(np.array([0.25, np.nan])), [0.25, 1.0])
