"""Many increasing scalar equations solved at once, each by its own bracketed Newton iteration."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.core.conditions import Floats

CLOSE = 1e-15
"""Relative distance from the target at which a root is found."""

ROUNDING = 1e-12
"""Relative distance below which an iteration that gains nothing more has met its rounding."""

WELL_KNOWN = 1e-9
"""Relative step in s below which rounding of the target's magnitude is all that a step follows."""

ADJACENT = 4e-16
"""Relative width of a bracket without a number inside."""

MOST_PASSES = 200
"""Bisection alone needs fewer; what is left then shows in the certificate."""


class Values(NamedTuple):
    """Of each equation: the function and its derivative."""

    value: Floats
    slope: Floats


def climb(
    function: Callable[[Floats], Values],
    target: Floats,
    lower: Floats,
    start: Floats,
    upper: Floats,
) -> tuple[Floats, int]:
    r"""Find s in [lower, upper] with f_k(s_k) = target_k, for every k at once.

    Newton's method, which from below never oversteps where f is concave. Elsewhere (lower bounds,
    noisy pings) a step that leaves the bracket, or follows one that did not halve the distance
    from the target, is replaced by a bisection in log s.

    Parameters
    ----------
    function : (K,) -> (K,), (K,)
        Values and derivatives; increasing, each entry in its own s only.
    target, lower, start, upper : (K,)
        f(lower) <= target. Where f(upper) < target the answer is `upper`.

    Returns
    -------
    (K,) float64, and the number of evaluations

    Examples
    --------
    >>> s, passes = climb(lambda s: Values(s**2, 2 * s), np.array([2.0, 9.0]),
    ...                   np.full(2, 1e-3), np.ones(2), np.full(2, 1e9))
    >>> s
    array([1.41421356, 3.        ])
    """
    below, above, s = lower.copy(), np.full(upper.size, np.inf), np.clip(start, lower, upper)
    before = np.full(s.size, np.inf)
    passes = 0
    while passes < MOST_PASSES:
        passes += 1
        value, slope = function(s)
        missing = target - value
        off = np.abs(missing)
        below = np.where(missing > 0, s, below)
        above = np.where(missing < 0, s, above)
        done = (off <= CLOSE * target) | ((missing > 0) & (s >= upper))
        done |= above <= below * (1 + ADJACENT)
        with np.errstate(all="ignore"):
            step = np.minimum(s + missing / slope, upper)
            middle = np.where(above < np.inf, np.sqrt(below) * np.sqrt(above), upper)
        stuck = (off >= before / 2) & (np.abs(step - s) <= WELL_KNOWN * s)
        done |= (off <= ROUNDING * target) & stuck
        if done.all():
            break
        slow = (off > before / 2) & (above < np.inf)
        inside = (step > below) & (step < above) & ~slow
        s = np.where(done, s, np.where(inside, step, middle))
        before = off
    return s, passes
