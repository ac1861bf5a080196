"""Where the likelihood of a positive number is greatest: the zero of its score."""

from collections.abc import Callable

import numpy as np

TOLERANCE = 1e-6
"""A step no longer than this is the last: its error is far smaller."""

FIRST_STEP = 1e-3
"""Log distance of the second point from the first: it tells how the score slopes."""

LONGEST_STEP = 2.0
"""Log distance that is ventured at once: a factor of 7."""

MOST_STEPS = 100
"""Bisection between any two ends needs half as many; 2 to 6 are taken."""


def peak(
    score: Callable[[float], float],
    near: float,
    low: float,
    high: float,
    tolerance: float = TOLERANCE,
) -> float:
    """Find where a score falls through zero between two ends, or the end that it points to.

    By the secant method in the logarithm, from `near` on: a good guess makes the steps few. A step
    that leaves the bracket is replaced by a bisection.

    Parameters
    ----------
    score
        Derivative of the likelihood, times any positive function.
    near, low, high : float
        Where to begin, and the ends. Positive.
    tolerance : float
        A step no longer than this, in the logarithm, is the last.

    Examples
    --------
    >>> print(f"{peak(lambda x: 2.0 - x, 1.0, 0.05, 20.0):.9f}")
    2.000000000
    >>> peak(lambda x: 30.0 - x, 1.0, 0.05, 20.0)
    20.0
    """
    first, last = float(np.log(low)), float(np.log(high))
    below, above = first - 1.0, last + 1.0
    x = min(max(float(np.log(near)), first), last)
    value = score(float(np.exp(x)))
    step = FIRST_STEP * float(np.sign(value))
    for _ in range(MOST_STEPS):
        below, above = (x, above) if value > 0 else (below, x)
        there = x + step if below <= x + step <= above else (below + above) / 2
        old, old_value, x = x, value, min(max(there, first), last)
        if x == old:
            break
        value = score(float(np.exp(x)))
        slope = (value - old_value) / (x - old)
        step = -value / slope if slope < 0 else float(np.copysign(LONGEST_STEP, value))
        step = min(max(step, -LONGEST_STEP), LONGEST_STEP)
        if min(abs(step), abs(x + step - old)) <= tolerance:
            x += step
            break
    return low if x <= first else high if x >= last else float(np.exp(x))
