"""Bounds of crawl rates that registrations state: whether they would cross."""

import numpy as np

from service.model.arrays import Bools, Ints
from service.model.columns import PageColumns
from service.storage import Transaction

CROSSING = "min_crawl_rate would lie above max_crawl_rate; send both bounds"
"""Reason to refuse a bound, with the remedy."""


def bounded(pages: PageColumns) -> Bools:
    """Return which pages state a bound."""
    return ~(np.isnan(pages.min_crawl_rate) & np.isnan(pages.max_crawl_rate))


def crossed(tx: Transaction, pages: PageColumns, page_id: Ints) -> Bools:
    """Return which pages would have a minimum crawl rate above the maximum.

    A bound that a page does not state is that of the locked page with its `page_id`; 0: a new page.
    """
    low, high = pages.min_crawl_rate.copy(), pages.max_crawl_rate.copy()
    row = np.flatnonzero(bounded(pages) & (page_id > 0))
    if row.size:
        present = tx.bounds_of(np.sort(page_id[row]))
        at = present.page_id.searchsorted(page_id[row])
        for stated, stored in ((low, present.min_crawl_rate), (high, present.max_crawl_rate)):
            stated[row] = np.where(np.isnan(stated[row]), stored[at], stated[row])
    return np.asarray(low > high)
