"""Quantiles of the values of all parts, by ranks: exact, and without sorting them together. Pure.

A search by value narrows a bracket about each rank. Each round counts the values below many pivots.
Once the brackets hold few values, these are gathered and sorted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Floats
from service.core.common_values import Contribution, Joint, added, count, gathered

PIVOTS = 4096
"""Maximum number of pivots of a round."""
GATHERED = 16_384
"""Maximum number of values that are gathered."""

Keys = NDArray[np.int64]


def percentiles(values: Floats) -> Joint[tuple[float, ...]]:
    """Return the minimum, 99 percentiles and the maximum of the values of all parts, linear.

    The (N,) values of this part are not negative.

    >>> from service.core.common_values import alone
    >>> alone(percentiles(np.arange(201.0)))[:3]
    (0.0, 2.0, 4.0)
    """
    n = yield from count(len(values))
    if not n:
        return ()
    at = np.linspace(0, n - 1, 101)
    below = np.floor(at).astype(np.int64)
    ranks = np.unique(np.concatenate((below, np.minimum(below + 1, n - 1))))
    ordered = yield from order_statistics(np.sort(values), ranks)
    return tuple(np.interp(at, ranks, ordered).tolist())


class Brackets(NamedTuple):
    """(R,) ranges of keys, each about the value of one rank."""

    first: Keys
    last: Keys
    before: Keys
    """Number of keys of all parts below `first`."""
    until: Keys
    """Number of keys of all parts up to `last`."""

    def narrowed(self, ranks: Keys, pivots: Keys, below: Keys) -> "Brackets":
        """Return the brackets after the numbers of keys below some ascending pivots."""
        place = below.searchsorted(ranks, side="right")  # of the first pivot above the value
        pivots, below = np.append(pivots, pivots[-1]), np.append(below, below[-1])
        lower, upper = place > 0, place < len(pivots) - 1
        return Brackets(
            np.where(lower, np.maximum(self.first, pivots[place - 1]), self.first),
            np.where(upper, np.minimum(self.last, pivots[place] - 1), self.last),
            np.where(lower, np.maximum(self.before, below[place - 1]), self.before),
            np.where(upper, np.minimum(self.until, below[place]), self.until),
        )

    def open(self) -> Keys:
        """Return (4, B) distinct brackets that have more than one key, ascending."""
        each = np.unique(np.stack(self), axis=1)
        return np.asarray(each[:, each[0] < each[1]])


def order_statistics(ordered: Floats, ranks: Keys) -> Joint[Floats]:
    """Return the values of all parts at ascending ranks; this part has (N,) ascending values."""
    keys = (ordered + 0.0).view(np.int64)  # in the order of the values, which are not negative
    (low, high), n = yield Contribution((_range(keys), len(keys)), _ranges, exact=True)
    brackets = Brackets(*(np.full(len(ranks), end) for end in (low, high, 0, n)))
    between = np.zeros(0, np.int64)
    while (wide := brackets.open()).size:
        if (wide[3] - wide[2]).sum() <= GATHERED:
            own = [
                keys[keys.searchsorted(a) : keys.searchsorted(b, "right")] for a, b in wide[:2].T
            ]
            (between,) = yield Contribution((np.concatenate(own),), gathered)
            break
        pivots = _pivots(wide[0], wide[1])
        below = yield Contribution(keys.searchsorted(pivots), added, exact=True)
        brackets = brackets.narrowed(ranks, pivots, below)
    between = np.append(np.sort(between), high)
    at = between.searchsorted(brackets.first) + ranks - brackets.before
    inside = brackets.first < brackets.last
    key = np.where(inside, between[np.where(inside, at, 0)], brackets.first)
    return np.asarray(key.view(np.float64))


def _pivots(first: Keys, last: Keys) -> Keys:
    """Return evenly spaced keys above `first` up to `last` of each bracket, ascending."""
    each = np.arange(1, max(PIVOTS // len(first), 1) + 1)
    step = np.maximum((last - first) // len(each), 1)
    pivots = first[:, None] + step[:, None] * each
    return np.unique(np.minimum(pivots, last[:, None]))


def _range(keys: Keys) -> tuple[int, int]:
    return (int(keys[0]), int(keys[-1])) if len(keys) else (np.iinfo(np.int64).max, 0)


def _ranges(values: Sequence[tuple[tuple[int, int], int]]) -> tuple[tuple[int, int], int]:
    ranges, sizes = zip(*values, strict=True)
    low, high = zip(*ranges, strict=True)
    return (min(low), max(high)), sum(sizes)
