"""Crawls without an answer that a page has had beyond its plan. Pure.

A page that failed, or may be gone, is tried again after an hour at most, and not after its
interval. If each second crawl of a page timed out, the page would take twice the crawls of one that
answers. Therefore such crawls are paid for by the page: the interval after the next content is
longer by one mean interval for each. Intervals that have passed meanwhile, as in an outage of days,
have paid already.
"""

import numpy as np

from service.model.arrays import Floats, Instants, days
from service.model.columns import PageStates
from service.model.outcomes import DOUBTFUL, IS_PATIENT

MOST = 2.0
"""Maximum intervals by which one is longer, so that no page waits for long after an outage."""


def overdrawn(states: PageStates, newest: Instants) -> Floats:
    """Return (P,) mean intervals by which the next one of each page is longer.

    `states` are those before the crawls. `newest` has the times of the newest content or confirmed
    absence among the crawls; NaT: none. A page that was gone, or that has had neither content nor
    a share before, has no plan to keep.
    """
    n = states.n_failures
    if not n.any():  # most batches
        return np.zeros(len(n))
    tried = (n > 0) & ~IS_PATIENT[states.outcome] & (states.outcome != DOUBTFUL)
    tried &= ~states.gone & (states.retry_rate > 0) & ~np.isnat(states.last_observed_at)
    waited = np.nan_to_num(days(newest - states.last_crawl_at))
    # each wait is twice the one before
    tries = waited * (2.0 - np.exp2(1.0 - n))
    # the interval before them was planned, and at most as long as this function makes one
    since = np.nan_to_num(days(newest - states.last_observed_at))
    passed = np.maximum(tries * states.retry_rate, since * states.retry_rate - (1.0 + MOST))
    return np.where(tried & ~np.isnat(newest), np.clip(n - passed, 0.0, MOST), 0.0)
