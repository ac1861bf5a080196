"""Transactions on SQLite; because there is one writer at a time, `lock_states` takes no lock."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from typing_extensions import override

from service.storage.access.sqlite import SqliteAccess
from service.storage.epochs.sqlite import SqliteEpochs
from service.storage.feed.sqlite import SqliteFeed
from service.storage.history.sqlite import SqliteHistory
from service.storage.log.sqlite import BLOCK, SqliteLog, Stretches
from service.storage.pages.sqlite import SqlitePages
from service.storage.pages.sqlite_lists import SqliteListing
from service.storage.queue.sqlite import SqliteQueue
from service.storage.sql import SqlTransaction
from service.storage.sqlite.connections import Turns


class SqliteTransaction(
    SqliteHistory,
    SqlitePages,
    SqliteListing,
    SqliteFeed,
    SqliteQueue,
    SqliteLog,
    SqliteEpochs,
    SqliteAccess,
    SqlTransaction,
):
    """The transaction in the SQL of SQLite."""

    def __init__(
        self, driver: sqlite3.Connection, width: int, fetching: Turns, stretches: Stretches
    ) -> None:
        self.driver = driver
        self.width = width
        self.fetching = fetching
        self.stretches = stretches

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        keep_house(lambda: nullcontext(self), keep_log_since if self.archive is None else None)


def keep_house(
    begin: Callable[[], AbstractContextManager[SqliteTransaction]], keep_log_since: datetime | None
) -> None:
    """Delete old schedules and old entries of the log, block by block."""
    more = True
    while more:
        with begin() as tx:
            more = tx.drop_schedule()
    more = True
    while more and keep_log_since is not None:
        with begin() as tx:
            more = tx.drop_log(keep_log_since, BLOCK)
