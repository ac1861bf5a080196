"""Lease requests, batched: one thread leases for all workers, which receive pages in turns."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from service.batching.batcher import Limits
from service.leases import lease
from service.leases.lease import LeasedPages, WorkerRequest
from service.leases.politeness import Politeness
from service.storage import Store
from service.storage.queue import LeaseFilter

LIMITS = Limits(max_batch=10_000, max_waiting=1_000_000, min_batch=64)
"""Limits of lease requests; an item is a crawl requested."""

MAX_TRANSACTIONS = 64
"""Maximum number of transactions for one batch of lease requests."""


@dataclass(frozen=True, slots=True, eq=False)
class LeaseRequest:
    """One worker's request."""

    wish: WorkerRequest
    kind: LeaseFilter
    """Filter of the worker's pages; requests with the same filter share a batch."""

    @property
    def size(self) -> int:
        """Number of crawls requested."""
        return self.wish.count


class LeaseReply(NamedTuple):
    """The leases of one request."""

    leased: list[LeasedPages]
    next_ready_at: datetime | None
    """Earliest time of the next due page where nothing was leased; None: nothing is queued."""


def lease_all(
    store: Store, polite: Politeness, rng: np.random.Generator, jobs: list[LeaseRequest]
) -> list[LeaseReply]:
    """Return leases until each request has its count or no more pages are due.

    Because one transaction leases from a bounded number of host queues, a batch may take several.
    """
    reach = jobs[0].kind
    leased: list[list[LeasedPages]] = [[] for _ in jobs]
    missing = [job.wish.count for job in jobs]
    for _ in range(MAX_TRANSACTIONS):
        hungry = [i for i, n in enumerate(missing) if n]
        if not hungry:
            break
        wishes = [replace(jobs[i].wish, count=missing[i]) for i in hungry]
        with store.begin() as tx:
            parts, more = lease.lease(tx, wishes, reach, polite, rng)
        for i, part in zip(hungry, parts, strict=True):
            missing[i] -= len(part.overdue)
            if len(part.overdue):
                leased[i].append(part)
        if not more:
            break
    next_ready_at = None if all(leased) else next_ready(store, reach)
    return [LeaseReply(parts, next_ready_at) for parts in leased]


def next_ready(store: Store, reach: LeaseFilter) -> datetime | None:
    """Return a lower bound of the time of the next lease; None: nothing is queued."""
    with store.begin(write=False) as tx:
        return tx.next_ready_at(reach)
