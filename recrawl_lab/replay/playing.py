"""Steps of a fleet that plays a world, through a server or through the use cases."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from recrawl_lab.replay.staleness import Crawls, merged
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World
from service.model.arrays import Floats, Ints

CARRIED_DAYS = 7.0
"""Maximum time by which bandwidth is spent earlier or later, days.

Pages fall due in clusters, and real crawlers with a budget balance it over a week.
"""


class Due(NamedTuple):
    """(N,) pages to crawl according to the schedule; instants are days since the start."""

    page: Ints
    at: Floats
    crawl_rate: Floats
    """Rate of further crawls within the step, 1/day; 0 if only a ping requests the crawl."""
    late_since: Floats | None = None
    """Instants from which lateness counts: of a retry, before `at`; None: `at`."""


class Crawlers(Protocol):
    """A fleet that follows Recrawl; pages are numbered as in the world."""

    world: World

    def new_epoch(self) -> object:
        """Run an epoch now, and publish its schedule."""

    def step(self, usual: float) -> float:
        """Return the days to the next epoch, fewer than usual where crawls follow the hours."""

    def due(self, before: float) -> Due:
        """Return the pages in the schedule that are due before a day."""

    def discover(self, pages: Ints) -> None:
        """Register pages and report their first crawl, at the instant of their creation."""

    def announce(self, changes: Crawls) -> Crawls:
        """Send change notices; return the crawls that Recrawl requests, with their instants."""

    def crawl(self, crawls: Crawls) -> Crawls:
        """Crawl in the order of time and report; return the crawls that took place."""


def crawl(
    fleet: Crawlers, clock: Clock, notices: Crawls, bandwidth: float, step: float
) -> Iterator[tuple[float, Crawls]]:
    """Play the world step by step; yield the day reached and the crawls since the last one.

    Between two epochs the fleet follows one schedule, so that all crawls of a step are known at
    its start. The first crawl of each page, which discovers it, is not included.

    Parameters
    ----------
    clock
        Clock of the fleet and of Recrawl.
    notices
        Change notices, by page and instant of arrival.
    bandwidth
        Crawls a day, at most `CARRIED_DAYS` ahead of its time or behind it.
    step
        Time from one epoch to the next, days.
    """
    world = fleet.world
    pings = _rows(notices, np.argsort(notices.at, kind="stable"))
    born = np.argsort(world.created, kind="stable")
    created = world.created[born]
    saved, ahead = 0.0, bandwidth * CARRIED_DAYS
    start, n_pings, n_born = 0.0, *_until(0.0, pings.at, created)
    fleet.discover(np.sort(born[:n_born]))
    while start < world.days:
        clock.advance(start)
        fleet.new_epoch()
        end = min(start + fleet.step(step), world.days)
        due = fleet.due(end)
        clock.advance(end)
        known_pings, known_born = n_pings, n_born
        n_pings, n_born = _until(end, pings.at, created)
        fleet.discover(np.sort(born[known_born:n_born]))
        requested = fleet.announce(_rows(pings, slice(known_pings, n_pings)))
        income = bandwidth * (end - start)
        on_time = choose(due, start, end, saved + income + ahead - len(requested.at))
        crawls = fleet.crawl(merged(on_time, requested))
        saved = min(saved + income - len(crawls.at), ahead)
        start = end
        yield end, crawls


def _until(day: float, *columns: Floats) -> list[int]:
    """Return how many instants of each sorted column are not after a day."""
    return [int(np.searchsorted(column, day, side="right")) for column in columns]


def _rows(crawls: Crawls, which: Ints | slice) -> Crawls:
    return Crawls(crawls.page[which], crawls.at[which])


def choose(due: Due, start: float, end: float, allowance: float) -> Crawls:
    """Return the crawls of pages due before `end`, the most overdue ones if there are too many.

    A page is due again 1/crawl_rate after each crawl. Lateness counts in multiples of the page's
    interval; crawls requested by pings come first.
    """
    first = np.maximum(due.at, start)
    late_since = due.at if due.late_since is None else due.late_since
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
        overdue = np.where(rate > 0, (end - late_since[row]) * rate - turn, np.inf)
        best = np.argsort(-overdue, kind="stable")[:most]
        row, at = row[best], at[best]
    return Crawls(due.page[row], at)


def announcements(world: World) -> Crawls:
    """Return the changes of announced pages as notices without delay."""
    page = world.changed_page
    now = world.announced[page]
    return Crawls(page[now], world.changed_at[now])
