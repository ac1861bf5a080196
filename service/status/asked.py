"""The last requests of crawlers, so that all servers of a database know whether one is alive.

A server writes its last request at once, then once in `EVERY_S`, or sooner where the answer asks
for a longer wait. A thread of its own writes, so a request for leases waits for no further commit.
"""

import threading
from contextlib import suppress
from datetime import datetime, timedelta

from service.model.errors import RecrawlError
from service.storage import Store, Transaction
from service.storage.queue.signs import LEASES, SCHEDULE, Asked

EVERY_S = 60.0
"""Time between two writings of one name, and least change of a wait, seconds."""
EVERY = timedelta(seconds=EVERY_S)


class LastAsked:
    """The last requests at one server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: dict[str, Asked] = {}
        self._written: dict[str, Asked] = {}
        self._turn = threading.Lock()
        self.writing: list[threading.Thread] = []
        """The threads that write now."""

    def note(self, name: str, at: datetime, wait_s: float = 0.0) -> None:
        """Note a request; `wait_s` is the wait that its answer asks for."""
        asked = Asked(at, at + timedelta(seconds=wait_s) if wait_s else at)
        self.last[name], written = asked, self._written.get(name)
        if written is None or self._is_old(written, asked):
            self._written[name] = asked
            thread = threading.Thread(target=self.write, args=(name,), name="asked", daemon=True)
            self.writing = [each for each in self.writing if each.is_alive()] + [thread]
            thread.start()

    def forget(self) -> None:
        """Write the next request of each name at once, because the database was restored."""
        self._written = {}

    @staticmethod
    def _is_old(written: Asked, asked: Asked) -> bool:
        """Return whether other servers would miss the crawler, or expect it too early."""
        # a clock that was set back shows nothing
        is_new = timedelta(0) <= asked.at - written.at < EVERY
        return not is_new or asked.until - written.until >= EVERY

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
