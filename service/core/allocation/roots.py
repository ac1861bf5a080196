"""Many increasing scalar equations solved at once, each by its own bracketed Newton iteration."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.core.conditions import Floats

FOUND = -1.0
"""Stands for the s of an equation that is solved."""

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
        Values and derivatives; increasing, each entry in its own s only. An s of `FOUND` is not
        asked about: whatever is answered there is ignored.
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
    s = np.clip(start, lower, upper)
    asked = np.arange(s.size)
    below, above, before = lower, np.full(s.size, np.inf), np.full(s.size, np.inf)
    passes = 0
    while asked.size and passes < MOST_PASSES:
        passes += 1
        at = s[asked]
        question = np.full(s.size, FOUND)
        question[asked] = at
        values = function(question)
        missing, slope = target - values.value[asked], values.slope[asked]
        off = np.abs(missing)
        below = np.where(missing > 0, at, below)
        above = np.where(missing < 0, at, above)
        with np.errstate(all="ignore"):
            step = np.minimum(at + missing / slope, upper)
            middle = np.where(above < np.inf, np.sqrt(below) * np.sqrt(above), upper)
        done = (off <= CLOSE * target) | ((missing > 0) & (at >= upper))
        done |= above <= below * (1 + ADJACENT)
        stuck = (off >= before / 2) & (np.abs(step - at) <= WELL_KNOWN * at)
        done |= (off <= ROUNDING * target) & stuck
        slow = (off > before / 2) & (above < np.inf)
        inside = (step > below) & (step < above) & ~slow
        open_ = np.flatnonzero(~done)
        s[asked[open_]] = np.where(inside, step, middle)[open_]
        asked, target, upper = asked[open_], target[open_], upper[open_]
        below, above, before = below[open_], above[open_], off[open_]
    return s, passes
