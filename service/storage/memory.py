"""The store in arrays of this process: for simulations and tests, nothing outlives it.

One transaction runs at a time, which makes it a snapshot and the owner of every lock.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import numpy as np

from service.arrays import COLUMN, INSTANT, SectionRates
from service.clock import Clock, system_clock
from service.columns import CapColumns, LogColumns, PageStates, ScheduleColumns
from service.domain import Epoch
from service.errors import EpochRunning, LeadershipLost
from service.storage.base import Lead, Store
from service.storage.evidence import Evidence
from service.storage.growing import Table
from service.storage.memory_transaction import PAGE, WRITTEN, MemoryTransaction


class MemoryStore(Store):
    """Pages, evidence and schedules in this process."""

    clock: Clock = staticmethod(system_clock)

    def __init__(self, width: int) -> None:
        state = {f.name: COLUMN[f.type] for f in fields(PageStates) if f.name in WRITTEN}
        self.width = width
        self.pages = Table(PAGE)
        self.states = Table({**state, "pings_since": INSTANT}, estimate=(width,))
        logged = {f.name: COLUMN[f.type] for f in fields(LogColumns)}
        self.log = Table({**logged, "number": np.int64})
        self.n_logged = 0
        self.evidence = Evidence()
        self.key_of: list[bytes] = []
        self.page_id_of: dict[bytes, int] = {}
        self.host_ids: dict[str, int] = {}
        self.hosts: list[str] = []
        self.caps = CapColumns.empty()
        self.epochs: list[Epoch] = []
        self.written: dict[int, ScheduleColumns] = {}
        self.schedules: dict[int, ScheduleColumns] = {}
        self.section_rates: dict[int, SectionRates | None] = {}
        self.estimator: str | None = None
        self.turn = threading.Lock()
        self.leading = threading.Lock()

    def host(self, host_id: int) -> str:
        """Give the name of a host; hosts are numbered in the order they came."""
        self.hosts += list(self.host_ids)[len(self.hosts) :]
        return self.hosts[host_id]

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[MemoryTransaction]:  # noqa: ARG002
        """Open a transaction when it is its turn."""
        with self.turn:
            tx = MemoryTransaction(self)
            tx.clock = self.clock
            try:
                yield tx
            except BaseException:
                tx.roll_back()
                raise

    @contextmanager
    def lead(self) -> Iterator["MemoryLead"]:
        """Hold the lead until the block is left."""
        if not self.leading.acquire(blocking=False):
            raise EpochRunning
        lead = MemoryLead(self)
        try:
            yield lead
        finally:
            lead.held = False
            self.leading.release()

    def check(self) -> None:
        """Find everything in order."""

    def close(self) -> None:
        """Give nothing back: there are no connections."""


class MemoryLead(Lead):
    """The lead of this process."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.held = True

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[MemoryTransaction]:
        """Open a transaction."""
        if not self.held:
            raise LeadershipLost
        with self.store.begin(write=write) as tx:
            yield tx
