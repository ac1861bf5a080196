"""The last requests of crawlers, so that all servers of a database know whether one is alive.

A server writes its last request at once, then at most once in `EVERY_S`, in a thread of its own. So
a request for leases waits for no further commit.
"""

import threading
from contextlib import suppress
from datetime import datetime, timedelta

from service.model.errors import RecrawlError
from service.storage import Store, Transaction
from service.storage.queue.signs import LEASES, SCHEDULE, Asked

EVERY_S = 60.0
"""Minimum time between two writings of one name, seconds."""
EVERY = timedelta(seconds=EVERY_S)


class LastAsked:
    """The last requests at one server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: dict[str, Asked] = {}
        self._written: dict[str, datetime] = {}
        self._turn = threading.Lock()
        self.writing: list[threading.Thread] = []
        """The threads that write now."""

    def note(self, name: str, at: datetime, wait_s: float = 0.0) -> None:
        """Note a request; `wait_s` is the wait that its answer asks for."""
        self.last[name] = Asked(at, at + timedelta(seconds=wait_s) if wait_s else at)
        written = self._written.get(name)
        # a clock that was set back shows nothing
        if written is None or not timedelta(0) <= at - written < EVERY:
            self._written[name] = at
            thread = threading.Thread(target=self.write, args=(name,), name="asked", daemon=True)
            self.writing = [each for each in self.writing if each.is_alive()] + [thread]
            thread.start()

    def write(self, name: str) -> None:
        """Write the last request; an outage loses nothing but a minute."""
        with self._turn, suppress(RecrawlError), self.store.begin() as tx:
            tx.save_asked(name, self.last[name])

    def newest(self, tx: Transaction, name: str) -> Asked | None:
        """Return the last request at any server, as far as it is written, or at this one."""
        signs = [sign for sign in (tx.last_asked(name), self.last.get(name)) if sign is not None]
        return max(signs, default=None)

    def leases(self, tx: Transaction) -> Asked | None:
        """Return the last request for leases."""
        return self.newest(tx, LEASES)

    def schedule(self, tx: Transaction) -> Asked | None:
        """Return the last reading of the schedule."""
        return self.newest(tx, SCHEDULE)
