"""Connections to Postgres: set up, watched while they lead, replaced when lost; their troubles."""

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import psycopg
import sqlalchemy as sa

from service.errors import StoreFull, StoreUnavailable
from service.storage.statements import Statements

OUTAGES = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby, after a failover
    psycopg.errors.InsufficientPrivilege,
)
"""What is no mistake of ours and may be over when asked again."""

LEAD_LOCK = 0x7265_6372_6177_6C  # "recrawl"

LEAD_TIMEOUTS = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "client_connection_check_interval": 5_000,
}
"""How the server notices within 30 s, busy or idle, that a leader's host is gone."""


def prepare(driver: psycopg.Connection[Any], record: Any) -> None:
    """Set up a new connection, without compiling of statements that take a millisecond."""
    record.info["statements"] = Statements(driver)
    record.info["new"] = True
    driver.execute("SET jit = off")
    driver.execute("SET DateStyle = ISO")  # which a database or a role may have otherwise
    driver.commit()


def listen(engine: sa.Engine) -> None:
    """Have statements of our own and SQLAlchemy's keep their order, and commit together."""
    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "checkout", refuse_lost)
    sa.event.listen(engine, "before_cursor_execute", lambda c, *_: known(c).send())
    sa.event.listen(engine, "commit", commit)
    sa.event.listen(engine, "rollback", forget)


Opened = tuple[Statements, Callable[[], sa.Connection]]
"""The statements of a connection that is out of the pool, and how to come by SQLAlchemy's view."""


@contextmanager
def writing(engine: sa.Engine) -> Iterator[Opened]:
    """Take a connection out of the pool for one transaction, and commit.

    SQLAlchemy takes longer to begin and to end a transaction than Postgres to run a small
    statement, so it hears of this one when it is first needed.
    """
    pooled = engine.raw_connection()
    statements: Statements = pooled.info["statements"]

    @cache
    def connect() -> sa.Connection:
        connection = sa.Connection(engine, pooled)
        connection.begin()
        return connection

    try:
        yield statements, connect
        statements.commit()
    except BaseException:
        statements.forget()
        with suppress(psycopg.Error):
            statements.driver.rollback()
        if statements.driver.closed and pooled.is_valid:  # SQLAlchemy has not seen it
            pooled.invalidate()
        raise
    finally:
        pooled.close()


@contextmanager
def reading(engine: sa.Engine) -> Iterator[Opened]:
    """Take a connection out of the pool, SQLAlchemy's from the beginning."""
    with engine.connect() as connection, given_up(connection):
        yield known(connection), lambda: connection


def commit(connection: sa.Connection) -> None:
    """Commit with what was put off; the driver, asked next, finds nothing to do."""
    with given_up(connection):
        known(connection).commit()


def forget(connection: sa.Connection) -> None:
    """Leave out what was put off; a connection that was lost has taken it along."""
    if not connection.invalidated:
        known(connection).forget()


def known(connection: sa.Connection) -> Statements:
    """Give the statements that a connection knows."""
    statements: Statements = connection.info["statements"]
    return statements


def refuse_lost(driver: Any, record: Any, _proxy: object) -> None:
    """Have a pooled connection replaced that the server has closed: its socket has an end to read.

    A question to the server would tell no more and cost a round trip. What is wrong with a new one,
    as of a server that shuts down, its first statement tells.
    """
    if record.info.pop("new", False):
        return
    if driver.closed:
        raise sa.exc.DisconnectionError
    ended = select.poll()
    ended.register(driver, select.POLLIN)
    if ended.poll(0):
        raise sa.exc.DisconnectionError


def watch(connection: sa.Connection) -> None:
    """Have the server end this session, and its lock with it, soon after its host has vanished."""
    known = sa.table("pg_settings", sa.column("name"))
    for name, value in LEAD_TIMEOUTS.items():  # the last two are newer: Postgres 12 and 14
        setting = sa.select(sa.func.set_config(known.c.name, str(value), False))
        connection.execute(setting.where(known.c.name == name))
    connection.commit()


def release(connection: sa.Connection) -> None:
    """Unlock; where that is impossible, close the connection, which unlocks as well."""
    try:
        connection.rollback()
        connection.execute(sa.select(sa.func.pg_advisory_unlock(LEAD_LOCK)))
        connection.commit()
    except sa.exc.DBAPIError:
        connection.invalidate()


@contextmanager
def given_up(connection: sa.Connection) -> Iterator[None]:
    """Let the pool know of a connection that was lost under a statement it did not see."""
    try:
        yield
    except psycopg.Error:
        driver: Any = connection.connection.driver_connection
        if driver is not None and driver.closed:
            connection.invalidate()
        raise


@contextmanager
def translated() -> Iterator[None]:
    """Name the driver's conditions in the service's words."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable from error
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        cause = getattr(error, "orig", error)
        if not isinstance(cause, OUTAGES):
            raise
        full = isinstance(cause, psycopg.errors.DiskFull | psycopg.errors.OutOfMemory)
        raise (StoreFull() if full else StoreUnavailable()) from error
