"""The last requests of crawlers, so that all servers of a database know whether one is alive.

A server writes its last request at once, then once in `EVERY_S`, or sooner where the answer asks
for a longer wait. A thread of its own writes, so a request for leases waits for no further commit.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from service.model.errors import RecrawlError
from service.storage import Store, Transaction
from service.storage.queue.askers import number_of
from service.storage.queue.columns import LeaseFilter
from service.storage.queue.signs import LEASES, SCHEDULE, Asked

EVERY_S = 60.0
"""Time between two writings of one name, and least change of a wait, seconds."""
EVERY = timedelta(seconds=EVERY_S)
MOST_FILTERS = 10_000
"""Maximum number of filters of requests that a server remembers."""


class LastAsked:
    """The last requests at one server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: dict[str, Asked] = {}
        self._written: dict[str, Asked] = {}
        self._turn = threading.Lock()
        self.writing: list[threading.Thread] = []
        """The threads that write now."""
        self._filters: dict[int, Asked] = {}
        self._unwritten: dict[LeaseFilter, Asked] = {}
        self._of_filters = threading.Lock()

    def note(self, name: str, at: datetime, wait_s: float = 0.0) -> None:
        """Note a request; `wait_s` is the wait that its answer asks for."""
        asked = Asked(at, at + timedelta(seconds=wait_s) if wait_s else at)
        self.last[name], written = asked, self._written.get(name)
        if written is None or self._is_old(written, asked):
            self._written[name] = asked
            self._start(self.write, name)

    def note_filter(self, of: LeaseFilter, at: datetime, wait_s: float = 0.0) -> None:
        """Note a request for the pages of a filter, as `note` does."""
        asked, number = Asked(at, at + timedelta(seconds=wait_s)), number_of(of)
        with self._of_filters:
            written = self._filters.get(number)
            if written is not None and not self._is_old(written, asked):
                return
            if len(self._filters) >= MOST_FILTERS:
                self._filters.clear()
            self._filters[number] = asked
            is_first = not self._unwritten
            self._unwritten[of] = asked
        if is_first:
            self._start(self.write_filters)

    def _start(self, write: Callable[..., None], *names: str) -> None:
        thread = threading.Thread(target=write, args=names, name="asked", daemon=True)
        self.writing = [each for each in self.writing if each.is_alive()] + [thread]
        thread.start()

    def forget(self) -> None:
        """Write the next request of each name at once, because the database was restored."""
        self._written = {}
        with self._of_filters:
            self._filters = {}

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

    def write_filters(self) -> None:
        """Write the last requests of all filters that wait for it, in one transaction."""
        with self._turn:
            with self._of_filters:
                waiting, self._unwritten = self._unwritten, {}
            with suppress(RecrawlError), self.store.begin() as tx:
                tx.save_askers(waiting.items())

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
