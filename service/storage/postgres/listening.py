"""Notifications of Postgres, which wake a process; nobody may depend on their arrival."""

import select
import threading
import time
from contextlib import suppress

import psycopg
import sqlalchemy as sa

from service.storage.postgres.connections import Connection

LOOK_S = 0.2
"""Maximum time between two checks that the wait has not been ended, seconds."""


class Listener:
    """One connection that listens to a channel; a lost connection is opened again."""

    def __init__(self, engine: sa.Engine, channel: str) -> None:
        self.engine = engine
        self.channel = channel
        self.driver: Connection | None = None
        self.waiting = threading.Lock()
        """Lock of the one thread that waits."""

    def wait(self, within_s: float, ended: threading.Event) -> None:
        """Return after a notification, after `within_s` seconds, or when `ended` is set.

        Without a connection, the time passes all the same.
        """
        deadline = time.monotonic() + within_s
        with self.waiting:
            try:
                self._wait(self.driver or self._open(), deadline, ended)
            except (psycopg.Error, sa.exc.SQLAlchemyError):
                self.close()
                ended.wait(max(deadline - time.monotonic(), 0.0))

    def _open(self) -> Connection:
        pooled = self.engine.raw_connection()
        driver = pooled.driver_connection
        assert isinstance(driver, Connection)  # noqa: S101 - for mypy
        pooled.detach()
        self.driver = driver
        driver.statements.run(f"LISTEN {self.channel}", {}, kept=False)
        return driver

    def _wait(self, driver: Connection, deadline: float, ended: threading.Event) -> None:
        poll = select.poll()
        poll.register(driver.fileno(), select.POLLIN)
        while not ended.is_set() and (left := deadline - time.monotonic()) > 0:
            if not poll.poll(1000 * min(left, LOOK_S)):
                continue
            driver.pgconn.consume_input()
            if driver.pgconn.notifies() is not None:
                while driver.pgconn.notifies() is not None:  # one wake-up serves all of these
                    pass
                return

    def close(self) -> None:
        """Close the connection; the next wait opens another one."""
        driver, self.driver = self.driver, None
        if driver is not None:
            with suppress(psycopg.Error):
                driver.close()
