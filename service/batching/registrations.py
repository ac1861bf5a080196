"""Registration of pages, batched.

New pages fall all over the index of keys, so a commit of four requests costs little more than a
commit of one.
"""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from service.batching.batcher import Batcher, Limits, slices
from service.leases.lease import LeaseSettler
from service.model.columns import PageColumns
from service.storage import Registered, Store

LIMITS = Limits(max_batch=50_000, max_waiting=1_000_000, min_batch=1)
"""Limits, pages; registrations never linger."""


class OverlappingPages(Exception):
    """Two requests bring the same page, so each request needs a statement of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """The pages of one request, each distinct."""

    pages: PageColumns
    now: datetime
    kind = None

    @property
    def size(self) -> int:
        """Number of pages, at least one."""
        return max(len(self.pages), 1)


Registrations = Batcher[Registration, Registered]


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers the pages of several requests in one transaction."""

    store: Store
    settler: LeaseSettler

    def flush(self, jobs: list[Registration]) -> list[Registered]:
        """Register the pages and queue the new ones.

        Raises
        ------
        OverlappingPages
            Two jobs have a page in common; the batcher then flushes each alone, in order.
        """
        pages = PageColumns.concatenate([job.pages for job in jobs])
        if len(jobs) > 1 and len(np.unique(pages.key)) < len(pages):
            raise OverlappingPages
        now = max(job.now for job in jobs)
        with self.store.begin() as tx:
            page_id, created = tx.register(pages, now)
            self.settler.queue_pinged(tx, page_id[created], now)
        return [
            Registered(page_id[rows], created[rows])
            for rows in slices(len(job.pages) for job in jobs)
        ]


def batched_registrations(store: Store, settler: LeaseSettler, n_writers: int = 1) -> Registrations:
    """Return the batcher of registrations."""
    return Batcher("registrations", Registrar(store, settler).flush, LIMITS, n_writers=n_writers)
