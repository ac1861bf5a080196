"""Windows in an epoch: how often hosts can be crawled in their open time, and what pages lose.

A host has at most its open seconds a day, over its delay, in crawls. A page whose interval is
shorter than a closure makes up for one crawl of it and loses the rest (`core.open_hours`). The caps
of the solver count the crawls that are made, so a host with such pages may plan for more.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.common_values import Contribution, Joint, anywhere
from service.core.waits import delay_in_force
from service.leases.open_due import by_hours
from service.model.arrays import Bools, Floats, Ints, distinct, is_among, places
from service.model.calendars import OfPages
from service.model.columns import CapColumns
from service.storage import Transaction

DAY_S = 86_400.0
FULL = 1.001
"""Load over the capacity, from which a host is over it."""
MOST_ROUNDS = 6
"""Maximum number of allocations until all hosts are within their capacity."""
MOST_DEMANDS = 100
"""Maximum number of different windows whose demand an epoch keeps; others count as open."""
MOST_LOSSES = 20
"""Maximum number of hosts with losses that an epoch keeps."""
LEAST_LOSS = 0.1
"""Least share of its crawls that a host loses to be named."""
LEAST_LOST = 1.0
"""Least number of crawls a day that a host loses to be named."""


Texts = tuple[str, str]
"""Windows and blackouts."""
ALWAYS_OPEN: Texts = ("", "")


class WindowLoss(NamedTuple):
    """Crawls of a host that its windows do not permit."""

    host: str
    wanted: float
    """Crawls a day without windows."""
    by_delay: float
    """Crawls a day that the open time is too short for, at the delay of the host."""
    by_closures: float
    """Crawls a day of pages that are wanted more often than the host opens."""


class HostWindows(NamedTuple):
    """(H,) hosts that may be closed at some time, by ascending host_id."""

    host_id: Ints
    host: NDArray[np.object_]
    queue_id: Ints
    hours: OfPages
    texts: NDArray[np.object_]
    """Windows and blackouts of each host, a pair of texts."""
    capacity: Floats
    """Crawls a day that the open time of the host queue has room for; inf without a delay."""

    def where(self, mask: Bools | slice) -> "HostWindows":
        """Return the hosts that a mask selects, or of a stretch."""
        columns: list[Any] = [column[mask] for column in self]
        return HostWindows(*columns)


def load_windows(tx: Transaction, host_id: Ints, host_delay_s: float) -> HostWindows | None:
    """Return the windows of the hosts of pages; None: all are open at all times."""
    if not tx.calendars.in_use:
        return None
    hosts = distinct(host_id)
    hours = tx.calendars.of_hosts(hosts, tx.clock())
    some = np.array([bool(each) for each in hours], np.bool_)
    delays = tx.host_delays(hosts[some])
    hours = hours[some][is_among(hosts[some], delays.host_id)]
    delay_s = delay_in_force(delays.min_delay_s, delays.robots_delay_s, host_delay_s)
    share = np.array([0.0 if each.is_never_open else each.share for each in hours])
    capacity = np.divide(share * DAY_S, delay_s, out=np.full(len(share), np.inf), where=delay_s > 0)
    texts = np.empty(len(delays), object)
    texts[:] = tx.calendars.texts_of(delays.host_id)
    return HostWindows(delays.host_id, delays.host, delays.queue_id, hours, texts, capacity)


def demand(
    windows: HostWindows | None, host_id: Ints, a_day: Floats
) -> Joint[tuple[tuple[str, str, float], ...]]:
    """Return the planned amounts a day of all parts by windows; () if no host has windows.

    `host_id` and `a_day` are those of the (N,) pages of this part.
    """
    if not (yield from anywhere(windows is not None)):
        return ()
    amounts = {ALWAYS_OPEN: float(a_day.sum())}
    if windows is not None:
        place = places(host_id, windows.host_id)
        inside = place >= 0
        of_hosts = np.bincount(place[inside], a_day[inside], len(windows.host_id))
        amounts[ALWAYS_OPEN] = float(a_day[~inside].sum())
        for texts, amount in zip(windows.texts.tolist(), of_hosts.tolist(), strict=True):
            amounts[texts] = amounts.get(texts, 0.0) + amount
    sums: dict[Texts, float] = yield Contribution(amounts, _summed)
    closing = sorted(set(sums) - {ALWAYS_OPEN}, key=lambda texts: (-sums[texts], texts))
    rest = sums[ALWAYS_OPEN] + sum(sums[texts] for texts in closing[MOST_DEMANDS:])
    return ((*ALWAYS_OPEN, rest), *((*texts, sums[texts]) for texts in closing[:MOST_DEMANDS]))


def _summed(parts: Sequence[dict[Texts, float]]) -> dict[Texts, float]:
    sums: dict[Texts, float] = {}
    for part in parts:
        for texts, amount in part.items():
            sums[texts] = sums.get(texts, 0.0) + amount
    return sums


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
    share = kept(windows.hours[of], rate)
    n = len(windows.host_id)
    wanted, made = (np.bincount(of, each, n).astype(np.float64) for each in (rate, rate * share))
    queues, queue = np.unique(windows.queue_id, return_inverse=True)
    capacity = np.zeros(len(queues))
    np.maximum.at(capacity, queue, windows.capacity)
    return Loads(
        wanted=wanted,
        made=made,
        queues=queues,
        queue_wanted=np.bincount(queue, wanted, len(queues)).astype(np.float64),
        queue_made=np.bincount(queue, made, len(queues)).astype(np.float64),
        capacity=capacity,
    )


def kept(hours: OfPages, rate: Floats) -> Floats:
    """Return the (N,) shares of their crawls that pages keep at crawl rates, 1/day."""
    share = np.ones(len(rate))
    for own, row in by_hours(hours):
        share[row] = 0.0 if own.is_never_open else own.kept(rate[row])
    return share


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
    of_groups[own[grouped]] = np.fmin(of_groups[own[grouped]], limit[grouped])
    return CapColumns(**columns)


class Capacities:
    """The search for limits with which all hosts are within the capacity of their windows."""

    def __init__(self, windows: HostWindows, place: Ints) -> None:
        self.windows, self.place = windows, place
        self.limits: dict[int, float] = {}
        """Limits on the rates of host queues, crawls a day."""
        self.first: Loads | None = None
        """Loads without limits."""

    def exceeded(self, crawl_rate: Floats) -> bool:
        """Set limits by the crawl rates with the last ones; return whether others are needed."""
        now = loads(self.windows, self.place, crawl_rate)
        self.first = self.first or now
        over = now.queue_made > FULL * now.capacity
        for n in np.flatnonzero(over | np.isin(now.queues, [*self.limits])).tolist():
            ratio = now.queue_wanted[n] / max(now.queue_made[n], 1e-12)
            self.limits[int(now.queues[n])] = float(now.capacity[n] * max(ratio, 1.0))
        under = (now.queue_made * FULL**10 < now.capacity) & (now.queue_wanted > 0)
        pressed = self.first.queue_made > FULL * self.first.capacity
        return bool((over | (under & pressed)).any())

    def losses(self, crawl_rate: Floats) -> list[WindowLoss]:
        """Return what hosts lose, those with the most crawls first."""
        now, first = loads(self.windows, self.place, crawl_rate), self.first
        before = now.wanted if first is None else first.wanted
        of_queue = distinct(self.windows.queue_id).searchsorted(self.windows.queue_id)
        pressed = np.isin(distinct(self.windows.queue_id), [*self.limits])[of_queue]
        by_delay = np.where(pressed, np.maximum(before - now.wanted, 0.0), 0.0)
        by_closures = np.maximum(now.wanted - now.made, 0.0)
        lost = by_delay + by_closures
        named = (lost >= LEAST_LOSS * before) & (lost >= LEAST_LOST)
        row = np.flatnonzero(named)
        row = row[np.argsort(-lost[row], kind="stable")][:MOST_LOSSES]
        columns = self.windows.host, before, by_delay, by_closures
        return [WindowLoss(*each) for each in zip(*(c[row].tolist() for c in columns), strict=True)]


def worst(capacities: Capacities | None, crawl_rate: Floats) -> Joint[tuple[WindowLoss, ...]]:
    """Return the losses of all parts, the worst first."""
    if not (yield from anywhere(capacities is not None)):
        return ()
    own = [] if capacities is None else capacities.losses(crawl_rate)
    delays: tuple[WindowLoss, ...] = yield Contribution(own, _worst, exact=True)
    return tuple(delays)


def _worst(parts: Sequence[Sequence[WindowLoss]]) -> list[WindowLoss]:
    every = [loss for losses in parts for loss in losses]
    every.sort(key=lambda loss: (-loss.by_delay - loss.by_closures, loss.host))
    return every[:MOST_LOSSES]
