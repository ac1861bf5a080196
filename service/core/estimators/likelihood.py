"""The likelihood of censored Poisson intervals: its maximum and an interval around it.

l(D) = sum_j ln(1 - exp(-D tau_j)) - D days_quiet, where D is the change rate. The tau_j are the
intervals with at least one change. l is concave in ln D, with slope
sum_j h(D tau_j) - D days_quiet, h(x) = x/(e^x - 1).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri

from service.core.checks import Bools, Floats
from service.core.estimators.base import check_mass

TOLERANCE = 1e-13
"""Maximum relative length of the last step."""
MAX_STEPS = 100
"""Maximum Newton steps; a search takes about 6, or 30 if all of 10^6 crawls found a change."""
END_TOLERANCE = 1e-9
"""Maximum relative length of the last step to an end of an interval; l itself is rounded there."""
LONGEST_STEP = 3.0
"""Maximum step to an end of an interval, in ln(rate)."""

Terms = Callable[[Floats], tuple[Floats, ...]]
"""Function of x = D tau of changed intervals that returns terms of sums, arrays of its shape."""


def hazard(x: Floats) -> tuple[Floats, Floats]:
    """Return h(x) = x/(e^x - 1), convex from 1 at 0 down to 0, and -x h'(x); x > 0."""
    value = x * np.exp(-x) / -np.expm1(-x)
    return value, value * np.maximum(value + x - 1.0, 0.0)


def log_changed(x: Floats) -> tuple[Floats]:
    """Return ln(1 - e^-x), the log-probability of a change if x changes are expected; x > 0."""
    return (np.log(-np.expm1(-x)),)


class Likelihood(NamedTuple):
    """The parts of the likelihoods of N pages."""

    changes: Floats
    """(N,) number of changed intervals: the tau_j."""
    days_changed: Floats
    """(N,) sum of the changed intervals, days."""
    days_quiet: Floats
    """(N,) sum of the unchanged intervals, days."""
    sum_changed: Callable[[Terms, Floats], tuple[Floats, ...]]
    """Function of terms and (N,) rates D that returns the terms' sums at D tau_j by page."""

    def log(self, rate: Floats) -> Floats:
        """Return l(rate)."""
        (log_likelihood,) = self.sum_changed(log_changed, rate)
        return log_likelihood - rate * self.days_quiet

    def slope(self, rate: Floats) -> tuple[Floats, Floats]:
        """Return the slope of l in ln(rate), and minus its curvature."""
        value, bend = self.sum_changed(hazard, rate)
        expected = rate * self.days_quiet
        return value - expected, bend + expected


def with_imaginary(crawls: Likelihood, changed: Floats, quiet: Floats) -> Likelihood:
    """Return the likelihood with one changed and one unchanged interval added to each page.

    `changed` and `quiet` are the (N,) lengths of the added intervals, days.
    """

    def sum_changed(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
        pairs = zip(terms(rate * changed), crawls.sum_changed(terms, rate), strict=True)
        return tuple(imaginary + log_likelihood for imaginary, log_likelihood in pairs)

    return Likelihood(
        crawls.changes + 1.0, crawls.days_changed + changed, crawls.days_quiet + quiet, sum_changed
    )


def likeliest_rate(likelihood: Likelihood, where: Bools | None = None) -> Floats:
    """Return the (N,) roots of the slope, 1/day, for pages with changes and quiet days (`where`).

    The slope is convex and decreasing in the rate, so Newton's method increases to the root (CG03
    section 5; K19, equation 10).
    """
    inside = np.ones(np.shape(likelihood.changes), np.bool_) if where is None else where
    days = likelihood.days_quiet + 0.5 * likelihood.days_changed
    rate = _divide(likelihood.changes, days, inside, 1.0)
    for _ in range(MAX_STEPS):
        slope, bend = likelihood.slope(rate)
        step = _divide(slope, bend, inside, 0.0)
        rate = rate * (1.0 + step)
        if np.all(np.abs(step) <= TOLERANCE):
            break
    return rate


def ratio_interval(crawls: Likelihood, estimate: Floats, mass: float) -> tuple[Floats, Floats]:
    """Return the (N,) rates between which l stays within chi²/2 of its maximum.

    chi² is the quantile of `mass`. By Wilks's theorem, the rates enclose the change rate in a share
    `mass` of repetitions if the crawls are many. The lower end is 0 without a change, the upper end
    infinite without quiet days, and both are NaN without crawls. The interval includes the positive
    `estimate`.
    """
    drop = 0.5 * float(chdtri(1.0, 1.0 - check_mass(mass)))
    changes, quiet = crawls.changes > 0, crawls.days_quiet > 0
    inside = changes & quiet
    top = np.where(inside, likeliest_rate(crawls, inside), estimate)
    level = np.where(inside, crawls.log(top), 0.0) - drop
    error = np.sqrt(_divide(2.0 * drop, crawls.slope(top)[1], inside, 0.0))
    ends = []
    for side, wanted, open_end in ((-1.0, changes, 0.0), (1.0, quiet, np.inf)):
        rate = top * np.exp(side * np.minimum(error, 1.0))
        for _ in range(MAX_STEPS):
            step = _divide(level - crawls.log(rate), crawls.slope(rate)[0], wanted, 0.0)
            rate = rate * np.exp(np.clip(step, -LONGEST_STEP, LONGEST_STEP))
            if np.all(np.abs(step) <= END_TOLERANCE):
                break
        ends.append(np.where(wanted, rate, open_end))
    bounded = changes | quiet
    low, high = np.minimum(ends[0], estimate), np.maximum(ends[1], estimate)
    return np.where(bounded, low, np.nan), np.where(bounded, high, np.nan)


def _divide(over: ArrayLike, under: Floats, where: Bools, other: float) -> Floats:
    result = np.full(np.shape(where), other)
    return np.asarray(np.divide(over, under, out=result, where=where))
