"""The days of host queues with a cap: crawls that each may still begin. Pure.

A UTC day has at most as many crawls of a host queue as its cap. The part of a crawl that a day
leaves is carried into the next day: a cap of 2.5 is five crawls in two days.
"""

from dataclasses import replace

import numpy as np

from service.core.pace import ROUNDING
from service.model.arrays import INSTANT, Floats, Instants, Ints
from service.storage.budget.caps import NO_DAY, CappedDays


def on_day(days: CappedDays, day: int) -> CappedDays:
    """Return the counts as of the start of a day, or during it.

    After a clock that was set back, the counts of the later day stay.

    >>> one = {name: np.array([value]) for name, value in {
    ...     "queue_id": 1, "max_crawl_rate": 2.5, "first_share": 0.5, "day": 7, "n_crawls": 2.0,
    ...     "n_first": 0.0, "carried": 0.0}.items()}
    >>> on_day(CappedDays(**one), 8).carried.tolist()
    [0.5]
    """
    cap = days.max_crawl_rate
    new, over = days.day == NO_DAY, (days.day < day) & (days.day != NO_DAY)
    left = np.maximum(cap + days.carried - days.n_crawls, 0.0)
    idle = cap * np.maximum(day - days.day - 1, 0)
    carried = np.where(over, np.minimum(left + idle, 1.0), days.carried)
    # a cap below one crawl a day begins with a crawl
    carried = np.where(new, np.maximum(1.0 - cap, 0.0), carried)
    return replace(
        days,
        day=np.full(len(days), day),
        n_crawls=np.where(over, 0.0, days.n_crawls),
        n_first=np.where(over, 0.0, days.n_first),
        carried=carried,
    )


def room(days: CappedDays) -> Ints:
    """Return the (N,) crawls that may still begin on the day."""
    left = days.max_crawl_rate + days.carried - days.n_crawls
    return _whole(left)


def first_room(days: CappedDays, first_share: float) -> Ints:
    """Return the (N,) first crawls that may still begin while first crawls have a maximum.

    `first_share` is the share of the caps of host queues that have none of their own.
    """
    share = np.where(np.isnan(days.first_share), first_share, days.first_share)
    return _whole(np.ceil(share * days.max_crawl_rate) - days.n_first)


def after(days: CappedDays, n_crawls: Ints, n_first: Ints) -> CappedDays:
    """Return the counts after crawls."""
    return replace(days, n_crawls=days.n_crawls + n_crawls, n_first=days.n_first + n_first)


def midnight_after(day: Ints) -> Instants:
    """Return the ends of days."""
    return (day + 1).astype("M8[D]").astype(INSTANT)


def _whole(left: Floats) -> Ints:
    # caps may be larger than any number of crawls
    return np.floor(np.clip(left, 0.0, 1e15) + ROUNDING).astype(np.int64)
