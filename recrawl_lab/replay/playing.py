"""How a fleet plays a world step by step, whether it asks a server or the use cases themselves."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from recrawl_lab.replay.staleness import Crawls, merged
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World
from service.model.arrays import Floats, Ints

CARRIED_DAYS = 7.0
"""Bandwidth of so many days may be spent earlier or later: what falls due comes in clusters, and
crawlers that keep to a budget do so by the week."""


class Due(NamedTuple):
    """(N,) pages to crawl, as the schedule says; instants are days since the start."""

    page: Ints
    at: Floats
    crawl_rate: Floats
    """0 where only a ping has asked for the crawl."""


class Crawlers(Protocol):
    """A fleet that follows Recrawl; pages are numbered as in the world."""

    world: World

    def new_epoch(self) -> object:
        """Run an epoch, now, and put its schedule in force."""

    def due(self, before: float) -> Due:
        """Read from the schedule what is due before a day."""

    def discover(self, pages: Ints) -> None:
        """Register pages and report the crawl that found them, at their creation."""

    def announce(self, changes: Crawls) -> Crawls:
        """Pass change notices on; gives the crawls that Recrawl asks for, at their instants."""

    def crawl(self, crawls: Crawls) -> Crawls:
        """Crawl in the order of time and report; gives the crawls that took place."""


def crawl(
    fleet: Crawlers, clock: Clock, notices: Crawls, bandwidth: float, step: float
) -> Iterator[tuple[float, Crawls]]:
    """Play the world step by step; yields the day reached and the crawls since the last one.

    Between two epochs the fleet follows one schedule, so that all crawls of a step are known at
    its start. The first crawl of each page, which discovers it, is not among those given.

    Parameters
    ----------
    clock
        The fleet's and Recrawl's.
    notices
        Change notices, by the page and the instant at which Recrawl hears of it.
    bandwidth
        Crawls a day; never ahead of its time by more than `CARRIED_DAYS`, and not at the end.
    step
        Days from one epoch to the next.
    """
    world = fleet.world
    pings = _rows(notices, np.argsort(notices.at, kind="stable"))
    edges = np.minimum(np.arange(np.ceil(world.days / step) + 1) * step, world.days)
    n_pings = np.searchsorted(pings.at, edges, side="right")
    born = np.argsort(world.created, kind="stable")
    n_born = np.searchsorted(world.created[born], edges, side="right")
    fleet.discover(np.sort(born[: n_born[0]]))
    saved = 0.0
    for i, (start, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        clock.advance(start)
        fleet.new_epoch()
        due = fleet.due(end)
        clock.advance(end)
        fleet.discover(np.sort(born[n_born[i] : n_born[i + 1]]))
        requested = fleet.announce(_rows(pings, slice(n_pings[i], n_pings[i + 1])))
        income = bandwidth * (end - start)
        ahead = bandwidth * min(CARRIED_DAYS, world.days - end)
        on_time = choose(due, start, end, saved + income + ahead - len(requested.at))
        crawls = fleet.crawl(merged(on_time, requested))
        saved = min(saved + income - len(crawls.at), bandwidth * CARRIED_DAYS)
        yield end, crawls


def _rows(crawls: Crawls, which: Ints | slice) -> Crawls:
    return Crawls(crawls.page[which], crawls.at[which])


def choose(due: Due, start: float, end: float, allowance: float) -> Crawls:
    """Take what falls due before `end`, each at its instant; if too much, the most overdue.

    A page is due again 1/crawl_rate after each crawl. How overdue it is counts in its own
    intervals; what a ping has asked for comes first.
    """
    first = np.maximum(due.at, start)
    again = np.floor(np.maximum(end - first, 0.0) * due.crawl_rate).astype(np.int64)
    row = np.repeat(np.arange(len(due.page)), again + 1)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(again + 1) - again - 1, again + 1)
    rate = due.crawl_rate[row]
    at = first[row] + np.divide(turn, rate, out=np.zeros(len(row)), where=rate > 0)
    inside = at < end
    row, at, turn = row[inside], at[inside], turn[inside]
    most = max(0, int(allowance))
    if len(row) > most:
        rate = rate[inside]
        overdue = np.where(rate > 0, (end - due.at[row]) * rate - turn, np.inf)
        best = np.argsort(-overdue, kind="stable")[:most]
        row, at = row[best], at[best]
    return Crawls(due.page[row], at)


def announcements(world: World) -> Crawls:
    """Return the changes of announced pages, each told at once."""
    page = world.changed_page
    now = world.announced[page]
    return Crawls(page[now], world.changed_at[now])
