"""The likelihood equation of censored Poisson intervals, which MLE and BinnedMLE solve."""

from collections.abc import Callable

import numpy as np

from service.core.conditions import Floats

TOLERANCE = 1e-13
"""Relative length of the last step."""

MAX_STEPS = 100
"""Newton steps; about 6 are taken, 30 where every one of 10^6 crawls found a change."""


def hazard(x: Floats) -> tuple[Floats, Floats]:
    """Return h(x) = x/(e^x - 1), convex from 1 at 0 down to 0, and -x h'(x); x > 0."""
    value = x * np.exp(-x) / -np.expm1(-x)
    return value, value * np.maximum(value + x - 1.0, 0.0)


def likeliest_rate(
    dated: Floats,
    undated: Floats,
    days_undated: Floats,
    days_quiet: Floats,
    sum_hazard: Callable[[Floats], tuple[Floats, Floats]],
) -> Floats:
    """Root D of dated + sum_j h(D tau_j) = D days_quiet, for N pages at once.

    The left side minus the right is D times the derivative of the log-likelihood

        sum_j ln(1 - exp(-D tau_j)) + dated ln D - D days_quiet

    and is convex and decreasing in D: Newton's method climbs to the root from 0, no bracket.

    Parameters
    ----------
    dated : (N,)
        Changes at known times.
    undated : (N,)
        Intervals known to hold at least one change: the tau_j. Together at least one change.
    days_undated : (N,)
        Their sum.
    days_quiet : (N,)
        Days known to hold no change. Positive.
    sum_hazard : callable
        D -> sums over each page's undated intervals of h(D tau) and -D tau h'(D tau).

    Returns
    -------
    (N,) 1/day

    References
    ----------
    CG03 section 5; K19, equation 10.
    """
    rate = (dated + undated) / (days_quiet + 0.5 * days_undated)
    for _ in range(MAX_STEPS):
        value, slope = sum_hazard(rate)
        expected = rate * days_quiet
        step = (dated + value - expected) / (slope + expected)
        rate = rate * (1.0 + step)
        if np.all(np.abs(step) <= TOLERANCE):
            break
    return rate
