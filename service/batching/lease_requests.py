"""Lease requests, batched: one thread leases for all workers, which receive pages in turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import numpy as np

from service.batching.batcher import Limits
from service.budget.grants import Charges, Grant, Short
from service.budget.keeper import Keeper
from service.leases import lease
from service.leases.dealt import DealtPages, WorkerRequest
from service.leases.politeness import Politeness
from service.model.arrays import Ints
from service.model.errors import RowLocked, TablesChanged
from service.storage import Store
from service.storage.queue.columns import LeaseFilter

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


def lease_all(
    store: Store,
    polite: Politeness,
    rng: np.random.Generator,
    jobs: Sequence[LeaseRequest],
    counts: Sequence[int] | None = None,
    keeper: Keeper | None = None,
) -> list[DealtPages]:
    """Return the leases of each transaction, until each request has its count or no page is due.

    `counts` are the numbers of pages that the requests still miss; None: all. The leases end where
    `keeper` has no more of the budget; None: no budget is set.

    Because one transaction leases from a bounded number of host queues, a batch may take several.
    """
    dealt: list[DealtPages] = []
    keeper = keeper or Keeper(store, None)
    urgent, was_short = 0.0, False
    missing = np.array([job.size for job in jobs] if counts is None else counts)
    while (hungry := np.flatnonzero(missing)).size and len(dealt) < MAX_TRANSACTIONS:
        wishes = [replace(jobs[i].wish, count=int(missing[i])) for i in hungry.tolist()]
        # the jobs of a batch are of one kind
        leasing = partial(lease.lease, requests=wishes, of=jobs[0].kind, polite=polite, rng=rng)
        with keeper.grant(int(missing.sum()), urgent) as grant:
            if not grant.is_open:
                break
            part = _lease_free(store, leasing, grant)
            book(grant, part)
            urgent = part.urgent
        dealt.append(part._replace(to=hungry[part.to]))
        missing -= np.bincount(dealt[-1].to, minlength=len(jobs))
        # the pages cost more than a mean crawl, so the keeper draws once more
        again = grant.short is not None and not was_short
        was_short = grant.short is not None
        if not part.more and not again:
            break
    # nothing else is due, so an idle budget may bring pages forward
    if keeper.terms is not None and missing.any():
        dealt += _lease_early(store, polite, rng, jobs, missing, keeper)
    return dealt


def _lease_early(
    store: Store,
    polite: Politeness,
    rng: np.random.Generator,
    jobs: Sequence[LeaseRequest],
    missing: Ints,
    keeper: Keeper,
) -> list[DealtPages]:
    """Return leases of pages that are not due yet, of one transaction."""
    hungry = np.flatnonzero(missing)
    wishes = [replace(jobs[i].wish, count=int(missing[i])) for i in hungry.tolist()]
    leasing = partial(lease.lease, requests=wishes, of=jobs[0].kind, polite=polite, rng=rng)
    with keeper.grant(int(missing.sum()), ahead=True) as grant:
        if not grant.is_open:
            return []
        part = _lease_free(store, leasing, grant)
        book(grant, part)
    return [part._replace(to=hungry[part.to])]


def book(grant: Grant, dealt: DealtPages) -> None:
    """Write into a grant what a transaction has leased, and what it had no room for."""
    grant.taken, grant.urgent = dealt.taken, dealt.urgent
    short = dealt.short
    grant.short = Short(float(short.min()), float(short.sum())) if len(short) else None
    grant.charges = Charges(dealt.leased.leases.token, dealt.amount)


def _lease_free(store: Store, leasing: Callable[..., DealtPages], grant: Grant) -> DealtPages:
    """Return leases of one transaction, without host queues that hold it up for long."""
    leasing = partial(leasing, allotment=grant.allotment, loan=grant.may_lend, ahead=grant.ahead)
    try:
        with store.begin() as tx:
            tx.hurry()
            return leasing(tx)
    except (RowLocked, TablesChanged):
        with store.begin() as tx:
            return leasing(tx, wait=False)


def next_ready(store: Store, reach: LeaseFilter) -> datetime | None:
    """Return a lower bound of the time of the next lease; None: nothing is queued."""
    with store.begin(write=False) as tx:
        return tx.next_ready_at(reach)
