"""The store in one SQLite file: one writer at a time, readers never wait.

Writers of one process queue on a lock of the process, processes on SQLite's lock. A commit survives
a power cut (WAL, `synchronous = FULL`). The leader of epochs locks a file beside the database. The
system unlocks that file whenever the process dies.
"""

import fcntl
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from typing_extensions import override

from service.model.arrays import UNIX_ZERO
from service.model.columns import ScheduleColumns
from service.model.errors import (
    ENDED,
    AlreadyServed,
    ArchiveRunning,
    EpochRunning,
    NoDatabase,
    RecrawlError,
    StoreFull,
    StoreUnavailable,
)
from service.model.incarnations import Incarnation
from service.storage import migrations
from service.storage.access.acceptances import AcceptancesSql
from service.storage.access.sqlite import SqliteAccess
from service.storage.budget.allotments import AllotmentSql
from service.storage.budget.costs import CostSql
from service.storage.budget.orders import OrderSql
from service.storage.budget.pace import PaceSql
from service.storage.budget.sqlite import SqliteCaps
from service.storage.budget.stopped import StoppedSql
from service.storage.budget.worth_sqlite import SqliteWorth
from service.storage.clock import SMALL_STEP, Clock, SteadyClock, boot_id
from service.storage.epochs.sqlite import BLOCK, SqliteEpochs
from service.storage.feed.sqlite import SqliteFeed
from service.storage.history.measured import MeasuredSql
from service.storage.history.sqlite import SqliteHistory
from service.storage.incarnations.recognition import recognise_file, renewed_file
from service.storage.incarnations.sqlite import SqliteIncarnations
from service.storage.log.sqlite import NewestStretches, SqliteLog
from service.storage.pages.sqlite import SqlitePages
from service.storage.pages.sqlite_lists import SqliteListing
from service.storage.queue.askers import AskersSql
from service.storage.queue.signs import SignsSql
from service.storage.queue.sqlite import SqliteQueue
from service.storage.sqlite.connections import (
    BUSY_S,
    READING_CACHE,
    SENTENCES,
    WRITING_CACHE,
    Turns,
    begin_patiently,
    opened,
    transaction,
    translated,
)
from service.storage.stores.contract import Disk, Lead, Store, Transaction, failing
from service.storage.topics import Topic
from service.storage.webhooks.contract import WebhooksSql
from service.storage.webhooks.subscriptions import SubscriptionsSql

TRY_S, TRY_EVERY_S = 1.0, 1.0
"""Maximum wait of a trial for the lock, and time for which its success is valid, seconds."""
CLOCK = "clock"
"""Name of the entry of `meta` with the id of the machine's start, and the start of the clock."""
TRIAL = """
INSERT INTO meta (name, value) VALUES ('trial', hex(randomblob(32768)))
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
"""Statement that writes 64 KiB, 17 pages, as much as a small batch."""


class SqliteTransaction(
    SqliteHistory,
    SqlitePages,
    SqliteListing,
    SqliteFeed,
    SqliteQueue,
    SqliteLog,
    SqliteEpochs,
    SqliteAccess,
    SqliteIncarnations,
    PaceSql,
    AllotmentSql,
    OrderSql,
    SqliteCaps,
    SqliteWorth,
    WebhooksSql,
    SubscriptionsSql,
    CostSql,
    MeasuredSql,
    SignsSql,
    AskersSql,
    AcceptancesSql,
    StoppedSql,
    Transaction,
):
    """The statements on SQLite; the write transaction is the lock of all rows."""

    def __init__(
        self, driver: sqlite3.Connection, width: int, fetching: Turns, stretches: NewestStretches
    ) -> None:
        self.driver = driver
        self.width = width
        self.fetching = fetching
        self.stretches = stretches
        self.rung = set()

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


class SqliteStore(Store):
    """Pages, evidence and schedules in one file."""

    embedded = True

    def __init__(
        self, url: str, width: int, timeout_s: float = BUSY_S, *, clock: Clock | None = None
    ) -> None:
        self.width = width
        self.timeout_s = timeout_s
        self.url = url
        self.steady_clock = SteadyClock()
        self.clock = clock or self.steady_clock
        self.kept_start: datetime | None = None
        """Start of the clock in the file; None: not read yet."""
        self.engine = opened(url, WRITING_CACHE, "BEGIN IMMEDIATE")
        self.reading = opened(url, READING_CACHE, "BEGIN")
        self.writing = Turns()
        self.fetching = Turns()
        self.stretches = NewestStretches()
        self.rung: Counter[Topic] = Counter()
        """Number of commits of this process that rang, by topic."""
        self.held, self.held_at = False, -1.0
        """True while a writer of this process has the file's lock; time of the last such lock."""
        self.tried_at = -TRY_EVERY_S
        self.ended = False
        """True when the process ends, so that no further write begins."""
        self.file: tuple[int, int] | None = None
        """Device and inode of the open file; None: not opened yet."""
        self.marked = False
        """True if this process keeps the marks of the file."""
        self.rng = np.random.default_rng()

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[SqliteTransaction]:
        if self.ended:
            raise StoreUnavailable(ENDED)

        def committed() -> None:
            self.rung.update(tx.rung)

        with translated(self._check_schema):
            reading = transaction(self.reading, lambda driver: driver.execute("BEGIN"))
            with self._writing(self.timeout_s, committed) if write else reading as driver:
                tx = self._transaction(driver)
                yield tx
        self.counter.add(tx.counted)

    def _transaction(self, driver: sqlite3.Connection) -> SqliteTransaction:
        tx = SqliteTransaction(driver, self.width, self.fetching, self.stretches)
        tx.clock, tx.archive, tx.counted = self.clock, self.archive, []
        tx.holds_new, tx.calendars = self.holds_new, self.calendars
        return tx

    @override
    def rings(self, topic: Topic) -> int:
        return self.rung[topic]

    @override
    def keep_time(self) -> None:
        # The file has the start of the clock, so that the next process notices a step in between.
        clock = self.steady_clock
        if self.kept_start is None:
            self._resume()
        start = clock.wall_start()
        step = start - clock.start
        if abs(step) <= SMALL_STEP and abs(start - (self.kept_start or UNIX_ZERO)) <= SMALL_STEP:
            clock.start = start
            return

        def follow() -> None:
            clock.start = self.kept_start = start

        with translated(self._check_schema), self._writing(self.timeout_s, follow) as driver:
            tx = self._transaction(driver)
            if abs(step) > SMALL_STEP:
                tx.carry_along(step)
            tx.put_meta(CLOCK, f"{boot_id()} {start.isoformat()}")

    def _resume(self) -> None:
        """Continue the clock of the last process, unless the machine has been started since."""
        with self.begin(write=False) as tx:
            boot, _, start = tx.get_meta(CLOCK).partition(" ")
        if boot and boot == boot_id():
            self.steady_clock.start = self.kept_start = datetime.fromisoformat(start)

    @contextmanager
    def _writing(
        self, timeout_s: float, committed: Callable[[], None] = lambda: None
    ) -> Iterator[sqlite3.Connection]:
        """Take the lock of this process, then that of the file, both within the limit.

        The method calls `committed` after the commit, before the next writer gets the lock.
        """
        deadline = time.monotonic() + timeout_s
        if not self.writing.take(timeout_s):
            raise StoreUnavailable(SENTENCES[sqlite3.SQLITE_BUSY])

        def goes_on() -> bool:
            return not self.ended and time.monotonic() < deadline

        try:
            begin = partial(begin_patiently, goes_on)
            with transaction(self.engine, begin) as driver:
                self.held, self.held_at = True, time.monotonic()
                self._stay()
                self._fence(driver)
                yield driver
            committed()
        finally:
            self.held = False
            self.writing.hand_on()

    def _fence(self, driver: sqlite3.Connection) -> None:
        """Refuse to write under another revision; the write lock keeps migrations out."""
        (revision,) = driver.execute("SELECT max(version_num) FROM alembic_version").fetchone()
        if revision != migrations.head():
            with self.reading.connect() as connection:
                migrations.check(connection)

    def _check_schema(self) -> None:
        """Raise `SchemaBehind` or `SchemaAhead`; return if the file cannot be read."""
        with suppress(sa.exc.SQLAlchemyError), self.reading.connect() as connection:
            migrations.check(connection)

    @override
    def check_ready(self) -> Sequence[str]:
        with failing("connection"):
            self.find()
            self._stay()
        with failing("schema"):
            self.check()
        with failing("writes"):
            self._try()
        return ()

    def _try(self) -> None:
        """Write as much as a small batch, at most once a second.

        A short row would fit on a full disk. If a writer of this process holds the file's lock for
        long, the trial counts as successful.
        """
        began = time.monotonic()
        if began - self.tried_at < TRY_EVERY_S:
            return
        try:
            with translated(self._check_schema), self._writing(TRY_S) as driver:
                driver.execute(TRIAL)
        except StoreUnavailable:
            if not self.held and self.held_at < began:
                raise
        else:
            self.tried_at = time.monotonic()

    @override
    def abort(self) -> None:
        self.ended = True

    @override
    def lead(self) -> AbstractContextManager["SqliteLead"]:
        return self._locked("lead", EpochRunning)

    @override
    def serving(self) -> AbstractContextManager[object]:
        return self._locked("server", AlreadyServed)

    @override
    def archiving(self) -> AbstractContextManager["SqliteLead"]:
        return self._locked("archive", ArchiveRunning)

    @contextmanager
    def _locked(self, name: str, taken: type[RecrawlError]) -> Iterator["SqliteLead"]:
        # the system unlocks the file when its holder dies
        path = Path(f"{self.engine.url.database}-{name}")
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
                raise taken from error
            yield SqliteLead(self)

    @override
    def prepare(self, *, existing: bool = False) -> None:
        if existing:
            self.find()
        migrations.upgrade(self.engine, checks=False)
        self._recognise(opens=True)

    @override
    def recognise(self) -> None:
        self._recognise(opens=False)

    def _recognise(self, *, opens: bool) -> None:
        recognise_file(self.path, self.begin, self.rng, opens=opens)
        self.marked = True

    @override
    def begin_incarnation(self) -> Sequence[Incarnation]:
        return (renewed_file(self.path, self.begin, self.rng),)

    @property
    def path(self) -> str:
        """Path of the file."""
        return str(self.engine.url.database)

    def find(self) -> None:
        """Raise `NoDatabase` if there is no file; a connection would create an empty one."""
        if not Path(file := str(self.engine.url.database)).exists():
            raise NoDatabase(
                f"there is no database {file}; see that RECRAWL_DATABASE_URL and the working "
                "directory are right"
            )

    def _stay(self) -> None:
        """Raise `StoreUnavailable` if the open file was moved or replaced."""
        path = Path(str(self.engine.url.database))
        try:
            status = path.stat()
        except FileNotFoundError:
            status = None
        now = status and (status.st_dev, status.st_ino)
        self.file = self.file or now
        if now is None or now != self.file:
            raise StoreUnavailable(
                f"{path} was moved or replaced while it was in use; put the file back and send "
                "this again, or restart the service to use the file that is there"
            )

    @override
    def disk(self) -> Disk | None:
        try:
            usage = shutil.disk_usage(Path(str(self.engine.url.database)).absolute().parent)
        except OSError:
            return None
        return Disk(usage.total, usage.free)

    @override
    def check(self) -> None:
        self.find()
        self._stay()
        if self.ended:
            raise StoreUnavailable(ENDED)
        with translated(), self.reading.connect() as connection:
            migrations.check_whole(connection)

    @override
    def close(self) -> None:
        self.counter.close()
        if self.marked:
            with suppress(RecrawlError, sa.exc.SQLAlchemyError, sqlite3.Error):
                self.recognise()  # the marks then have the last numbers
        self.engine.dispose()
        self.reading.dispose()


class SqliteLead(Lead):
    """The lead, bound to the locked file; no other process leads while this process lives."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    @override
    def begin(self, *, write: bool = True) -> AbstractContextManager[SqliteTransaction]:
        return self.store.begin(write=write)

    @override
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        for start in range(0, len(schedule), BLOCK):
            with self.begin() as tx:
                tx.write_schedule(epoch, schedule.take(slice(start, start + BLOCK)))
            self.checkpoint()

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        keep_house(self.begin, keep_log_since if self.store.archive is None else None)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Move committed pages from the WAL into the file, so that the WAL stays small."""
        reading = transaction(self.store.reading, lambda _: None)
        with suppress(StoreFull), translated(), reading as driver:
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)")
