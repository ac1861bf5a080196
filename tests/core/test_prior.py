"""The prior fit: EM's fixed point, recovery of known corpora, corpora that would degenerate it."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from service.core.checks import InvalidInput
from service.core.prior import (
    DEFAULT_PRIOR,
    MAX_SHAPE,
    MIN_SHAPE,
    START_WEIGHT,
    Prior,
    fit_gamma_prior,
)


def corpus(rng, n, prior):
    """Pages of known prior, watched exactly for different times."""
    days = rng.exponential(40.0, n)
    return rng.poisson(rng.gamma(prior.a, 1 / prior.b, n) * days).astype(float), days


def em_step(changes, days, prior, start):
    """One step over the pages and `START_WEIGHT` pages that follow `start`.

    See docs/theory.md#what-is-estimated.
    """
    weight = START_WEIGHT / (len(days) + START_WEIGHT)
    a, b = prior.a + changes, prior.b + days
    mean = (1 - weight) * np.mean(a / b) + weight * start.mean
    log_mean = (1 - weight) * np.mean(digamma(a) - np.log(b))
    log_mean += weight * (digamma(start.a) - np.log(start.b))
    shape = 1.0
    for _ in range(200):  # ln a - digamma(a) = g, by its own fixed point
        shape *= (np.log(shape) - digamma(shape)) / (np.log(mean) - log_mean)
    return Prior(shape, shape / mean)


def penalised_likelihood(changes, days, start):
    def negative(logs):
        a, b = np.exp(logs)
        pages = gammaln(a + changes) - gammaln(a) + a * np.log(b) - (a + changes) * np.log(b + days)
        log_mean = digamma(start.a) - np.log(start.b)
        known = (a - 1) * log_mean - b * start.mean + a * np.log(b) - gammaln(a)
        return -(pages.sum() + START_WEIGHT * known) / len(days)

    return negative


def test_the_fit_is_the_fixed_point_of_em():
    changes, days = corpus(np.random.default_rng(1), 800, Prior(0.6, 3.0))
    fitted = fit_gamma_prior(changes, days, DEFAULT_PRIOR)
    again = em_step(changes, days, fitted, DEFAULT_PRIOR)
    np.testing.assert_allclose([again.a, again.b], [fitted.a, fitted.b], rtol=1e-7)


def test_the_fit_maximises_the_marginal_likelihood():
    changes, days = corpus(np.random.default_rng(2), 300, Prior(1.4, 20.0))
    fitted = fit_gamma_prior(changes, days)
    objective = penalised_likelihood(changes, days, DEFAULT_PRIOR)
    best = minimize(
        objective, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15}
    )
    np.testing.assert_allclose(np.log([fitted.a, fitted.b]), best.x, atol=1e-5)


@pytest.mark.parametrize("truth", [Prior(0.5, 15.0), Prior(2.0, 3.0), Prior(0.2, 40.0)])
def test_a_large_corpus_gives_back_the_prior_it_was_drawn_from(truth):
    changes, days = corpus(np.random.default_rng(3), 30_000, truth)
    fitted = fit_gamma_prior(changes, days)
    np.testing.assert_allclose([fitted.a, fitted.b], [truth.a, truth.b], rtol=0.06)


@pytest.mark.parametrize("near", [Prior(0.61, 3.1), Prior(0.05, 1e4), Prior(20.0, 1e-4)])
def test_wherever_the_search_begins_it_ends_at_the_same_prior(near):
    changes, days = corpus(np.random.default_rng(1), 800, Prior(0.6, 3.0))
    fitted = fit_gamma_prior(changes, days)
    again = fit_gamma_prior(changes, days, near=near)
    np.testing.assert_allclose([again.a, again.b], [fitted.a, fitted.b], rtol=1e-7)


def test_without_evidence_the_prior_stays_where_it_was():
    start = Prior(0.7, 3.0)
    assert fit_gamma_prior([], [], start) is start
    assert fit_gamma_prior(np.zeros(1000), np.zeros(1000), start) is start


def test_one_page_moves_the_prior_little():
    fitted = fit_gamma_prior([3.0], [30.0])
    assert abs(np.log(fitted.mean / DEFAULT_PRIOR.mean)) < 0.1
    assert abs(np.log(fitted.a / DEFAULT_PRIOR.a)) < 0.1


def test_pages_all_alike_and_pages_all_silent_leave_a_proper_prior():
    alike = fit_gamma_prior(np.full(100_000, 50.0), np.full(100_000, 100.0))
    assert alike.a <= MAX_SHAPE
    np.testing.assert_allclose(alike.mean, 0.5, rtol=0.01)
    silent = fit_gamma_prior(np.zeros(100_000), np.full(100_000, 100.0))
    assert silent.a >= MIN_SHAPE
    assert 0 < silent.mean < DEFAULT_PRIOR.mean / 100


def test_extreme_evidence_gives_a_finite_prior():
    rng = np.random.default_rng(4)
    for scale in (1e-9, 1e9):
        fitted = fit_gamma_prior(rng.poisson(2.0, 1000), scale * rng.exponential(1.0, 1000))
        assert 0 < fitted.a < np.inf
        assert 0 < fitted.b < np.inf
    assert np.isfinite(fit_gamma_prior(np.full(1000, 1e12), np.full(1000, 1e-9)).mean)
    assert fit_gamma_prior(np.full(1000, 1.0), np.zeros(1000)) == DEFAULT_PRIOR


def test_the_order_of_pages_and_pages_without_evidence_do_not_matter():
    rng = np.random.default_rng(5)
    changes, days = corpus(rng, 500, Prior(0.6, 3.0))
    order = rng.permutation(500)
    padded = (
        np.concatenate([np.zeros(300), changes[order]]),
        np.concatenate([np.zeros(300), days[order]]),
    )
    one, other = fit_gamma_prior(changes, days), fit_gamma_prior(*padded)
    np.testing.assert_allclose([one.a, one.b], [other.a, other.b], rtol=1e-8)


def test_the_unit_of_time_does_not_matter():
    changes, days = corpus(np.random.default_rng(6), 500, Prior(0.6, 3.0))
    one = fit_gamma_prior(changes, days, Prior(0.5, 15.0))
    other = fit_gamma_prior(changes, days * 24.0, Prior(0.5, 15.0 * 24.0))
    np.testing.assert_allclose([one.a, one.b * 24.0], [other.a, other.b], rtol=1e-7)


def test_senseless_evidence_is_refused_by_entry():
    with pytest.raises(InvalidInput, match=r"changes .* \(entries 1\)"):
        fit_gamma_prior([1.0, -1.0], [1.0, 1.0])
    with pytest.raises(InvalidInput, match=r"days .* \(entries 0\)"):
        fit_gamma_prior([1.0, 1.0], [np.nan, 1.0])
    with pytest.raises(InvalidInput, match="days has shape"):
        fit_gamma_prior([1.0, 1.0], [1.0])
