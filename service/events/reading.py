"""Read the feed of changes: filters, URLs, and the limits of cursors."""

import secrets
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.weights import whole
from service.model.arrays import UNIX_ZERO, Bools, Ints, distinct
from service.model.changes import (
    ChangeFilter,
    ChangeKind,
    FeedBounds,
    FeedColumns,
    FeedPlace,
    PageUrls,
)
from service.model.errors import CursorExpired
from service.storage import Store, Transaction

MOST_SCANNED = 20_000
"""Maximum changes that one reading scans, whatever its filter matches."""
FIRST_SPAN = 1_000_000
"""First length of the end of the feed that `newest` reads, microseconds."""
MOST_PARTS = 16
"""Maximum parts that one reading takes; a part may open a file of the archive."""
CHUNK = 5_000
"""Changes that a reading with a filter scans at a time."""
AGAIN = "take a new cursor by since and the present instant, then read the pages again"
"""Remedy for a cursor that has expired: the cursor comes first, so no change is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedChanges(FeedColumns):
    """(N,) changes of the feed with the URLs of their pages."""

    url: NDArray[np.object_]
    moved_to_url: NDArray[np.object_]
    """URL of the target of a permanent redirect; None: none, or not registered."""
    tags: NDArray[np.object_]
    """Tags of each page at the time of the reading, separated by spaces; "" without one. A deleted
    page has its last tags."""


def feed_id(store: Store) -> str:
    """Return the id of the database's feed; the first reader writes it."""
    with store.begin(write=False) as tx:
        feed_id = tx.feed_id()
    if feed_id:
        return feed_id
    with store.begin() as tx:
        tx.name_feed(secrets.token_hex(8))
        return tx.feed_id()


class Changes(NamedTuple):
    """Result of one reading."""

    changes: NamedChanges
    after: FeedPlace
    """Place after the last change that was read."""
    whole: bool
    """True if the reading reached the end of the feed."""


def read(tx: Transaction, place: FeedPlace, limit: int, only: ChangeFilter) -> Changes:
    """Return the next changes that match, at most `limit`; of those of deleted pages, the deletion.

    Because the function scans at most `MOST_SCANNED` changes in `MOST_PARTS` parts, the result may
    be shorter than `limit` before the end of the feed.
    """
    parts: list[NamedChanges] = []
    chunk = limit if only == ChangeFilter() else CHUNK
    n_scanned, left, whole = 0, limit, False
    while left and not whole and n_scanned < MOST_SCANNED and len(parts) < MOST_PARTS:
        scanned = tx.changes(place, min(chunk, MOST_SCANNED - n_scanned))
        place, whole = scanned.after, scanned.whole
        part = _matching(tx, scanned.changes, only)
        if len(part) > left:
            part, whole = part.take(slice(left)), False
            place = FeedPlace(int(part.seq[-1]), int(part.offset[-1]) + 1)
        parts.append(part)
        n_scanned += len(scanned.changes)
        left -= len(part)
    return Changes(NamedChanges.concatenate(parts), place, whole)


def newest(tx: Transaction, limit: int, only: ChangeFilter) -> NamedChanges:
    """Return the last changes that match, newest first, at most `limit`.

    The function reads ever longer ends of the feed. Because it scans at most `MOST_SCANNED` changes
    of an end, the result may have fewer changes than `limit`.
    """
    bounds, span, last = tx.feed_bounds(), 0, None
    while True:
        start = max(bounds.newest - span, bounds.cut)
        part = read(tx, FeedPlace(start), MOST_SCANNED, only)
        if part.whole or last is None:
            last = part.changes
        if not part.whole or len(last) >= limit or start == bounds.cut:
            return last.take(slice(None, -limit - 1, -1))
        span = max(4 * span, FIRST_SPAN)


def _matching(tx: Transaction, changes: FeedColumns, only: ChangeFilter) -> NamedChanges:
    """Return the changes that match, with their URLs."""
    if only.kinds is not None:
        changes = changes.where(np.isin(changes.kind, sorted(only.kinds)))
    if only.min_weight is not None and changes.weight is not None:
        changes = changes.where(whole(changes.weight) >= only.min_weight)
    ends = changes.kind == ChangeKind.deleted
    url, tags = (np.full(len(changes), None, object) for _ in range(2))
    pages = tx.page_urls(distinct(changes.page_id[~ends]), only)
    there, row = _among(pages, changes.page_id, ~ends)
    named = np.zeros(len(changes), np.bool_)
    named[there], url[there], tags[there] = True, pages.url[row], _tags(tx, changes.page_id[there])
    if ends.any():
        deleted = tx.deleted_pages(distinct(changes.page_id[ends]), only)
        there, row = _among(deleted, changes.page_id, ends)
        named[there], url[there], tags[there] = True, deleted.url[row], deleted.tags[row]
    changes = changes.where(named)
    return NamedChanges(
        **changes.arrays(),
        url=url[named],
        moved_to_url=_targets(tx, changes.moved_to),
        tags=tags[named],
    )


def _among(pages: PageUrls, page_id: Ints, mask: Bools) -> tuple[Ints, Ints]:
    """Return the positions of a mask whose page is among those pages, and the row of each."""
    row, is_there = pages.rows(page_id)
    there = np.flatnonzero(is_there & mask)
    return there, row[there]


def _targets(tx: Transaction, moved_to: Ints) -> NDArray[np.object_]:
    target: NDArray[np.object_] = np.full(len(moved_to), None, object)
    moved: Bools = moved_to > 0
    if moved.any():
        pages = tx.page_urls(distinct(moved_to[moved]), ChangeFilter())
        where, is_there = pages.rows(moved_to[moved])
        target[np.flatnonzero(moved)[is_there]] = pages.url[where[is_there]]
    return target


def _tags(tx: Transaction, page_id: Ints) -> NDArray[np.object_]:
    tags: NDArray[np.object_] = np.full(len(page_id), "", object)
    pairs = tx.tags_of(distinct(page_id))
    if len(pairs):
        first, end = (pairs.page_id.searchsorted(page_id, side) for side in ("left", "right"))
        for row in np.flatnonzero(first < end).tolist():
            tags[row] = " ".join(pairs.tag[first[row] : end[row]])
    return tags


def check_place(place: FeedPlace, bounds: FeedBounds, *, same_feed: bool) -> None:
    """Raise `CursorExpired`, with the reason, for a cursor after which changes may be missing.

    Read the bounds after the changes: otherwise a deletion in between would go unnoticed.
    """
    if not same_feed:
        raise CursorExpired(f"the cursor belongs to another database; {AGAIN}")
    if place.seq < bounds.cut:
        oldest = UNIX_ZERO + np.timedelta64(bounds.cut, "us").astype(object)
        raise CursorExpired(
            f"changes after this cursor were deleted: the feed begins at {oldest.isoformat()}; "
            f"{AGAIN}"
        )
    if any(after < place.seq < before for after, before in bounds.lost):
        raise CursorExpired(
            "the database was restored from a copy that is older than this cursor, so changes that "
            f"you have read are undone; {AGAIN}"
        )
    if place.seq > bounds.latest + 1:
        raise CursorExpired(
            "the cursor is ahead of the database, which was restored from an older copy or whose "
            f"clock was set back; {AGAIN}"
        )
