"""Redirects between pages in arrays of this process."""

from dataclasses import fields
from datetime import datetime

import numpy as np
from typing_extensions import override

from recrawl_lab.memory.log import MemoryLog
from service.model.arrays import NO_TIME, Ints, instant
from service.storage.pages.links import GONE_CHECKS, LEAST_TRIES, Links


class MemoryLinks(MemoryLog):
    """The statements about redirects, and about pages that redirects or pings bring back."""

    @override
    def links_of(self, page_id: Ints) -> Links:
        states = self.lock_states(np.unique(page_id))
        had_content = (~np.isnat(states.last_observed_at)).astype(np.int16)
        names = (f.name for f in fields(Links) if f.name != "had_content")
        return Links(**{name: getattr(states, name) for name in names}, had_content=had_content)

    @override
    def link(self, page_id: Ints, hops: int, now: datetime, before: datetime) -> Ints:
        states = self.lock_states(np.unique(page_id))
        states = states.where(states.hops != 0)
        nearer = np.where(states.hops < 0, hops, np.minimum(states.hops, hops))
        tried = (states.n_failures >= LEAST_TRIES) & (states.last_crawl_at < instant(before))
        requested_at = np.where(tried & ~states.gone, instant(now), states.requested_at)
        row = states.page_id - 1
        self.states.put(self.undo, row, hops=nearer, n_targets=0, requested_at=requested_at)
        return states.page_id

    @override
    def shared_targets(self, page_id: Ints) -> Ints:
        return page_id[:0]

    @override
    def led_to(self, page_id: Ints) -> Ints:
        return page_id[:0]

    @override
    def with_known_digest(self, page_id: Ints, digest: Ints) -> Ints:
        return page_id[:0]

    @override
    def request_walls(self, page_id: Ints, now: datetime) -> Ints:
        return page_id[:0]

    @override
    def unlink(self, page_id: Ints) -> Ints:
        states = self.lock_states(np.unique(page_id))
        dropped = states.where((states.hops > 0) & np.isnat(states.last_observed_at))
        self.states.put(self.undo, dropped.page_id - 1, hops=-dropped.hops)
        return dropped.page_id

    @override
    def request_retired(self, page_id: Ints, now: datetime) -> Ints:
        return self.wake(page_id, now)

    @override
    def wake(self, page_id: Ints, now: datetime) -> Ints:
        states = self.lock_states(np.unique(page_id))
        waits = states.requested_at > states.last_crawl_at
        retired = states.gone & (states.n_failures > GONE_CHECKS)
        states = states.where(retired & (waits | np.isnat(states.requested_at)))
        first = np.isnat(states.requested_at)
        self.states.put(
            self.undo,
            states.page_id - 1,
            requested_at=np.where(first, instant(now), states.requested_at),
            renewed_at=np.where(first, NO_TIME, instant(now)),
        )
        return states.page_id

    @override
    def add_hops(self, page_id: Ints, hops: int) -> None:
        self.states.put(self.undo, page_id - 1, hops=np.int16(hops))
