"""Incidents of hosts in arrays of this process."""

from datetime import datetime

import numpy as np
from typing_extensions import override

from recrawl_lab.memory.schedule import MemorySchedule
from service.model.arrays import Ints, instant
from service.model.incidents import HostIncidents
from service.storage.queue.incidents import new_incidents


class MemoryIncidents(MemorySchedule):
    """The statements about incidents of hosts."""

    @override
    def has_incidents(self) -> bool:
        return len(self.store.incidents) > 0

    @override
    def lock_incidents(self, host_id: Ints, suspected: Ints) -> HostIncidents:
        stored = self.store.incidents
        new = np.setdiff1d(suspected, stored.host_id)
        if len(new):
            self._keep_incidents(HostIncidents.concatenate([stored, new_incidents(new)]))
        return self.store.incidents.take(np.isin(self.store.incidents.host_id, host_id))

    @override
    def save_incidents(self, incidents: HostIncidents) -> None:
        if len(incidents):
            stored = self.store.incidents
            others = stored.take(~np.isin(stored.host_id, incidents.host_id))
            self._keep_incidents(HostIncidents.concatenate([others, incidents]))

    @override
    def drop_incidents(self, host_id: Ints) -> None:
        stored = self.store.incidents
        self._keep_incidents(stored.take(~np.isin(stored.host_id, host_id)))

    def _keep_incidents(self, incidents: HostIncidents) -> None:
        self.set("incidents", incidents.take(np.argsort(incidents.host_id)))

    @override
    def crawled_between(
        self, host_id: int, after: datetime, before: datetime, without: Ints
    ) -> int:
        at = self.states["last_crawl_at"]
        between = (at >= instant(after)) & (at < instant(before))
        row = np.flatnonzero(between & (self.pages["host_id"] == host_id))
        return int(np.count_nonzero(~np.isin(row + 1, without)))

    @override
    def gone_since(self, host_id: int, since: datetime) -> Ints:
        gone = self.states["gone"] & (self.states["absent_since"] >= instant(since))
        page_id: Ints = 1 + np.flatnonzero(gone & (self.pages["host_id"] == host_id))
        return page_id

    @override
    def forget_incidents(self, now: datetime) -> None:
        """Keep all, because a replay is short."""
