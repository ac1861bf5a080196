"""The feed in the SQL of SQLite, whose writers take turns anyway."""

from typing_extensions import override

from service.model.changes import ChangeColumns
from service.storage.feed.contract import FeedSql, blocks
from service.storage.sqlite.sql import SqliteDialect
from service.storage.sqlite.values import microseconds

APPEND = """
INSERT INTO feed (seq, items)
SELECT max(%(clock)s, coalesce((SELECT max(seq) FROM feed), 0) + 1), %(items)s
"""
"""Statement that relies on the newest block, which `cut_feed` keeps."""


class SqliteFeed(FeedSql, SqliteDialect):
    """The feed in the SQL of SQLite."""

    @override
    def append_changes(self, changes: ChangeColumns) -> None:
        for items in blocks(changes):
            self.run(APPEND, clock=microseconds(self.now()), items=items)

    @override
    def latest_number(self) -> int:
        return max(self.newest_change(), microseconds(self.now()))

    @override
    def end_stuck_commit(self) -> bool:
        return False
