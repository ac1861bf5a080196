"""Urgency of pages: a factor on the crawl rate, from the latest crawls of their URL groups.

The crawl rates are optimal in the long run and use up the bandwidth. A page is due sooner after
pages of its URL group were seen changed, and later after they were seen unchanged
(`core.url_groups`).
"""

from typing import NamedTuple

import numpy as np

from service.core.url_groups import budget_factor, observed_ratio
from service.estimation.estimates import RateEstimates
from service.model.arrays import Floats, days
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability

HORIZON = 1.0
"""Days ahead in which as many pages should fall due as the bandwidth allows; more days where these
are fewer than `FEWEST` pages."""
FEWEST = 100.0
"""Minimum pages due within the horizon."""

FASTEST = 1000.0
"""Upper bound of the urgency."""

TINY = 1e-100
"""Rates below this, or above 1/this, keep the urgency 1, because their product may overflow."""


class Urgency(NamedTuple):
    """Urgency of every page, and the budget factor in it."""

    of_pages: Floats
    """(N,) at most `FASTEST`: a page is due `interval_factor / (crawl_rate * urgency)` days after
    its last crawl."""
    budget_factor: float
    """Factor on all clocks, so that the bandwidth is used up."""


def steady(n_pages: int) -> Urgency:
    """Return clocks that follow the crawl rates alone."""
    return Urgency(np.ones(n_pages), 1.0)


def urgency(
    pages: EpochColumns,
    estimates: RateEstimates,
    crawl_rate: Floats,
    caps: CapColumns,
    now: np.datetime64,
) -> Urgency:
    """Return the urgency of (N,) pages.

    It is 1 for pages with pings of use, and for pages of hosts with a cap. A page's own bounds hold
    for its crawl rate times its urgency.

    Parameters
    ----------
    crawl_rate : (N,) 1/day
        Crawl rate of each page in the optimum, pings apart.
    """
    clocked = ~np.isnat(pages.last_observed_at) & (crawl_rate > TINY) & (crawl_rate < 1 / TINY)
    if not clocked.any():
        return steady(len(pages))
    age = np.where(clocked, np.maximum(days(now - pages.last_observed_at), 0.0), np.nan)
    interval = np.where(pages.importance > 0, pages.last_interval, 0.0)
    factor = observed_ratio(pages.url_group, age, interval, estimates.change_rate)
    free = clocked & (estimates.ping_rate == 0) & (pages.observability != Observability.complete)
    if len(caps):
        free &= ~np.isin(pages.host_id, caps.host_id)
    factor[~free] = 1.0
    horizon = max(HORIZON, FEWEST / float(crawl_rate[clocked].sum()))
    n_due = (age[clocked] + horizon) * crawl_rate[clocked] * factor[clocked]
    n_due /= np.maximum(pages.interval_factor[clocked], np.finfo(np.float32).tiny)
    sped_up = budget_factor(n_due, float(np.minimum(crawl_rate[clocked] * horizon, 1.0).sum()))
    factor[free] *= sped_up
    rate = crawl_rate[free]
    least = np.nan_to_num(pages.min_crawl_rate[free], nan=0.0) / rate
    most = np.fmin(FASTEST, np.maximum(pages.max_crawl_rate[free] / rate, least))
    factor[free] = np.clip(factor[free], np.minimum(least, most), most)
    return Urgency(factor, sped_up)
