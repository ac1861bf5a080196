"""K19's Algorithm 4, simulated: crawl for a day, learn the change rates, reallocate bandwidth.

Crawls have exact instants within a day. Because changes are Poisson, a random draw at the crawl
decides whether a page changed since the last crawl. No result depends on the length of a day.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from recrawl_lab.experiments.k19_corpus import EQUATION_10, Corpus
from recrawl_lab.experiments.runs import gather_history
from recrawl_lab.worlds.phases import phase
from service.core.allocation.problem import Allocation
from service.core.estimators.gamma import CompleteObservations, Gamma
from service.core.prior import fit_gamma_prior
from service.model.arrays import Bools, Floats, Ints

START = 1.0
"""K19's prior change rate of a page before its first crawl, 1/day."""


class CrawlDay(NamedTuple):
    """(K,) crawls of one day, by page and then by time."""

    page: Ints
    interval: Floats
    """Time since the page's previous crawl, days."""
    changed: Bools

    def pick(self, which: Bools) -> "CrawlDay":
        """Return some of the crawls."""
        return CrawlDay(self.page[which], self.interval[which], self.changed[which])


class Learner(Protocol):
    """An estimator of change rates from the crawls of pages without complete observations."""

    def learn(self, crawled: CrawlDay) -> None:
        """Update the estimates by a day's crawls."""
        ...

    @property
    def change_rate(self) -> Floats:
        """(N,) estimates, 1/day."""
        ...


class Likeliest:
    """K19's estimator: equation 10 over all crawls so far, solved for the pages crawled today."""

    def __init__(self, n_pages: int) -> None:
        self.change_rate = np.full(n_pages, START)
        self._days: list[CrawlDay] = []

    def learn(self, crawled: CrawlDay) -> None:
        """Store the crawls, and update the estimates of their pages."""
        self._days.append(crawled)
        today = np.zeros(len(self.change_rate), np.bool_)
        today[crawled.page] = True
        latest = [day.pick(today[day.page]) for day in self._days]
        page, interval, changed = (np.concatenate(column) for column in zip(*latest, strict=True))
        row = np.cumsum(today) - 1
        history = gather_history(row[page], interval, changed, int(today.sum()))
        self.change_rate[today] = EQUATION_10.change_rate(history)


class Posterior:
    """The service's default: Gamma, with its prior fitted to all pages after each day."""

    def __init__(self, n_pages: int) -> None:
        self._gamma = self._start = Gamma()
        self._state = self._gamma.init(n_pages)

    def learn(self, crawled: CrawlDay) -> None:
        """Update each page by its crawls one after the other, then fit the prior."""
        turn = np.arange(len(crawled.page)) - np.searchsorted(crawled.page, crawled.page)
        for now in range(int(turn.max(initial=-1)) + 1):
            page, interval, changed = crawled.pick(turn == now)
            before = self._gamma.State(*(column[page] for column in self._state))
            for column, new in zip(
                self._state, self._gamma.update(before, interval, changed), strict=True
            ):
                column[page] = new
        self._gamma = replace(
            self._start, prior=fit_gamma_prior(*self._start.evidence(self._state))
        )

    @property
    def change_rate(self) -> Floats:
        """(N,) posterior means, 1/day."""
        return self._gamma.change_rate(self._state)


@dataclass(frozen=True, slots=True)
class Policy:
    """An estimator, an allocation, and a rule for the instants of crawls within a day."""

    name: str
    allocate: Callable[..., Allocation]
    learner: Callable[[int], Learner] = Likeliest
    """Function from the number of pages to an estimator."""
    on_time: bool = False
    """True for a crawl of a page each 1/rate days, False for random crawls, as in K19."""
    knows_complete: bool = True
    """True for a policy that counts announced changes of complete pages and crawls on pings."""


class Day(NamedTuple):
    """A policy's allocation for the next day."""

    allocation: Allocation
    n_crawls: int
    """Number of crawls on the clock during the day that ended."""


def learned(policy: Policy, pages: Corpus, n_days: int, rng: np.random.Generator) -> Iterator[Day]:
    """Play a policy without known change rates; yield the allocation after each day."""
    n_pages = len(pages.importance)
    complete = pages.complete & policy.knows_complete
    learner = policy.learner(n_pages)
    counts = CompleteObservations()
    counted = counts.init(int(complete.sum()))
    clock = _Clock(n_pages, on_time=policy.on_time)
    believed = np.full(n_pages, START)
    allocation = policy.allocate(pages.importance, believed, complete, pages.bandwidth)
    for day in range(n_days):
        page, interval = clock.play(np.where(complete, 0.0, allocation.crawl_rate), day, rng)
        changed = rng.random(len(page)) < -np.expm1(-pages.change_rate[page] * interval)
        learner.learn(CrawlDay(page, interval, changed))
        announced = rng.poisson(pages.change_rate[complete]) > 0
        counted = counts.update(counted, 1.0, announced)
        believed = learner.change_rate.copy()
        believed[complete] = counts.change_rate(counted)
        allocation = policy.allocate(pages.importance, believed, complete, pages.bandwidth)
        yield Day(allocation, len(page))


@dataclass(slots=True)
class _Clock:
    """Last crawl of each page, and the position of the first crawl in its interval."""

    n_pages: int
    on_time: bool
    last: Floats = field(init=False)
    gap: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.last = np.zeros(self.n_pages)
        self.gap = phase(np.arange(self.n_pages))

    def play(self, crawl_rate: Floats, day: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Crawl for a day; return page and days since its previous crawl, ordered by page."""
        if self.on_time:
            wait = np.full(self.n_pages, np.inf)
            np.divide(self.gap, crawl_rate, out=wait, where=crawl_rate > 0)
            due = np.maximum(self.last + wait, day)
            n_crawls = np.ceil(np.maximum(day + 1 - due, 0.0) * crawl_rate).astype(np.int64)
        else:
            n_crawls = rng.poisson(crawl_rate)
        page = np.repeat(np.arange(self.n_pages), n_crawls)
        first = np.cumsum(n_crawls) - n_crawls
        turn = np.arange(len(page)) - first[page]
        if self.on_time:
            at = due[page] + turn / crawl_rate[page]
        else:
            at = day + rng.random(len(page))
            at = at[np.lexsort((at, page))]
        before = np.where(turn == 0, self.last[page], np.append(0.0, at[:-1]))
        crawled = n_crawls > 0
        self.last[crawled] = at[(first + n_crawls - 1)[crawled]]
        self.gap[crawled] = 1.0
        return page, np.maximum(at - before, np.finfo(float).tiny)
