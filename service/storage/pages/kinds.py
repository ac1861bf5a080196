"""Kinds that come with registrations: feeds, and pages that are feeds no more."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from service.model.arrays import Bools, Ints, distinct

FEED = "feed"
"""Kind of feeds in requests and files; all other pages have `page`."""


class SetKinds(Protocol):
    """The statement that writes kinds."""

    def set_kinds(self, page_id: Ints, *, feed: bool) -> Ints:
        """Make pages feeds, or other pages; return those that changed."""


class KindRows(NamedTuple):
    """The kinds of some rows of a batch of pages."""

    row: Ints
    """(R,) distinct rows with a kind stated, in any order."""
    feed: Bools
    """(R,) whether the page is a feed."""

    @classmethod
    def of(cls, feeds: Mapping[int, bool]) -> "KindRows":
        """Return the kinds of rows."""
        return cls(np.array(list(feeds), np.int64), np.array(list(feeds.values()), np.bool_))

    def moved(self, n: int) -> "KindRows":
        """Return the kinds of rows that stand `n` rows later."""
        return KindRows(self.row + n, self.feed)

    def where(self, keep: Bools) -> "KindRows":
        """Return the kinds of the rows of a mask."""
        here = keep[self.row]
        return KindRows(self.row[here], self.feed[here])

    def of_rows(self, rows: Ints) -> "KindRows | None":
        """Return the kinds of ascending rows, numbered among these; None if none has a kind."""
        here = np.isin(self.row, rows)
        return KindRows(rows.searchsorted(self.row[here]), self.feed[here]) if here.any() else None

    def save(self, tx: SetKinds, page_id: Ints) -> Ints:
        """Write the kinds of pages, whose ids are by row; return the pages that changed."""
        pages = page_id[self.row]
        return distinct(
            np.concatenate(
                [
                    tx.set_kinds(distinct(pages[self.feed == feed]), feed=feed)
                    for feed in (False, True)
                    if (self.feed == feed).any()
                ]
                or [pages]
            )
        )
