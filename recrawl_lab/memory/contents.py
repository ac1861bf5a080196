"""The contents of the store in memory, which transactions read and change."""

from dataclasses import fields
from typing import Any

import numpy as np

from recrawl_lab.memory.counts import StepCounts
from recrawl_lab.memory.evidence import Evidence
from recrawl_lab.memory.growing import GrowingTable
from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.model.arrays import COLUMN, INSTANT, Bools, Ints
from service.model.columns import CapColumns, ChangeHours, LogColumns, PageStates, ScheduleColumns
from service.model.domain import Epoch
from service.model.incidents import HostIncidents
from service.storage.epochs.contract import Learnt
from service.storage.epochs.group_hours import NO_RECORDS, NO_SCREENS

PAGE: dict[str, Any] = {
    "alive": np.bool_,
    "url": object,
    "host_id": np.int64,
    "url_group": np.int32,
    "importance": np.float64,
    "observability": np.int16,
    "min_crawl_rate": np.float64,
    "max_crawl_rate": np.float64,
    "created_at": INSTANT,
    "held": np.int64,
    "born_at": INSTANT,
}
"""Columns of a page beside its state."""

OF_PAGE = ("observability", "host_id")
READ_ONLY = ("page_id", "pings_since", *OF_PAGE, "held", "crawl_rate", "crawl_probability")
WRITTEN = tuple(f for f in PageStates.__dataclass_fields__ if f not in READ_ONLY)
"""Columns that `save_states` writes."""


class Contents:
    """Pages, evidence and schedules in this process; `width` is that of an estimate."""

    def __init__(self, width: int) -> None:
        state = {f.name: COLUMN[f.type] for f in fields(PageStates) if f.name in WRITTEN}
        self.width = width
        self.pages = GrowingTable(PAGE)
        self.states = GrowingTable({**state, "pings_since": INSTANT}, estimate=(width,))
        logged = {f.name: COLUMN[f.type] for f in fields(LogColumns)}
        self.log = GrowingTable({**logged, "number": np.int64})
        self.n_logged = 0
        self.evidence = Evidence()
        self.counts = StepCounts()
        self.key_of: list[bytes] = []
        self.page_id_of: dict[bytes, int] = {}
        self.host_ids: dict[str, int] = {}
        self.host_known_at: dict[str, np.datetime64] = {}
        self.hosts: list[str] = []
        self.caps = CapColumns.empty()
        self.epochs: list[Epoch] = []
        self.written: dict[int, ScheduleColumns] = {}
        self.schedules: dict[int, ScheduleColumns] = {}
        self.learnt: dict[int, Learnt] = {}
        self.change_hours = ChangeHours.empty(evidence=(WIDTH,), profile=(1 + TERMS,))
        self.group_hours = NO_RECORDS
        self.group_screens = NO_SCREENS
        self.incidents = HostIncidents.empty()
        self.estimator: str | None = None
        self.cost_unit: str | None = None

    def hold(self, page_id: Ints, held: Bools) -> None:
        """Set whether pages wait for their admission, so that they have no share."""
        self.pages["held"][page_id - 1] = held

    def host(self, host_id: int) -> str:
        """Return the name of a host; hosts are numbered in the order of arrival."""
        self.hosts += list(self.host_ids)[len(self.hosts) :]
        return self.hosts[host_id]
