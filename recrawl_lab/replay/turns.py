"""Choice of a request for leases: first crawls, pages that are due, loans, pages ahead.

The order is that of the product (`service.core.pace` has the amounts). Pages are columns, and a
request is a few passes over them.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from recrawl_lab.replay.replay import instants_of, since_start
from service.core.even_days import NOTHING_KEPT, Demand, Kept, kept
from service.core.open_hours import OpenHours
from service.core.pace import Available
from service.leases.due import MAX_DUE_DAYS
from service.model.arrays import Bools, Floats, Ints

URGENT = 1.2
"""Urgency from which a page that is due may go on a loan."""
LEAST_WAITED = 0.1
"""Minimum share of its interval that a page ahead of its time has waited."""

ROUNDING = 1e-6
"""Amount that may be missing from a whole crawl."""
MANY = 1e15
"""Number of crawls above all others."""


@dataclass(slots=True, kw_only=True)
class Pages:
    """(N,) registered pages as the schedule has them; instants are days since the start."""

    page: Ints
    host: Ints
    """Position of the host."""
    due: Floats
    """NaN: never."""
    last: Floats
    """Last crawl; NaN: none."""
    rate: Floats
    """Rate that ranks a page that is due, 1/day."""
    steady_rate: Floats
    """Rate of the crawls after the next one, 1/day."""
    urgency: Floats
    first: Bools
    shown: Bools
    """True if the last crawl had content."""
    hours: OpenHours | None = None
    """Open hours of all hosts; None: they are always open."""

    def crawl(self, row: Ints, at: Floats) -> None:
        """Note crawls, after which pages follow their steady rate until the next epoch."""
        rate = self.steady_rate[row]
        wait = np.divide(1.0, rate, out=np.full(len(row), np.inf), where=rate > 0)
        self.last[row], self.due[row] = at, self._after(at, wait)
        self.rate[row], self.urgency[row] = rate, 1.0
        self.first[row], self.shown[row] = False, True

    def _after(self, at: Floats, wait: Floats) -> Floats:
        if self.hours is None:
            return at + wait
        open_due = self.hours.due(instants_of(at), np.minimum(wait, MAX_DUE_DAYS))
        return np.where(np.isfinite(wait), since_start(open_due), np.inf)

    def passed(self, row: Ints, at: float) -> Floats:
        """Return the shares of the intervals that have passed, in open time."""
        last, due = self.last[row], self.due[row]
        if self.hours is None:
            return (at - last) / (due - last)
        within = np.minimum(due, last + MAX_DUE_DAYS)
        now = instants_of(np.array([at]))[0]
        return self.hours.passed(instants_of(last), instants_of(within), now)

    def kept(self, at: float) -> Kept:
        """Return what a day keeps at an instant for the windows."""
        if self.hours is None:
            return NOTHING_KEPT
        return kept([Demand(self.hours, 1.0)], instants_of(np.array([at]))[0])

    def open_until(self, begin: float, at: float) -> float | None:
        """Return the end of the open time between two instants; None: there is none."""
        if self.hours is None:
            return at
        first, last = instants_of(np.array([begin, at]))
        window = int(self.hours.opens.searchsorted(last)) - 1
        if window < 0 or self.hours.closes[window] <= first:
            return None
        return min(at, float(since_start(self.hours.closes[window : window + 1])[0]))


@dataclass(slots=True)
class Turn:
    """Crawls of each host on a day."""

    day: int
    n_crawls: Ints
    n_first: Ints

    @classmethod
    def none(cls, n_hosts: int) -> Self:
        """Return the start of the first day."""
        return cls(0, np.zeros(n_hosts, np.int64), np.zeros(n_hosts, np.int64))

    def on(self, day: int) -> Self:
        """Return the crawls of a day: this one, or a new one."""
        return self if day == self.day else type(self)(day, 0 * self.n_crawls, 0 * self.n_first)

    def add(self, host: Ints, first: Bools) -> None:
        """Count crawls."""
        np.add.at(self.n_crawls, host, 1)
        np.add.at(self.n_first, host[first], 1)


class Chosen(NamedTuple):
    """(K,) rows of pages that a request takes, in the order of the queue."""

    row: Ints
    first: Bools
    ahead: Bools
    on_loan: Bools


def taken_in_turn(
    pages: Pages, at: float, left: Available | None, today: Turn, cap: Floats, first_share: float
) -> Chosen:
    """Return what a request at an instant takes within the room; `left` None: all that is due."""
    due = pages.due <= at
    spare = room_first = cap
    is_capped = bool(np.isfinite(cap).any())
    if is_capped:
        spare = np.floor(cap - today.n_crawls + ROUNDING)
        share = np.maximum(first_share * np.nan_to_num(cap), 1.0)
        of_first = np.where(np.isfinite(cap), share, np.inf)
        room_first = np.minimum(spare, np.floor(of_first - today.n_first + ROUNDING))
    first = np.flatnonzero(due & pages.first)
    first = first[np.argsort(pages.due[first], kind="stable")]
    first = within(first, pages.host, room_first)
    if left is not None:
        first = first[: whole(min(left.first, left.due))]
    if is_capped:
        spare = spare - np.bincount(pages.host[first], minlength=len(spare))
    late = np.flatnonzero(due & ~pages.first)
    overdue = (at - pages.due[late]) * pages.rate[late]
    late = within(late[np.argsort(-overdue, kind="stable")], pages.host, spare)
    n_loans, early = 0, np.zeros(0, np.int64)
    if left is not None:
        most = whole(left.due - len(first))
        late, rest = late[:most], late[most:]
        loans = rest[pages.urgency[rest] >= URGENT][: whole(left.on_loan)]
        n_loans = len(loans)
        if is_capped:
            spare = spare - np.bincount(pages.host[late], minlength=len(spare))
        late = np.concatenate([late, loans])
        if not len(rest):
            ahead = left.ahead if pages.hours is None else left.in_windows
            n_early = whole(min(ahead - len(first) - len(late), most - len(late)))
            early = _early(pages, at, n_early, of_all=is_capped)
            early = within(early, pages.host, spare)[: max(n_early, 0)]
    row = np.concatenate([first, late, early])
    place = np.arange(len(row))
    n_due = len(first) + len(late)
    return Chosen(
        row,
        place < len(first),
        place >= n_due,
        (place >= n_due - n_loans) & (place < n_due),
    )


def _early(pages: Pages, at: float, most: int, *, of_all: bool) -> Ints:
    """Return pages that are not due yet, the most waited first: `most`, or with `of_all` all."""
    if most <= 0:
        return np.zeros(0, np.int64)
    # due times that are NaN compare as false
    row = np.flatnonzero(pages.shown & ~pages.first & (pages.due > at) & (pages.last < at))
    waited = pages.passed(row, at)
    ripe = waited >= LEAST_WAITED
    row, waited = row[ripe], waited[ripe]
    return row[greatest(waited, len(row) if of_all else most)]


def greatest(value: Floats, most: int) -> Ints:
    """Return the places of the greatest values in their order; of equal ones the first come first.

    Only values that may be among them are sorted.

    >>> greatest(np.array([2.0, 5.0, 2.0, 9.0, 2.0]), 3)
    array([3, 1, 0])
    """
    place, key = np.arange(len(value)), -value
    if most < len(value):
        place = np.flatnonzero(key <= np.partition(key, most - 1)[most - 1])
    return np.asarray(place[np.argsort(key[place], kind="stable")][:most])


def whole(amount: float) -> int:
    """Return the crawls within an amount, which may lack what a request comes before midnight."""
    return max(int(min(amount, MANY) + ROUNDING), 0)


def within(row: Ints, host: Ints, spare: Floats) -> Ints:
    """Return the rows of an order that fit into the crawls that their hosts have left."""
    if not np.isfinite(spare).any():
        return row
    of = host[row]
    order = np.argsort(of, kind="stable")
    sorted_of = of[order]
    start = np.flatnonzero(np.diff(sorted_of, prepend=-1))
    rank = np.empty(len(row), np.int64)
    rank[order] = np.arange(len(row)) - np.repeat(start, np.diff(np.append(start, len(row))))
    return row[rank < spare[of]]
