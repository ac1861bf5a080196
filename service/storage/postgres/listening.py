"""Notifications of Postgres, which a thread counts; nobody may depend on their arrival."""

import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

import psycopg
import sqlalchemy as sa

from service.model.errors import RecrawlError
from service.storage.postgres.connections import Connection
from service.storage.topics import Topic

LOOK_S = 0.2
"""Maximum time between two checks that a wait has not been ended, seconds."""
REST_S = 0.02
"""Time after notifications in which further ones gather, seconds."""
RETRY_S = 1.0
"""Time between two attempts to connect, and maximum time for the last one to end, seconds."""


class Listener:
    """One connection that listens to all topics; a lost connection is opened again.

    Its thread starts with the first question.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.closed = threading.Event()
        self._rings: Counter[str] = Counter()
        self._rung = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ends: tuple[socket.socket, socket.socket] | None = None

    def rings(self, topic: Topic) -> int:
        """Return how often a topic has rung; a connection that was opened rings for all topics."""
        if self._thread is None:
            self._start()
        return self._rings[topic]

    def wait(self, topic: Topic, seen: int, within_s: float, ended: threading.Event) -> int:
        """Return `rings` once it differs from `seen`, after `within_s`, or when `ended` is set."""
        deadline = time.monotonic() + within_s
        while (rings := self.rings(topic)) == seen and not ended.is_set():
            if (left := deadline - time.monotonic()) <= 0:
                break
            with self._rung:
                self._rung.wait(min(left, LOOK_S))
        return rings

    def close(self) -> None:
        """End the thread, and with it the connection."""
        with self._rung:
            self.closed.set()
        if self._thread is not None and self._ends is not None:
            self._ends[1].close()
            self._thread.join(RETRY_S)

    def _start(self) -> None:
        with self._rung:
            if self._thread is None and not self.closed.is_set():
                self._ends = socket.socketpair()
                run = threading.Thread(target=self._run, args=(self._ends[0],), daemon=True)
                self._thread = run
                run.start()

    def _run(self, end: socket.socket) -> None:
        with end:
            while not self.closed.is_set():
                with suppress(psycopg.Error, sa.exc.SQLAlchemyError, RecrawlError):
                    self._listen(end)
                self.closed.wait(RETRY_S)

    def _listen(self, end: socket.socket) -> None:
        pooled = self.engine.raw_connection()
        driver = pooled.driver_connection
        assert isinstance(driver, Connection)  # noqa: S101 - for mypy
        pooled.detach()
        with driver:
            for topic in Topic:
                driver.statements.run(f"LISTEN {topic}", {}, kept=False)
            self._count(Topic)  # what was notified before is lost
            while not self.closed.is_set():
                self._count(arrived(driver, end))

    def _count(self, topics: Iterable[str]) -> None:
        with self._rung:
            self._rings.update(topics)
            self._rung.notify_all()
        self.closed.wait(REST_S)


def arrived(driver: Connection, end: socket.socket) -> set[str]:
    """Return the channels of the next notifications, none at the end of the process."""
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    poll.register(end.fileno(), select.POLLIN)
    poll.poll()
    driver.pgconn.consume_input()
    channels = set()
    while (notify := driver.pgconn.notifies()) is not None:
        channels.add(notify.relname.decode())
    return channels
