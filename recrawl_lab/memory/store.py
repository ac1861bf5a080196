"""The store in arrays of this process, for simulations and tests; its data ends with the process.

One transaction runs at a time, so it sees a snapshot and owns every lock.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import NoReturn

import numpy as np
from typing_extensions import override

from recrawl_lab.memory.evidence import Evidence
from recrawl_lab.memory.growing import Table
from recrawl_lab.memory.transaction import PAGE, WRITTEN, MemoryTransaction
from service.core.clocks.evidence import WIDTH
from service.core.clocks.profile import TERMS
from service.model.arrays import COLUMN, INSTANT
from service.model.columns import CapColumns, ClockColumns, LogColumns, PageStates, ScheduleColumns
from service.model.domain import Epoch
from service.model.errors import EpochRunning, LeadershipLost
from service.storage.clock import Clock, system_clock
from service.storage.epochs.contract import Learnt
from service.storage.stores.contract import Lead, Store


class MemoryStore(Store):
    """Pages, evidence and schedules in this process."""

    has_queue = False
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
        self.learnt: dict[int, Learnt] = {}
        self.clocks = ClockColumns.empty(evidence=(WIDTH,), profile=(1 + TERMS,))
        self.estimator: str | None = None
        self.turn = threading.Lock()
        self.leading = threading.Lock()

    def host(self, host_id: int) -> str:
        """Return the name of a host; hosts are numbered in the order of arrival."""
        self.hosts += list(self.host_ids)[len(self.hosts) :]
        return self.hosts[host_id]

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[MemoryTransaction]:
        with self.turn:
            tx = MemoryTransaction(self)  # type: ignore[abstract]  # `refuses_the_rest` completes it
            tx.clock = self.clock
            try:
                yield tx
            except BaseException:
                tx.roll_back()
                raise

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
