"""Lease crawls that are due.

Requested pages come first, then the most overdue (`leases.due`). `leases.politeness` decides
whether a host may be crawled, and `leases.settle` ends the leases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.leases.conditional import handed_out
from service.leases.due import comes_first, due_at, ranking_rates, requested
from service.leases.politeness import (
    Gates,
    Politeness,
    differs,
    gates,
    heads,
    limits,
    set_back,
    shut,
)
from service.leases.queue import queue_rows
from service.leases.unfinished import count_ended
from service.model.arrays import INSTANT, NO_TIME, Bools, Floats, Instants, Ints, days, instant
from service.model.history import HostEvents
from service.storage import Transaction
from service.storage.queue.columns import (
    DuePages,
    HostQueues,
    LeaseFilter,
    Leases,
    QueuedPages,
    share,
)

UNSCHEDULED_RATE = 1.0
"""Crawl rate that ranks a page before an epoch has scheduled it, 1/day."""

COMPARED = 64
"""Minimum rows of one transaction among which the most overdue are chosen."""

HOST_QUEUES = 8
"""Host queues that are read in addition to one for each crawl requested."""


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The request of a worker for a number of crawls."""

    worker: str
    count: int
    ttl: timedelta


class LeasedPages(NamedTuple):
    """(N,) leased crawls, the most overdue first."""

    pages: DuePages
    due_at: Instants
    leases: Leases
    overdue: Floats
    """(now - last crawl) x crawl rate; (now - registration) x crawl rate + 1 if never crawled."""

    @property
    def requested(self) -> Bools:
        """(N,) True where a ping has requested the crawl."""
        return requested(self.pages)

    def take(self, where: Ints) -> "LeasedPages":
        """Return the crawls that an index array selects."""
        pages, leases = self.pages.take(where), self.leases.take(where)
        return LeasedPages(pages, self.due_at[where], leases, self.overdue[where])


class DealtPages(NamedTuple):
    """Crawls that one transaction has leased to several requests."""

    leased: LeasedPages
    to: Ints
    """(N,) position of each crawl's request."""
    more: bool
    """True if more pages may be due."""


class Offer(NamedTuple):
    """Candidates for leases: locked host queues, and the first rows of each."""

    host_queues: HostQueues
    gates: Gates
    first_end: Instants
    """End of the first lease of each host queue."""
    rows: QueuedPages
    host_queue: Ints
    """(R,) position of each row's host queue."""
    each: int
    """Maximum number of rows that were read of each host queue."""


def lease(
    tx: Transaction,
    requests: Sequence[WorkerRequest],
    of: LeaseFilter,
    polite: Politeness,
    rng: np.random.Generator,
    *,
    wait: bool = True,
) -> DealtPages:
    """Return leases of due pages, dealt to the requests in turns.

    A transaction calls this function once. Because each transaction then locks host queues once,
    transactions cannot deadlock. A transaction that has recorded crawls may hold host queues.
    It calls without `wait`, and so leaves out host queues that another transaction has locked.
    """
    count = sum(request.count for request in requests)
    n_rows = max(COMPARED, 2 * count)
    host_queues, rows = tx.ready(tx.clock(), HOST_QUEUES + count, n_rows, of, wait=wait)
    # after the locks: a lease counts from here, not from before the wait for them
    now = tx.now()
    at = instant(now)
    if not len(host_queues):
        none = LeasedPages(DuePages.empty(), np.zeros(0, INSTANT), Leases.empty(), np.zeros(0))
        return DealtPages(none, np.zeros(0, np.int64), more=False)
    at_most = share(n_rows, len(host_queues))
    offer = offer_of(tx, set_back(host_queues, polite, at), rows, at_most, polite, now)
    bound = offer.rows.next_at.copy()
    expired = np.flatnonzero(rows.leased & (bound <= at))
    if len(expired):
        bound[expired] = after_expiry(tx, rows.page_id[expired], bound[expired], now)
    able = replace(rows, next_at=bound)
    picked = most_overdue(able, offer.host_queue, offer.gates.room, count, at)
    to = deal([request.count for request in requests], len(picked))
    leases = _leases(offer.rows.page_id[picked], [requests[i] for i in to], now, rng)
    pages, due, taken, bound[picked] = lease_due(tx, leases, bound[picked], now)
    if len(picked) and not taken.any():
        correct_others(tx, offer.rows.page_id, picked, bound, now)
    after = after_leasing(offer, picked[taken], bound, of, at)
    tx.save_host_queues(after.take(differs(host_queues, after)))
    pages = handed_out(pages, at, rng)
    leased = LeasedPages(pages, due, leases, how_overdue(pages, at))
    order = _most_urgent_first(leased)
    order = order[taken[order]]
    # as many host queues as were requested: others may have due pages too
    more = len(picked) + len(expired) > 0 or len(host_queues) == HOST_QUEUES + count
    return DealtPages(leased.take(order), to[order], more)


def lease_due(
    tx: Transaction, leases: Leases, bound: Instants, now: datetime
) -> tuple[DuePages, Instants, Bools, Instants]:
    """Lease pages that are due and whose rows no other transaction has locked.

    Correct the bounds of pages that are not due. Return the pages, their due times, which of them
    were leased, and their bounds.
    """
    pages, due, locked, ripe = _corrected(tx, leases.page_id, now)
    taken = locked & ripe
    tx.lease(leases.where(taken), now)
    if taken.any():
        tx.count(HostEvents("n_leased", pages.host_id[taken]))
    return pages, due, taken, np.where(taken, leases.expires_at, np.where(ripe, bound, due))


def after_expiry(tx: Transaction, page_id: Ints, bound: Instants, now: datetime) -> Instants:
    """Count leases that have expired, and return the bounds of their pages."""
    _, due, locked, _ = _corrected(tx, page_id, now)
    return np.where(locked, due, bound)


def correct_others(
    tx: Transaction, page_id: Ints, picked: Ints, bound: Instants, now: datetime
) -> None:
    """Correct the bounds of all rows that were read, because no picked page was due.

    After crawls without leases, the bounds of many pages may be too early. One picked page of each
    host queue a transaction would take long to find those that are due.
    """
    others = np.setdiff1d(np.flatnonzero(bound <= instant(now)), picked)
    if len(others):
        _, due, _, ripe = _corrected(tx, page_id[others], now)
        bound[others] = np.where(ripe, bound[others], due)


def _corrected(
    tx: Transaction, page_id: Ints, now: datetime
) -> tuple[DuePages, Instants, Bools, Bools]:
    """Lock the rows of pages, count their leases that expired, correct bounds of pages not due.

    Return the pages, their due times, which rows were locked, and which pages are due.
    """
    pages, locked, ended = tx.lock_pages(page_id, now)
    due = due_at(pages)
    if ended.any():
        due[ended] = count_ended(tx, pages.take(ended), due[ended], now)
    ripe: Bools = due <= instant(now)
    stale = locked & ~ripe & ~ended
    if stale.any():
        tx.requeue(replace(queue_rows(pages, due), next_at=due).take(stale))
    return pages, due, locked, ripe


def offer_of(
    tx: Transaction,
    host_queues: HostQueues,
    rows: QueuedPages,
    each: int,
    polite: Politeness,
    now: datetime,
) -> Offer:
    """Return the offer of locked host queues, their rows and their gates."""
    n_running: Ints = np.zeros(len(host_queues), np.int64)
    first_end: Instants = np.full(len(host_queues), NO_TIME)
    at, (delay, concurrency) = instant(now), limits(host_queues, polite)
    if concurrency.any():
        # a lease that expired less than a delay ago counts: its worker may have crawled at the end
        n_running, first_end = tx.running(host_queues.queue_id, at - delay)
    host_queue = host_queues.queue_id.searchsorted(rows.queue_id)
    open_ = gates(host_queues, delay, concurrency, n_running, at)
    return Offer(host_queues, open_, first_end, rows, host_queue, each)


def after_leasing(
    offer: Offer, taken: Ints, bound: Instants, of: LeaseFilter, at: np.datetime64
) -> HostQueues:
    """Return the host queues after rows were leased; `bound` is the next time of each row."""
    host_queues, host_queue, n = offer.host_queues, offer.host_queue, len(offer.host_queues)
    head = heads(n, host_queue, bound, offer.rows.next_at, offer.each)
    if of.hosts:  # no rows of a group's other hosts were read
        head = np.where(host_queues.queue_id < 0, host_queues.next_at, head)
    ends = offer.first_end.copy()
    np.fmin.at(ends, host_queue[taken], bound[taken])
    n_taken = np.bincount(host_queue[taken], minlength=n)
    return shut(host_queues, offer.gates, n_taken, ends, head, at)


def _most_urgent_first(leased: LeasedPages) -> Ints:
    """Return the order of an answer: requested pages, then the most overdue."""
    urgency = np.where(comes_first(leased.pages), np.inf, leased.overdue)
    return np.lexsort((leased.pages.page_id, leased.due_at, -urgency))


def _leases(
    page_id: Ints, requests: Sequence[WorkerRequest], now: datetime, rng: np.random.Generator
) -> Leases:
    workers, ends = np.empty(len(requests), object), np.empty(len(requests), INSTANT)
    workers[:] = [request.worker for request in requests]
    ends[:] = [instant(now + request.ttl) for request in requests]
    # 0 is a crawl without a lease, and the column has signed integers of 64 bits
    token = rng.integers(1, 2**63 - 1, len(requests))
    return Leases(page_id=page_id, token=token, worker=workers, expires_at=ends)


def how_overdue(pages: DuePages, at: np.datetime64) -> Floats:
    """Return (now - last crawl) x crawl rate; a page never crawled is due from registration on."""
    rate = ranking_rates(pages, due_at(pages))
    rate = np.where(rate > 0, rate, UNSCHEDULED_RATE)
    first = np.isnat(pages.last_crawl_at)
    since: Instants = np.where(first, pages.created_at, pages.last_crawl_at)
    return days(at - since) * rate + first


def most_overdue(
    rows: QueuedPages, host_queue: Ints, room: Ints, count: int, at: np.datetime64
) -> Ints:
    """Return the rows to lease, the most overdue first, within the room of each host queue."""
    rate = np.where(rows.crawl_rate > 0, rows.crawl_rate, UNSCHEDULED_RATE)
    first = np.isnat(rows.last_crawl_at)
    # rows have no time of registration; a page that was never crawled is due from then on
    since: Instants = np.where(first, rows.next_at, rows.last_crawl_at)
    overdue = np.maximum(days(at - since), 0.0) * rate + first
    overdue[rows.requested] = np.inf
    can = np.flatnonzero((rows.next_at <= at) & (room[host_queue] > 0))
    order = can[np.lexsort((rows.page_id[can], rows.next_at[can], -overdue[can]))]
    # stable: within a host queue the most overdue stay first
    by_host_queue = np.argsort(host_queue[order], kind="stable")
    sorted_host_queue = host_queue[order][by_host_queue]
    place = np.empty(len(order), np.int64)
    place[by_host_queue] = np.arange(len(order)) - np.searchsorted(
        sorted_host_queue, sorted_host_queue
    )
    return order[place < room[host_queue[order]]][:count]


def deal(counts: Sequence[int], n: int) -> Ints:
    """Return (n,) request that gets each page, dealt in turns to requests for `counts` pages.

    >>> deal([1, 3, 2], 6).tolist()
    [0, 1, 2, 1, 2, 1]
    """
    who = np.repeat(np.arange(len(counts)), counts)
    turn = np.concatenate([np.arange(count) for count in counts])
    return who[np.lexsort((who, turn))][:n]
