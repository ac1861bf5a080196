"""Capacities of hosts in an epoch: limits on their crawl rates, and what pages lose to windows.

A page whose interval is shorter than a closure makes up for one crawl of it and loses the rest
(`core.open_hours`). The caps of the solver count the crawls that are made, so a host with such
pages may plan for more.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from service.core.common_values import Contribution, Joint, anywhere
from service.epochs.windows import HostWindows
from service.leases.open_due import by_hours
from service.model.arrays import Floats, Ints, distinct
from service.model.calendars import OfPages
from service.model.columns import CapColumns

FULL = 1.001
"""Load over the capacity, from which a host is over it."""
MOST_ROUNDS = 6
"""Maximum number of allocations until all hosts are within their capacity."""
MOST_LOSSES = 20
"""Maximum number of hosts with losses that an epoch keeps."""
LEAST_LOSS = 0.1
"""Least share of its crawls that a host loses to be named."""
LEAST_LOST = 1.0
"""Least number of crawls a day that a host loses to be named."""


class WindowLoss(NamedTuple):
    """Crawls of a host that its windows do not permit."""

    host: str
    wanted: float
    """Crawls a day without windows, at the delay of the host."""
    by_delay: float
    """Crawls a day that the open time is too short for, at the delay of the host."""
    by_closures: float
    """Crawls a day of pages that are wanted more often than the host opens."""
    since: float
    """Start of the first epoch in a row that has named the host, seconds since 1970."""


class SlowPages(NamedTuple):
    """(K,) pages of host queues whose delay permits less than the plan without limits."""

    row: Ints
    queue: Ints
    """Place of the host queue of each page."""
    rate: Floats
    """Crawls a day without limits."""


NO_PAGES = SlowPages(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class Loads(NamedTuple):
    """(H,) crawls a day of the pages of hosts, (Q,) of host queues."""

    wanted: Floats
    made: Floats
    queues: Ints
    """(Q,) host queues, ascending."""
    queue_wanted: Floats
    queue_made: Floats
    capacity: Floats
    """(Q,) of each host queue."""


def loads(windows: HostWindows, place: Ints, crawl_rate: Floats) -> Loads:
    """Return the crawls of hosts; `place` has the row of each page's host, -1 for others."""
    row = np.flatnonzero((place >= 0) & (crawl_rate > 0))
    of, rate = place[row], crawl_rate[row]
    n = len(windows.host_id)
    wanted = np.bincount(of, rate, n).astype(np.float64)
    some = np.flatnonzero(windows.closes[of])
    made, share = rate.copy(), kept(windows.hours[of[some]], rate[some])
    made[some] *= share
    queues, queue = np.unique(windows.queue_id, return_inverse=True)
    of_hosts = np.bincount(of, made, n).astype(np.float64)
    return Loads(
        wanted=wanted,
        made=of_hosts,
        queues=queues,
        queue_wanted=np.bincount(queue, wanted, len(queues)).astype(np.float64),
        queue_made=np.bincount(queue, of_hosts, len(queues)).astype(np.float64),
        capacity=_of_queues(queue, windows.capacity, len(queues)),
    )


def _of_queues(queue: Ints, each: Floats, n: int) -> Floats:
    """Return the greatest value of the hosts of each queue."""
    greatest = np.zeros(n)
    np.maximum.at(greatest, queue, each)
    return greatest


def kept(hours: OfPages, rate: Floats) -> Floats:
    """Return the (N,) shares of their crawls that pages keep at crawl rates, 1/day."""
    share = np.ones(len(rate))
    for own, row in by_hours(hours):
        share[row] = 0.0 if own.is_never_open else own.kept(rate[row])
    return share


def spells(hours: OfPages, rate: Floats) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Yield the intervals that closures leave of the crawls of (N,) pages at rates, 1/day.

    Each has the rows of pages, their intervals in days, and the shares of the time that these take.
    """
    for own, rows in by_hours(hours):
        row = rows[rate[rows] > 0]
        if row.size:
            for interval, share in own.spells(rate[row]):
                yield row, interval, share


def limited(caps: CapColumns, windows: HostWindows, limits: dict[int, float]) -> CapColumns:
    """Return caps with those of host queues by id, crawls a day, where these are lower."""
    if not limits:
        return caps
    hit = np.isin(windows.queue_id, np.array(sorted(limits), np.int64))
    host_id = np.union1d(caps.host_id, windows.host_id[hit])
    at = host_id.searchsorted(caps.host_id)
    columns = {
        "host_id": host_id,
        "host": np.full(len(host_id), "", object),
        "max_crawl_rate": np.full(len(host_id), np.nan),
        "group_id": np.zeros(len(host_id), np.int64),
        "group": np.full(len(host_id), "", object),
        "group_max_crawl_rate": np.full(len(host_id), np.nan),
        "first_share": np.full(len(host_id), np.nan),
    }
    for name, column in caps.arrays().items():
        columns[name][at] = column
    own = host_id.searchsorted(windows.host_id[hit])
    columns["host"][own] = windows.host[hit]
    limit = np.array([limits[queue] for queue in windows.queue_id[hit].tolist()])
    grouped = windows.queue_id[hit] < 0
    rates, of_groups = columns["max_crawl_rate"], columns["group_max_crawl_rate"]
    rates[own[~grouped]] = np.fmin(rates[own[~grouped]], limit[~grouped])
    columns["group_id"][own[grouped]] = -windows.queue_id[hit][grouped]
    # a group may have further hosts with a cap, which share its limit
    for row in np.flatnonzero(columns["group_id"]).tolist():
        of_group = limits.get(-int(columns["group_id"][row]), np.nan)
        of_groups[row] = np.fmin(of_groups[row], of_group)
    return CapColumns(**columns)


class Capacities:
    """The search for limits with which all hosts are within the capacity of their open time."""

    def __init__(self, windows: HostWindows, place: Ints) -> None:
        self.windows, self.place = windows, place
        self.limits: dict[int, float] = {}
        """Limits on the rates of host queues, crawls a day."""
        self.first: Loads | None = None
        """Loads without limits."""
        self.slow = NO_PAGES
        self.queue = distinct(windows.queue_id).searchsorted(windows.queue_id)
        """(H,) place of the queue of each host."""

    def exceeded(self, crawl_rate: Floats) -> bool:
        """Set limits by the crawl rates with the last ones; return whether others are needed."""
        now = loads(self.windows, self.place, crawl_rate)
        if self.first is None:
            self.first, self.slow = now, self._slow(now, crawl_rate)
        closes = _of_queues(self.queue, self.windows.closes.astype(np.float64), len(now.queues)) > 0
        over = now.queue_made > FULL * now.capacity
        limits = over | np.isin(now.queues, [*self.limits])
        if over.any():  # what one host loses may be too much for another
            limits |= ~closes & np.isfinite(now.capacity)
        ratio = np.maximum(now.queue_wanted / np.maximum(now.queue_made, 1e-12), 1.0)
        limit = np.where(closes, now.capacity * ratio, now.capacity)
        self.limits |= dict(zip(now.queues[limits].tolist(), limit[limits].tolist(), strict=True))
        under = closes & (now.queue_made * FULL**10 < now.capacity) & (now.queue_wanted > 0)
        pressed = self.first.queue_made > FULL * self.first.capacity
        return bool((over | (under & pressed)).any())

    def at_delay(self) -> Floats:
        """Return (Q,) crawls a day that the delays of host queues permit without windows."""
        n = int(self.queue.max(initial=-1)) + 1
        return _of_queues(self.queue, self.windows.at_delay, n)

    def _slow(self, first: Loads, crawl_rate: Floats) -> SlowPages:
        over = first.queue_wanted > FULL * self.at_delay()
        if not over.any():
            return NO_PAGES
        row = np.flatnonzero((self.place >= 0) & (crawl_rate > 0))
        row = row[over[self.queue[self.place[row]]]]
        return SlowPages(row, self.queue[self.place[row]], crawl_rate[row])

    def losses(self, crawl_rate: Floats, at: float, since: dict[str, float]) -> list[WindowLoss]:
        """Return what hosts lose, those with the most crawls first.

        `at` is the instant of the epoch, and `since` those of hosts that the last epoch named.
        """
        now, windows = loads(self.windows, self.place, crawl_rate), self.windows
        first = self.first or now
        # what the delay does not permit at any hour is no loss by windows
        possible = np.minimum(self.at_delay() / np.maximum(first.queue_wanted, 1e-12), 1.0)
        before = first.wanted * possible[self.queue]
        pressed = np.isin(now.queues, [*self.limits])[self.queue]
        by_delay = np.where(pressed, np.maximum(before - now.wanted, 0.0), 0.0)
        by_closures = np.maximum(np.fmin(now.wanted, before) - now.made, 0.0)
        lost = by_delay + by_closures
        named = (lost >= LEAST_LOSS * before) & (lost >= LEAST_LOST) & windows.closes
        row = np.flatnonzero(named)
        row = row[np.argsort(-lost[row], kind="stable")][:MOST_LOSSES]
        began = np.array([since.get(host, at) for host in windows.host[row].tolist()], np.float64)
        columns = windows.host[row], before[row], by_delay[row], by_closures[row], began
        return [WindowLoss(*each) for each in zip(*(c.tolist() for c in columns), strict=True)]


def worst(
    capacities: Capacities | None,
    crawl_rate: Floats,
    at: float = 0.0,
    since: dict[str, float] | None = None,
) -> Joint[tuple[WindowLoss, ...]]:
    """Return the losses of all parts, the worst first; `at` and `since` as in `losses`."""
    if not (yield from anywhere(capacities is not None)):
        return ()
    own = [] if capacities is None else capacities.losses(crawl_rate, at, since or {})
    delays: tuple[WindowLoss, ...] = yield Contribution(own, _worst, exact=True)
    return tuple(delays)


def _worst(parts: Sequence[Sequence[WindowLoss]]) -> list[WindowLoss]:
    every = [loss for losses in parts for loss in losses]
    every.sort(key=lambda loss: (-loss.by_delay - loss.by_closures, loss.host))
    return every[:MOST_LOSSES]
