"""Crawls by one interval per page, as in most crawlers: a queue with exact instants.

After each crawl, a heuristic returns when the page is due again. Crawls run one at a time and take
1/bandwidth days each. A crawl begins when its page falls due, or when the earlier crawls end. The
bandwidth is never exceeded, and bandwidth is lost while no page is due. This favours the
heuristics: real crawlers fetch in batches, minutes (StormCrawler) or days (Nutch) after pages fall
due.

Pages are known from their creation on; that first crawl finds them and is not counted. Pages that
exist at the start fall due evenly spread over their first interval. A page found gone is dropped.
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
"""(N,) columns of a heuristic's state of pages."""

FIRST_REACH = 1 / 24
REACH_GROWTH = 1.5
"""Growth factor of the number of days computed at once, until a page is due twice in them."""


class Segment(NamedTuple):
    """Crawls chosen together: the most important of the pages due within `days` days."""

    days: float
    review: Callable[[State, Floats, float], tuple[State, Floats]]
    """Function called at its start: from (K,) states, due instants and the time to new ones."""


class Heuristic(Protocol):
    """A rule for the due times of pages; instants and intervals are in days."""

    @property
    def segment(self) -> Segment | None:
        """Rule for crawls chosen together; None for one at a time, the most overdue page first."""

    def discover(self, at: Floats) -> tuple[State, Floats]:
        """Return the state of (N,) new pages, and the instants at which they are due."""

    def crawl(self, state: State, at: Floats, changed: Bools) -> tuple[State, Floats]:
        """Return the state after (K,) crawls, and the instants at which the pages are due again."""


def play(heuristic: Heuristic, world: World, bandwidth: float) -> Crawls:
    """Return the crawls of a world by a heuristic, at most `bandwidth` crawls a day.

    One computation covers the next crawls up to the first page that falls due again among them.
    With `heuristic.segment`, it covers a segment in which no page is crawled twice. A few array
    operations serve all of these crawls.
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
    """Return at most `n` pages by importance; among equals the most overdue come first."""
    return page[np.lexsort((due[page], -importance[page]))[: int(n)]]


def _served(ready: Floats, step: float) -> Floats:
    """Return instants of service in turn, none early: at_k = max(ready_k, at_(k-1) + step).

    >>> _served(np.array([0.0, 0.5, 0.5, 9.0]), 1.0)
    array([0., 1., 2., 9.])
    """
    turn = step * np.arange(len(ready))
    return np.asarray(np.maximum.accumulate(ready - turn) + turn)
