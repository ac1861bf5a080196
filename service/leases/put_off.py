"""Rows of the queue whose times are too early, or whose pages are put off.

The time of a row is a bound: its page is due then or later. A lease corrects the bounds that it
meets. Once the money of a day is spent, it puts off the pages that may cost something.
"""

from dataclasses import replace
from datetime import datetime

import numpy as np

from service.core.prices import is_free
from service.leases.due import due_at
from service.leases.early import LEAST_WAIT, waited
from service.leases.queue import queue_rows
from service.leases.unfinished import count_ended
from service.model.arrays import Bools, Instants, Ints, days, instant, positions
from service.storage import Transaction
from service.storage.queue.columns import DuePages, QueuedPages


def corrected(
    tx: Transaction, page_id: Ints, now: datetime, *, ahead: bool = False
) -> tuple[DuePages, Instants, Bools, Bools]:
    """Lock the rows of pages, count their leases that expired, correct bounds of pages not due.

    Return the pages, their due times, which rows were locked, and which pages are due. With `ahead`
    pages count as due that have waited for a part of their interval, within their maximum rate.
    """
    pages, locked, ended = tx.lock_pages(page_id, now)
    due = due_at(pages)
    if ended.any():
        due[ended] = count_ended(tx, pages.take(ended), due[ended], now)
    ripe: Bools = due <= instant(now)
    if ahead:
        own_pace = days(instant(now) - pages.last_crawl_at) * pages.max_crawl_rate >= 1.0
        ripe |= ~ended & own_pace & (waited(pages, due, now) >= LEAST_WAIT)
    stale = locked & ~ripe & ~ended
    if stale.any():
        requeue_at(tx, pages, due, due, stale)
    return pages, due, locked, ripe


def after_expiry(tx: Transaction, page_id: Ints, bound: Instants, now: datetime) -> Instants:
    """Count leases that have expired, and return the bounds of their pages."""
    _, due, locked, _ = corrected(tx, page_id, now)
    return np.where(locked, due, bound)


def bounds_of(
    tx: Transaction, rows: QueuedPages, paid_at: datetime | None, now: datetime
) -> tuple[Instants, int]:
    """Return the bounds of rows, and how many differ: leases have expired, or pages are put off.

    `paid_at` is the time to which due pages are put off that may cost something; None: they stay.
    """
    bound = rows.next_at.copy()
    expired = positions(rows.leased & (bound <= instant(now)))
    if len(expired):
        bound[expired] = after_expiry(tx, rows.page_id[expired], bound[expired], now)
    n_put_off = 0
    if paid_at is not None:
        bound, n_put_off = put_off(tx, rows.page_id, bound, instant(paid_at), now)
    return bound, len(expired) + n_put_off


def put_off(
    tx: Transaction, page_id: Ints, bound: Instants, until: np.datetime64, now: datetime
) -> tuple[Instants, int]:
    """Put off due pages that may cost something; return the bounds of all, and the number.

    They would hold up pages that cost nothing, on their host and on others.
    """
    ripe = positions(bound <= instant(now))
    if not len(ripe):
        return bound, 0
    pages, due, locked, is_due = corrected(tx, page_id[ripe], now)
    waits = locked & is_due & ~is_free(pages.cost)
    bound[ripe] = np.where(waits, until, np.where(is_due, bound[ripe], due))
    requeue_at(tx, pages, due, np.full(len(pages), until), waits)
    return bound, int(np.count_nonzero(waits))


def correct_others(
    tx: Transaction, page_id: Ints, picked: Ints, bound: Instants, now: datetime
) -> None:
    """Correct the bounds of all rows that were read, because no picked page was due.

    After crawls without leases, the bounds of many pages may be too early. One picked page of each
    host queue a transaction would take long to find those that are due.
    """
    others = np.setdiff1d(positions(bound <= instant(now)), picked)
    if len(others):
        _, due, _, ripe = corrected(tx, page_id[others], now)
        bound[others] = np.where(ripe, bound[others], due)


def requeue_at(
    tx: Transaction, pages: DuePages, due: Instants, next_at: Instants, some: Bools
) -> None:
    """Write other times of some of (N,) locked pages into the queue."""
    tx.requeue(replace(queue_rows(pages, due), next_at=next_at).take(some))
