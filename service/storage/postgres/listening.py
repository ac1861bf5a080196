"""Notifications of Postgres, which wake a process; nobody may depend on their arrival."""

import select
import threading
import time
from contextlib import suppress

import psycopg
import sqlalchemy as sa

from service.storage.postgres.connections import Connection

LOOK_S = 0.2
"""Maximum time between two checks that the store is not closed, seconds."""


class Listener:
    """One connection that listens to a channel; a lost connection is opened again."""

    def __init__(self, engine: sa.Engine, channel: str) -> None:
        self.engine = engine
        self.channel = channel
        self.driver: Connection | None = None
        self.closed = False
        self.waiting = threading.Lock()
        """Lock of the one thread that waits."""

    def wait(self, within_s: float) -> None:
        """Return after a notification, after `within_s` seconds, or once the listener is closed.

        Without a connection, the time passes all the same.
        """
        deadline = time.monotonic() + within_s
        with self.waiting:
            try:
                if not self.closed:
                    self._wait(self.driver or self._open(), deadline)
            except (psycopg.Error, sa.exc.SQLAlchemyError):
                self._drop()
                while not self.closed and (left := deadline - time.monotonic()) > 0:
                    time.sleep(min(left, LOOK_S))

    def _open(self) -> Connection:
        pooled = self.engine.raw_connection()
        driver = pooled.driver_connection
        assert isinstance(driver, Connection)  # noqa: S101 - for mypy
        pooled.detach()
        self.driver = driver
        driver.statements.run(f"LISTEN {self.channel}", {}, kept=False)
        return driver

    def _wait(self, driver: Connection, deadline: float) -> None:
        poll = select.poll()
        poll.register(driver.fileno(), select.POLLIN)
        while not self.closed and (left := deadline - time.monotonic()) > 0:
            if not poll.poll(1000 * min(left, LOOK_S)):
                continue
            driver.pgconn.consume_input()
            if driver.pgconn.notifies() is not None:
                while driver.pgconn.notifies() is not None:  # one wake-up serves all of these
                    pass
                return

    def close(self) -> None:
        """Close the connection; a wait ends."""
        self.closed = True
        with self.waiting:
            self._drop()

    def _drop(self) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            with suppress(psycopg.Error):
                driver.close()
