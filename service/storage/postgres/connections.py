"""Connections to Postgres: opened, pooled, watched while they lead, replaced when lost."""

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
import sqlalchemy as sa

from service.model.errors import EpochRunning, RecrawlError, StoreFull, StoreUnavailable
from service.storage.postgres.deadlines import (
    BATCH,
    CONNECT_TIMEOUT_S,
    Connection,
    Deadlines,
    Silence,
    connect,
)
from service.storage.postgres.statements import Statements

OUTAGES = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby, after a failover
    psycopg.errors.InsufficientPrivilege,
)
"""Errors that are no fault of ours and may be over at the next attempt."""

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
"""libpq's parameters of every connection: a lost host is noticed within 25 s, busy or idle."""

LEAD_TIMEOUTS = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "client_connection_check_interval": 5_000,
}
"""The server's settings for noticing a leader's lost host within 30 s, busy or idle."""

LIMIT = """
SELECT set_config('statement_timeout', %(statement)s, false),
    set_config('lock_timeout', %(lock)s, false)
"""
WATCH = "SELECT set_config(name, %(value)s, false) FROM pg_settings WHERE name = %(name)s"
"""Skips settings that an older server lacks: the last two came with Postgres 12 and 14."""


def opened(url: str, pool_size: int, deadlines: Deadlines) -> tuple[sa.Engine, Silence]:
    """Return a pool of connections with these limits, and the silence that they share."""
    engine = sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=POOL_TIMEOUT_S,
        pool_reset_on_return=None,  # `Statements.transaction` ends what it begins
        pool_use_lifo=True,  # few backends, whose caches are warm
    )

    def open_connection(deadlines: Deadlines) -> Connection:
        _, named = engine.dialect.create_connect_args(engine.url)
        seconds = max(1, int(min(CONNECT_TIMEOUT_S, deadlines.silence_s)))
        return connect(silence, deadlines, **{**named, **PARAMETERS, "connect_timeout": seconds})

    silence = Silence(open_connection)
    sa.event.listen(engine, "do_connect", lambda *_: open_connection(deadlines))
    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "checkout", refuse_lost)
    return engine, silence


def prepare(driver: Connection, _record: object) -> None:
    """Set up a new connection, without compiling of statements that take a millisecond."""
    driver.statements.later("SET jit = off", {}, kept=False)
    driver.statements.later("SET DateStyle = ISO", {}, kept=False)  # a role may have another
    limit(driver, driver.deadlines)


def limit(driver: Connection, deadlines: Deadlines) -> None:
    """Set the server's limits for this session, in a transaction of their own."""
    limits = {"statement": deadlines.statement_s, "lock": deadlines.lock_s}
    ms = {name: f"{seconds * 1000:.0f}ms" for name, seconds in limits.items()}
    driver.statements.run(LIMIT, ms, kept=False)


def refuse_lost(driver: Connection, _record: object, _proxy: object) -> None:
    """Replace a pooled connection that the server has closed: its socket has an end to read.

    Asking the server would cost a round trip and show no more. A new connection is not checked:
    its first statement shows what is wrong, such as a server that shuts down.
    """
    if driver.fresh:
        driver.fresh = False
        return
    if driver.closed:
        raise sa.exc.DisconnectionError
    poll = select.poll()
    poll.register(driver, select.POLLIN)
    if poll.poll(0):
        raise sa.exc.DisconnectionError


@contextmanager
def taken(engine: sa.Engine) -> Iterator[Connection]:
    """Take a connection out of the pool; a connection that was lost meanwhile is replaced.

    SQLAlchemy takes longer to begin and to end a transaction than Postgres takes for a small
    statement, so only its pool has a part in this.
    """
    pooled = engine.raw_connection()
    driver = pooled.driver_connection
    assert isinstance(driver, Connection)  # noqa: S101 - for mypy
    try:
        yield driver
    finally:
        if driver.closed and pooled.is_valid:
            pooled.invalidate()
        pooled.close()


@contextmanager
def leading(engine: sa.Engine) -> Iterator[Connection]:
    """Take a connection with the advisory lock of leaders; raise `EpochRunning` without it."""
    with taken(engine) as driver, as_batch(driver):
        lock = {"lock": LEAD_LOCK}
        ((locked,),) = driver.statements.run("SELECT pg_try_advisory_lock(%(lock)s)", lock)
        if not locked:
            raise EpochRunning
        try:
            watch(driver.statements)
            yield driver
        finally:
            try:
                driver.statements.run("SELECT pg_advisory_unlock(%(lock)s)", lock)
            except psycopg.Error:
                driver.close()  # which unlocks as well


@contextmanager
def as_batch(driver: Connection) -> Iterator[None]:
    """Lift the limits of requests from a connection of the pool while the block runs."""
    before, driver.deadlines = driver.deadlines, BATCH
    limit(driver, BATCH)
    try:
        yield
    finally:
        driver.deadlines = before
        with suppress(psycopg.Error):  # the connection is lost, and its session with it
            limit(driver, before)


def watch(statements: Statements) -> None:
    """Let the server end this session, and its lock, soon after the client's host has vanished."""
    for name, value in LEAD_TIMEOUTS.items():
        statements.run(WATCH, {"name": name, "value": str(value)}, kept=False)


@contextmanager
def translated(check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise the service's conditions for the driver's.

    An error that is no outage may come from another version's schema: then `check` raises that.
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
