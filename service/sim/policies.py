"""What Recrawl is measured against: crawl times of policies that spend a given bandwidth.

Both know when pages come and go, and crawl on time with phases spread evenly. The bandwidth is
constant; whenever pages come or go it is divided anew.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from service.core import phase
from service.core.allocation import allocate_harmonic
from service.core.timing import CREDIT_TOLERANCE
from service.domain import Bools, Floats, Ints
from service.sim.staleness import Crawls
from service.sim.world import World

SPAN_DAYS = 1.0
"""Births and deaths within one such span share one division of the bandwidth."""


class Share(NamedTuple):
    """(N,) what pages get in a span: crawls on the clock, and the part of pings crawled."""

    n_crawls: Floats
    crawl_probability: Floats


Divide = Callable[[Floats, float], Share]
"""From the days that each page exists in a span, and the crawls there are, to the shares."""


def uniform(world: World, bandwidth: float) -> Crawls:
    """Crawl every page every n/R days, n pages existing and R = bandwidth."""

    def divide(life: Floats, n_crawls: float) -> Share:
        return Share(n_crawls * life / life.sum(), np.zeros(len(world)))

    return _played(world, bandwidth, divide)


def hindsight(world: World, bandwidth: float) -> Crawls:
    """LambdaCrawl that knows the true change rates from the start; pings crawled by credit.

    A page that exists for a part L of a span costs L times as much and uses L times the
    bandwidth: importance, change rate and crawl rate all scale with L.
    """

    def divide(life: Floats, n_crawls: float) -> Share:
        importance, change_rate = world.importance * life, world.change_rate * life
        allocation = allocate_harmonic(importance, change_rate, world.announced, n_crawls)
        return Share(allocation.crawl_rate, allocation.crawl_probability)

    return _played(world, bandwidth, divide)


def _played(world: World, bandwidth: float, divide: Divide) -> Crawls:
    """Turn shares into crawls on time: a page is crawled whenever its shares add up to one."""
    credit = phase(np.arange(len(world)))
    probability = np.zeros(len(world.changed_at))
    pages, times = [], []
    for start, end in _spans(world):
        begin = np.maximum(start, world.created)
        life = np.maximum(np.minimum(end, world.ended) - begin, 0.0)
        if not life.any():
            continue
        share = divide(life, bandwidth * (end - start))
        total = credit + share.n_crawls
        n_due = np.floor(total).astype(np.int64)
        page = np.repeat(np.arange(len(world)), n_due)
        turn = 1 + np.arange(len(page)) - np.repeat(np.cumsum(n_due) - n_due, n_due)
        part = (turn - credit[page]) / share.n_crawls[page]
        pages.append(page)
        times.append(begin[page] + part * life[page])
        credit = total - n_due
        within = (world.changed_at > start) & (world.changed_at <= end)
        probability[within] = share.crawl_probability[world.changed_page[within]]
    crawled = world.announced[world.changed_page] & _spends(world.first, probability)
    return Crawls(
        np.concatenate((*pages, world.changed_page[crawled])),
        np.concatenate((*times, world.changed_at[crawled])),
    )


def _spans(world: World) -> Iterator[tuple[float, float]]:
    """Split the time where pages come or go."""
    moves = np.concatenate((world.created, world.ended, [world.days]))
    edges = np.unique(np.minimum(np.ceil(moves / SPAN_DAYS) * SPAN_DAYS, world.days))
    edges = np.unique(np.concatenate(([0.0], edges)))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _spends(first: Ints, probability: Floats) -> Bools:
    """Tell at which pings of each page the accumulated probability buys a crawl."""
    total = np.concatenate(([0.0], np.cumsum(probability)))
    before = np.repeat(total[first[:-1]], np.diff(first))
    whole = np.floor(np.stack((total[1:], total[:-1])) - before + CREDIT_TOLERANCE)
    return np.asarray(whole[0] > whole[1])
