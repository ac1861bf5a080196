"""The queue of due pages: filled ahead of time, and corrected after the clock was set back."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from service.leases import politeness
from service.leases.due import comes_first, due_at, ranking_rates
from service.leases.early import EarlyPages
from service.leases.open_due import openings
from service.leases.politeness import Politeness
from service.model.arrays import NO_TIME, Instants, Ints, distinct, instant
from service.model.columns import DueColumns
from service.storage import Store, Transaction
from service.storage.budget.pace import days_since_1970
from service.storage.clock import Clock
from service.storage.queue.columns import FillMark, QueueRows

AHEAD = np.timedelta64(36_525, "D")
"""Time before its request at which a requested page is queued: a century, before all due times."""
BLOCK = 20_000
"""Maximum pages, or hosts, of one transaction."""


def queue_rows(pages: DueColumns, due: Instants) -> QueueRows:
    """Return the rows of pages; requested pages come before all others, in order of request.

    A page whose pings have earned its crawl comes with the others (`due.comes_first`).
    """
    first = comes_first(pages)
    return QueueRows(
        page_id=pages.page_id,
        next_at=np.where(first & ~np.isnat(due), pages.requested_at - AHEAD, due),
        last_crawl_at=pages.last_crawl_at,
        crawl_rate=ranking_rates(pages, due),
        requested=first,
    )


def queue_due(tx: Transaction, page_id: Ints, until: datetime) -> None:
    """Queue the pages that are due before `until`."""
    if len(page_id):
        enqueue(tx, tx.due_columns(distinct(page_id)), until)


def enqueue(
    tx: Transaction, pages: DueColumns, until: datetime, early: EarlyPages | None = None
) -> Ints:
    """Queue the pages, in ascending order, that are due before `until`; return their ids.

    `early` chooses further pages, whose bound is their due time.
    """
    due = due_at(pages)
    soon = due < instant(until)
    if pages.hours is not None:
        # requested pages wait in the queue for the opening of their host, so that they are counted
        opens = openings(pages.hours, instant(tx.clock()))
        soon |= comes_first(pages) & ~np.isnat(opens) & ~np.isnat(due)
    if early is not None:
        soon |= early.choose(pages, due, tx.clock())
    rows = queue_rows(pages, due).take(soon)
    # the time of a host queue is a bound that may be early and is never late
    tx.lower_host_queues(tx.enqueue(rows))
    return rows.page_id


def fill_queue(
    store: Store,
    until: datetime,
    stopped: Callable[[], bool] = lambda: False,
    early: EarlyPages | None = None,
    at: datetime | None = None,
) -> None:
    """Queue every page that is due before `until`, and `early` ones, one block per transaction.

    `at` is the begin of the fill, for its mark.
    A fill that is stopped leaves no mark, so the next runner of epochs repeats it.
    """
    with store.begin(write=False) as tx:
        # first: an epoch that is published during the fill then differs from the mark
        epoch = tx.number_in_force()
        if early is not None:
            now = tx.clock()
            horizon_days, closes = (until - now) / timedelta(days=1), tx.calendars.in_use
            early.begin(tx.pace(), days_since_1970(now), horizon_days, in_windows=closes)
    after = 0
    while not stopped():
        with store.begin() as tx:
            block = tx.next_page_ids(after, BLOCK)
            if not len(block):
                tx.set_filled(FillMark(epoch, until, at))
                return
            fill_block(tx, after, int(block[-1]), until, early)
        after = int(block[-1])


def fill_block(
    tx: Transaction, after: int, last: int, until: datetime, early: EarlyPages | None = None
) -> None:
    """Queue the pages of a range that are due before `until`, and remove the others.

    Rows that other transactions have locked stay, because those transactions may wait for a row
    that this one has queued.
    """
    queued = enqueue(tx, tx.due_block(after, last), until, early)
    extra = np.setdiff1d(tx.waiting(after, last), queued, assume_unique=True)
    if not len(extra):
        return
    # judged again under the lock, because a report may have made a page due meanwhile
    pages, locked, _ = tx.lock_pages(extra, tx.clock())
    out = locked & ~(due_at(pages) < instant(until))
    tx.requeue(queue_rows(pages, np.full(len(pages), NO_TIME)).take(out))


def redate(store: Store, polite: Politeness, now: Clock) -> None:
    """Set times after now to now, after a clock that ran ahead: pages, leases, webhooks, hosts.

    Other times stay. The queue must be filled afterwards.
    """
    after = 0
    while True:
        with store.begin() as tx:
            block = tx.next_page_ids(after, BLOCK)
            if not len(block):
                break
            tx.redate_pages(after, int(block[-1]), now())
        after = int(block[-1])
    with store.begin() as tx:
        tx.redate_leases(now())
        tx.redate_webhooks(now())
    _redate_host_queues(store, polite, now)


def _redate_host_queues(store: Store, polite: Politeness, now: Clock) -> None:
    # host queues of groups have negative ids
    after = int(np.iinfo(np.int64).min)
    while True:
        with store.begin() as tx:
            before = tx.next_host_queues(after, BLOCK)
            if not len(before):
                return
            at = instant(now())
            back = politeness.set_back(before, polite, at)
            back = replace(back, next_at=np.minimum(back.next_at, at))  # leases may end sooner
            tx.save_host_queues(back.take(politeness.differs(before, back)))
        after = int(before.queue_id[-1])
