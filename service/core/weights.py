"""Weights of changes: a change of weight w is evidence of w of a change, and of 1 - w of none.

Let changes come at rate D, with independent weights W. They are learnt as changes of rate D E[W],
the rate of the changes that matter. A process that keeps each change with the probability of its
weight has this rate.
"""

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats

DIGITS = 6
"""Digits of a weight that are kept."""
UNIT = 10**DIGITS
"""Weight 1 in the last digit."""
ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Factors of SplitMix64 (Steele, Lea, Flood 2014)."""


def kept(weight: Floats) -> Floats | None:
    """Return weights with `DIGITS` digits, NaN for 1; None if all are.

    >>> kept(np.array([0.25, 1.0, np.nan])).tolist()
    [0.25, nan, nan]
    """
    short = np.round(weight, DIGITS)
    short = np.where(short < 1.0, short, np.nan)
    return None if np.isnan(short).all() else short


def whole(weight: Floats) -> Floats:
    """Return weights with 1 for NaN."""
    return np.where(np.isnan(weight), 1.0, weight)


def thinned(weight: Floats, page_id: NDArray[np.int64], at_us: NDArray[np.int64]) -> Bools:
    """Return whether each change counts as a whole one, where a label has one bit.

    A change of weight w counts with probability w, by a number that belongs to the page and to the
    instant, microseconds. So its label has the mean w, and a repetition has the same label.
    Thinned Poisson changes are Poisson changes of the rate D E[W].

    >>> page = np.arange(100_000)
    >>> print(f"{thinned(np.full(100_000, 0.01), page, page).mean():.3f}")
    0.010
    """
    golden, first, second = ODD
    mixed = page_id.astype(np.uint64) * golden + at_us.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * first
    mixed = (mixed ^ (mixed >> np.uint64(27))) * second
    mixed ^= mixed >> np.uint64(31)
    uniform = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    thin: Bools = uniform < whole(weight)
    return thin
