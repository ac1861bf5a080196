"""The likelihood of censored Poisson intervals: its top and what lies near it.

    l(D) = sum_j ln(1 - exp(-D tau_j)) + dated ln D - D days_quiet

The tau_j are intervals known to hold at least one change. With D the change rate, l is concave in
ln D, with slope dated + sum_j h(D tau_j) - D days_quiet, h(x) = x/(e^x - 1).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri

from service.core.conditions import Bools, Floats
from service.core.estimators.base import check_mass

TOLERANCE = 1e-13
"""Relative length of the last step."""

LONGEST_STEP = 3.0
"""In ln(rate), towards an end of an interval."""

END_TOLERANCE = 1e-9
"""The same for the ends of an interval, where the log-likelihood itself is rounded."""

MAX_STEPS = 100
"""Newton steps; about 6 are taken, 30 where every one of 10^6 crawls found a change."""

Terms = Callable[[Floats], tuple[Floats, ...]]
"""x = D tau of each undated interval -> terms to add up, one array or more of its shape."""


def hazard(x: Floats) -> tuple[Floats, Floats]:
    """Return h(x) = x/(e^x - 1), convex from 1 at 0 down to 0, and -x h'(x); x > 0."""
    value = x * np.exp(-x) / -np.expm1(-x)
    return value, value * np.maximum(value + x - 1.0, 0.0)


def log_changed(x: Floats) -> tuple[Floats]:
    """Return ln(1 - e^-x), the log-probability of a change where x are expected; x > 0."""
    return (np.log(-np.expm1(-x)),)


class Likelihood(NamedTuple):
    """What the likelihoods of N pages consist of."""

    dated: Floats
    """(N,) changes at known times."""
    undated: Floats
    """(N,) intervals known to hold at least one change: the tau_j."""
    days_undated: Floats
    """(N,) their sum."""
    days_quiet: Floats
    """(N,) days known to hold no change."""
    sum_undated: Callable[[Terms, Floats], tuple[Floats, ...]]
    """Terms and (N,) rates D -> sums over each page's undated intervals of its terms at D tau."""

    def log(self, rate: Floats) -> Floats:
        """l(rate), but for a constant."""
        (log_likelihood,) = self.sum_undated(log_changed, rate)
        return log_likelihood + self.dated * np.log(rate) - rate * self.days_quiet

    def slope(self, rate: Floats) -> tuple[Floats, Floats]:
        """Slope of l in ln(rate), and minus its curvature."""
        value, bend = self.sum_undated(hazard, rate)
        expected = rate * self.days_quiet
        return self.dated + value - expected, bend + expected


def with_imaginary(crawls: Likelihood, changed: Floats, quiet: Floats) -> Likelihood:
    """Add one changed and one unchanged interval a page, of (N,) days."""

    def sum_undated(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
        pairs = zip(terms(rate * changed), crawls.sum_undated(terms, rate), strict=True)
        return tuple(imaginary + log_likelihood for imaginary, log_likelihood in pairs)

    return Likelihood(
        crawls.dated,
        crawls.undated + 1.0,
        crawls.days_undated + changed,
        crawls.days_quiet + quiet,
        sum_undated,
    )


def likeliest_rate(likelihood: Likelihood, where: Bools | None = None) -> Floats:
    """Root (N,) of the slope, 1/day; `where` there is one: some changes and some quiet days.

    In the rate the slope is convex and decreasing: Newton's method climbs to the root from 0, no
    bracket.

    References
    ----------
    CG03 section 5; K19, equation 10.
    """
    inside = np.ones(np.shape(likelihood.dated), np.bool_) if where is None else where
    changes = likelihood.dated + likelihood.undated
    rate = _divide(changes, likelihood.days_quiet + 0.5 * likelihood.days_undated, inside, 1.0)
    for _ in range(MAX_STEPS):
        slope, bend = likelihood.slope(rate)
        step = _divide(slope, bend, inside, 0.0)
        rate = rate * (1.0 + step)
        if np.all(np.abs(step) <= TOLERANCE):
            break
    return rate


def ratio_interval(crawls: Likelihood, estimate: Floats, mass: float) -> tuple[Floats, Floats]:
    """Rates (N,) between which l stays within chi²/2 of its top, chi² the quantile of `mass`.

    By Wilks's theorem they enclose the change rate in a share `mass` of repetitions, as the
    crawls grow many. Without a change the lower end is 0, without quiet days the upper one inf;
    without either both are NaN. The positive `estimate`, which imaginary crawls may have pulled
    out, is included. Newton's method in ln(rate), where l is concave: it lands outside of the
    end and climbs back.
    """
    drop = 0.5 * float(chdtri(1.0, 1.0 - check_mass(mass)))
    changes, quiet = crawls.dated + crawls.undated > 0, crawls.days_quiet > 0
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
    bounded = inside | (changes & (crawls.dated == 0)) | quiet
    low, high = np.minimum(ends[0], estimate), np.maximum(ends[1], estimate)
    return np.where(bounded, low, np.nan), np.where(bounded, high, np.nan)


def _divide(over: ArrayLike, under: Floats, where: Bools, other: float) -> Floats:
    """Ratio where it has a meaning, else `other`."""
    result = np.full(np.shape(where), other)
    return np.asarray(np.divide(over, under, out=result, where=where))
