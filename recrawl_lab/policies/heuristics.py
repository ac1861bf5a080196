"""Crawling by an interval per page, as most crawlers do: the queue, exact in time.

A heuristic says after each crawl when the page is due again. Crawls are done one at a time, each
taking 1/bandwidth days, at the instant a page falls due or as soon as the ones before it are done:
the bandwidth is never exceeded, and what no page is due for is lost. This favours the heuristics:
real crawlers fetch in batches, minutes (StormCrawler) or days (Nutch) after pages fell due.

Pages are known from their creation on; that first crawl finds them and is not counted. Those there
from the start fall due evenly spread over their first interval. A page found gone is dropped.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np

from recrawl_lab.replay.staleness import Crawls, merged
from recrawl_lab.worlds.phases import phase
from recrawl_lab.worlds.versions import Versions
from recrawl_lab.worlds.world import World
from service.model.arrays import Bools, Floats, Ints

State = tuple[Ints, ...]
"""(N,) columns that a heuristic keeps of pages."""

FIRST_REACH = 1 / 24
REACH_GROWTH = 1.5
"""How far ahead crawls are computed at once, days: ever farther until a page is due twice."""


class Segment(NamedTuple):
    """Crawls chosen together: the most important of the pages due within so many days."""

    days: float
    review: Callable[[State, Floats, float], tuple[State, Floats]]
    """At its start: from (K,) states and due instants and the time to new ones."""


class Heuristic(Protocol):
    """When pages are due; instants and intervals in days."""

    @property
    def segment(self) -> Segment | None:
        """How crawls are chosen together; None: one at a time, always the most overdue."""

    def discover(self, at: Floats) -> tuple[State, Floats]:
        """Return (N,) new pages; gives their state and when they are due."""

    def crawl(self, state: State, at: Floats, changed: Bools) -> tuple[State, Floats]:
        """Take in (K,) crawls; gives the state and when the pages are due again."""


def play(heuristic: Heuristic, world: World, bandwidth: float) -> Crawls:
    """Crawl a world as a heuristic says, at most `bandwidth` crawls a day.

    The next crawls are computed together, up to the first page that falls due again among them,
    or for a segment, in which no page is crawled twice; a few array operations serve them all.
    """
    versions, segment = Versions(world), heuristic.segment
    last_version = np.zeros(len(world), np.int64)
    state, due = heuristic.discover(world.created)
    from_start = world.created == 0
    due[from_start] *= 1.0 - phase(np.flatnonzero(from_start))
    done, now, reach = [Crawls.none()], 0.0, segment.days if segment else FIRST_REACH
    while bandwidth > 0:
        if segment:
            waiting = np.flatnonzero((world.created <= now) & (due < np.inf))
            part, due[waiting] = segment.review(_rows(state, waiting), due[waiting], now)
            _put(state, waiting, part)
        start = max(now, float(due.min(initial=np.inf)))
        if start >= world.days:
            break
        page = np.flatnonzero(due < start + reach)
        if segment:
            page = _most_important(page, due, world.importance, np.ceil(reach * bandwidth))
        page = page[np.argsort(due[page], kind="stable")]
        at = _served(np.maximum(due[page], start), 1.0 / bandwidth)
        version = versions.at(page, at)
        part, again = heuristic.crawl(_rows(state, page), at, version > last_version[page])
        again = np.where(world.gone(page, at), np.inf, again)
        n, end = len(page), start + reach if segment else now
        if not segment:
            n = int(np.searchsorted(due[page], again.min()))
            reach = REACH_GROWTH * reach if n == len(page) else float(again.min()) - start
        settled = page[:n]
        _put(state, settled, (column[:n] for column in part))
        last_version[settled], due[settled] = version[:n], again[:n]
        done.append(Crawls(settled, at[:n]))
        now = max(float(at[n - 1]) + 1.0 / bandwidth, end)
    crawls = merged(*done)
    inside = crawls.at < world.days
    return Crawls(crawls.page[inside], crawls.at[inside])


def _rows(state: State, page: Ints) -> State:
    return tuple(column[page] for column in state)


def _put(state: State, page: Ints, part: Iterable[Ints]) -> None:
    for column, values in zip(state, part, strict=True):
        column[page] = values


def _most_important(page: Ints, due: Floats, importance: Floats, n: float) -> Ints:
    """Keep `n` pages at most, of equals the most overdue."""
    return page[np.lexsort((due[page], -importance[page]))[: int(n)]]


def _served(ready: Floats, step: float) -> Floats:
    """Serve one after the other, none before it is ready: at_k = max(ready_k, at_(k-1) + step).

    >>> _served(np.array([0.0, 0.5, 0.5, 9.0]), 1.0)
    array([0., 1., 2., 9.])
    """
    turn = step * np.arange(len(ready))
    return np.asarray(np.maximum.accumulate(ready - turn) + turn)
