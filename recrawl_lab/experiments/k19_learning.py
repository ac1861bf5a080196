"""K19's Algorithm 4, played: crawl for a day, learn the change rates, divide the bandwidth anew.

Crawls have exact instants within a day. Since changes are Poisson, whether a page changed between
two crawls is drawn when it is crawled; nothing depends on how long a day is cut.
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
"""Changes a day that K19 believes of a page before its first crawl."""


class CrawlDay(NamedTuple):
    """(K,) crawls of one day, page after page and oldest first."""

    page: Ints
    interval: Floats
    """Days since the page's previous crawl."""
    changed: Bools

    def pick(self, which: Bools) -> "CrawlDay":
        """Return some of the crawls."""
        return CrawlDay(self.page[which], self.interval[which], self.changed[which])


class Learner(Protocol):
    """Learns from the crawls of pages without complete observations."""

    def learn(self, crawled: CrawlDay) -> None:
        """Take a day's crawls."""
        ...

    @property
    def change_rate(self) -> Floats:
        """(N,) estimates, 1/day."""
        ...


class Likeliest:
    """K19's: equation 10 over all crawls so far. Only pages crawled today are looked at again."""

    def __init__(self, n_pages: int) -> None:
        self.change_rate = np.full(n_pages, START)
        self._days: list[CrawlDay] = []

    def learn(self, crawled: CrawlDay) -> None:
        """Keep the crawls, and estimate anew the pages that they are of."""
        self._days.append(crawled)
        today = np.zeros(len(self.change_rate), np.bool_)
        today[crawled.page] = True
        latest = [day.pick(today[day.page]) for day in self._days]
        page, interval, changed = (np.concatenate(column) for column in zip(*latest, strict=True))
        row = np.cumsum(today) - 1
        history = gather_history(row[page], interval, changed, int(today.sum()))
        self.change_rate[today] = EQUATION_10.change_rate(history)


class Posterior:
    """The service's default: Gamma, its prior fitted to all pages after each day."""

    def __init__(self, n_pages: int) -> None:
        self._gamma = self._start = Gamma()
        self._state = self._gamma.init(n_pages)

    def learn(self, crawled: CrawlDay) -> None:
        """Update page by page, pages crawled often turn by turn; then fit the prior."""
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
    """What is learned, how the bandwidth is divided, and when within a day crawls happen."""

    name: str
    allocate: Callable[..., Allocation]
    learner: Callable[[int], Learner] = Likeliest
    """Made for so many pages."""
    on_time: bool = False
    """Each 1/rate days; else at random, as in K19."""
    knows_complete: bool = True
    """Counts the announced changes of complete pages, and crawls them on pings."""


class Day(NamedTuple):
    """How a policy goes into the next day."""

    allocation: Allocation
    n_crawls: int
    """On the clock, of the day that ended."""


def learned(policy: Policy, pages: Corpus, n_days: int, rng: np.random.Generator) -> Iterator[Day]:
    """Play a policy that knows no change rate; yields the allocation after each day."""
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
        announced = rng.poisson(pages.change_rate[complete]).astype(np.float64)
        counted = counts.update(counted, 1.0, announced)
        believed = learner.change_rate.copy()
        believed[complete] = counts.change_rate(counted)
        allocation = policy.allocate(pages.importance, believed, complete, pages.bandwidth)
        yield Day(allocation, len(page))


@dataclass(slots=True)
class _Clock:
    """When pages were crawled last, and how far into the next interval the first crawl comes."""

    n_pages: int
    on_time: bool
    last: Floats = field(init=False)
    gap: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.last = np.zeros(self.n_pages)
        self.gap = phase(np.arange(self.n_pages))

    def play(self, crawl_rate: Floats, day: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Crawl for a day: page and days since its previous crawl, page after page."""
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
