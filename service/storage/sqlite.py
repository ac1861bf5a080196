"""The store in one SQLite file: one writer at a time, readers never wait.

Writers queue on a lock inside the process and on SQLite's own between processes. WAL with
`synchronous = FULL`: a commit that was answered survives a power cut. The leader of epochs holds a
lock on a file beside the database, which the system releases when that process dies, however it
dies.
"""

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from service.clock import SMALL_STEP, Clock, SteadyClock
from service.columns import (
    ScheduleColumns,
)
from service.errors import EpochRunning, NoDatabase, StoreFull, StoreUnavailable
from service.storage import migrations
from service.storage.base import Lead
from service.storage.sqlite_connections import READING_CACHE, WRITING_CACHE, opened, translated
from service.storage.sqlite_log import Stretches
from service.storage.sqlite_transaction import BLOCK, SqliteTransaction, keep_house
from service.storage.turns import Turns
from service.storage.websub import SubscriptionStore


class SqliteStore(SubscriptionStore):
    """Pages, evidence and schedules in one file."""

    def __init__(self, url: str, width: int, *, clock: Clock | None = None) -> None:
        self.width = width
        self.url = url
        self.steady_clock = SteadyClock()
        self.clock = clock or self.steady_clock
        self.engine = opened(url, WRITING_CACHE)
        self.reading = opened(url, READING_CACHE)
        self.writing = Turns()
        self.fetching = Turns()
        self.stretches = Stretches()
        self.file: tuple[int, int] | None = None
        """What the system knows the file by that was opened."""

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[SqliteTransaction]:
        """Open a transaction; writers take their turn."""
        engine, turn = (self.engine, self.writing) if write else (self.reading, nullcontext())
        with translated(), turn, engine.connect() as connection:
            connection.execution_options(sqlite_write=write)
            with connection.begin():
                if write:
                    self._stay()
                tx = SqliteTransaction(connection, self.width, self.fetching, self.stretches)
                tx.clock = self.clock
                yield tx

    def keep_time(self) -> None:
        """Follow the machine's time of day; where it was set, leases and delays go with it.

        All who write wait meanwhile, so nobody sees a lease by one time and a delay by another.
        """
        step = self.steady_clock.step()
        if abs(step) <= SMALL_STEP:
            self.steady_clock.follow()
            return
        with self.begin() as tx:
            tx.carry_along(step)
            self.steady_clock.follow()

    @contextmanager
    def lead(self) -> Iterator["SqliteLead"]:
        """Lock the file beside the database; the system unlocks it when its holder dies."""
        path = Path(f"{self.engine.url.database}-lead")
        try:
            lock = path.open("w")
        except OSError as error:
            raise StoreUnavailable(
                f"{path} cannot be opened: {error.strerror}; the service must be able to write "
                "beside its database"
            ) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise EpochRunning from error
            yield SqliteLead(self)

    def find(self) -> None:
        """Raise `NoDatabase` where there is no file: connecting would make an empty one."""
        if not Path(file := str(self.engine.url.database)).exists():
            raise NoDatabase(
                f"there is no database {file}; see that RECRAWL_DATABASE_URL and the working "
                "directory are right"
            )

    def _stay(self) -> None:
        """See that the file which was opened is still the one of this name.

        What is written into one that was moved away, or replaced by a backup, nobody will read.
        """
        path = Path(str(self.engine.url.database))
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        now = found and (found.st_dev, found.st_ino)
        self.file = self.file or now
        if now is None or now != self.file:
            raise StoreUnavailable(
                f"{path} was moved or replaced while it was in use; put it back and send this "
                "again, or restart the service to go on with the one that is there"
            )

    def check(self) -> None:
        """Ask the database for its revision."""
        self.find()
        self._stay()
        with self.begin(write=False) as tx:
            migrations.check(tx.connection)

    def close(self) -> None:
        """Close the pools."""
        self.engine.dispose()
        self.reading.dispose()


class SqliteLead(Lead):
    """The locked file: while this process lives, nobody else leads."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    def begin(self, *, write: bool = True) -> AbstractContextManager[SqliteTransaction]:
        """Open a transaction."""
        return self.store.begin(write=write)

    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Write a block of rows a transaction; each goes into the file before the next."""
        for start in range(0, len(schedule), BLOCK):
            with self.begin() as tx:
                tx.write_schedule(epoch, schedule.take(slice(start, start + BLOCK)))
            self.checkpoint()

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:  # noqa: ARG002
        """Delete a block of rows a transaction."""
        keep_house(self.begin, keep_log_since)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Move what was committed into the file, so that the WAL starts over and stays small.

        Where the disk is full it stays where it is, as safe and as readable, until there is room.
        """
        with suppress(StoreFull), translated(), self.store.reading.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)")
