"""Entries of a batch in groups: ordered by page and time, the entries of one page side by side.

Each entry starts from the state that the entry before it in its group left. Most of that state is
"the last value that was set", which is one scan over all groups. What must be computed step by
step goes in rounds: one entry of each page at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Bools, Ints

S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Groups:
    """(N,) entries of P pages, each page with at least one."""

    page: Ints
    """(N,) the page of each entry: 0 … P-1, ascending."""
    start: Ints
    """(P,) the position of each page's first entry."""
    end: Ints
    """(P,) the position of each page's last entry."""

    @classmethod
    def of(cls, page: Ints) -> "Groups":
        """Return the groups of ordered entries by page; pages may have any numbers."""
        first = _first(page)
        start = np.flatnonzero(first)
        if len(start) == len(page):
            return cls(start, start, start)
        return cls(np.cumsum(first) - 1, start, np.append(start[1:], len(page)) - 1)

    @property
    def single(self) -> bool:
        """Whether each page has one entry, as nearly always."""
        return len(self.start) == len(self.page)

    def before(self, initial: NDArray[S], sets: Bools, value: NDArray[S]) -> NDArray[S]:
        """Return the (N,) values before each entry: the last one set, else the page's (P,) own."""
        if self.single:
            return initial
        latest = np.append(-1, self._latest(sets)[:-1])
        return np.where(latest >= self.start[self.page], value[latest], initial[self.page])

    def after(self, initial: NDArray[S], sets: Bools, value: NDArray[S]) -> NDArray[S]:
        """Return the (P,) values after all entries: the last one set, else the page's own."""
        if self.single:
            return np.where(sets, value, initial)
        latest = self._latest(sets)[self.end]
        return np.where(latest >= self.start, value[latest], initial)

    def count(self, mask: Bools) -> Ints:
        """Return the (P,) numbers of entries that a mask selects."""
        return np.add.reduceat(mask, self.start, dtype=np.int64)

    def _latest(self, sets: Bools) -> Ints:
        """Return the position of the newest entry up to each that sets a value, -1 before any."""
        return np.maximum.accumulate(np.where(sets, np.arange(len(sets)), -1))


def rounds(page: Ints) -> Iterator[Ints]:
    """Return the positions of ordered entries in rounds: round k has the k-th of each page."""
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
