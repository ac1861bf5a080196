"""The store in arrays of this process, for simulations and tests; its data ends with the process.

One transaction runs at a time, so it sees a snapshot and owns every lock.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from typing_extensions import override

from recrawl_lab.memory.contents import Contents
from recrawl_lab.memory.transaction import MemoryTransaction
from service.model.errors import EpochRunning, LeadershipLost
from service.storage.clock import Clock, system_clock
from service.storage.stores.contract import Lead, Store


class MemoryStore(Contents, Store):
    """Pages, evidence and schedules in this process."""

    has_queue = False
    clock: Clock = staticmethod(system_clock)

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.turn = threading.Lock()
        self.leading = threading.Lock()

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[MemoryTransaction]:
        with self.turn:
            tx = MemoryTransaction(self)  # type: ignore[abstract]  # `refuses_the_rest` completes it
            tx.clock, tx.calendars = self.clock, self.calendars
            try:
                yield tx
            except BaseException:
                tx.roll_back()
                raise
            for events in tx.counted:
                self.counts.add(events, tx.now())

    @override
    @contextmanager
    def lead(self) -> Iterator["MemoryLead"]:
        if not self.leading.acquire(blocking=False):
            raise EpochRunning
        lead = MemoryLead(self)
        try:
            yield lead
        finally:
            lead.held = False
            self.leading.release()

    @override
    def archiving(self) -> NoReturn:
        raise NotImplementedError("the store in memory keeps no old log; open a SQLite file")

    def check(self) -> None:
        """Return without an error, because arrays are always reachable."""

    def close(self) -> None:
        """Do nothing, because there are no connections."""


class MemoryLead(Lead):
    """The lead among workers, which is exclusive in this process."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.held = True

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[MemoryTransaction]:
        if not self.held:
            raise LeadershipLost
        with self.store.begin(write=write) as tx:
            yield tx
