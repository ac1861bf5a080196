"""Uniform crawling that a fleet could have had: for the same amount, as far as its hosts allow."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from service.core.common_values import alone
from service.core.prices import allocated, is_free
from service.core.savings import equal_rates
from service.model.amounts import CRAWLS, Amount, typical_cost
from service.model.arrays import Floats, Ints, distinct
from service.storage import Store

DAY_S = 86_400.0
LEAST_DAYS = 1e-9
"""Least time of a page in the window, days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Unit of the budget, and politeness of hosts by the settings."""

    unit: str = CRAWLS
    most: float = np.inf
    """Amount a day; dearer pages count in no mean."""
    delay_s: float = 0.0
    """Delay of hosts without one of their own, seconds; 0: none."""


NO_MEANS = Means()


def means_of(budget: Amount | None, delay_s: float) -> Means:
    """Return the means of a budget a day, None for none, and a delay."""
    if budget is None or budget.unit == CRAWLS:
        return Means(delay_s=delay_s)
    return Means(unit=budget.unit, most=budget.value, delay_s=delay_s)


class Uniform(NamedTuple):
    """Uniform crawling of (N,) pages."""

    interval: Floats
    """Days between two crawls of each page."""
    n_crawls: float
    spent: float
    """Amount that the fleet's crawls took at the present costs of their pages."""
    n_cut: int
    """Number of pages that their hosts would not let be crawled as often as the others."""


class Pages(NamedTuple):
    """(N,) pages of a fleet in a window, by ascending page_id."""

    page_id: Ints
    host_id: Ints
    lived: Floats
    """Days of each page in the window."""
    n_crawls: Ints
    """Crawls of each page in these days."""
    share: float
    """Share of all pages that these are."""


def uniform(store: Store, means: Means, pages: Pages, now: datetime) -> Uniform:
    """Return uniform crawling for the amount that the fleet's crawls of pages took.

    A page is crawled as often as any other, or as often as its host and its group allow.
    """
    page_id, host_id, lived, n_crawls, share = pages
    lived = np.maximum(lived, LEAST_DAYS)
    with store.begin(write=False) as tx:
        stored = np.zeros(len(page_id))
        if means.unit != CRAWLS and tx.cost_unit() == means.unit:
            stored = tx.costs_of(page_id)
        hosts = distinct(host_id)
        delays, caps = tx.host_delays(hosts), tx.load_caps()
        calendars, queues = tx.calendars, distinct(delays.queue_id)
        is_open = np.ones(len(queues))
        for place, hours in calendars.of_queues(queues, now) if calendars.in_use else ():
            is_open[place] = hours.share
    cost = np.ones(len(page_id))
    if means.unit != CRAWLS:
        cost = alone(allocated(stored, host_id, typical_cost(means.unit), means.most))
    delay = np.where(np.isnan(delays.min_delay_s), means.delay_s, delays.min_delay_s)
    delay = np.fmax(delay, delays.robots_delay_s)
    queue = queues.searchsorted(delays.queue_id)
    own_cap, group_cap = np.full((2, len(hosts)), np.inf)
    here = np.flatnonzero(np.isin(caps.host_id, hosts))
    row = hosts.searchsorted(caps.host_id[here])
    own_cap[row] = np.nan_to_num(caps.max_crawl_rate[here], nan=np.inf)
    group_cap[row] = np.nan_to_num(caps.group_max_crawl_rate[here], nan=np.inf)
    a_day = np.full(len(queues), np.inf)
    with np.errstate(divide="ignore"):
        np.minimum.at(a_day, queue, np.minimum(DAY_S / delay * is_open[queue], group_cap))
    days = float(lived.max(initial=0.0)) * share
    host = hosts.searchsorted(host_id)
    limit = np.minimum(
        _limit(own_cap * days, host, lived, n_crawls),
        _limit(a_day * days, queue[host], lived, n_crawls),
    )
    # free pages count a little, or any number of their crawls would cost the same
    rate = equal_rates(cost * lived, limit, float(cost @ n_crawls))
    return Uniform(
        interval=1.0 / rate,
        n_crawls=float(rate @ lived),
        spent=float(np.where(is_free(stored), 0.0, cost) @ n_crawls),
        n_cut=int(np.count_nonzero(rate < rate.max(initial=0.0) * (1.0 - 1e-9))),
    )


def _limit(most: Floats, group: Ints, lived: Floats, n_crawls: Ints) -> Floats:
    """Return (N,) rates of pages at which groups have `most` crawls, or as many as they had."""
    n, days = (np.bincount(group, each, len(most)) for each in (n_crawls, lived))
    return (np.maximum(most, n) / np.maximum(days, LEAST_DAYS))[group]
