"""Limits on what Postgres may take, and what follows when it takes longer.

| work | statement | lock | silence | reason |
| --- | --- | --- | --- | --- |
| request | 10 s | 5 s | 12 s | callers wait; they send it again after Retry-After |
| check | 1 s | 0.5 s | 1 s | `/readyz` answers within 2 s |
| batch | none | 60 s | asks after 30 s | an epoch of 20 million pages indexes for minutes |
| migration | none | 10 s | asks after 30 s | writers queue behind one that waits |

A stopped server acknowledges what is sent and ends nothing itself. The limit on silence is
therefore the client's: a connection on which nothing arrives for so long is closed. Batches ask
on another connection first: a busy server answers there, a stopped one does not.
"""

import base64
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.abc import PQGen

from service.model.errors import StoreUnavailable
from service.storage.contract import ENDED
from service.storage.postgres.statements import Statements

REQUEST_TIMEOUT_S = 10.0
"""Default limit on one statement of a request, seconds."""
ASK_EVERY_S = 1.0
"""Time between two questions to a silent server, seconds."""
CONNECT_TIMEOUT_S = 5
"""Limit on opening a connection, seconds; psycopg turns 1 into 2."""

T = TypeVar("T")


class Deadlines(NamedTuple):
    """Limits of one connection, seconds."""

    statement_s: float
    """The server cancels a statement after this; 0: never."""
    lock_s: float
    """The server cancels a statement that waits this long for a lock."""
    silence_s: float
    """The client gives up after this without a byte from the server."""
    asks: bool = False
    """Whether the client first asks on another connection if the server answers anybody."""


CHECK = Deadlines(1, 0.5, 1)
BATCH = Deadlines(0, 60, 30, asks=True)


def request_deadlines(timeout_s: float = REQUEST_TIMEOUT_S) -> Deadlines:
    """Return the limits of a request whose statements may take this many seconds."""
    return Deadlines(timeout_s, timeout_s / 2, timeout_s + 2)


class Silent(psycopg.OperationalError):
    """The server has sent nothing for too long, and the connection was closed."""


class Silence:
    """Whether the server answers, shared by all connections of one store.

    After one connection has given up, callers are refused at once. This avoids that they wait one
    behind the other. Once a second one of the callers asks the server whether it answers again.
    """

    def __init__(self, connect: Callable[[Deadlines], psycopg.Connection[Any]]) -> None:
        self.connect = connect
        self.silent = False
        self.ended = False
        """Whether the process ends: no wait goes on."""
        self._asking = threading.Lock()
        self._asked_at = -ASK_EVERY_S

    def forgives(self, deadlines: Deadlines, silent_s: float) -> bool:
        """Return whether the time without a byte counts anew; raise `Silent` to end the wait."""
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
        """Return whether the server answers a new connection, be it with a refusal."""
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
    """Whether the pool has not handed it out yet."""

    def wait(self, gen: PQGen[T], *limits: Any, **named_limits: Any) -> T:
        """Wait as psycopg does, but not for ever."""
        try:
            return super().wait(self._limited(gen), *limits, **named_limits)
        except Silent:
            self.pgconn.finish()
            raise

    def _limited(self, gen: PQGen[T]) -> PQGen[T]:
        """Pass on what `gen` waits for; psycopg sends 0 after each interval without a byte."""
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
    """Open a connection with these limits; a timeout is recorded in `silence`."""
    try:
        connection = Connection.connect(**parameters)
    except psycopg.errors.ConnectionTimeout:
        silence.silent = True
        raise
    connection.deadlines, connection.silence = deadlines, silence
    connection.statements = Statements(connection)
    return connection


N_BYTES = 49_152
"""Random bytes of a trial: 64 KiB of text, or 33 chunks of a long value."""
TRIAL_EVERY_S = 1.0
"""Time for which a successful trial stands, seconds."""

LOCK = """
LOCK TABLE pages, page_states, hosts, observations, due_pages, host_queues,
    epochs IN ROW EXCLUSIVE MODE
"""
"""Takes the lock of every writer, which an operator's LOCK TABLE or a migration keeps out."""
INSERT = "INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s)"
DELETE = "DELETE FROM meta WHERE name = %(name)s"


class Trial:
    """A trial of what every writer needs: its locks, and room for a small batch.

    An update of one short row succeeds on a full disk: it fits into pages that are there. The
    trial therefore writes as much as a small batch, in a form that Postgres cannot compress, and
    commits it to the write-ahead log. The same transaction deletes the row again, so trials of
    several servers never wait for each other.
    """

    def __init__(self) -> None:
        self.succeeded_at = -TRIAL_EVERY_S

    def run(self, statements: Statements) -> None:
        """Write and commit, at most once a second; raises what the driver does."""
        if time.monotonic() - self.succeeded_at < TRIAL_EVERY_S:
            return
        name = f"trial {uuid.uuid4()}"
        value = base64.b64encode(os.urandom(N_BYTES)).decode()
        statements.later(INSERT, {"name": name, "value": value})
        statements.later(DELETE, {"name": name})
        statements.run(LOCK, {}, kept=False)
        statements.commit()
        self.succeeded_at = time.monotonic()
