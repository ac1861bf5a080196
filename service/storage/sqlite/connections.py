"""Connections to a SQLite file: durable, patient with each other, their troubles named."""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import sqlalchemy as sa

from service.model.errors import RecrawlError, StoreFull, StoreUnavailable

FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""A full disk; a file that may not grow, by a quota or a limit; no room for the WAL's index."""

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
"""Primary codes of troubles of the file, the disk or other processes; all others are faults."""

SENTENCES = {
    sqlite3.SQLITE_BUSY: "another writer held the database file for too long; nothing was "
    "kept, send this again",
    sqlite3.SQLITE_READONLY: "the database file is read-only; nothing was kept, let the service "
    "write the file and its directory, then send this again",
}
"""Details of some primary codes; the others have the sentence of `StoreUnavailable`."""

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PRIMARY = 0xFF
"""The bits of an error code without its details."""

WAL_KEPT = 250 << 20
"""Bytes of pages that the write-ahead log holds before a commit moves them into the file."""

WAL_BYTES = 336 << 20
"""What a burst took beyond this is given back. A full log fits, so that it is written over in
place: one that is cut and grows again costs a fifth of every commit."""

WRITING_CACHE = -262144
"""KiB at most, once, as there is one writer: the states of two million pages."""

BUSY_S, BUSY_AGAIN_S = 10, 0.01
"""How long to wait for a lock; and how long until a look at what SQLite does not wait for."""

LOOK_S = 0.05
"""Time that SQLite itself waits for the write lock between two looks at the limit, seconds."""

PRAGMAS = (
    f"busy_timeout = {BUSY_S * 1000}",
    "synchronous = FULL",
    "foreign_keys = ON",
    f"journal_size_limit = {WAL_BYTES}",
    "temp_store = MEMORY",
)

READING_CACHE = -4096
"""KiB: who reads the schedule walks along keys, and many may do so at once."""


def opened(url: str, cache_size: int, begin: str) -> sa.Engine:
    """Return a pool whose connections cache so many pages (or, if negative, KiB).

    SQLAlchemy's own transactions, such as a migration's, start with the statement `begin`.
    """
    engine = sa.create_engine(url, pool_size=10, max_overflow=40)
    sa.event.listen(engine, "connect", partial(prepare, cache_size=cache_size))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


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
    """Have a write-ahead log; SQLite itself does not wait for others that open a new file."""
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
    """Take a connection out of the pool for one transaction; commit, or roll back on an error."""
    pooled = engine.raw_connection()
    driver = pooled.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - for mypy
    try:
        begin(driver)
        yield driver
        driver.commit()
    finally:
        driver.rollback()  # unless it is committed
        pooled.close()


def begin_patiently(goes_on: Callable[[], bool], driver: sqlite3.Connection) -> None:
    """Wait for the write lock while `goes_on` is true; SQLite's own wait cannot be ended."""
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
    """Raise the service's conditions; `check` raises those of another version's schema."""
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
    """Return the service's condition for an error code of SQLite."""
    if code in FULL:
        return StoreFull()
    if code & PRIMARY in DAMAGED:
        return StoreUnavailable(
            f"the database file is damaged ({cause}); stop the service and restore a backup, "
            "or save what `sqlite3 FILE .recover` finds"
        )
    return StoreUnavailable(SENTENCES.get(code & PRIMARY))


class Turns:
    """A lock that is handed on in the order it was asked for: blocks of an epoch let others in."""

    def __init__(self) -> None:
        self.taken = False
        self.waiting: deque[threading.Event] = deque()
        self.changing = threading.Lock()

    def __enter__(self) -> None:
        """Wait for one's turn."""
        self.take(None)

    def take(self, within_s: float | None) -> bool:
        """Wait for one's turn, at most for so many seconds; return whether it has come."""
        with self.changing:
            if not self.taken:
                self.taken = True
                return True
            mine = threading.Event()
            self.waiting.append(mine)
        if mine.wait(within_s):
            return True
        with self.changing:
            if mine.is_set():  # handed on at the last moment
                return True
            self.waiting.remove(mine)
            return False

    def __exit__(self, *_: object) -> None:
        """Hand on."""
        self.hand_on()

    def hand_on(self) -> None:
        """End one's turn."""
        with self.changing:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.taken = False
