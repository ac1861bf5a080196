"""The contract of the feed of changes.

**Order.** Each commit with changes appends blocks. Numbers of blocks ascend in the order of the
commits: a reader that has seen a block never misses an earlier one. The number of a block is the
time of its commit, in microseconds, or one more than the last number if that is higher.
**Reading.** Blocks never change. A place stays valid until the retention deletes its changes, and
after a restore of the database. Changes of deleted pages have no URL.
"""

from abc import ABC, abstractmethod

from service.model.arrays import Ints
from service.model.changes import (
    ChangeColumns,
    ChangeFilter,
    FeedBounds,
    FeedPart,
    FeedPlace,
    PageUrls,
)


class FeedStatements(ABC):
    """The statements of the feed."""

    @abstractmethod
    def append_changes(self, changes: ChangeColumns) -> None:
        """Append changes, ordered by page_id and time, at the end of this transaction.

        On Postgres, commits with changes take turns from the append to the end of the commit.
        """

    @abstractmethod
    def changes(self, place: FeedPlace, limit: int) -> FeedPart:
        """Return the next changes from a place in the order of the feed, at most `limit`."""

    @abstractmethod
    def page_urls(self, page_id: Ints, only: ChangeFilter) -> PageUrls:
        """Return the URLs of those pages (ascending, unique) that match host, prefix and tag."""

    @abstractmethod
    def feed_bounds(self) -> FeedBounds:
        """Return the bounds of the feed; to notice deletions, read them after the changes."""

    @abstractmethod
    def newest_change(self) -> int:
        """Return the number of the newest block; 0: none."""

    @abstractmethod
    def cut_feed(self, before: int, limit: int) -> bool:
        """Delete up to `limit` blocks before a number; return whether there were any.

        The newest block stays.
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
