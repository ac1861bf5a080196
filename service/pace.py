"""How fast the clock of each page runs, beside the rate that the optimum gives it.

The rates are what a page is worth in the long run, and they use up the bandwidth. When a page is
due also hangs on what its siblings have shown since its last crawl (`core.siblings`): next to a
page found changed it is crawled sooner, among pages found unchanged later.
"""

from typing import NamedTuple

import numpy as np

from service.arrays import Floats, days
from service.columns import CapColumns, EpochColumns
from service.core.siblings import haste, unrest
from service.domain import Observability
from service.estimates import Known

HORIZON = 1.0
"""Days ahead in which as many pages should fall due as there is bandwidth for; more where that is
fewer than `FEWEST`."""
FEWEST = 100.0

FASTEST = 1000.0
"""No clock runs faster than that many times."""

TINY = 1e-100
"""Rates below, or above 1/this, are left alone: their product with a pace may be no number."""


class Pace(NamedTuple):
    """How fast clocks run."""

    of_pages: Floats
    """(N,) up to `FASTEST`: due `gap / (crawl_rate * pace)` days after the last crawl."""
    haste: float
    """What all of them have been sped up by, so that the bandwidth is used up."""


def steady(n_pages: int) -> Pace:
    """Give clocks that go by the rates alone."""
    return Pace(np.ones(n_pages), 1.0)


def pace(
    pages: EpochColumns, known: Known, crawl_rate: Floats, caps: CapColumns, now: np.datetime64
) -> Pace:
    """Set the clocks of (N,) pages.

    Those of pages whose pings tell more than siblings could, and of hosts with a cap, run at 1. A
    page's own bounds hold for its crawl rate times its pace.

    Parameters
    ----------
    crawl_rate : (N,) 1/day
        What the optimum gives each page on the clock.
    """
    clocked = ~np.isnat(pages.last_observed_at) & (crawl_rate > TINY) & (crawl_rate < 1 / TINY)
    if not clocked.any():
        return steady(len(pages))
    age = np.where(clocked, np.maximum(days(now - pages.last_observed_at), 0.0), np.nan)
    interval = np.where(pages.importance > 0, pages.last_interval, 0.0)
    factor = unrest(pages.section, age, interval, known.change_rate)
    free = clocked & (known.ping_rate == 0) & (pages.observability != Observability.complete)
    if len(caps):
        free &= ~np.isin(pages.host_id, caps.host_id)
    factor[~free] = 1.0
    horizon = max(HORIZON, FEWEST / float(crawl_rate[clocked].sum()))
    ripe = (age[clocked] + horizon) * crawl_rate[clocked] * factor[clocked]
    ripe /= np.maximum(pages.gap[clocked], np.finfo(np.float32).tiny)
    sped_up = haste(ripe, float(np.minimum(crawl_rate[clocked] * horizon, 1.0).sum()))
    factor[free] *= sped_up
    given = crawl_rate[free]
    least = np.nan_to_num(pages.min_crawl_rate[free], nan=0.0) / given
    most = np.fmin(FASTEST, np.maximum(pages.max_crawl_rate[free] / given, least))
    factor[free] = np.clip(factor[free], np.minimum(least, most), most)
    return Pace(factor, sped_up)
