"""Connections to a SQLite file: durable, patient with each other, their troubles named."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa

from service.errors import StoreFull, StoreUnavailable

FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""A full disk; a file that may not grow, by a quota or a limit; no room for the WAL's index."""

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

PRAGMAS = (
    f"busy_timeout = {BUSY_S * 1000}",
    "synchronous = FULL",
    "foreign_keys = ON",
    f"journal_size_limit = {WAL_BYTES}",
    "temp_store = MEMORY",
)

READING_CACHE = -4096
"""KiB: who reads the schedule walks along keys, and many may do so at once."""


def opened(url: str, cache_size: int) -> sa.Engine:
    """Give an engine whose connections keep so many pages (or, if negative, KiB) in memory."""
    engine = sa.create_engine(url, pool_size=10, max_overflow=40)
    sa.event.listen(engine, "connect", partial(prepare, cache_size=cache_size))
    sa.event.listen(engine, "begin", begin)
    return engine


def prepare(
    driver: sqlite3.Connection, _record: object = None, *, cache_size: int = WRITING_CACHE
) -> None:
    """Set up a new connection; transactions are begun by `begin`, not by the driver."""
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


def begin(connection: sa.Connection) -> None:
    """Take the write lock at once where it will be needed: no upgrade can fail half-way."""
    write = connection.get_execution_options().get("sqlite_write", True)
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def translated() -> Iterator[None]:
    """Name the driver's conditions in the service's words."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable from error
    except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
        cause = getattr(error, "orig", error)
        if type(cause) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
            raise  # a broken constraint or statement is a mistake of ours
        code = getattr(cause, "sqlite_errorcode", 0)
        if code & PRIMARY in DAMAGED:
            raise StoreUnavailable(
                f"the database file is damaged ({cause}); stop the service and restore a backup, "
                "or save what `sqlite3 FILE .recover` finds"
            ) from error
        raise (StoreFull() if code in FULL else StoreUnavailable()) from error
