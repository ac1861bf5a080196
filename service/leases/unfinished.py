"""Leases that ended without a report: counted by page, and the waits after them.

A lease that expires, that its worker returns, or whose report is refused by item is a crawl without
an answer. A page counts such leases in a row; any accepted report sets the count to 0. The next
lease waits, so that a page that no worker reports holds up neither its host nor the other pages:

| leases in a row | wait from the end of the last one |
| --- | --- |
| 1 | min(`RETRY_S`, interval); none after a return |
| 2 | twice as long |
| `SET_ASIDE_AFTER` or more | a day: the page is set aside |

A request that is newer than the start of the last lease ends the wait, but not that of a page that
is set aside: else a page that is pinged often would hold up its host again. An operator's request
for a crawl sets the count to 0 (`Transaction.request_many`). An expired lease is counted
when a worker asks for crawls of its host; until then, readers count it by `standing`.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from service.leases.due import DAY_US, due_at, first_retry_days, of_page
from service.leases.open_due import opened
from service.leases.queue import queue_rows
from service.model.arrays import (
    NO_TIME,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    distinct,
    instant,
    moment,
)
from service.model.columns import DueColumns
from service.model.domain import MOST_FAILURES, Page
from service.model.unfinished import REPORTED, SET_ASIDE_AFTER, Ending
from service.storage import Transaction
from service.storage.queue.unfinished import LastLeases, UnfinishedRows

SET_ASIDE_DAYS = 1.0
"""Wait of a page that is set aside, days."""


class Standing(NamedTuple):
    """(N,) leases of pages that ended without a report, as of one instant."""

    n: Ints
    """Leases in a row."""
    ending: Codes
    """End of the last one (`Ending`); `REPORTED`: none."""
    ended_at: Instants
    """End of the last one; NaT: none, or a further lease runs."""
    until: Instants
    """Earliest next lease; NaT: the page does not wait."""

    def take(self, where: Bools) -> "Standing":
        """Return the pages that a mask selects."""
        n, ending, ended_at, until = self
        return Standing(n[where], ending[where], ended_at[where], until[where])


def wait_days(n: Ints, ending: Codes, first_days: Floats) -> Floats:
    """Return (N,) days from the end of the last of n leases in a row to the next lease.

    >>> hour = np.full(4, 1 / 24)
    >>> (24 * wait_days(np.array([1, 1, 2, 3]), np.array([1, 2, 2, 3]), hour)).tolist()
    [1.0, 0.0, 2.0, 24.0]
    """
    wait = np.where((n == 1) & (ending == Ending.returned), 0.0, first_days * np.exp2(n - 1.0))
    return np.where(n >= SET_ASIDE_AFTER, SET_ASIDE_DAYS, wait)


def wait_until(
    n: Ints,
    ending: Codes,
    leased_at: Instants,
    ended_at: Instants,
    wanted_at: Instants,
    pages: DueColumns,
) -> Instants:
    """Return (N,) ends of the waits after leases; NaT where a newer request ends the wait.

    `wanted_at` are the newest requests of the pages; NaT: none. No request ends the wait of a page
    that is set aside.
    """
    wait = wait_days(n, ending, first_retry_days(pages))
    until = ended_at + (wait * DAY_US).astype(np.int64).astype("m8[us]")
    return np.where((wanted_at > leased_at) & (n < SET_ASIDE_AFTER), NO_TIME, until)


def standing(leases: LastLeases, pages: DueColumns, at: np.datetime64) -> Standing:
    """Return the unfinished leases of (N,) pages; `leases` and `pages` have the same order.

    A crawl that began after the lease, and was reported without its token, is its report.
    """
    reported = pages.last_crawl_at >= leases.leased_at
    expired = leases.is_open & (leases.ends_at <= at)
    n = np.where(reported, 0, np.minimum(leases.n_unfinished + expired, MOST_FAILURES))
    ending = np.where(expired, Ending.expired, leases.ending)
    ending = np.where(n > 0, ending, REPORTED).astype(np.int16)
    closed = (n > 0) & (expired | ~leases.is_open)
    ended_at = np.where(closed, leases.ends_at, NO_TIME)
    counted = wait_until(n, ending, leases.leased_at, ended_at, leases.wanted_at, pages)
    until = np.where(leases.is_open, counted, np.where(closed, leases.next_at, NO_TIME))
    return Standing(n, ending, ended_at, until)


def later(due: Instants, until: Instants) -> Instants:
    """Return (N,) due times after waits; NaT where only a ping makes the page due."""
    return np.where(np.isnat(due), due, np.fmax(due, until))


def count_ended(tx: Transaction, pages: DueColumns, due: Instants, now: datetime) -> Instants:
    """Count the expired leases of pages with locked rows; return the due times after the waits.

    `due` are the due times by the rule (`leases.due`). Rows of pages that were reported meanwhile
    lose their count, and rows of pages that are due no more are deleted.
    """
    leases = tx.last_leases(pages.page_id)
    leases = leases.take(leases.page_id.searchsorted(pages.page_id))
    now_at = instant(now)
    n, ending, ended_at, until = standing(leases, pages, now_at)
    due = later(due, until)
    kept = (n > 0) & ~np.isnat(due)
    tx.requeue(replace(queue_rows(pages, due), next_at=due).take(~kept))
    rows = UnfinishedRows(
        page_id=pages.page_id,
        next_at=due,
        n_unfinished=n,
        ending=ending,
        ended_at=ended_at,
        requested=np.zeros(len(n), np.bool_),
        waits=due > now_at,
    )
    tx.save_unfinished(rows.take(kept & (leases.is_open | (due > now_at))))
    return due


class Ends(NamedTuple):
    """(N,) leases that end now without a report."""

    leased_at: Instants
    n: Ints
    """Such leases in a row, with this one."""
    ending: Codes

    def take(self, where: Bools) -> "Ends":
        """Return the leases that a mask selects."""
        return Ends(self.leased_at[where], self.n[where], self.ending[where])


def close(tx: Transaction, pages: DueColumns, due: Instants, ends: Ends, now: datetime) -> Instants:
    """Write that leases of pages end without a report; return when their pages are due.

    A page that is due at once keeps its place among the requested pages.
    """
    leased_at, n, ending = ends
    ended_at = np.full(len(n), instant(now))
    until = wait_until(n, ending, leased_at, ended_at, _newest_requests(tx, pages.page_id), pages)
    waits = until > ended_at
    due = later(due, np.where(waits, until, NO_TIME))
    plain = queue_rows(pages, due)
    kept = ~np.isnat(due)
    tx.requeue(plain.take(~kept))
    rows = UnfinishedRows(
        page_id=pages.page_id,
        next_at=np.where(waits, due, plain.next_at),
        n_unfinished=n,
        ending=ending,
        ended_at=ended_at,
        requested=plain.requested & ~waits,
        waits=waits,
    )
    tx.save_unfinished(rows.take(kept))
    return due


def _newest_requests(tx: Transaction, page_id: Ints) -> Instants:
    """Return the newest requests of (N,) pages that have a row in the queue; NaT: none."""
    leases = tx.last_leases(distinct(page_id))
    return leases.wanted_at[leases.page_id.searchsorted(page_id)]


class Unreported(NamedTuple):
    """(K,) of (N,) pages, whose last leases ended without a report."""

    row: Ints
    """Positions of the pages."""
    standing: Standing
    leases: LastLeases


def unreported(tx: Transaction, pages: DueColumns, now: datetime) -> Unreported:
    """Return those of (N,) pages, in ascending order, whose last leases ended without a report."""
    return unreported_of(tx.last_leases(pages.page_id), pages, now)


def unreported_of(leases: LastLeases, pages: DueColumns, now: datetime) -> Unreported:
    """Return those of (N,) pages, in ascending order, whose last leases ended without a report."""
    row = pages.page_id.searchsorted(leases.page_id)
    each = standing(leases, pages.take(row), instant(now))
    some: Bools = each.n > 0
    return Unreported(row[some], each.take(some), leases.take(some))


@dataclass(frozen=True, slots=True)
class UnfinishedPage:
    """The leases of one page that ended without a report."""

    n: int
    """Such leases in a row."""
    ending: Ending
    """End of the last one."""
    worker: str | None
    """Name of its worker; None while a further lease runs."""
    ended_at: datetime | None
    next_crawl_at: datetime | None
    """Earliest next lease; None while one runs, and for a page that is due no more."""

    @property
    def is_set_aside(self) -> bool:
        """True if the page is tried once a day only."""
        return self.n >= SET_ASIDE_AFTER


def unfinished_page(tx: Transaction, page: Page, now: datetime) -> UnfinishedPage | None:
    """Return the leases of a page that ended without a report; None: the last one was reported."""
    leases = tx.last_leases(np.array([page.page_id]))
    if not (leases.n_unfinished.any() or leases.is_open.any()):
        return None
    columns = of_page(page)
    some = unreported_of(leases, columns, now)
    if not len(some.row):
        return None
    n, ending, ended_at, until = (part[0] for part in some.standing)
    runs = bool(np.isnat(ended_at))
    next_at = NO_TIME if runs else later(due_at(columns), np.array([until]))[0]
    if columns.hours is not None:
        next_at = opened(columns.hours, np.array([next_at]))[0]
    return UnfinishedPage(
        n=int(n),
        ending=Ending(ending),
        worker=None if runs else some.leases.worker[0],
        ended_at=moment(ended_at),
        next_crawl_at=moment(next_at),
    )
