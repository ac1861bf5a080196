"""Reference policies for Recrawl: crawl times of policies that spend a constant bandwidth.

All policies learn of a new page at once. They learn of a page's end by a failed crawl, as a fleet
does. They crawl on time with phases spread evenly. The bandwidth is divided among the pages that
the policy counts as existing.
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
from service.core.waits import CREDIT_TOLERANCE
from service.model.arrays import Bools, Floats, Ints
from service.model.urls import n_buckets, url_groups

SPAN_DAYS = 1.0
"""Time between divisions of the bandwidth, days, if pages come and go or a policy learns."""

CLOSE = 0.001
"""Maximum difference in crawls of two compared policies, share."""
MATCHING_ROUNDS = 4


class SpanCrawls(NamedTuple):
    """(N,) each page's crawls on the clock in a span, and the probability of crawls on pings."""

    n_crawls: Floats
    crawl_probability: Floats


Divide = Callable[[float, Floats, float], SpanCrawls]
"""Function from the start of a span, each page's days in the span, and the crawls, to shares."""

Policy = Callable[[World, float], Crawls]
"""Function from a world and a bandwidth, crawls a day, to crawls."""


def uniform(world: World, bandwidth: float) -> Crawls:
    """Crawl every page every n/R days, with n known pages and R = bandwidth."""

    def divide(_start: float, life: Floats, n_crawls: float) -> SpanCrawls:
        return SpanCrawls(n_crawls * life / life.sum(), np.zeros(len(world)))

    return _played(world, bandwidth, divide)


def hindsight(world: World, bandwidth: float) -> Crawls:
    """Crawl by LambdaCrawl with the true mean change rates from the start, and pings by credit.

    The policy knows nothing of when changes come, and crawls at even intervals. Policies that learn
    timing may therefore beat it.
    """

    def divide(_start: float, life: Floats, n_crawls: float) -> SpanCrawls:
        return _optimum(world, world.change_rate, life, n_crawls)

    return _played(world, bandwidth, divide)


def with_true_rates(world: World, bandwidth: float, gamma: Gamma) -> Crawls:
    """Crawl by LambdaCrawl with a report of every change as soon as it is made, none in advance.

    Each day's estimate is that of an epoch whose pages are observed continuously. The policy
    therefore shows the cost of finding changes by crawling; the further gain of `hindsight` is
    foresight. Pings are crawled by credit. While the ping rates are unknown, that may take more
    crawls than the bandwidth.

    Parameters
    ----------
    gamma
        The estimator, before its prior is fitted to the changes.
    """
    history = _History(world, gamma)

    def divide(start: float, life: Floats, n_crawls: float) -> SpanCrawls:
        return _optimum(world, history.believed(start), life, n_crawls)

    return _played(world, bandwidth, divide, learns=True)


class _History:
    """Changes of a world up to the present, without later ones."""

    def __init__(self, world: World, gamma: Gamma) -> None:
        self._world, self._gamma = world, gamma
        self._url_group = url_groups(world.url)

    def believed(self, now: float) -> Floats:
        """Return (N,) estimated change rates from the changes up to now."""
        state = self._state(now)
        here = (self._world.created <= now) & (self._world.ended > now)
        evidence = GammaState(state.changes[here], state.days[here])
        fitted = self._gamma.fit(evidence, self._url_group[here], n_buckets(here.size))
        return fitted.of_url_groups(self._url_group).change_rate(state)

    def _state(self, now: float) -> GammaState:
        """Return the state with weight 2^(-age/half-life) of changes and of days."""
        world, half_life = self._world, self._gamma.half_life_days
        past = world.changed_at <= now
        age = np.maximum(np.minimum(now, world.ended) - world.created, 0.0)
        weight = np.ones(int(past.sum()))
        if half_life is not None:
            scale = half_life / np.log(2.0)
            age = -scale * np.expm1(-age / scale)
            weight = np.exp((world.changed_at[past] - now) / scale)
        return GammaState(np.bincount(world.changed_page[past], weight, len(world)), age)


def _optimum(world: World, change_rate: Floats, life: Floats, n_crawls: float) -> SpanCrawls:
    """Return the optimal shares of pages that exist for `life` days.

    A page that exists for L days of a span costs L times as much and uses L times the
    bandwidth: importance, change rate and crawl rate all scale with L.
    """
    importance, changes = world.importance * life, change_rate * life
    allocation = allocate_harmonic(importance, changes, world.announced, n_crawls)
    return SpanCrawls(allocation.crawl_rate, allocation.crawl_probability)


def matched(policy: Policy, world: World, n_crawls: int) -> Crawls:
    """Play a policy with the bandwidth at which its crawls come closest to `n_crawls`.

    Bandwidth and crawls differ: a deleted page is crawled once more, and bandwidth may be unused.
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
    """Return crawls on time: a page is crawled whenever its shares reach the next integer."""
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
    """Yield the days as spans if pages come or go, or the policy learns; else one span."""
    constant = not learns and not world.created.any() and (world.ended == world.days).all()
    n_spans = 1 if constant else int(np.ceil(world.days / SPAN_DAYS))
    edges = np.linspace(0.0, world.days, n_spans + 1).tolist()
    yield from itertools.pairwise(edges)


def _spends(first: Ints, probability: Floats) -> Bools:
    """Return a mask of the pings at which a page's accumulated probability pays for a crawl."""
    total = np.concatenate(([0.0], np.cumsum(probability)))
    before = np.repeat(total[first[:-1]], np.diff(first))
    whole = np.floor(np.stack((total[1:], total[:-1])) - before + CREDIT_TOLERANCE)
    return np.asarray(whole[0] > whole[1])
