"""Many increasing scalar equations solved at once, each by its own bracketed iteration."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.core.allocation.inputs import Indices
from service.core.conditions import Floats

UNLIMITED = 1e170
"""The s of bandwidth that costs nothing: every page takes all that it can use."""

CLOSE = 1e-15
"""Relative distance from the target at which a root is found."""

NEAR = 1e-12
"""Relative distance from the target from which one more step, if it is small, is the last."""

EXACT = 2e-14
"""Relative step in s, beside a target, that is not worth taking."""

WELL_KNOWN = 1e-9
"""Relative step in s that is small: its error is the square of that, or rounding."""

ADJACENT = 4e-16
"""Relative width of a bracket without a number inside."""

MOST_PASSES = 200
"""Bisection alone needs fewer; what is left then shows in the certificate."""


class Values(NamedTuple):
    """Of each equation: the function and its derivative."""

    value: Floats
    slope: Floats

    def of(self, which: Indices) -> "Values":
        """Choose some of the equations."""
        return Values(self.value[which], self.slope[which])


class Roots:
    r"""Brackets of the roots of many equations f_k(s_k) = target_k, and where to evaluate next.

    The inverse of f is taken for the parabola through the origin that touches it at the point
    last evaluated. It is exact for one page on the clock, :math:`s = (\rho + \rho^2/\Delta)/\mu`,
    and as good as a Newton step near a root. Where it leaves the bracket, or follows a step that
    did not halve the distance from the target, the bracket is bisected in log s.

    Attributes
    ----------
    s : (K,)
        Where to evaluate next; the root where `final`.
    below, above : (K,)
        f(below) <= target <= f(above); `above` is infinite until a point above was evaluated.
        The root is `UNLIMITED` where f remains below its target.
    final : (K,) bool
        Where `evaluated`, only at points that were.
    """

    def __init__(self, target: Floats, lower: Floats, start: Floats, *, evaluated: bool) -> None:
        self.target, self._evaluated = target, evaluated
        self.s = np.maximum(start, lower)
        self.below = lower.copy()
        self.above = np.full(lower.size, np.inf)
        self.final = np.zeros(lower.size, np.bool_)
        self._off = np.full(lower.size, np.inf)

    def learn(self, which: Indices, at: Floats, values: Values) -> None:
        """Tighten the brackets of some by values at any points, and choose where to evaluate next.

        A point is judged as a step where it is the `s` that was chosen before.
        """
        target = self.target[which]
        missing, off = target - values.value, np.abs(target - values.value)
        below = np.where(missing > 0, np.maximum(at, self.below[which]), self.below[which])
        above = np.where(missing <= 0, np.minimum(at, self.above[which]), self.above[which])
        with np.errstate(all="ignore"):
            more, bend = missing / values.value, values.value / values.slope
            curve = np.maximum(bend - at, 0.0)
            step = np.minimum(at + (bend + curve * more) * more, UNLIMITED)
            middle = np.where(above < np.inf, np.sqrt(below) * np.sqrt(above), UNLIMITED)
        before = np.where(at == self.s[which], self._off[which], np.inf)
        final = (off <= CLOSE * target) | ((missing > 0) & (at >= UNLIMITED))
        final |= above <= below * (1 + ADJACENT)
        near, moved = off <= NEAR * target, np.abs(step - at)
        final |= near & (moved <= EXACT * at)
        stuck = off >= before / 2
        last = near & (moved <= WELL_KNOWN * at) & ~final
        final |= last & stuck
        last &= ~stuck & (not self._evaluated)
        slow = (off > before / 2) & (above < np.inf)
        inside = last | ((step > below) & (step < above) & ~slow)
        self.s[which] = np.where(final, at, np.where(inside, step, middle))
        final |= last
        self.below[which], self.above[which] = below, above
        self.final[which], self._off[which] = final, off

    def climb(self, function: Callable[[Indices, Floats], Values]) -> int:
        """Evaluate `function` at the s of all equations that are not final; return the passes."""
        passes = 0
        while (open_ := np.flatnonzero(~self.final)).size and passes < MOST_PASSES:
            passes += 1
            at = self.s[open_]
            self.learn(open_, at, function(open_, at))
        return passes


def climb(
    function: Callable[[Floats], Values], target: Floats, lower: Floats, start: Floats
) -> tuple[Floats, int]:
    """Find s >= `lower` with f_k(s_k) = target_k, for every k at once.

    Parameters
    ----------
    function : (K,) -> (K,), (K,)
        Values and derivatives; increasing, each entry in its own s only. Asked about all entries
        until the last is found.
    target, lower, start : (K,)
        f(lower) <= target. The answer is `UNLIMITED` where f remains below its target.

    Returns
    -------
    (K,) float64, and the number of evaluations

    Examples
    --------
    >>> s, passes = climb(lambda s: Values(s**2, 2 * s), np.array([2.0, 9.0]),
    ...                   np.full(2, 1e-3), np.ones(2))
    >>> s
    array([1.41421356, 3.        ])
    """
    roots = Roots(target, lower, start, evaluated=False)
    passes = roots.climb(lambda which, _: function(roots.s).of(which))
    return roots.s, passes
