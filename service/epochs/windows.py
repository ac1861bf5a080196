"""Hosts in an epoch that can be crawled less often than the budget permits, and their windows.

A host has at most its open seconds a day, over its delay, in crawls.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.common_values import Contribution, Joint, anywhere
from service.core.waits import LONGEST_DELAY_S, delay_in_force
from service.epochs.constraints import CONSTRAINED
from service.epochs.plan import Plan
from service.model.amounts import CRAWLS
from service.model.arrays import Bools, Floats, Ints, distinct, is_among, places
from service.model.calendars import OfPages
from service.storage import Transaction

DAY_S = 86_400.0
MOST_DEMANDS = 100
"""Maximum number of different windows whose demand an epoch keeps; others count as open."""

Texts = tuple[str, str]
"""Windows and blackouts."""
ALWAYS_OPEN: Texts = ("", "")


class HostWindows(NamedTuple):
    """(H,) hosts that may be closed, or whose delay permits less than the budget, by host_id."""

    host_id: Ints
    host: NDArray[np.object_]
    queue_id: Ints
    hours: OfPages
    texts: NDArray[np.object_]
    """Windows and blackouts of each host, a pair of texts."""
    capacity: Floats
    """Crawls a day that the open time of the host queue has room for; inf without a delay."""
    at_delay: Floats
    """Crawls a day that the host queue would have room for without windows."""

    @property
    def closes(self) -> Bools:
        """(H,) which hosts may be closed at some time."""
        return np.fromiter(map(bool, self.hours), np.bool_, len(self.hours))

    def of_pages(self, host_id: Ints) -> OfPages | None:
        """Return the hours of (N,) pages by the hosts in `host_id`; None: no host may be closed."""
        closed = closing(self)
        if closed is None:
            return None
        place = places(host_id, closed.host_id)
        hours: OfPages = np.append(closed.hours, np.array([None]))[place]
        return hours

    def where(self, mask: Bools | slice) -> "HostWindows":
        """Return the hosts that a mask selects, or of a stretch."""
        columns: list[Any] = [column[mask] for column in self]
        return HostWindows(*columns)


def load_windows(
    tx: Transaction, host_id: Ints, plan: Plan, most: float = np.inf
) -> HostWindows | None:
    """Return the hosts of pages that `most` crawls a day may be too many for; None: there are none.

    Hosts that may be closed are among them in any case.
    """
    calendars, limits = tx.calendars, plan.objective == CONSTRAINED
    if limits:
        longest = min(max(tx.longest_delay(), plan.host_delay_s), LONGEST_DELAY_S)
        limits = longest > 0 and DAY_S / longest < most
    if not (calendars.in_use or limits):
        return None
    hosts = distinct(host_id)
    hours = calendars.of_hosts(hosts, tx.clock())
    if not limits:
        some = np.fromiter(map(bool, hours), np.bool_, len(hours))
        hosts, hours = hosts[some], hours[some]
    delays = tx.host_delays(hosts)
    hours = hours[is_among(hosts, delays.host_id)]
    delay_s = delay_in_force(delays.min_delay_s, delays.robots_delay_s, plan.host_delay_s)
    at_delay = np.divide(DAY_S, delay_s, out=np.full(len(delays), np.inf), where=delay_s > 0)
    closes = np.fromiter(map(bool, hours), np.bool_, len(hours))
    row = np.flatnonzero(closes | (at_delay < most))
    if not row.size:
        return None
    capacity, texts = at_delay[row], np.empty(len(row), object)
    texts[:] = [ALWAYS_OPEN] * len(row)
    closing_at = np.flatnonzero(closes[row])
    rules = calendars.texts_of(delays.host_id[closes])
    for n, own in zip(closing_at.tolist(), rules, strict=True):
        open_hours, texts[n] = hours[row[n]], own
        capacity[n] = 0.0 if open_hours.is_never_open else capacity[n] * open_hours.share
    columns = delays.host_id[row], delays.host[row], delays.queue_id[row], hours[row]
    return HostWindows(*columns, texts, capacity, at_delay[row])


def most_crawls(plan: Plan) -> float:
    """Return the maximum of crawls a day by the budget, where it is one of crawls; else inf."""
    if plan.bandwidth is None or plan.unit != CRAWLS:
        return np.inf
    return plan.bandwidth


def closing(windows: HostWindows | None) -> HostWindows | None:
    """Return the hosts that may be closed at some time; None: there are none."""
    if windows is None or not (closes := windows.closes).any():
        return None
    return windows.where(closes)


def demand(
    windows: HostWindows | None, host_id: Ints, a_day: Floats
) -> Joint[tuple[tuple[str, str, float], ...]]:
    """Return the planned amounts a day of all parts by windows; () if no host has windows.

    `host_id` and `a_day` are those of the (N,) pages of this part.
    """
    closed = closing(windows)
    if not (yield from anywhere(closed is not None)):
        return ()
    amounts = {ALWAYS_OPEN: float(a_day.sum())}
    if closed is not None:
        place = places(host_id, closed.host_id)
        inside = place >= 0
        of_hosts = np.bincount(place[inside], a_day[inside], len(closed.host_id))
        amounts[ALWAYS_OPEN] = float(a_day[~inside].sum())
        for texts, amount in zip(closed.texts.tolist(), of_hosts.tolist(), strict=True):
            amounts[texts] = amounts.get(texts, 0.0) + amount
    sums: dict[Texts, float] = yield Contribution(amounts, _summed)
    closes = sorted(set(sums) - {ALWAYS_OPEN}, key=lambda texts: (-sums[texts], texts))
    rest = sums[ALWAYS_OPEN] + sum(sums[texts] for texts in closes[MOST_DEMANDS:])
    return ((*ALWAYS_OPEN, rest), *((*texts, sums[texts]) for texts in closes[:MOST_DEMANDS]))


def _summed(parts: Sequence[dict[Texts, float]]) -> dict[Texts, float]:
    sums: dict[Texts, float] = {}
    for part in parts:
        for texts, amount in part.items():
            sums[texts] = sums.get(texts, 0.0) + amount
    return sums
