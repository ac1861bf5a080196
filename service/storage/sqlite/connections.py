"""Connections to a SQLite file: opening, locks, and the errors of the file."""

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import sqlalchemy as sa

from service.model.errors import RecrawlError, StoreFull, StoreUnavailable

FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""Codes of a full disk, a file that must not grow, and a full file system of the WAL's index."""

OUTAGES = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
)
"""Primary codes of outages of the file, the disk or other processes; all others are faults."""

SENTENCES = {
    sqlite3.SQLITE_BUSY: "another writer held the database file for too long; nothing was "
    "kept, send this again",
    sqlite3.SQLITE_READONLY: "the database file is read-only; nothing was kept, let the service "
    "write the file and its directory, then send this again",
}
"""Messages of some primary codes; the others have the message of `StoreUnavailable`."""

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PRIMARY = 0xFF
"""Bits of the primary code in an error code."""

WAL_KEPT = 250 << 20
"""Size of the write-ahead log at which a commit moves its pages into the file, bytes."""

WAL_BYTES = 336 << 20
"""Size to which the write-ahead log shrinks after a burst, bytes. A full log fits, because a log
that shrinks and grows again adds a fifth to the time of every commit."""

WRITING_CACHE = -262144
"""Cache of the one writer, -KiB: the states of two million pages."""

BUSY_S, BUSY_AGAIN_S = 10, 0.01
"""Maximum wait for a lock; time between attempts where SQLite does not wait, seconds."""

LOOK_S = 0.05
"""Time that SQLite waits for the write lock between two checks of the limit, seconds."""

PRAGMAS = (
    f"busy_timeout = {BUSY_S * 1000}",
    "synchronous = FULL",
    "foreign_keys = ON",
    f"journal_size_limit = {WAL_BYTES}",
    "temp_store = MEMORY",
)

OWNER_ONLY = 0o600
"""Mode of a new database file."""
READING_CACHE = -4096
"""Cache of each reader, -KiB: small, because readers walk along keys and may be many."""


def opened(url: str, cache_size: int, begin: str) -> sa.Engine:
    """Return a pool of connections; a negative `cache_size` is in KiB, a positive one in pages.

    SQLAlchemy's own transactions, such as migrations, start with the statement `begin`.
    """
    engine = sa.create_engine(url, pool_size=10, max_overflow=40)
    sa.event.listen(engine, "do_connect", _create_for_owner)
    sa.event.listen(engine, "connect", partial(prepare, cache_size=cache_size))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _create_for_owner(_: object, __: object, args: Sequence[Any], ___: object) -> None:
    """Create a missing file so that no other user reads it: it has secrets of webhooks.

    The write-ahead log takes the mode of the file.
    """
    if args and not str(args[0]).startswith((":memory:", "file:")):
        with suppress(OSError):  # the driver has the better sentence
            os.close(os.open(args[0], os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))


def prepare(
    driver: sqlite3.Connection, _record: object = None, *, cache_size: int = WRITING_CACHE
) -> None:
    """Set up a new connection; the driver begins no transaction by itself."""
    driver.isolation_level = None
    _keep_wal(driver)
    for pragma in (*PRAGMAS, f"cache_size = {cache_size}"):
        driver.execute(f"PRAGMA {pragma}")
    (page_size,) = driver.execute("PRAGMA page_size").fetchone()
    driver.execute(f"PRAGMA wal_autocheckpoint = {WAL_KEPT // page_size}")


def _keep_wal(driver: sqlite3.Connection) -> None:
    """Set up the write-ahead log; wait for other processes that do so, as SQLite does not."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            driver.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(BUSY_AGAIN_S)
        else:
            return


@contextmanager
def transaction(
    engine: sa.Engine, begin: Callable[[sqlite3.Connection], object]
) -> Iterator[sqlite3.Connection]:
    """Open a transaction on a pooled connection; commit, or roll back after an exception."""
    pooled = engine.raw_connection()
    driver = pooled.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - for mypy
    try:
        begin(driver)
        yield driver
        driver.commit()
    finally:
        driver.rollback()  # no effect after a commit
        pooled.close()


def begin_patiently(goes_on: Callable[[], bool], driver: sqlite3.Connection) -> None:
    """Wait for the write lock while `goes_on` returns True; SQLite's wait cannot be interrupted."""
    driver.execute(f"PRAGMA busy_timeout = {LOOK_S * 1000:.0f}")
    while True:
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & PRIMARY != sqlite3.SQLITE_BUSY or not goes_on():
                raise
        else:
            return


@contextmanager
def translated(check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise the service's errors for the driver's; `check` raises those of a wrong schema."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable from error
    except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
        cause = getattr(error, "orig", error)
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & PRIMARY not in OUTAGES:
            check()
            raise
        raise outage(code, cause) from error


def outage(code: int, cause: object) -> RecrawlError:
    """Return the service's error for an error code of SQLite."""
    if code in FULL:
        return StoreFull()
    if code & PRIMARY in DAMAGED:
        return StoreUnavailable(
            f"the database file is damaged ({cause}); stop the service and restore a backup, "
            "or save what `sqlite3 FILE .recover` finds"
        )
    return StoreUnavailable(SENTENCES.get(code & PRIMARY))


class Turns:
    """A lock that threads get in order, so that others can write between an epoch's blocks."""

    def __init__(self) -> None:
        self.taken = False
        self.waiting: deque[threading.Event] = deque()
        self.changing = threading.Lock()

    def __enter__(self) -> None:
        """Wait for the lock."""
        self.take(None)

    def take(self, within_s: float | None) -> bool:
        """Wait for the lock, at most `within_s` seconds; return whether this thread has it."""
        with self.changing:
            if not self.taken:
                self.taken = True
                return True
            mine = threading.Event()
            self.waiting.append(mine)
        if mine.wait(within_s):
            return True
        with self.changing:
            if mine.is_set():  # this thread got the lock at the last moment
                return True
            self.waiting.remove(mine)
            return False

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.hand_on()

    def hand_on(self) -> None:
        """Release the lock to the thread that has waited longest."""
        with self.changing:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.taken = False
