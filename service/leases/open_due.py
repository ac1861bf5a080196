"""Open hours of pages: due times, and what closed hosts hold up. Pure but for `lease_end`."""

from collections.abc import Iterator
from datetime import datetime

import numpy as np

from service.core.open_hours import OpenHours
from service.model.arrays import NO_TIME, Bools, Floats, Instants, Ints, instant, moment
from service.model.calendars import OfPages
from service.storage.stores.contract import Transaction


def by_hours(hours: OfPages) -> Iterator[tuple[OpenHours, Ints]]:
    """Yield each open hours among those of pages, and the positions of its pages."""
    if not len(hours):
        return
    # few calendars have many pages, and objects are compared one by one
    ids = np.fromiter(map(id, hours), np.int64, len(hours))
    _, first, each = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(each, kind="stable")
    ends = np.cumsum(np.bincount(each, minlength=len(first)))
    for place, rows in zip(first.tolist(), np.split(order, ends[:-1]), strict=True):
        if hours[place]:
            yield hours[place], rows


def due_in_open_time(
    hours: OfPages, due: Instants, last: Instants, days: Floats, least: Bools
) -> Instants:
    """Return due times; for pages with open hours, those after intervals of open time.

    `due` has the times by the wall clock, and `least` marks waits that must not be shorter.
    """
    due = due.copy()
    for own, row in by_hours(hours):
        due[row] = own.due(last[row], days[row], least[row])
    return due


def opened(hours: OfPages, at: Instants) -> Instants:
    """Return (N,) instants, those at which a page's host is closed at its next opening."""
    at = at.copy()
    for own, row in by_hours(hours):
        at[row] = own.opening(at[row])
    return at


def openings(hours: OfPages, at: np.datetime64) -> Instants:
    """Return when the hosts of (N,) pages open that are closed at an instant; NaT: open."""
    opens = opened(hours, np.full(len(hours), at))
    return np.where(opens > at, opens, NO_TIME)


def closings(hours: OfPages, at: np.datetime64) -> Instants:
    """Return when the hosts of (N,) pages close that are open at an instant; NaT: never."""
    ends = np.full(len(hours), NO_TIME)
    for own, row in by_hours(hours):
        ends[row] = own.closing(np.full(len(row), at))
    return ends


def passed(
    hours: OfPages, wall: Floats, last: Instants, due: Instants, at: np.datetime64
) -> Floats:
    """Return (N,) shares of the time from crawls to due times that have passed, in open time.

    `wall` has the shares by the wall clock.
    """
    share = wall.copy()
    for own, row in by_hours(hours):
        share[row] = own.passed(last[row], due[row], at)
    return share


def has_windows(hours: OfPages) -> Bools:
    """Return which of (N,) pages have hosts that may be closed."""
    return np.fromiter(map(bool, hours), np.bool_, len(hours))


def lease_end(tx: Transaction, page_id: int, ends: datetime, now: datetime) -> datetime:
    """Return the end of a lease, cut at the closing of the page's host."""
    if not tx.calendars.in_use:
        return ends
    (host_id,) = tx.hosts_of(np.array([page_id])).tolist()
    hours = tx.calendars.of_host(host_id, now)
    if hours is None:
        return ends
    closes = moment(hours.closing(np.array([instant(now)]))[0])
    return min(ends, closes or now)
