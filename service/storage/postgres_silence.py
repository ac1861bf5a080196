"""Connections that notice a server that has fallen silent, and what they know of it in common."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from service.errors import StoreUnavailable
from service.storage.base import ENDED
from service.storage.postgres_deadlines import CHECK, Deadlines

ASK_EVERY_S = 1.0
"""Time between two questions to a server that is silent, seconds."""
CONNECT_TIMEOUT_S = 5
"""Limit on opening a connection, seconds; psycopg makes 1 of it 2."""

T = TypeVar("T")


class Silent(psycopg.OperationalError):
    """The server has sent nothing for too long, and the connection was closed."""


class Silence:
    """What the connections of one store know in common: whether the server answers.

    After one has given up, callers are refused at once, so that they do not wait one behind the
    other. Once a second one of them asks the server whether it answers again.
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
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    since = None
                elif since is None or self.silence.forgives(
                    self.deadlines, time.monotonic() - since
                ):
                    since = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value


def connect(silence: Silence, deadlines: Deadlines, *args: Any, **parameters: Any) -> Connection:
    """Open a connection with these limits; one that times out tells `silence`."""
    try:
        connection = Connection.connect(*args, **parameters)
    except psycopg.errors.ConnectionTimeout:
        silence.silent = True
        raise
    connection.deadlines, connection.silence = deadlines, silence
    return connection
