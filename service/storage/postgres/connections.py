"""Connections to Postgres: opening, pooling and limits.

| work | statement | lock | silence | idle | reason |
| --- | --- | --- | --- | --- | --- |
| request | 10 s | 5 s | 12 s | 12 s | callers wait; they send the request again after Retry-After |
| check | 1 s | 0.5 s | 1 s | 1 s | `/readyz` answers within 2 s |
| batch | none | 60 s | asks after 30 s | none | an epoch of 20 million pages takes minutes |
| migration | none | 10 s | asks after 30 s | none | writers queue behind a migration that waits |

The server ends a transaction whose client is idle for longer than the column "idle" states. So a
process that is frozen in a transaction does not hold its rows for long.

A stopped server ends no connection, so the client closes a connection on which nothing arrives.
Batches first ask on another connection: a busy server answers there, a stopped one does not.
"""

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

from service.model.errors import (
    ENDED,
    AnswerTaken,
    DatabaseUnsuitable,
    RecrawlError,
    RowLocked,
    StoreFull,
    StoreUnavailable,
    TablesChanged,
)
from service.storage.postgres.sessions import SHARED, check_encoding, check_own
from service.storage.postgres.statements import Outdated, Plans, Statements
from service.storage.tables import lease_answers

REQUEST_TIMEOUT_S = 10.0
"""Default limit on one statement of a request, seconds."""
ASK_EVERY_S = 1.0
"""Time between two questions to a silent server, seconds."""
CONNECT_TIMEOUT_S = 5
"""Limit on opening a connection, seconds; psycopg changes 1 to 2."""

T = TypeVar("T")


class Deadlines(NamedTuple):
    """Limits of one connection, seconds."""

    statement_s: float
    """Maximum duration of a statement, after which the server cancels it; 0: no limit."""
    lock_s: float
    """Maximum wait of a statement for a lock, after which the server cancels it."""
    silence_s: float
    """Maximum time without a byte from the server, after which the client closes the connection."""
    asks: bool = False
    """True if the client first asks on another connection whether the server answers."""
    idle_s: float = 0
    """Maximum pause of the client in a transaction, after which the server ends it; 0: no limit."""


CHECK = Deadlines(1, 0.5, 1, idle_s=1)
BATCH = Deadlines(0, 60, 30, asks=True)


def request_deadlines(timeout_s: float = REQUEST_TIMEOUT_S) -> Deadlines:
    """Return the limits of a request whose statements may take this many seconds."""
    return Deadlines(timeout_s, timeout_s / 2, timeout_s + 2, idle_s=timeout_s + 2)


class Silent(psycopg.OperationalError):
    """The server has sent nothing for too long, and the connection was closed."""


class Silence:
    """State of the server, silent or not, shared by all connections of one store.

    While the server is silent, callers are refused at once. Once a second, one of the callers asks
    the server again.
    """

    def __init__(self, connect: Callable[[Deadlines], psycopg.Connection[Any]]) -> None:
        self.connect = connect
        self.silent = False
        self.ended = False
        """True when the process ends, which ends all waits."""
        self.plans = Plans()
        self._opened = WeakSet[Connection]()
        self._opening = threading.Lock()
        self._asking = threading.Lock()
        self._asked_at = -ASK_EVERY_S

    def add(self, connection: "Connection") -> None:
        """Note a connection of the store."""
        with self._opening:
            self._opened.add(connection)

    def pids(self) -> list[int]:
        """Return the numbers of the sessions that are open."""
        with self._opening:
            return [each.pgconn.backend_pid for each in self._opened if not each.closed]

    def forgives(self, deadlines: Deadlines, silent_s: float) -> bool:
        """Return whether to count the time without a byte from 0 again; raise `Silent` if over."""
        if self.ended:
            raise Silent("the process ends")
        if silent_s < deadlines.silence_s:
            return False
        if deadlines.asks and self.answers():
            return True
        self.silent = True
        raise Silent(f"the server has sent nothing for {silent_s:.1f} s")

    def refuse(self) -> None:
        """Raise `StoreUnavailable` while the server is silent or the process ends."""
        if self.ended:
            raise StoreUnavailable(ENDED)
        if self.silent and self._asking.acquire(blocking=False):
            try:
                self._ask_again()
            finally:
                self._asking.release()
        if self.silent:
            raise StoreUnavailable

    def _ask_again(self) -> None:
        if time.monotonic() - self._asked_at >= ASK_EVERY_S:
            self.silent = not self.answers()
            self._asked_at = time.monotonic()

    def answers(self) -> bool:
        """Return whether the server answers a new connection, even with an error."""
        try:
            with self.connect(CHECK) as connection:
                connection.execute("SELECT 1")
        except (Silent, psycopg.errors.ConnectionTimeout):
            return False
        except psycopg.Error:
            return True
        return True


class Connection(psycopg.Connection[Any]):
    """A connection that is closed when nothing arrives on it for too long."""

    deadlines: Deadlines
    silence: Silence
    statements: Statements
    fresh = True
    """True until the pool first hands out the connection."""

    def wait(self, gen: PQGen[T], *limits: Any, **named_limits: Any) -> T:
        """Wait as psycopg does, but with a limit on silence; raise `Silent`."""
        try:
            return super().wait(self._limited(gen), *limits, **named_limits)
        except Silent:
            self.pgconn.finish()
            raise

    def _limited(self, gen: PQGen[T]) -> PQGen[T]:
        """Yield the states that `gen` waits for; psycopg sends 0 after an interval of silence."""
        since = None
        try:
            requested = next(gen)
            while True:
                ready = yield requested
                if ready:
                    since = None
                elif since is None or self.silence.forgives(
                    self.deadlines, time.monotonic() - since
                ):
                    since = time.monotonic()
                requested = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value


def connect(silence: Silence, deadlines: Deadlines, **parameters: Any) -> Connection:
    """Return a new connection with these limits; a timeout marks the server as silent.

    Raise `DatabaseUnsuitable` for a database of another encoding than UTF8.
    """
    try:
        connection = Connection.connect(**parameters)
    except psycopg.errors.ConnectionTimeout:
        silence.silent = True
        raise
    connection.deadlines, connection.silence = deadlines, silence
    with closed_on_error(connection):
        check_encoding(connection)
    connection.statements = Statements(connection, silence.plans)
    silence.add(connection)
    return connection


@contextmanager
def closed_on_error(driver: Connection) -> Iterator[None]:
    """Close a new connection whose first steps fail; the pool would forget it open."""
    try:
        yield
    except BaseException:
        driver.close()
        raise


OUTAGES = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby, after a failover
    psycopg.errors.InsufficientPrivilege,
)
"""Errors without a fault of the service, which may not occur at the next attempt."""

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
ARCHIVE_LOCK = 0x7265_6372_6C6F_67  # "recrlog"

PARAMETERS = {
    "application_name": "recrawl",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Parameters of libpq for every connection, which notice a lost host within 25 s."""

LEAD_TIMEOUTS = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "client_connection_check_interval": 5_000,
}
"""Settings of the server for the leader's session, which notice a lost host within 30 s."""

LIMIT = """
SELECT set_config('statement_timeout', %(statement)s, false),
    set_config('lock_timeout', %(lock)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle)s, false)
"""
WATCH = "SELECT set_config(name, %(value)s, false) FROM pg_settings WHERE name = %(name)s"
"""Statement that skips settings unknown to the server; the last two came with Postgres 12, 14."""


def opened(url: str, pool_size: int, deadlines: Deadlines) -> tuple[sa.Engine, Silence]:
    """Return a pool of connections with these limits, and the silence that they share.

    Its first connection raises `DatabaseUnsuitable` where a pooler changes the session.
    """
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

    def refuse_shared(driver: Connection, _record: object) -> None:
        with closed_on_error(driver):
            check_own(driver, lambda: open_connection(deadlines))

    silence = Silence(open_connection)
    sa.event.listen(engine, "do_connect", lambda *_: open_connection(deadlines))
    sa.event.listen(engine, "first_connect", refuse_shared)
    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "checkout", refuse_lost)
    return engine, silence


def prepare(driver: Connection, _record: object) -> None:
    """Set up a new connection.

    JIT compilation would only slow down its short statements. Rows are read by their keys, so no
    statement needs a sequential scan where there is an index. With such scans, a plan from the time
    when a table was small reads the whole table for every batch, until the table is analyzed.
    """
    driver.statements.later("SET jit = off", {}, kept=False)
    driver.statements.later("SET enable_seqscan = off", {}, kept=False)
    driver.statements.later("SET DateStyle = ISO", {}, kept=False)  # a role may have another
    with closed_on_error(driver):
        limit(driver, driver.deadlines)


def limit(driver: Connection, deadlines: Deadlines) -> None:
    """Set the server's limits for this session, in a separate transaction."""
    limits = {
        "statement": deadlines.statement_s,
        "lock": deadlines.lock_s,
        "idle": deadlines.idle_s,
    }
    ms = {name: f"{seconds * 1000:.0f}ms" for name, seconds in limits.items()}
    driver.statements.run(LIMIT, ms, kept=False)


def refuse_lost(driver: Connection, _record: object, _proxy: object) -> None:
    """Raise `DisconnectionError` for a pooled connection that the server has closed.

    The socket of such a connection is readable. The pool then opens a new connection.
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
    """Take a connection from the pool until the end of the block; discard a lost connection.

    One that comes back after the end of its pool is closed: nobody else would close it.
    """
    pool, pooled = engine.pool, engine.raw_connection()
    driver = pooled.driver_connection
    assert isinstance(driver, Connection)  # noqa: S101 - for mypy
    try:
        yield driver
    finally:
        if (driver.closed or engine.pool is not pool) and pooled.is_valid:
            pooled.invalidate()
        pooled.close()


@contextmanager
def as_batch(driver: Connection) -> Iterator[None]:
    """Lift the limits of requests from a connection of the pool while the block runs."""
    before, driver.deadlines = driver.deadlines, BATCH
    limit(driver, BATCH)
    try:
        yield
    finally:
        driver.deadlines = before
        with suppress(psycopg.Error):  # a lost connection has lost its session too
            limit(driver, before)


def watch(statements: Statements) -> None:
    """Set the session up so that the server ends it soon after the loss of the client's host."""
    for name, value in LEAD_TIMEOUTS.items():
        statements.run(WATCH, {"name": name, "value": str(value)}, kept=False)


@contextmanager
def translated(check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise the service's errors for the driver's; `check` raises those of a wrong schema."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable from error
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        cause = getattr(error, "orig", error)
        if isinstance(cause, psycopg.errors.UniqueViolation) and _of_answer(cause):
            raise AnswerTaken from error
        if isinstance(cause, psycopg.errors.DuplicatePreparedStatement):
            raise DatabaseUnsuitable(SHARED) from error
        if not isinstance(cause, OUTAGES):
            check()
            if isinstance(cause, psycopg.errors.DivisionByZero) and _of_fence(cause):
                raise TablesChanged from error
            raise
        raise outage(cause) from error


def _of_fence(cause: psycopg.Error) -> bool:
    """Return whether `migrations.fence` has failed: it divides short numbers."""
    return cause.diag.source_function == "int2div"


def _of_answer(cause: psycopg.Error) -> bool:
    table: str | None = cause.diag.table_name
    return table == lease_answers.name


def outage(cause: BaseException | None) -> RecrawlError:
    """Return the service's error for an error of the driver."""
    if isinstance(cause, psycopg.errors.DiskFull | psycopg.errors.OutOfMemory):
        return StoreFull()
    if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
        return StoreUnavailable(READ_ONLY)
    if isinstance(cause, Outdated):
        return TablesChanged()
    if isinstance(cause, psycopg.errors.LockNotAvailable):
        return RowLocked(TOO_LONG)
    if isinstance(cause, psycopg.errors.QueryCanceled):
        return StoreUnavailable(TOO_LONG)
    return StoreUnavailable()
