"""What Recrawl is measured against: crawl times of policies that spend a given bandwidth.

All learn of a new page at once and of a page's end by crawling it in vain, as a fleet does; they
crawl on time with phases spread evenly. The bandwidth is constant and divided among the pages
that are believed to exist.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from recrawl_lab.replay.staleness import Crawls, merged
from recrawl_lab.worlds.phases import phase
from recrawl_lab.worlds.world import World
from service.core.allocation.harmonic import allocate_harmonic
from service.core.estimators.gamma import Gamma, GammaState
from service.core.timing import CREDIT_TOLERANCE
from service.model.arrays import Bools, Floats, Ints
from service.model.urls import n_buckets, url_groups

SPAN_DAYS = 1.0
"""Where pages come and go, and where a policy learns, the bandwidth is divided anew so often."""

CLOSE = 0.001
"""Share of the crawls by which policies that are compared may differ."""
MATCHING_ROUNDS = 4


class Share(NamedTuple):
    """(N,) what pages get in a span: crawls on the clock, and the part of pings crawled."""

    n_crawls: Floats
    crawl_probability: Floats


Divide = Callable[[float, Floats, float], Share]
"""From the start of a span, the days of it that each page takes part, and the crawls there are, to
the shares."""

Policy = Callable[[World, float], Crawls]
"""Crawls of a world within a bandwidth, crawls a day."""


def uniform(world: World, bandwidth: float) -> Crawls:
    """Crawl every page every n/R days, n pages known and R = bandwidth."""

    def divide(_start: float, life: Floats, n_crawls: float) -> Share:
        return Share(n_crawls * life / life.sum(), np.zeros(len(world)))

    return _played(world, bandwidth, divide)


def hindsight(world: World, bandwidth: float) -> Crawls:
    """LambdaCrawl that knows the true change rates from the start; pings crawled by credit."""

    def divide(_start: float, life: Floats, n_crawls: float) -> Share:
        return _optimum(world, world.change_rate, life, n_crawls)

    return _played(world, bandwidth, divide)


def with_true_rates(world: World, bandwidth: float, gamma: Gamma) -> Crawls:
    """LambdaCrawl that is told of every change as soon as it is made, and never knows one before.

    It believes, day by day, what an epoch believes whose pages were watched without a break, so it
    shows what it costs to find changes by crawling; what `hindsight` gains over it is foresight.
    Pings are crawled by credit: while their rates are not known yet, that may take more crawls than
    there are.

    Parameters
    ----------
    gamma
        The estimator, before its prior is fitted to what was told.
    """
    history = _History(world, gamma)

    def divide(start: float, life: Floats, n_crawls: float) -> Share:
        return _optimum(world, history.believed(start), life, n_crawls)

    return _played(world, bandwidth, divide, learns=True)


class _History:
    """What has been told of the changes of a world."""

    def __init__(self, world: World, gamma: Gamma) -> None:
        self._world, self._gamma = world, gamma
        self._url_group = url_groups(world.url)

    def believed(self, now: float) -> Floats:
        """Estimate (N,) change rates from what was told up to now."""
        state = self._state(now)
        here = (self._world.created <= now) & (self._world.ended > now)
        evidence = GammaState(state.changes[here], state.days[here])
        fitted = self._gamma.fit(evidence, self._url_group[here], n_buckets(here.size))
        return fitted.of_url_groups(self._url_group).change_rate(state)

    def _state(self, now: float) -> GammaState:
        """Weigh what was told by its age: 2^(-age/half-life), of changes and of days alike."""
        world, half_life = self._world, self._gamma.half_life_days
        past = world.changed_at <= now
        age = np.maximum(np.minimum(now, world.ended) - world.created, 0.0)
        weight = np.ones(int(past.sum()))
        if half_life is not None:
            scale = half_life / np.log(2.0)
            age = -scale * np.expm1(-age / scale)
            weight = np.exp((world.changed_at[past] - now) / scale)
        return GammaState(np.bincount(world.changed_page[past], weight, len(world)), age)


def _optimum(world: World, change_rate: Floats, life: Floats, n_crawls: float) -> Share:
    """Share crawls out to pages that take part for `life` days.

    A page that takes part for L days of a span costs L times as much and uses L times the
    bandwidth: importance, change rate and crawl rate all scale with L.
    """
    importance, changes = world.importance * life, change_rate * life
    allocation = allocate_harmonic(importance, changes, world.announced, n_crawls)
    return Share(allocation.crawl_rate, allocation.crawl_probability)


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


def _played(world: World, bandwidth: float, divide: Divide, *, learns: bool = False) -> Crawls:
    """Turn shares into crawls on time: a page is crawled whenever its shares add up to one."""
    credit = phase(np.arange(len(world)))
    probability = np.zeros(len(world.changed_at))
    known_until = np.full(len(world), world.days)
    done = []
    for start, end in _spans(world, learns=learns):
        begin = np.maximum(start, world.created)
        life = np.maximum(np.minimum(end, known_until) - begin, 0.0)
        if not life.any():
            continue
        share = divide(start, life, bandwidth * (end - start))
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


def _spans(world: World, *, learns: bool) -> Iterator[tuple[float, float]]:
    """Split the time into days if pages come or go, or the policy learns."""
    constant = not learns and not world.created.any() and (world.ended == world.days).all()
    n_spans = 1 if constant else int(np.ceil(world.days / SPAN_DAYS))
    edges = np.linspace(0.0, world.days, n_spans + 1).tolist()
    yield from itertools.pairwise(edges)


def _spends(first: Ints, probability: Floats) -> Bools:
    """Return at which pings of each page the accumulated probability buys a crawl."""
    total = np.concatenate(([0.0], np.cumsum(probability)))
    before = np.repeat(total[first[:-1]], np.diff(first))
    whole = np.floor(np.stack((total[1:], total[:-1])) - before + CREDIT_TOLERANCE)
    return np.asarray(whole[0] > whole[1])
