"""What Recrawl is measured against: crawl times of policies that spend a given bandwidth.

Both learn of a new page at once and of a page's end by crawling it in vain, as a fleet does; they
crawl on time with phases spread evenly. The bandwidth is constant and divided among the pages
that are believed to exist.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from service.arrays import Bools, Floats, Ints
from service.core import phase
from service.core.allocation import allocate_harmonic
from service.core.timing import CREDIT_TOLERANCE
from service.sim.staleness import Crawls, merged
from service.sim.world import World

SPAN_DAYS = 1.0
"""Where pages come and go, the bandwidth is divided anew so often."""

CLOSE = 0.001
"""Share of the crawls by which policies that are compared may differ."""
MATCHING_ROUNDS = 4


class Share(NamedTuple):
    """(N,) what pages get in a span: crawls on the clock, and the part of pings crawled."""

    n_crawls: Floats
    crawl_probability: Floats


Divide = Callable[[Floats, float], Share]
"""From the days that each page takes part in a span, and the crawls there are, to the shares."""


Policy = Callable[[World, float], Crawls]
"""Crawls of a world within a bandwidth, crawls a day."""


def uniform(world: World, bandwidth: float) -> Crawls:
    """Crawl every page every n/R days, n pages known and R = bandwidth."""

    def divide(life: Floats, n_crawls: float) -> Share:
        return Share(n_crawls * life / life.sum(), np.zeros(len(world)))

    return _played(world, bandwidth, divide)


def hindsight(world: World, bandwidth: float) -> Crawls:
    """LambdaCrawl that knows the true change rates from the start; pings crawled by credit.

    A page that takes part for L days of a span costs L times as much and uses L times the
    bandwidth: importance, change rate and crawl rate all scale with L.
    """

    def divide(life: Floats, n_crawls: float) -> Share:
        importance, change_rate = world.importance * life, world.change_rate * life
        allocation = allocate_harmonic(importance, change_rate, world.announced, n_crawls)
        return Share(allocation.crawl_rate, allocation.crawl_probability)

    return _played(world, bandwidth, divide)


def matched(policy: Policy, world: World, n_crawls: int) -> Crawls:
    """Play a policy with the bandwidth at which it crawls as nearly `n_crawls` times as can be.

    Pages that end are crawled in vain and others not at all, so bandwidth and crawls differ.
    """
    bandwidth = n_crawls / world.days
    played: list[Crawls] = []
    while len(played) < MATCHING_ROUNDS:
        crawls = policy(world, bandwidth)
        played.append(crawls)
        if abs(len(crawls.at) - n_crawls) <= CLOSE * n_crawls:
            break
        bandwidth *= n_crawls / max(len(crawls.at), 1)
    return min(played, key=lambda crawls: abs(len(crawls.at) - n_crawls))


def _played(world: World, bandwidth: float, divide: Divide) -> Crawls:
    """Turn shares into crawls on time: a page is crawled whenever its shares add up to one."""
    credit = phase(np.arange(len(world)))
    probability = np.zeros(len(world.changed_at))
    known_until = np.full(len(world), world.days)
    done = []
    for start, end in _spans(world):
        begin = np.maximum(start, world.created)
        life = np.maximum(np.minimum(end, known_until) - begin, 0.0)
        if not life.any():
            continue
        share = divide(life, bandwidth * (end - start))
        total = credit + share.n_crawls
        n_due = np.floor(total).astype(np.int64)
        page = np.repeat(np.arange(len(world)), n_due)
        turn = 1 + np.arange(len(page)) - np.repeat(np.cumsum(n_due) - n_due, n_due)
        at = begin[page] + (turn - credit[page]) / share.n_crawls[page] * life[page]
        credit = total - n_due
        in_vain = world.gone(page, at)
        known_until[page[in_vain]] = end
        again = in_vain & (turn > 1)
        again[again] = world.gone(page, at - life[page] / share.n_crawls[page])[again]
        done.append(Crawls(page[~again], at[~again]))
        within = (world.changed_at > start) & (world.changed_at <= end)
        probability[within] = share.crawl_probability[world.changed_page[within]]
    crawled = world.announced[world.changed_page] & _spends(world.first, probability)
    on_ping = Crawls(world.changed_page[crawled], world.changed_at[crawled])
    return merged(*done, on_ping)


def _spans(world: World) -> Iterator[tuple[float, float]]:
    """Split the time into days if pages come or go."""
    constant = not world.created.any() and (world.ended == world.days).all()
    n_spans = 1 if constant else int(np.ceil(world.days / SPAN_DAYS))
    edges = np.linspace(0.0, world.days, n_spans + 1).tolist()
    yield from itertools.pairwise(edges)


def _spends(first: Ints, probability: Floats) -> Bools:
    """Tell at which pings of each page the accumulated probability buys a crawl."""
    total = np.concatenate(([0.0], np.cumsum(probability)))
    before = np.repeat(total[first[:-1]], np.diff(first))
    whole = np.floor(np.stack((total[1:], total[:-1])) - before + CREDIT_TOLERANCE)
    return np.asarray(whole[0] > whole[1])
