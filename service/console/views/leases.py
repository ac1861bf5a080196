"""Leases that run, and the workers that hold them."""

from collections import defaultdict
from typing import NamedTuple

from fastapi import Response

from recrawl_client.wire.listing import LeaseItem, LeasesAnswer
from service.api.routes import leases
from service.console.visit import Visit

PART = 50
MOST_COUNTED = 10_000
"""Maximum number of leases by which workers are counted."""
MOST_WORKERS = 50


class Worker(NamedTuple):
    """A worker and its leases."""

    name: str
    n_leases: int
    first: LeaseItem
    """The lease that ends first."""


def show(visit: Visit) -> Response:
    """Show a part of the leases, and all workers."""
    values = visit.parameters("list_leases")
    counted = visit.ask(LeasesAnswer, leases.list_leases, request=visit.request, limit=MOST_COUNTED)
    part = visit.ask(
        LeasesAnswer, leases.list_leases, request=visit.request, **({"limit": PART} | values)
    )
    workers = workers_of(counted.items)
    with visit.service.store.begin(write=False) as tx:
        ready_at = tx.ready_since()
    return visit.page(
        "leases.html",
        part=part,
        workers=workers[:MOST_WORKERS],
        n_workers=len(workers),
        n_leases=len(counted.items),
        whole=counted.next_cursor is None,
        ready_at=ready_at,
    )


def workers_of(items: list[LeaseItem]) -> list[Worker]:
    """Return the workers of leases, the busiest first."""
    held: defaultdict[str, list[LeaseItem]] = defaultdict(list)
    for item in items:
        held[item.worker].append(item)
    workers = [
        Worker(name, len(own), min(own, key=lambda lease: lease.expires_at))
        for name, own in held.items()
    ]
    return sorted(workers, key=lambda worker: (-worker.n_leases, worker.name))
