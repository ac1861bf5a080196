r"""The age profile: how often pages change at each age, against their change rates in the long run.

Many pages are born hot and cool down. A page that was born at B and has the long-run rate
:math:`\Delta` changes at the rate :math:`\Delta g(t - B)`, where g is the profile. Pages whose
birth is not known count as old. Without a profile, every number is as if g were 1. Pure.

Derived in docs/theory.md, "Ages". Falling change rates after a page's creation: Cho,
Garcia-Molina 2000, The Evolution of the Web; Brewington, Cybenko 2000, How Dynamic Is the Web?
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Floats

FINEST = 0.25
"""End of the first bin of ages, days; every later bin but the last is as long as all before it."""
N_BINS = 12
"""Number of bins; the last one begins at 256 days."""
STARTS = np.append(0.0, FINEST * 2.0 ** np.arange(N_BINS - 1))
"""(12,) starts of the bins, days."""
ENDS = np.append(STARTS[1:], np.inf)
OLD = 1e6
"""Age of pages whose birth is not known, days."""
TINY = 1e-12
"""Length below which an interval is an instant, days."""


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
        return _faded(self.factor, age, None)

    def between(self, start: Floats, end: Floats) -> Floats:
        """Return mean factors between ages, days; the factor at the end of an empty interval."""
        length = np.maximum(end - start, 0.0)
        some = length > TINY
        mean = (self.passed(end) - self.passed(start)) / np.where(some, length, 1.0)
        return np.where(some, mean, self.at(end))

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
        # the share of the fading that is left at the start of the evidence
        decay = np.log(2.0) / half_life
        left = np.maximum(1.0 - days * decay, np.exp(-decay * age))
        return self._mean(age, left, half_life)

    def recent(self, age: Floats, days: Floats, half_life: float) -> Floats:
        """Return mean factors over the last days up to an age, with weights that fade back."""
        decay = np.log(2.0) / half_life
        return self._mean(age, np.exp(-decay * np.minimum(days, age)), half_life)

    def _mean(self, age: Floats, left: Floats, half_life: float) -> Floats:
        """Return the mean as of `exposure`; `left` is 2^(-T/H)."""
        decay = np.log(2.0) / half_life
        start = np.maximum(age + np.log(left) / decay, 0.0)
        whole, before = (_faded(self.factor, at, half_life) for at in (age, start))
        weight = (1.0 - left) / decay
        some = weight > TINY
        mean = (whole - left * before) / np.where(some, weight, 1.0)
        return np.where(some, mean, self.at(age))


def age_bin(age: Floats) -> NDArray[np.intp]:
    """Return the bins of ages, days.

    >>> age_bin(np.array([0.0, 0.2, 0.25, 1.0, 255.0, 256.0, 1e6])).tolist()
    [0, 0, 1, 3, 10, 11, 11]
    """
    _, exponent = np.frexp(age)
    # the exponent of 0 is 0
    return np.where(age < FINEST, 0, np.minimum(exponent + 2, N_BINS - 1)).astype(np.intp)


def _faded(factor: Floats, age: Floats, half_life: float | None) -> Floats:
    """Return the integrals of g(u) 2^(-(age - u)/H) over ages u from 0; None: H is infinite."""
    inner = np.diff(STARTS)
    k = age_bin(age)
    into = age - STARTS[k]
    if half_life is None:
        return np.asarray(np.append(0.0, np.cumsum(factor[:-1] * inner))[k] + factor[k] * into)
    decay = np.log(2.0) / half_life
    up_to = np.zeros(N_BINS)
    for i, length in enumerate(inner):
        kept = np.exp(-decay * length)
        up_to[i + 1] = up_to[i] * kept + factor[i] * (1.0 - kept) / decay
    kept = np.exp(-decay * into)
    steady = factor[k] / decay
    return np.asarray(steady + (up_to[k] - steady) * kept)


class Aging(NamedTuple):
    """The ages of those of some pages whose birth is known."""

    profile: AgeProfile
    row: NDArray[np.intp]
    """(K,) rows of the pages whose birth is known, ascending."""
    age: Floats
    """(K,) age of each at its last crawl, days."""
    present: Floats
    """(K,) factor of each at the time of the estimate."""

    def exposed(self, days: Floats, half_life: float | None) -> Floats:
        """Return the evidence of all pages, days at their long-run rates."""
        exposed = np.array(days, np.float64)
        own = exposed[self.row]
        exposed[self.row] = own * self.profile.exposure(self.age, own, half_life)
        return exposed

    def recently(self, days: Floats, half_life: float) -> Floats:
        """Return the mean factor of each page over its recent evidence, and 1 for old pages."""
        factor = np.ones(len(days))
        factor[self.row] = self.profile.recent(self.age, days[self.row], half_life)
        return factor

    def now(self, n: int) -> Floats:
        """Return the factors of n pages at the time of the estimate; 1 for old pages."""
        factor = np.ones(n)
        factor[self.row] = self.present
        return factor

    def take(self, some: NDArray[np.intp]) -> "Aging":
        """Return the ages of some pages, ascending rows."""
        at = np.minimum(self.row.searchsorted(some), len(self.row) - 1)
        there = np.flatnonzero(self.row[at] == some) if len(self.row) else at[:0]
        at = at[there]
        return Aging(self.profile, there, self.age[at], self.present[at])
