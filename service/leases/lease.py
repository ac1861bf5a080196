"""Lease crawls that are due.

Requested pages come first, then the most overdue (`leases.due`). `leases.politeness` decides
whether a host may be crawled, and `leases.settle` ends the leases.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import isfinite
from typing import NamedTuple

import numpy as np

from service.budget.allotments import UNLIMITED, URGENT, Allotment
from service.budget.grants import NOTHING
from service.budget.host_days import midnight_after
from service.budget.spending import Spending
from service.core.pace import TakenAmounts
from service.leases.caps import NextDays, QueueCaps, members, not_before, save, save_members
from service.leases.conditional import handed_out
from service.leases.dealt import (
    NO_AMOUNTS,
    DealtPages,
    LeasedPages,
    WorkerRequest,
    deal,
    how_overdue,
    most_urgent_first,
)
from service.leases.open_due import closings, has_windows, openings
from service.leases.picks import PickLimits, counted_turns, is_first, most_overdue
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
from service.leases.put_off import bounds_of, correct_others, corrected, requeue_at
from service.leases.tokens import new_tokens
from service.leases.turns import HostTurns
from service.model.amounts import CRAWLS
from service.model.arrays import INSTANT, LATEST, NO_TIME, Bools, Floats, Instants, Ints, instant
from service.model.history import HostEvents
from service.storage import Transaction
from service.storage.budget.pace import days_since_1970
from service.storage.queue.columns import (
    DuePages,
    HostQueues,
    LeaseFilter,
    Leases,
    QueuedPages,
    share,
)

COMPARED = 64
"""Minimum rows of one transaction among which the most overdue are chosen."""

MOST_PUT_OFF = 500
"""Minimum rows of one transaction while the budget of money is spent."""
HOST_QUEUES = 8
"""Host queues that are read in addition to one for each crawl requested."""


class LockedPicks(NamedTuple):
    """(N,) picked pages after their rows were locked."""

    pages: DuePages
    due_at: Instants
    able: Bools
    """True for pages that their host may crawl now."""
    taken: Bools
    """True for pages that were leased."""
    on_loan: Bools
    """True for pages that were leased on loan."""
    urgent: Bools
    """True for urgent pages that were not leased for want of budget."""
    short: Bools
    """True for other pages that were not leased for want of budget."""
    bound: Instants
    """Next time of each row."""
    amount: Floats
    """Amount of the budget that a crawl takes."""
    leases: Leases
    """Leases of the pages, which end by the closings of their hosts."""

    def spent(self) -> TakenAmounts:
        """Return the amounts that the leased pages take of the budget."""
        amount, first = self.amount, self.taken & np.isnat(self.pages.last_crawl_at)
        own, hours = self.taken & ~self.on_loan, self.pages.hours
        return TakenAmounts(
            float(amount[self.taken].sum()),
            on_loan=float(amount[self.on_loan].sum()),
            first=float(np.count_nonzero(first)),
            in_windows=0.0 if hours is None else float(amount[own & has_windows(hours)].sum()),
        )


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
    allotment: Allotment = UNLIMITED,
    loan: bool = False,
    ahead: bool = False,
) -> DealtPages:
    """Return leases of due pages within the allotment, dealt to the requests in turns.

    With `loan`, urgent pages may go beyond its own part, as far as it has amounts on loan. With
    `ahead`, pages that are not due yet are leased, within its part for them.

    A transaction calls this function once. Because each transaction then locks host queues once,
    transactions cannot deadlock. A transaction that has recorded crawls may hold host queues.
    It calls without `wait`, and so leaves out host queues that another transaction has locked.
    """
    count = sum(request.count for request in requests)
    n_rows, is_spent = max(COMPARED, 2 * count), allotment.is_spent and not ahead
    if is_spent:
        n_rows = max(MOST_PUT_OFF, n_rows)
    until = LATEST if ahead else tx.clock()
    host_queues, rows = tx.ready(until, HOST_QUEUES + count, n_rows, of, wait=wait)
    # after the locks: a lease counts from here, not from before the wait for them
    at = instant(now := tx.now())
    over = allotment.day not in (None, int(days_since_1970(now)))
    if over or not len(host_queues):
        return DealtPages.none()
    at_most, capped = share(n_rows, len(host_queues)), tx.ask_capped(host_queues.queue_id)
    offer = offer_of(tx, set_back(host_queues, polite, at), rows, at_most, polite, now)
    queue_caps = QueueCaps.of(host_queues, capped(), int(days_since_1970(now)))
    offer = offer._replace(gates=queue_caps.limited(offer.gates))
    offer, closed = in_windows(tx, offer, of, now, allotment if ahead else None)
    bound, n_moved = bounds_of(tx, rows, allotment.paid_at if is_spent else None, now)
    able = replace(rows, next_at=bound.copy())
    most = pick_limits(offer, queue_caps, allotment, count, loan=loan or is_spent, ahead=ahead)
    picked = most_overdue(able, offer.host_queue, shared(tx, most, offer, allotment, now), at)
    to = deal([request.count for request in requests], len(picked))
    leases = _leases(offer.rows.page_id[picked], [requests[i] for i in to], now, rng)
    in_group = rows.queue_id[picked] < 0
    locked = lease_due(tx, leases, bound[picked], in_group, allotment, now, ahead=ahead)
    bound[picked] = locked.bound
    if len(picked) and not locked.able.any():
        correct_others(tx, offer.rows.page_id, picked, bound, now)
    taken = picked[locked.taken]
    own = queue_caps.after(offer.host_queue[taken], is_first(rows)[taken])
    save(tx, own, queue_caps.days)
    # without a budget nobody counts
    spent = NOTHING if allotment.day is None else locked.spent()
    if allotment.server and spent.total > 0:
        tx.use_allotment(allotment.server, spent)
    left = allotment.less(spent)
    opens = not_before(own.next_days(len(host_queues), left), closed)
    after = after_leasing(offer, taken, bound, of, opens, at)
    if most.turns is not None:
        counted = taken[counted_turns(able, offer.host_queue, most, at)[taken]]
        credit = most.turns.after(offer.host_queue[counted], is_first(rows)[counted])
        after = replace(after, first_credit=credit)
    tx.save_host_queues(after.take(differs(host_queues, after)))
    pages = handed_out(locked.pages, at, rng)
    crawls = LeasedPages(pages, locked.due_at, locked.leases, how_overdue(pages, at))
    order = most_urgent_first(crawls)
    order = order[locked.taken[order]]
    urgent = float(locked.amount[locked.urgent].sum())
    short = NO_AMOUNTS if allotment.unit == CRAWLS else locked.amount[locked.short]
    # as many host queues as were requested: others may have due pages too
    more = len(picked) + n_moved > 0 or len(host_queues) == HOST_QUEUES + count
    if ahead or len(short) or not (left.has_room() or is_spent):
        more = urgent > 0
    amount = locked.amount[order]
    return DealtPages(crawls.in_order(order), to[order], more, spent, amount, urgent, short)


def pick_limits(
    offer: Offer, caps: QueueCaps, allotment: Allotment, count: int, *, loan: bool, ahead: bool
) -> PickLimits:
    """Return the maximum numbers of crawls for `count` requested ones."""
    first_room, turns = None, None
    if isfinite(allotment.first):
        first_room = caps.first_room(offer.gates, allotment.first_share)
        turns = None if ahead else HostTurns.of(offer.host_queues, allotment.first_share)
    # with a loan, urgent pages may come after all that the own part has room for
    n = count if loan else allotment.crawls(count)
    n = min(n, allotment.early_crawls(count)) if ahead else n
    n_first, room = allotment.first_crawls(count), offer.gates.room
    return PickLimits(n, n_first, room, first_room, ahead, turns=turns)


def in_windows(
    tx: Transaction, offer: Offer, of: LeaseFilter, now: datetime, ahead: Allotment | None
) -> tuple[Offer, Instants | None]:
    """Return an offer without closed host queues, and when these open, NaT for others.

    `ahead` is the allotment of early crawls, which leave over what a day keeps. Feeds are judged
    one by one, so that those of a closed host hide no others. None: all hosts are open at all
    times.
    """
    queue_id, gates = offer.host_queues.queue_id, offer.gates
    closed = None if of.feeds else tx.calendars.opening(queue_id, now, instant(now))
    if closed is None:
        return offer, None
    waits = ~np.isnat(closed)
    if ahead is not None:
        closes, stays_open = tx.calendars.closing(queue_id, now)
        begins = closes & ahead.begins_early(in_windows=True)
        waits |= ~(begins | (stays_open & ahead.begins_early(in_windows=False)))
    return offer._replace(gates=gates._replace(room=np.where(waits, 0, gates.room))), closed


def shared(
    tx: Transaction, most: PickLimits, offer: Offer, allotment: Allotment, now: datetime
) -> PickLimits:
    """Return the limits with the crawls that hosts with windows have before others."""
    n_shared = 0 if most.ahead else allotment.crawls_in_windows(most.n)
    if not n_shared or not tx.calendars.in_use:
        return most
    closes, _ = tx.calendars.closing(offer.host_queues.queue_id, now)
    return most._replace(in_windows=n_shared, closes=closes)


def lease_due(
    tx: Transaction,
    leases: Leases,
    bound: Instants,
    in_group: Bools,
    allotment: Allotment,
    now: datetime,
    *,
    ahead: bool = False,
) -> LockedPicks:
    """Lease pages that are due and whose rows no other transaction has locked.

    With `ahead`, lease those that have waited for a part of their interval too. Correct the bounds
    of pages that are not due, that a day's budget cannot pay, or whose host has had its crawls of
    the day.
    """
    pages, due, locked, ripe = corrected(tx, leases.page_id, now, ahead=ahead)
    day, opens = int(days_since_1970(now)), None
    amount = Spending(allotment.unit, allotment.knows_costs, allotment.most).amounts(tx, pages)
    # a page that is dearer than a day's budget would hold up all others
    allowed = amount <= allotment.most
    if pages.hours is not None:
        opens = openings(pages.hours, instant(now))
        allowed &= np.isnat(opens) | ~ripe
        ends = np.fmin(leases.expires_at, closings(pages.hours, instant(now)))
        leases = replace(leases, expires_at=ends)
    caps = members(tx, pages, locked & ripe & allowed, in_group, day) if in_group.any() else None
    if caps is not None:
        allowed &= caps.allowed
    able = locked & ripe & allowed
    if ahead and pages.hours is not None:
        free = allotment.early(has_windows(pages.hours))
        able &= np.cumsum(np.where(able, amount, 0.0)) <= free
    may = able & allotment.tries(able & (pages.cost <= 0))
    first = np.isnat(pages.last_crawl_at)
    own = may & allotment.fits(np.where(may, amount, 0.0), ahead=ahead)
    rest = may & ~own
    urgent, on_loan, taken = rest, rest, own
    if rest.any():
        urgent = rest & ~first & (pages.urgency >= URGENT)
        on_loan = urgent & allotment.fits_on_loan(np.where(urgent, amount, 0.0))
        taken = own | on_loan
    tx.lease(leases.where(taken), now)
    if taken.any():
        tx.count(HostEvents("n_leased", pages.host_id[taken]))
    if caps is not None:
        save_members(tx, caps, taken, first)
    bound = np.where(taken, leases.expires_at, np.where(ripe, bound, due))
    if not allowed.all():
        next_at = np.full(len(pages), midnight_after(np.array(day)))
        if opens is not None:
            next_at = np.where(np.isnat(opens), next_at, opens)
        wait = locked & ~allowed
        requeue_at(tx, pages, due, next_at, wait)
        bound[wait] = next_at[wait]
    short = able & ~taken & ~urgent
    left = urgent & ~on_loan, short
    return LockedPicks(pages, due, able, taken, on_loan, *left, bound, amount, leases)


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
    offer: Offer,
    taken: Ints,
    bound: Instants,
    of: LeaseFilter,
    opens: NextDays | None,
    at: np.datetime64,
) -> HostQueues:
    """Return the host queues after rows were leased; `bound` is the next time of each row."""
    host_queues, host_queue, n = offer.host_queues, offer.host_queue, len(offer.host_queues)
    # rows of both kinds were read apart, and the bound of each kind counts
    kind = 2 * host_queue + is_first(offer.rows)
    heads_of_kinds = heads(2 * n, kind, bound, offer.rows.next_at, offer.each).reshape(n, 2)
    head, first_head = heads_of_kinds[:, 0], heads_of_kinds[:, 1]
    head = np.fmin(head, first_head if opens is None else later(first_head, opens.first_at))
    if of.hosts:  # no rows of a group's other hosts were read
        head = np.where(host_queues.queue_id < 0, host_queues.next_at, head)
    ends = offer.first_end.copy()
    np.fmin.at(ends, host_queue[taken], bound[taken])
    n_taken = np.bincount(host_queue[taken], minlength=n)
    if opens is not None:
        head = later(head, opens.at)
    after = shut(host_queues, offer.gates, n_taken, ends, head, at)
    # the time of a host queue is that of its other pages
    return replace(after, next_at=host_queues.next_at) if of.feeds else after


def later(bound: Instants, opens_at: Instants) -> Instants:
    """Return bounds, not before other instants; NaT stays NaT."""
    return np.where(np.isnat(bound), bound, np.fmax(bound, opens_at))


def _leases(
    page_id: Ints, requests: Sequence[WorkerRequest], now: datetime, rng: np.random.Generator
) -> Leases:
    workers, ends = np.empty(len(requests), object), np.empty(len(requests), INSTANT)
    workers[:] = [request.worker for request in requests]
    ends[:] = [instant(now + request.ttl) for request in requests]
    token = new_tokens(len(requests), instant(now), rng)
    return Leases(page_id=page_id, token=token, worker=workers, expires_at=ends)
