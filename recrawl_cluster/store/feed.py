"""The feed of changes over several databases, as one feed.

Each database numbers its blocks by its clock. A reading merges the blocks up to the earliest
`horizon`, the number below which no database will commit a further block. Blocks of several
databases with one number are one block, in the order of the databases. A database that is away
holds the feed up, so no reader misses its changes.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from recrawl_cluster.store.database import ShardTransaction
from recrawl_cluster.store.routing import (
    Routing,
    Share,
    ascending,
    by_column,
    by_coordinator,
    by_ids,
    by_part,
    on_all,
)
from service.archive.log_archive import ArchivedFile
from service.model.arrays import Ints
from service.model.changes import (
    DeletedPages,
    FeedBounds,
    FeedColumns,
    FeedPart,
    FeedPlace,
    PageUrls,
)
from service.storage.feed.blocks import MOST_IN_BLOCK
from service.storage.feed.postgres import CLOCK, LOCK

HORIZON = f"""
SELECT CASE WHEN free THEN setval('feed_seq', greatest(nextval('feed_seq'), {CLOCK})) END
FROM (SELECT pg_try_advisory_xact_lock({LOCK}) AS free OFFSET 0) AS locked
"""
"""Statement that draws a number as a commit does, so that all later commits draw higher ones."""
NEWEST = "SELECT max(seq) FROM feed WHERE seq <= %(horizon)s"


def horizon(tx: ShardTransaction) -> int:
    """Return a number that no later commit of a database falls below.

    While another commit holds the lock, its number is above all blocks that are visible.
    """
    drawn = tx.scalar(HORIZON)
    return tx.newest_change() if drawn is None else int(drawn)


def _urls(_: Sequence[Share], results: Sequence[PageUrls]) -> PageUrls:
    """Return the URLs of all databases, by ascending page_id."""
    page_id = np.concatenate([urls.page_id for urls in results])
    order = np.argsort(page_id)
    return PageUrls(page_id[order], np.concatenate([urls.url for urls in results])[order])


def _deleted(_: Sequence[Share], results: Sequence[DeletedPages]) -> DeletedPages:
    """Return the deleted pages of all databases, by ascending page_id."""
    page_id, url, tags = (
        np.concatenate([getattr(some, name) for some in results])
        for name in ("page_id", "url", "tags")
    )
    order = np.argsort(page_id)
    return DeletedPages(page_id[order], url[order], tags[order])


class ShardedFeed(Routing):
    """The statements of the feed."""

    append_changes = by_column("append_changes")
    page_urls = by_ids("page_urls", _urls)
    note_deleted = by_ids("note_deleted", ascending)
    # a shard that moves leaves its part of the feed, and so its deleted pages, behind
    deleted_pages = on_all("deleted_pages", _deleted)
    feed_id = by_coordinator("feed_id")
    name_feed = by_coordinator("name_feed")
    feed_stretch = by_part("feed_stretch")
    read_stretch = by_part("read_stretch")
    drop_stretch = by_part("drop_stretch")

    def _horizon(self) -> int:
        return min(map(horizon, self.every()))

    @override
    def changes(self, place: FeedPlace, limit: int) -> FeedPart:
        bound, whole = self._horizon() + 1, True
        parts: list[FeedColumns] = []
        source: list[Ints] = []
        for n, tx in enumerate(self.every()):
            part = tx.changes(FeedPlace(place.seq), place.offset + limit + MOST_IN_BLOCK)
            parts.append(part.changes)
            source.append(np.full(len(part.changes), n))
            if not part.whole:  # the block at the end may be cut
                bound, whole = min(bound, part.after.seq), False
        rows = _merged(FeedColumns.concatenate(parts), np.concatenate(source), bound)
        start = place.offset if len(rows) and rows.seq[0] == place.seq else 0
        end = start + limit
        if end < len(rows):
            after = FeedPlace(int(rows.seq[end]), int(rows.offset[end]))
            return FeedPart(rows.take(slice(start, end)), after, whole=False)
        seq = int(rows.seq[-1]) + 1 if len(rows) else place.seq
        after = FeedPlace(seq if whole else max(seq, bound))
        return FeedPart(rows.take(slice(start, end)), after, whole)

    @override
    def newest_change(self) -> int:
        last = self._horizon()
        return max(tx.scalar(NEWEST, horizon=last) or 0 for tx in self.every())

    @override
    def feed_bounds(self) -> FeedBounds:
        each = [tx.feed_bounds() for tx in self.every()]
        return FeedBounds(
            cut=max(bounds.cut for bounds in each),
            newest=self.newest_change(),
            latest=max(bounds.latest for bounds in each),
            lost=[stretch for bounds in each for stretch in bounds.lost],
        )

    @override
    def feed_cut(self) -> int:
        return max(tx.feed_cut() for tx in self.every())

    @override
    def feed_files(self, since: int = 0) -> list[ArchivedFile]:
        files = (file for tx in self.every() for file in tx.feed_files(since))
        return sorted(files, key=lambda file: file.last)

    @override
    def cut_feed(self, before: int, limit: int) -> bool:
        return sum(tx.cut_feed(before, limit) for tx in self.every()) > 0

    @override
    def end_stuck_commit(self) -> bool:
        return sum(tx.end_stuck_commit() for tx in self.every()) > 0


def _merged(rows: FeedColumns, source: Ints, bound: int) -> FeedColumns:
    """Return the changes below a number in the order of the feed, numbered within their blocks."""
    order = np.lexsort((rows.offset, source, rows.seq))
    rows = rows.take(order[: np.searchsorted(rows.seq[order], bound)])
    first = np.searchsorted(rows.seq, rows.seq)
    return replace(rows, offset=np.arange(len(rows)) - first)
