"""Evidence from the log in memory, ordered by page, and updated from one reading to the next."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recrawl_lab.memory.growing import GrowingTable
from service.model.arrays import NO_TIME, Bools, Ints
from service.model.columns import EvidenceColumns

PART = 1 << 16
"""Entries merged at a time, few enough for the processor's cache."""


class Evidence:
    """Entries of a log that have an interval, by page and time; updated when read.

    An epoch reads a year of evidence; only a day of it is new. Entries have ascending numbers,
    which identify the new ones. The whole log is read again after late entries, or after the
    deletion of entries other than the oldest.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Read the whole log at the next reading."""
        self.columns = EvidenceColumns.empty()
        self.number = np.zeros(0, np.int64)
        self.newest = NO_TIME
        self.read = (0, -1)
        """Number of entries in the log at the last reading, and the number of the last entry."""

    def of(self, log: GrowingTable) -> EvidenceColumns:
        """Return the evidence of a whole log, whose entries are ordered by their numbers."""
        number = log["number"]
        now = (number.size, int(number.max(initial=-1)))
        if now == self.read:
            return self.columns
        has_interval = ~np.isnan(log["interval"])
        first = int(np.searchsorted(number, self.read[1], side="right"))
        new = first + np.flatnonzero(has_interval[first:])
        at = log["observed_at"][new]
        late = at.size > 0 and at.min() < self.newest
        remains = self.number >= (number[has_interval.argmax()] if number.size else 0)
        if late or np.count_nonzero(remains) != np.count_nonzero(has_interval[:first]):
            self.forget()
            return self.of(log)
        self._merge(remains, log, new[np.lexsort((at, log["page_id"][new]))])
        self.read, self.newest = now, np.fmax.reduce(at, initial=self.newest)
        return self.columns

    def _merge(self, remains: Bools, log: GrowingTable, new: Ints) -> None:
        """Insert entries of the log behind the remaining entries of their pages."""
        names = EvidenceColumns.__dataclass_fields__
        old = {name: getattr(self.columns, name) for name in names} | {"number": self.number}
        size = np.count_nonzero(remains) + new.size
        merged = {name: np.empty(size, column.dtype) for name, column in old.items()}
        borders = np.unique(old["page_id"][PART::PART])
        ends_old = [0, *old["page_id"].searchsorted(borders).tolist(), remains.size]
        ends_new = [0, *log["page_id"][new].searchsorted(borders).tolist(), new.size]
        done = 0
        for (a, b), (c, d) in zip(pairwise(ends_old), pairwise(ends_new), strict=True):
            part = remains[a:b]
            page = old["page_id"][a:b][part]
            is_new = np.zeros(page.size + d - c, np.bool_)
            is_new[page.searchsorted(log["page_id"][new[c:d]], "right") + np.arange(d - c)] = True
            rows = slice(done, done + is_new.size)
            for name, column in merged.items():
                _place(column[rows], is_new, old[name][a:b][part], log[name][new[c:d]])
            done += is_new.size
        self.number = merged.pop("number")
        self.columns = EvidenceColumns(**merged)


def _place(into: NDArray[Any], is_new: Bools, old: NDArray[Any], new: NDArray[Any]) -> None:
    into[~is_new], into[is_new] = old, new
