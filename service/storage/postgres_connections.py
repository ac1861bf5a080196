"""Connections to Postgres: set up, watched while they lead, replaced when lost; their troubles."""

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import psycopg
import sqlalchemy as sa

from service.errors import RecrawlError, StoreFull, StoreUnavailable
from service.storage.postgres_deadlines import BATCH, Deadlines
from service.storage.postgres_silence import CONNECT_TIMEOUT_S, Connection, Silence, connect
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

READ_ONLY = (
    "the database is read-only: a standby, or default_transaction_read_only is on; nothing was "
    "kept, send this again when it takes writes"
)
TOO_LONG = (
    "the database took too long, maybe for a lock that somebody else holds; nothing was kept, "
    "send this again"
)

POOL_TIMEOUT_S = 5
"""Limit on the wait for a connection of the pool, seconds."""

LEAD_LOCK = 0x7265_6372_6177_6C  # "recrawl"

PARAMETERS = {
    "application_name": "recrawl",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""libpq's parameters of every connection: a host that is gone is noticed within 25 s, busy or
idle."""

LEAD_TIMEOUTS = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "client_connection_check_interval": 5_000,
}
"""How the server notices within 30 s, busy or idle, that a leader's host is gone."""


def opened(url: str, pool_size: int, deadlines: Deadlines) -> tuple[sa.Engine, Silence]:
    """Return an engine whose connections have these limits, and what they know in common."""
    engine = sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=POOL_TIMEOUT_S,
        pool_reset_on_return=None,  # whoever opens a transaction ends it
        pool_use_lifo=True,  # few backends, whose caches are warm
    )

    def connected(deadlines: Deadlines) -> Connection:
        _, named = engine.dialect.create_connect_args(engine.url)
        seconds = max(1, int(min(CONNECT_TIMEOUT_S, deadlines.silence_s)))
        return connect(silence, deadlines, **{**named, **PARAMETERS, "connect_timeout": seconds})

    silence = Silence(connected)
    sa.event.listen(engine, "do_connect", lambda *_: connected(deadlines))
    listen(engine)
    return engine, silence


def prepare(driver: Connection, record: Any) -> None:
    """Set up a new connection, without compiling of statements that take a millisecond."""
    record.info["statements"] = Statements(driver)
    record.info["new"] = True
    driver.execute("SET jit = off")
    driver.execute("SET DateStyle = ISO")  # which a database or a role may have otherwise
    limit(driver, driver.deadlines)


def limit(driver: psycopg.Connection[Any], deadlines: Deadlines) -> None:
    """Set the server's limits for this session, in a transaction of their own."""
    driver.execute(
        "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false)",
        [f"{seconds * 1000:.0f}ms" for seconds in (deadlines.statement_s, deadlines.lock_s)],
    )
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


@contextmanager
def as_batch(connection: sa.Connection) -> Iterator[None]:
    """Lift the limits of requests from a connection of the pool, for as long as the block runs."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, Connection)  # noqa: S101 - for mypy
    before, driver.deadlines = driver.deadlines, BATCH
    limit(driver, BATCH)
    try:
        yield
    finally:
        driver.deadlines = before
        with suppress(psycopg.Error):  # the connection is lost, and its session with it
            limit(driver, before)


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
def translated(check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Name the driver's conditions in the service's words.

    What is no outage may come of another version's schema: then `check` raises that.
    """
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable from error
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        cause = getattr(error, "orig", error)
        if not isinstance(cause, OUTAGES):
            check()
            raise
        raise outage(cause) from error


def outage(cause: BaseException | None) -> RecrawlError:
    """Return the service's condition for one of the driver's."""
    if isinstance(cause, psycopg.errors.DiskFull | psycopg.errors.OutOfMemory):
        return StoreFull()
    if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
        return StoreUnavailable(READ_ONLY)
    if isinstance(cause, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled):
        return StoreUnavailable(TOO_LONG)
    return StoreUnavailable()
