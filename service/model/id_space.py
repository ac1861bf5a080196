"""Ranges of ids that may be in use, one after the other, without the gaps between them."""

from dataclasses import dataclass

import numpy as np

from service.model.arrays import Ints


@dataclass(frozen=True, slots=True)
class IdSpace:
    """Ranges of ids; an offset is a place in the ranges put together.

    >>> space = IdSpace(np.array([[0, 10], [100, 120]]))
    >>> space.size, space.id_at(12), space.offset_of(102), space.spans(8, 13)
    (30, 102, 12, [(8, 10), (100, 103)])
    """

    ranges: Ints
    """(R, 2) ranges, after < id <= last, ascending."""

    @property
    def ends(self) -> Ints:
        """(R,) offsets of the ends of the ranges."""
        return np.cumsum(self.ranges[:, 1] - self.ranges[:, 0])

    @property
    def size(self) -> int:
        """Number of ids in the ranges."""
        return int(self.ends[-1]) if len(self.ranges) else 0

    def id_at(self, offset: int) -> int:
        """Return the id at an offset; the offset 0 is the place before the first id."""
        ends = self.ends
        row = min(int(np.searchsorted(ends, offset, "right")), len(ends) - 1)
        return int(self.ranges[row, 1] - ends[row]) + offset

    def offset_of(self, an_id: int) -> int:
        """Return the offset of an id; of an id in a gap, that of the end of the range before."""
        ends = self.ends
        row = int(np.searchsorted(self.ranges[:, 0], an_id, "right")) - 1
        return int(ends[row]) - max(int(self.ranges[row, 1]) - an_id, 0) if row >= 0 else 0

    def spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of ids, after < id <= last, between two offsets."""
        spans = []
        for (after, last), stop in zip(self.ranges.tolist(), self.ends.tolist(), strict=True):
            first = max(last - (stop - start), after)
            final = min(last - (stop - end), last)
            if first < final:
                spans.append((first, final))
        return spans
