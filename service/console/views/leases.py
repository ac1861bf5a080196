"""Leases that run, and the workers that hold them."""

from collections import defaultdict
from typing import NamedTuple

from fastapi import Response

from recrawl_client.wire.listing import LeaseItem, LeasesAnswer, WorkersAnswer
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
    first: LeaseItem | None
    """The lease that ends first; None: the worker holds none."""
    n_lost: int = 0
    """Pages whose last lease it lost, and that nobody has reported since."""


def show(visit: Visit) -> Response:
    """Show a part of the leases, all workers, and what holds the due pages."""
    values = visit.parameters("list_leases") | {"explain": False}
    asker = {"request": visit.request, "caller": visit.caller}
    running = visit.ask(LeasesAnswer, leases.list_leases, **asker, limit=MOST_COUNTED)
    part = visit.ask(LeasesAnswer, leases.list_leases, **asker, **({"limit": PART} | values))
    why = visit.ask(LeasesAnswer, leases.list_leases, **asker, explain=True).explanation
    lost = visit.ask(WorkersAnswer, leases.list_workers, limit=MOST_WORKERS)
    workers = workers_of(running.items, {each.worker: each.lost for each in lost.items})
    with visit.service.store.begin(write=False) as tx:
        ready_at = tx.ready_since()
    return visit.page(
        "leases.html",
        part=part,
        why=why,
        workers=workers[:MOST_WORKERS],
        n_workers=len(workers),
        n_leases=len(running.items),
        whole=running.next_cursor is None,
        ready_at=ready_at,
    )


def workers_of(items: list[LeaseItem], lost: dict[str, int]) -> list[Worker]:
    """Return the workers of leases, those first that lost most, then the busiest."""
    held: defaultdict[str, list[LeaseItem]] = defaultdict(list)
    for item in items:
        held[item.worker].append(item)
    names = held.keys() | {name for name, n_lost in lost.items() if n_lost}
    workers = [
        Worker(
            name,
            len(held[name]),
            min(held[name], key=lambda lease: lease.expires_at, default=None),
            lost.get(name, 0),
        )
        for name in names
    ]
    return sorted(workers, key=lambda worker: (-worker.n_lost, -worker.n_leases, worker.name))
