"""The contract of the feed of changes.

**Order.** Each commit with changes appends blocks. Numbers of blocks ascend in the order of the
commits: a reader that has seen a block never misses an earlier one. The number of a block is the
time of its commit, in microseconds, or one more than the last number if that is higher.
**Reading.** Blocks never change. A place stays valid until the retention deletes its changes, and
after a restore of the database. Changes of deleted pages have no URL.
**Archive.** With an archive the retention moves whole days of the oldest blocks into files. The
commit that names the files deletes the blocks, so the files and then the table are one feed.
"""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from datetime import datetime
from typing import NamedTuple

from service.archive.log_archive import ArchivedFile
from service.model.arrays import Ints
from service.model.changes import (
    ChangeColumns,
    ChangeFilter,
    FeedBounds,
    FeedColumns,
    FeedPart,
    FeedPlace,
    PageUrls,
)
from service.storage.dialect import Subject


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

        The newest block stays. Files of earlier changes no longer count.
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
