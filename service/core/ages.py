r"""The age profile: how often pages change at each age, against their change rates in the long run.

Many pages are born hot and cool down. A page that was born at B and has the long-run rate
:math:`\Delta` changes at the rate :math:`\Delta g(t - B)`, where g is the profile. Pages whose
birth is not known count as old. Without a profile, every number is as if g were 1. Pure.

Derived in docs/theory.md, "Ages". Falling change rates after a page's creation: Cho,
Garcia-Molina 2000, The Evolution of the Web; Brewington, Cybenko 2000, How Dynamic Is the Web?
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Floats

FINEST = 1 / 16
"""End of the first bin of ages, days; every later bin but the last is as long as all before it."""
N_BINS = 12
"""Number of bins. The last one begins at 64 days: slower trends show in a page's own evidence."""
STARTS = np.append(0.0, FINEST * 2.0 ** np.arange(N_BINS - 1))
"""(12,) starts of the bins, days."""
ENDS = np.append(STARTS[1:], np.inf)
OLD = 1e6
"""Age of pages whose birth is not known, days."""
TINY = 1e-12
"""Length below which an interval is an instant, days, and share below which evidence is none."""
MOST_EXPONENT = 700.0
"""Exponent above which e overflows nearly."""
EXPONENT_BIT, AT_FIRST_BIN = 52, 1023 - 5
"""Place of the exponent in a float64, and the one at the end of the first bin, less 1."""
BLOCK = 1 << 14
"""Number of pages whose factors are computed at a time."""
MOST_HALF_LIVES = 40.0
"""Half-lives after which nothing is left of recent evidence."""


class AgeProfile(NamedTuple):
    """The profile g of a corpus.

    Examples
    --------
    Pages that change a hundred times as often in their first week:

    >>> profile = AgeProfile(np.where(STARTS < 8, 100.0, 1.0))
    >>> profile.at(np.array([0.0, 7.9, 8.1, OLD])).tolist()
    [100.0, 100.0, 1.0, 1.0]
    >>> profile.between(np.array([0.0, 7.0]), np.array([1.0, 9.0])).tolist()
    [100.0, 50.5]
    """

    factor: Floats
    """(12,) rate in each bin over the rate in the long run; the last one is 1."""

    def at(self, age: Floats) -> Floats:
        """Return the factors at some ages, days."""
        return np.asarray(self.factor[age_bin(age)])

    def passed(self, age: Floats) -> Floats:
        """Return G, the days at the long-run rate that count as much as all days up to an age."""
        k = age_bin(age)
        up_to = np.append(0.0, np.cumsum(self.factor[:-1] * np.diff(STARTS)))
        return np.asarray((up_to - self.factor * STARTS)[k] + self.factor[k] * age)

    def between(self, start: Floats, end: Floats) -> Floats:
        """Return mean factors between ages, days; the factor at the end of an empty interval."""
        return _in_blocks(self._between, start, end)

    def _between(self, start: Floats, end: Floats) -> Floats:
        length = end - start
        none = length <= TINY
        mean = self.passed(end)
        mean -= self.passed(start)
        length[none] = 1.0
        mean /= length
        mean[none] = self.at(end[none])
        return mean

    def exposure(self, age: Floats, days: Floats, half_life: float | None) -> Floats:
        r"""Return mean factors over the evidence of pages.

        A page of the `age` A at its last crawl has evidence of W `days`, which fades with the
        half-life H. It began at the age :math:`A - T`, with

        .. math:: W = \int_0^T 2^{-u/H} du, \quad T \le A.

        The result is the mean of :math:`g(A - u)` with the weight :math:`2^{-u/H}` over these T
        days. It is 1 for a flat profile.
        """
        if half_life is None:
            return self.between(np.maximum(age - days, 0.0), age)
        decay = float(np.log(2.0)) / half_life
        bins = self._within_bins(decay)

        def exposed(age: Floats, days: Floats) -> Floats:
            faded = np.exp(-decay * age)
            left = np.maximum(1.0 - decay * days, faded)
            start = np.log(np.minimum(left, 1.0))
            start /= decay
            start += age
            return self._mean(bins, decay, (age, faded), (start, left))

        return _in_blocks(exposed, age, days)

    def recent(self, age: Floats, days: Floats, half_life: float) -> Floats:
        """Return mean factors over the last days up to an age, with weights that fade back."""
        decay = float(np.log(2.0)) / half_life
        bins, most = self._within_bins(decay), MOST_HALF_LIVES * half_life

        def lately(age: Floats, days: Floats) -> Floats:
            age = np.minimum(age, most + STARTS[-1])
            length = np.minimum(np.minimum(days, age), most)
            faded, left = np.exp(-decay * age), np.exp(-decay * length)
            return self._mean(bins, decay, (age, faded), (age - length, left))

        return _in_blocks(lately, age, days)

    def _mean(
        self,
        bins: tuple[Floats, Floats],
        decay: float,
        end: tuple[Floats, Floats],
        start: tuple[Floats, Floats],
    ) -> Floats:
        r"""Return the mean as of `exposure`.

        With :math:`P(x) = \int_0^x 2^{-(x - u)/H} g(u) du` it is :math:`(P(A) - 2^{-T/H} P(A - T))`
        over that of g = 1. `bins` are those of `_within_bins`, `end` has :math:`A` and
        :math:`2^{-A/H}`, `start` has :math:`A - T` and :math:`2^{-T/H}`.
        """
        (steady, slope), (_, faded), (_, left) = bins, end, start
        k, first = age_bin(end[0]), age_bin(start[0])
        mean = slope[k]
        mean -= slope[first]
        mean *= faded
        mean += steady[k]
        mean -= steady[first] * left
        length = 1.0 - left
        mean *= decay
        none = length <= TINY
        length[none] = 1.0
        mean /= length
        mean[none] = self.factor[k[none]]
        return mean

    def _within_bins(self, decay: float) -> tuple[Floats, Floats]:
        r"""Return (12,) numbers s and d: :math:`P(x) = s + d 2^{-x/H}` within each bin."""
        steady = self.factor / decay
        # P is continuous, and 0 at 0
        steps = np.diff(steady, prepend=0.0) * np.exp(np.minimum(decay * STARTS, MOST_EXPONENT))
        return steady, -np.cumsum(steps)


def age_bin(age: Floats) -> NDArray[np.intp]:
    """Return the bins of ages, days.

    >>> age_bin(np.array([0.0, 0.06, 0.0625, 1.0, 63.0, 64.0, 1e6])).tolist()
    [0, 0, 1, 5, 10, 11, 11]
    """
    # the exponents of float64, which begin at bit 52 and count from -1023
    exponent = np.asarray(age, np.float64).view(np.int64) >> EXPONENT_BIT
    exponent -= AT_FIRST_BIN
    return np.clip(exponent, 0, N_BINS - 1, out=exponent)


def _in_blocks(function: Callable[..., Floats], *columns: Floats) -> Floats:
    """Return a function of (N,) columns, computed in blocks that fit the cache."""
    n = len(columns[0])
    result = np.empty(n)
    for start in range(0, n, BLOCK):
        block = slice(start, start + BLOCK)
        result[block] = function(*(column[block] for column in columns))
    return result


class Aging(NamedTuple):
    """Mean factors of those of some pages whose birth is known; for the others they are 1."""

    row: NDArray[np.intp]
    """(K,) rows of the pages, ascending."""
    exposure: Floats
    """(K,) mean factor over the evidence of each."""
    recent: Floats
    """(K,) mean factor over its recent evidence."""
    present: Floats
    """(K,) factor at the time of the estimate."""

    def exposed(self, days: Floats) -> Floats:
        """Return the evidence of all pages, days at their long-run rates."""
        if len(self.row) == len(days):
            return np.asarray(days * self.exposure)
        exposed = np.array(days, np.float64)
        exposed[self.row] *= self.exposure
        return exposed

    def recently(self, n: int) -> Floats:
        """Return the mean factors of n pages over their recent evidence."""
        return self._of_all(n, self.recent)

    def now(self, n: int) -> Floats:
        """Return the factors of n pages at the time of the estimate."""
        return self._of_all(n, self.present)

    def _of_all(self, n: int, own: Floats) -> Floats:
        if len(self.row) == n:
            return own
        factor = np.ones(n)
        factor[self.row] = own
        return factor

    def take(self, some: NDArray[np.intp]) -> "Aging":
        """Return the factors of some pages, ascending rows."""
        n = len(self.row)
        if n and self.row[-1] == n - 1:  # the first rows, or all
            there = np.arange(some.searchsorted(n))
            return self._with(there, some[: len(there)])
        at = np.minimum(self.row.searchsorted(some), n - 1)
        there = np.flatnonzero(self.row[at] == some) if n else at[:0]
        return self._with(there, at[there])

    def within(self, block: slice) -> "Aging":
        """Return the factors of the pages of a block of rows."""
        first, last = self.row.searchsorted([block.start, block.stop])
        return self._with(self.row[first:last] - block.start, slice(first, last))

    def _with(self, row: NDArray[np.intp], at: Any) -> "Aging":
        return Aging(row, self.exposure[at], self.recent[at], self.present[at])
