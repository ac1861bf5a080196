"""Entries of a batch in runs: ordered by page and time, so that those of one page lie together.

What an entry finds was left by the entry before it in its run. Most of that is "the last value
that was set", which is one scan over all runs; what must be computed step by step goes in turns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.arrays import Bools, Ints

S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Runs:
    """(N,) entries of P pages, each page with at least one."""

    page: Ints
    """(N,) which page each entry is of: 0 … P-1, ascending."""
    start: Ints
    """(P,) the position of each page's first entry."""
    end: Ints
    """(P,) the position of each page's last entry."""

    @classmethod
    def of(cls, page: Ints) -> "Runs":
        """Find the runs of ordered entries by the pages they are of, however these are numbered."""
        first = _first(page)
        start = np.flatnonzero(first)
        if len(start) == len(page):
            return cls(start, start, start)
        return cls(np.cumsum(first) - 1, start, np.append(start[1:], len(page)) - 1)

    @property
    def single(self) -> bool:
        """Whether each page has but one entry, as nearly always."""
        return len(self.start) == len(self.page)

    def before(self, initial: NDArray[S], sets: Bools, value: NDArray[S]) -> NDArray[S]:
        """Give what each entry finds: the last value set in its run, else the page's (P,) own."""
        if self.single:
            return initial
        latest = np.append(-1, self._latest(sets)[:-1])
        return np.where(latest >= self.start[self.page], value[latest], initial[self.page])

    def after(self, initial: NDArray[S], sets: Bools, value: NDArray[S]) -> NDArray[S]:
        """Give what each (P,) run leaves: the last value set in it, else the page's own."""
        if self.single:
            return np.where(sets, value, initial)
        latest = self._latest(sets)[self.end]
        return np.where(latest >= self.start, value[latest], initial)

    def count(self, mask: Bools) -> Ints:
        """Count the entries of each (P,) run that a mask selects."""
        return np.add.reduceat(mask, self.start, dtype=np.int64)

    def _latest(self, sets: Bools) -> Ints:
        """Give the position of the newest entry up to each that sets a value, -1 before any."""
        return np.maximum.accumulate(np.where(sets, np.arange(len(sets)), -1))


def turns(page: Ints) -> Iterator[Ints]:
    """Give ordered entries in turns: the k-th turn has the k-th entry of each page."""
    position = np.arange(len(page))
    first = _first(page)
    if first.all():
        yield from [position] if len(page) else []
        return
    rank = position - np.maximum.accumulate(np.where(first, position, 0))
    ends = np.cumsum(np.bincount(rank))[:-1]
    yield from np.split(np.argsort(rank, kind="stable"), ends)


def _first(page: Ints) -> Bools:
    first = np.ones(len(page), np.bool_)
    np.not_equal(page[1:], page[:-1], out=first[1:])
    return first
