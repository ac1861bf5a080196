"""Changes of pages, as columns, and places in the feed of these changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import UNIX_ZERO, Bools, Codes, Columns, Instants, Ints, Numbers


def age_s(seq: int, now: datetime) -> float:
    """Return the age of a block of the feed by its number, seconds."""
    return max((now - UNIX_ZERO).total_seconds() - seq / 1e6, 0.0)


class ChangeKind(IntEnum):
    """The change that a crawl found, or an operator made."""

    new = 0
    """The page has content for the first time."""
    changed = 1
    """The content differs from that of the last answer."""
    gone = 2
    """The page answered 404 or 410."""
    back = 3
    """A page that was gone or had moved has content again."""
    moved = 4
    """The page redirects permanently to another page."""
    deleted = 5
    """An operator deleted the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumns(Columns):
    """(N,) changes, those of one page in the order of their times."""

    page_id: Ints
    observed_at: Instants
    """Time of the crawl: the change happened before; or of the deletion."""
    changed_after: Instants
    """Time of the last answer before: the change happened after; NaT: the page had no answer."""
    kind: Codes
    """Values of `ChangeKind`."""
    digest: Ints
    """Hash of the caller's digest; 0: none."""
    last_modified: Instants
    """Time of the change as the site reports, between the two crawls; NaT: no such report."""
    moved_to: Ints
    """Target of the permanent redirect; 0: none, or not registered."""
    weight: Numbers = None
    """Weight of the change, below 1 (`core.weights`); NaN: 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedColumns(ChangeColumns):
    """(N,) changes in the order of the feed, with their places."""

    seq: Ints
    """Number of the commit, which is its time: microseconds since 1970."""
    offset: Ints
    """Number of the change within its commit's block."""


class FeedPlace(NamedTuple):
    """The place of the next change that a reader has not seen."""

    seq: int
    offset: int = 0


class FeedPart(NamedTuple):
    """Result of one reading of the feed."""

    changes: FeedColumns
    after: FeedPlace
    """Place after the last change that was read."""
    whole: bool
    """True if the reading reached the end of the feed."""


class FeedBounds(NamedTuple):
    """Bounds of the feed."""

    cut: int
    """Earliest number that a cursor may have, because earlier changes were deleted."""
    newest: int
    """Number of the newest block; 0: none."""
    latest: int
    """Highest number that a cursor may have: that of the newest commit, or the present time."""
    lost: Sequence[tuple[int, int]] = ()
    """Places that restores have lost: after < number < before, for each."""


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Filter of changes that a reader requests; None: all changes."""

    kinds: frozenset[ChangeKind] | None = None
    host: str | None = None
    prefix: str | None = None
    """Start of the URL."""
    tag: str | None = None
    """Tag that the page has when the change is read; a deleted page has its last tags."""
    min_weight: float | None = None
    """Minimum weight of the change."""


@dataclass(frozen=True, slots=True)
class PageUrls:
    """(N,) pages of a part of the feed that match the filter, by ascending page_id."""

    page_id: Ints
    url: NDArray[Any]

    def rows(self, page_id: Ints) -> tuple[Ints, Bools]:
        """Return the row of each page, and whether there is one."""
        if not len(self.page_id):
            return np.zeros(len(page_id), np.int64), np.zeros(len(page_id), np.bool_)
        row = np.minimum(self.page_id.searchsorted(page_id), len(self.page_id) - 1)
        return row, self.page_id[row] == page_id


@dataclass(frozen=True, slots=True)
class DeletedPages(PageUrls):
    """(N,) deleted pages of a part of the feed, by ascending page_id."""

    tags: NDArray[Any]
    """Tags of each page at its end, separated by spaces; "" without one."""
