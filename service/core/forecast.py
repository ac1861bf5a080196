"""P(no change in some days), and the density of the rate, by each estimator's posterior."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import exp1, gammaln

from service.core.checks import Floats, check_amount
from service.core.estimators.base import Estimator
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import CompleteObservations, Gamma, gamma_unchanged
from service.core.estimators.lognormal import LogNormal

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
"""Gauss-Hermite quadrature for expectations over a normal posterior."""
CORPUS_WEIGHT = 0.05
"""Weight of the corpus' pages in a forecast: the page may no longer change as it has. Chosen on
seven recorded sites (docs/theory.md, "When rates become crawls")."""
SMALL = 1e-5
"""Number of changes below which two terms of the series are exact to 1e-10."""


def days_at_risk(days: Floats, days_to_epoch: Floats, observed_ratio: Floats) -> Floats:
    """Return the days since a crawl as they count for a change.

    The crawls of siblings that the last epoch has seen stretch the time from the crawl to the epoch
    (`core.siblings`).

    Parameters
    ----------
    days, days_to_epoch : (N,) days
        Time since the crawl of each page, and from that crawl to the epoch; negative for a crawl
        after the epoch.
    observed_ratio : (N,)
        Ratio of observed to expected changes of the page's siblings in that time.
    """
    return np.asarray(days + (observed_ratio - 1.0) * np.maximum(days_to_epoch, 0.0))


def with_corpus(own: Floats, corpus: Floats) -> Floats:
    """Return a forecast for a page, or its rate, mixed with that for any page of the corpus.

    >>> with_corpus(np.array([1.0, 0.5]), np.array([0.8, 0.5])).round(3).tolist()
    [0.99, 0.5]
    """
    return np.asarray((1.0 - CORPUS_WEIGHT) * own + CORPUS_WEIGHT * corpus)


def unchanged_before(unchanged_since: Floats, unchanged: Floats) -> Floats:
    """Return P(no change in the last part of an interval | a change in the interval).

    `unchanged_since` and `unchanged` are P(no change) of the last part and of the whole interval.

    >>> float(unchanged_before(np.array(0.9), np.array(0.5)))
    0.8
    """
    changed = 1.0 - unchanged
    some = changed > 0
    ratio = np.divide(unchanged_since - unchanged, changed, out=np.zeros_like(changed), where=some)
    return np.asarray(np.clip(ratio, 0.0, 1.0))


def probability_unchanged(estimator: Estimator[Any], state: Any, t: ArrayLike) -> Floats:
    """Return P(no change in the next `t` days): the mean over a posterior, or a plug-in.

    A plug-in ignores the error of the estimate. Its forecast is therefore overconfident, more so
    after few crawls, and an estimate of 0 forecasts that the page never changes.

    Examples
    --------
    >>> gamma = Gamma()
    >>> state = gamma.update(gamma.init(), interval=2.0, changed=True)
    >>> print(f"{probability_unchanged(gamma, state, 7.0):.3f}")
    0.580
    """
    days = check_amount("t", t, np.shape(t))
    match estimator:
        case Gamma() | Bursty() | CompleteObservations():
            return gamma_unchanged(*estimator.posterior(state), days)
        case LogNormal():
            log_rate, precision = estimator.posterior(state)
            log_change = log_rate + np.log(np.maximum(days, np.finfo(float).tiny))
            total = sum(
                weight * np.exp(-np.exp(log_change + node / np.sqrt(precision)))
                for node, weight in zip(NODES, WEIGHTS / WEIGHTS.sum(), strict=True)
            )
            return np.asarray(total, np.float64)
    return np.exp(-estimator.change_rate(state) * days)


def rate_density(estimator: Estimator[Any], state: Any, rate: Floats) -> Floats | None:
    """Return the posterior's density of the logarithm of the change rate; None: no posterior.

    Examples
    --------
    >>> gamma, rates = Gamma(), np.geomspace(1e-9, 1e3, 2_000)
    >>> density = rate_density(gamma, gamma.init(), rates)
    >>> print(f"{np.trapezoid(density, np.log(rates)):.3f}")
    1.000
    """
    match estimator:
        case Gamma() | Bursty() | CompleteObservations():
            a, b = estimator.posterior(state)
            scaled = b * rate
            return np.asarray(np.exp(a * np.log(scaled) - scaled - gammaln(a)))
        case LogNormal():
            log_rate, precision = estimator.posterior(state)
            deviation = precision * (np.log(rate) - log_rate) ** 2
            return np.asarray(np.sqrt(precision / (2.0 * np.pi)) * np.exp(-deviation / 2.0))
    return None


def expected_harmonic(changes: ArrayLike) -> Floats:
    r"""Return the mean of 1 + 1/2 + … + 1/N for a Poisson number N of `changes` in the mean.

    That is :math:`Ein(m) = \gamma + \ln m + E_1(m)`, by its series near 0.

    >>> expected_harmonic([0.0, 1e-6, 1.0, 100.0]).round(6).tolist()
    [0.0, 1e-06, 0.7966, 5.182386]
    """
    mean = check_amount("changes", changes, np.shape(changes))
    some = np.maximum(mean, SMALL)
    return np.where(
        mean < SMALL, mean - mean * mean / 4.0, np.euler_gamma + np.log(some) + exp1(some)
    )
