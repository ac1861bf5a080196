"""Pages that are queued in a transaction of their own, after a first one has ended.

The first transaction has locked other states of pages, and host queues. A lost second one costs
time only: the next epoch queues the pages, and a page that is gone is looked at within a day.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

import numpy as np

from service.batching.held import Attempt, attempted
from service.ingest.bulk import BLOCK, Recrawl
from service.leases.settle import LeaseSettler
from service.model.arrays import Ints
from service.model.errors import OUTAGES
from service.model.incidents import EndedIncident
from service.storage import Store, Transaction


def queue_apart(store: Store, settler: LeaseSettler, page_id: Ints, now: datetime) -> None:
    """Queue pages in a transaction of their own, without those of locked host queues."""
    _apart(store, page_id, lambda tx, free: settler.queue_pinged(tx, free, now))


def look_again(
    store: Store, settler: LeaseSettler, ended: Iterable[EndedIncident], now: datetime
) -> None:
    """Request crawls of the pages that were found gone in incidents, as these have ended.

    Pages that another transaction has locked are left out.
    """
    act = Recrawl(settler)
    for incident in ended:
        with suppress(*OUTAGES):
            with store.begin(write=False) as tx:
                gone = tx.gone_since(incident.host_id, incident.since)
            for start in range(0, len(gone), BLOCK):
                block = gone[start : start + BLOCK]
                _apart(store, block, lambda tx, free: act.apply(tx, free, now))


def _apart(store: Store, page_id: Ints, act: Callable[[Transaction, Ints], object]) -> None:
    def run(attempt: Attempt) -> None:
        attempt.page_id = np.setdiff1d(page_id, attempt.apart)
        with store.begin() as tx:
            tx.hurry()
            act(tx, attempt.page_id)

    with suppress(*OUTAGES):
        attempted(store, page_id[:0], run)
