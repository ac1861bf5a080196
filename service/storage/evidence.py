"""What the log in memory is evidence of, in the order of pages from one reading to the next."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.arrays import NEVER, Bools, Ints
from service.columns import EvidenceColumns
from service.storage.growing import Table


class Evidence:
    """Entries of a log that have an interval, by page and time; brought up to date when read.

    An epoch reads a year of evidence, of which a day is new. Entries have numbers that ascend and
    are never used again, so the log itself tells what came and what went since, be it by
    retention, by a page that was deleted or by a rollback. Where some came late, or came back by
    a rollback, all is read anew.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Read all of the log the next time."""
        self.columns = EvidenceColumns.empty()
        self.number = np.zeros(0, np.int64)
        self.newest = NEVER
        self.read = (0, -1)
        """How many entries the log had, and the number of the last."""

    def of(self, log: Table) -> EvidenceColumns:
        """Give the evidence of a whole log, whose entries are in the order of their numbers."""
        number = log["number"]
        now = (number.size, int(number.max(initial=-1)))
        if now == self.read:
            return self.columns
        told = ~np.isnan(log["interval"])
        first = int(np.searchsorted(number, self.read[1], side="right"))
        new = first + np.flatnonzero(told[first:])
        at = log["observed_at"][new]
        left = number[:first][told[:first]]
        kept = self._kept(left)
        if np.count_nonzero(kept) < left.size or (at.size and at.min() < self.newest):
            self.forget()
            return self.of(log)
        self._merge(kept, log, new[np.lexsort((at, log["page_id"][new]))])
        self.read, self.newest = now, np.fmax.reduce(at, initial=self.newest)
        return self.columns

    def _kept(self, left: Ints) -> Bools:
        """Which of the entries here are among these, which are left in the log."""
        if not left.size:
            return np.zeros(self.number.size, np.bool_)
        kept: Bools = self.number >= left[0]
        if np.count_nonzero(kept) > left.size:  # not only the oldest are gone
            there = np.zeros(left[-1] - left[0] + 1, np.bool_)
            there[left - left[0]] = True
            kept &= self.number <= left[-1]
            kept[kept] = there[self.number[kept] - left[0]]
        return kept

    def _merge(self, kept: Bools, log: Table, new: Ints) -> None:
        """Put entries of the log, in their order here, behind the kept ones of their pages."""
        old, number = self.columns.take(kept), self.number[kept]
        is_new = np.zeros(len(old) + len(new), np.bool_)
        behind = old.page_id.searchsorted(log["page_id"][new], "right")
        is_new[behind + np.arange(len(new))] = True
        is_old = ~is_new

        def merged(column: NDArray[Any], name: str) -> NDArray[Any]:
            result = np.empty(len(is_new), column.dtype)
            result[is_old], result[is_new] = column, log[name][new]
            return result

        names = EvidenceColumns.__dataclass_fields__
        self.columns = EvidenceColumns(**{name: merged(getattr(old, name), name) for name in names})
        self.number = merged(number, "number")
