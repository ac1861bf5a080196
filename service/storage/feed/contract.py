"""The feed of changes: the contract, and the SQL that both databases share.

**Order.** Each commit with changes appends blocks. Numbers of blocks ascend in the order of the
commits: a reader that has seen a block never misses an earlier one. The number of a block is the
time of its commit, in microseconds, or one more than the last number if that is higher.
**Reading.** Blocks never change. A place stays valid until the retention deletes its changes. After
a restore the places up to the backup are valid, and the lost ones behind it are not. Changes of
deleted pages have no URL, but for the deletion itself.
**Archive.** With an archive the retention moves whole days of the oldest blocks into files. The
commit that names the files deletes the blocks, so the files and then the table are one feed.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.arrays import UNIX_ZERO, Ints
from service.model.changes import (
    ChangeColumns,
    ChangeFilter,
    DeletedPages,
    FeedBounds,
    FeedColumns,
    FeedPart,
    FeedPlace,
    PageUrls,
)
from service.model.errors import PartChanged
from service.storage.dialect import Dialect, Subject, all_of
from service.storage.feed.blocks import MOST_IN_BLOCK, packed, size, unpacked
from service.storage.log.contract import file_of, named


class FeedStretch(NamedTuple):
    """The oldest blocks of the feed, which one commit archives."""

    first: int
    last: int
    n_blocks: int


class FeedStatements(Subject):
    """The statements of the feed."""

    @abstractmethod
    def append_changes(self, changes: ChangeColumns) -> None:
        """Append changes, ordered by page_id and time, at the end of this transaction.

        On Postgres, commits with changes take turns from the append to the end of the commit.
        """

    @abstractmethod
    def changes(self, place: FeedPlace, limit: int) -> FeedPart:
        """Return the next changes from a place in the order of the feed, at most `limit`.

        A reading opens at most one file of the archive, so it may have fewer changes than `limit`
        before the end of the feed.
        """

    @abstractmethod
    def page_urls(self, page_id: Ints, only: ChangeFilter) -> PageUrls:
        """Return the URLs of those pages (ascending, unique) that match host, prefix and tag."""

    @abstractmethod
    def note_deleted(self, page_id: Ints, now: datetime) -> Ints:
        """Keep the URLs and tags of pages that are about to be deleted, as long as the feed.

        Return the pages that were kept, ascending: those with a reported crawl. No reader of the
        feed knows of the others.
        """

    @abstractmethod
    def deleted_pages(self, page_id: Ints, only: ChangeFilter) -> DeletedPages:
        """Return those of these deleted pages (ascending, unique) that match the filter."""

    @abstractmethod
    def feed_bounds(self) -> FeedBounds:
        """Return the bounds of the feed; to notice deletions, read them after the changes."""

    @abstractmethod
    def feed_cut(self) -> int:
        """Return the number before which all changes were deleted; 0: none."""

    @abstractmethod
    def newest_change(self) -> int:
        """Return the number of the newest block; 0: none."""

    @abstractmethod
    def cut_feed(self, before: int, limit: int) -> bool:
        """Delete up to `limit` blocks before a number; return whether there were any.

        The newest block stays. Files of earlier changes no longer count. Deleted pages whose
        changes are gone go too, up to `limit`, and count as well.
        """

    @abstractmethod
    def feed_files(self, since: int = 0) -> list[ArchivedFile]:
        """Return the files that have changes since a number, oldest first."""

    @abstractmethod
    def feed_stretch(self, before: int) -> FeedStretch | None:
        """Return the oldest blocks before a number, but for the newest; None: there are none."""

    @abstractmethod
    def read_stretch(self, stretch: FeedStretch) -> Generator[FeedColumns]:
        """Yield the changes of a stretch in the order of the feed, those of a commit together."""

    @abstractmethod
    def drop_stretch(
        self, stretch: FeedStretch, files: Sequence[ArchivedFile], now: datetime
    ) -> None:
        """Name these files and delete the stretch; raise `PartChanged` unless all of it is there.

        No file has changes of another stretch.
        """

    @abstractmethod
    def feed_id(self) -> str:
        """Return the id of this database's feed; "" before `name_feed`."""

    @abstractmethod
    def name_feed(self, feed_id: str) -> None:
        """Write the id of this database's feed, unless it has one."""

    @abstractmethod
    def end_stuck_commit(self) -> bool:
        """End a session that holds up commits with changes; return whether there was one.

        Such a session has waited for its client for `STUCK_S`, between its append and its commit.
        """


STUCK_S = 2.0
"""Time for which another commit must have waited before a session counts as stuck, seconds."""

FIRST_BLOCKS, MORE, MOST_BLOCKS = 8, 4, 512
"""Blocks of the first statement of a reading; growth of each further one, and their maximum."""

READ = """
SELECT seq, items FROM feed WHERE seq >= %(seq)s ORDER BY seq LIMIT %(limit)s
"""
NEWEST = "SELECT max(seq) FROM feed"
OLD = """
SELECT max(seq) FROM (
    SELECT seq FROM feed WHERE seq < %(before)s AND seq < (SELECT max(seq) FROM feed)
    ORDER BY seq LIMIT %(limit)s
) AS old
"""
DELETE = "DELETE FROM feed WHERE seq <= %(last)s"
DELETE_FILES = "DELETE FROM feed_files WHERE last_seq <= %(last)s"
LOST = "SELECT last_change + 1, first_change FROM incarnations WHERE first_change > 0"
"""Statement that reads the places that restores have lost."""
MOST_IN_STRETCH = 262_144
"""Maximum blocks that one commit archives; to delete them takes about a second."""
STRETCH = """
SELECT min(seq), max(seq), count(*) FROM (
    SELECT seq FROM feed WHERE seq < %(before)s AND seq < (SELECT max(seq) FROM feed)
    ORDER BY seq LIMIT %(limit)s
) AS old
"""
DROP_STRETCH = "DELETE FROM feed WHERE seq BETWEEN %(first)s AND %(last)s RETURNING seq"
ADD_FILE = """
INSERT INTO feed_files (name, day, first_seq, last_seq, n_rows, n_bytes, checksum, archived_at)
VALUES (%(name)s, %(day)s, %(first)s, %(last)s, %(n_rows)s, %(n_bytes)s, %(checksum)s,
    %(archived_at)s)
"""
FILES = """
SELECT name, day, first_seq AS first, last_seq AS last, n_rows, n_bytes, checksum
FROM feed_files WHERE last_seq >= %(since)s ORDER BY last_seq LIMIT %(limit)s
"""
CHANGES_TOGETHER = 32_768
"""Changes of a stretch that are read at a time, more than a block has."""
CUT, ID = "feed_cut", "feed_id"
"""Names of the entries of `meta`: the number after the last deleted block, the feed's id."""
URLS = """
SELECT page_id, url FROM pages WHERE page_id IN (SELECT value FROM {{ids}}) AND {condition}
ORDER BY page_id
"""
OF_HOST = "host_id = (SELECT host_id FROM hosts WHERE host = %(host)s)"
WITH_PREFIX = "substr(url, 1, length(%(prefix)s)) = %(prefix)s"
WITH_TAG = """EXISTS (
    SELECT 1 FROM page_tags WHERE page_tags.page_id = pages.page_id
    AND page_tags.tag_id = (SELECT tag_id FROM tags WHERE tag = %(tag)s)
)"""

NOTE_DELETED = """
INSERT INTO deleted_pages (page_id, url, host, tags, deleted_at)
SELECT pages.page_id, url, host, coalesce((
    SELECT {joined_tags} FROM page_tags JOIN tags ON tags.tag_id = page_tags.tag_id
    WHERE page_tags.page_id = pages.page_id
), ''), %(now)s
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
    JOIN hosts ON hosts.host_id = pages.host_id
WHERE pages.page_id IN (SELECT value FROM {ids}) AND last_crawl_at IS NOT NULL
RETURNING page_id
"""
DELETED = """
SELECT page_id, url, tags FROM deleted_pages
WHERE page_id IN (SELECT value FROM {{ids}}) AND {condition} ORDER BY page_id
"""
OF_DELETED_HOST = "host = %(host)s"
FORGET_DELETED = """
DELETE FROM deleted_pages WHERE page_id IN (
    SELECT page_id FROM deleted_pages WHERE deleted_at < %(before)s
    ORDER BY deleted_at LIMIT %(limit)s
)
"""
KEPT_FOR = timedelta(days=1)
"""Time for which a deleted page outlives its change: no transaction takes as long."""


def blocks(changes: ChangeColumns) -> Iterator[bytes]:
    """Yield the blocks of a commit."""
    for start in range(0, len(changes), MOST_IN_BLOCK):
        yield packed(changes.take(slice(start, start + MOST_IN_BLOCK)))


def url_condition(only: ChangeFilter) -> tuple[str, dict[str, str]]:
    """Return the condition on pages of a filter, and its parameters."""
    wanted = {"host": only.host, "prefix": only.prefix, "tag": only.tag}
    values = {name: value for name, value in wanted.items() if value is not None}
    conditions = {"host": OF_HOST, "prefix": WITH_PREFIX, "tag": WITH_TAG}
    return all_of(conditions[name] for name in values), values


class FeedSql(Dialect, FeedStatements):
    """The statements of the feed."""

    @abstractmethod
    def latest_number(self) -> int:
        """Return the highest number that a block may have now."""

    @override
    def changes(self, place: FeedPlace, limit: int) -> FeedPart:
        part, files = None, self._files(place.seq, 1)
        if not files:
            part = self.stored_changes(place, limit)
            files = self._files(place.seq, 1)  # blocks may have moved meanwhile
        return part if part and not files else self._archived(files[0], place, limit)

    def _archived(self, file: ArchivedFile, place: FeedPlace, limit: int) -> FeedPart:
        """Return the next changes, which are in a file."""
        rows = self.needed_archive().changes(file, place, limit)
        after = FeedPlace(file.last + 1)
        if limit < len(rows):
            after = FeedPlace(int(rows.seq[limit]), int(rows.offset[limit]))
        return FeedPart(rows.take(slice(limit)), after, whole=False)

    def _files(self, since: int, limit: int) -> list[ArchivedFile]:
        return [file_of(row) for row in self.read(FILES, since=since, limit=limit)]

    def stored_changes(self, place: FeedPlace, limit: int) -> FeedPart:
        """Return the next changes that are in the database."""
        rows: list[tuple[int, bytes]] = []
        n_blocks, n, seq, whole = FIRST_BLOCKS, 0, place.seq, False
        while n <= place.offset + limit and not whole:
            read = list(self.run(READ, seq=seq, limit=n_blocks))
            whole = len(read) < n_blocks
            rows += read
            n += sum(size(items) for _, items in read)
            seq = rows[-1][0] + 1 if rows else seq
            n_blocks = min(n_blocks * MORE, MOST_BLOCKS)
        columns = _placed(rows)
        start = place.offset if rows and rows[0][0] == place.seq else 0
        end = start + limit
        if end < len(columns):
            after = FeedPlace(int(columns.seq[end]), int(columns.offset[end]))
            return FeedPart(columns.take(slice(start, end)), after, whole=False)
        return FeedPart(columns.take(slice(start, end)), FeedPlace(seq), whole)

    @override
    def page_urls(self, page_id: Ints, only: ChangeFilter) -> PageUrls:
        condition, values = url_condition(only)
        rows = list(self.run(URLS.format(condition=condition), ids=page_id, **values))
        ids, urls = zip(*rows, strict=True) if rows else ((), ())
        return PageUrls(np.array(ids, np.int64), np.array(urls, object))

    @override
    def note_deleted(self, page_id: Ints, now: datetime) -> Ints:
        kept = [page for (page,) in self.run(NOTE_DELETED, ids=page_id, now=now)]
        return np.sort(np.array(kept, np.int64))

    @override
    def deleted_pages(self, page_id: Ints, only: ChangeFilter) -> DeletedPages:
        wanted = {"host": (only.host, OF_DELETED_HOST), "prefix": (only.prefix, WITH_PREFIX)}
        wanted = {name: pair for name, pair in wanted.items() if pair[0] is not None}
        statement = DELETED.format(condition=all_of(condition for _, condition in wanted.values()))
        values = {name: value for name, (value, _) in wanted.items()}
        rows = [
            row
            for row in self.run(statement, ids=page_id, **values)
            if only.tag is None or only.tag in row[2].split()
        ]
        ids, urls, tags = zip(*rows, strict=True) if rows else ((), (), ())
        return DeletedPages(np.array(ids, np.int64), np.array(urls, object), np.array(tags, object))

    @override
    def newest_change(self) -> int:
        return self.scalar(NEWEST) or 0

    @override
    def feed_bounds(self) -> FeedBounds:
        lost = [tuple(row) for row in self.run(LOST)]
        return FeedBounds(self.feed_cut(), self.newest_change(), self.latest_number(), lost)

    @override
    def feed_cut(self) -> int:
        return int(self.get_meta(CUT) or 0)

    @override
    def cut_feed(self, before: int, limit: int) -> bool:
        last = self.scalar(OLD, before=before, limit=limit)
        if last is not None:
            self.put_meta(CUT, str(last + 1))
            self.run(DELETE, last=last)
            self.run(DELETE_FILES, last=last)
        begins_at = UNIX_ZERO + timedelta(microseconds=self.feed_cut())
        forgotten = self.run(FORGET_DELETED, before=begins_at - KEPT_FOR, limit=limit)
        return last is not None or forgotten.rowcount > 0

    @override
    def feed_files(self, since: int = 0) -> list[ArchivedFile]:
        return self._files(since, 2**31)

    @override
    def feed_stretch(self, before: int) -> FeedStretch | None:
        (row,) = self.run(STRETCH, before=before, limit=MOST_IN_STRETCH)
        return FeedStretch(*row) if row[2] else None

    @override
    def read_stretch(self, stretch: FeedStretch) -> Generator[FeedColumns]:
        place = FeedPlace(stretch.first)
        while place.seq <= stretch.last:
            part = self.stored_changes(place, CHANGES_TOGETHER)
            end = stretch.last + 1 if part.whole else min(part.after.seq, stretch.last + 1)
            yield part.changes.where(part.changes.seq < end)
            place = FeedPlace(end)

    @override
    def drop_stretch(
        self, stretch: FeedStretch, files: Sequence[ArchivedFile], now: datetime
    ) -> None:
        for file in files:
            self.run(ADD_FILE, **named(file, now))
        deleted = self.run(DROP_STRETCH, first=stretch.first, last=stretch.last)
        if len(list(deleted)) != stretch.n_blocks:
            raise PartChanged

    @override
    def feed_id(self) -> str:
        return self.get_meta(ID)

    @override
    def name_feed(self, feed_id: str) -> None:
        self.add_meta(ID, feed_id)


def _placed(rows: Sequence[tuple[int, bytes]]) -> FeedColumns:
    """Return the changes of rows of the feed with their places."""
    n = np.fromiter((size(items) for _, items in rows), np.int64, len(rows))
    seq = np.fromiter((seq for seq, _ in rows), np.int64, len(rows))
    offset = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    changes = unpacked([items for _, items in rows])
    return FeedColumns(**changes.arrays(), seq=np.repeat(seq, n), offset=offset)
