"""Amounts of the budget that crawls are expected to take, and the unit of what is stored."""

from dataclasses import dataclass

import numpy as np

from service.core.prices import expected
from service.model.amounts import CRAWLS, typical_cost
from service.model.arrays import Floats, distinct
from service.storage import Store, Transaction
from service.storage.queue.columns import DuePages

BLOCK = 20_000
"""Maximum pages whose costs one transaction forgets."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Rule of the amounts that crawls are expected to take of a budget."""

    unit: str
    """Unit of the budget (`model.amounts`)."""

    def amounts(self, tx: Transaction, pages: DuePages) -> Floats:
        """Return (N,) amounts that crawls of pages are expected to take; 1 each for crawls.

        A page takes the mean of its crawls, else that of its host. A host without any takes the
        mean of the pages at hand, else `typical_cost`.
        """
        if self.unit == CRAWLS:
            return np.ones(len(pages))
        cost, of_host = pages.cost, np.zeros(len(pages))
        has_cost = cost > 0
        if not has_cost.all():
            host_id = distinct(pages.host_id[~has_cost])
            place = np.minimum(host_id.searchsorted(pages.host_id), len(host_id) - 1)
            of_host = tx.host_costs(host_id)[place]
        own = expected(cost, np.where(has_cost, 0.0, of_host), 0.0)
        some = own[own > 0]
        return np.where(own > 0, own, some.mean() if some.size else typical_cost(self.unit))


def adopt_unit(store: Store, unit: str) -> None:
    """Make a unit that of the stored costs; forget the costs in another unit, block by block.

    A budget of crawls learns no costs, and leaves those that are stored.
    """
    if unit == CRAWLS:
        return
    with store.begin(write=False) as tx:
        stored = tx.cost_unit()
    if stored == unit:
        return
    after = 0
    while stored is not None:
        with store.begin() as tx:
            page_id = tx.next_page_ids(after, BLOCK)
            if not len(page_id):
                break
            tx.clear_costs(page_id)
            after = int(page_id[-1])
    with store.begin() as tx:
        tx.set_cost_unit(unit)
