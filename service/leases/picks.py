"""The rows of the queue to lease: the most overdue first, within each host queue's room. Pure."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from service.leases.early import LEAST_WAIT
from service.leases.turns import HostTurns, contested, ranks
from service.model.arrays import Bools, Floats, Instants, Ints, days
from service.storage.queue.columns import QueuedPages

UNSCHEDULED_RATE = 1.0
"""Crawl rate that ranks a page before an epoch has scheduled it, 1/day."""
FIRST = 1e100
"""Lateness of first crawls that have a maximum of their own, above that of all but requests."""


BEFORE = 1e150
"""Factor on the lateness of pages of hosts with windows that come before all but requests."""


class PickLimits(NamedTuple):
    """Maximum numbers of crawls of one transaction."""

    n: int
    n_first: int
    """First crawls, of all host queues."""
    room: Ints
    """(Q,) crawls of each host queue."""
    first_room: Ints | None = None
    """(Q,) first crawls of each host queue, which then come before others; None: as `room`."""
    ahead: bool = False
    """True for pages that were crawled before and are not due yet."""
    in_windows: int = 0
    """Crawls of host queues with windows that come before others."""
    closes: Bools | None = None
    """(Q,) True for host queues with windows; None: `in_windows` is 0."""
    turns: HostTurns | None = None
    """Turns of first crawls and others on each host queue; None: lateness alone decides."""


def most_overdue(
    rows: QueuedPages, host_queue: Ints, limits: PickLimits, at: np.datetime64
) -> Ints:
    """Return the rows to lease, the most overdue first; `host_queue` has the position of each."""
    overdue = lateness(rows, at)
    room, first = limits.room, is_first(rows)
    if limits.first_room is not None:
        overdue[first] = np.maximum(overdue[first], FIRST)
    ripe = rows.next_at <= at
    if limits.ahead:
        ripe = ~rows.leased & ~first & ~np.isnat(rows.next_at) & (overdue >= LEAST_WAIT)
    can = np.flatnonzero(ripe & (room[host_queue] > 0))
    turn = np.zeros(len(rows), np.int64)
    if limits.turns is not None:
        counted = np.flatnonzero(counted_turns(rows, host_queue, limits, at))
        if len(counted):
            _take_turns(rows, overdue, turn, counted, host_queue, limits.turns)
    if limits.closes is not None:
        overdue[_shared(rows, overdue, turn, can, host_queue, limits)] *= BEFORE
    order = _ordered(rows, overdue, turn, can)
    has_first = first[order].any()
    if has_first and limits.first_room is not None:
        some = within_room(order[first[order]], host_queue, limits.first_room)
        order = order[~first[order] | np.isin(order, some)]
    picked = within_room(order, host_queue, room)[: limits.n]
    if not has_first:
        return picked
    too_many = first[picked] & (np.cumsum(first[picked]) > limits.n_first)
    if too_many.any():
        kept = ~first[order] | np.isin(order, picked[first[picked] & ~too_many])
        picked = within_room(order[kept], host_queue, room)[: limits.n]
    return picked


def counted_turns(
    rows: QueuedPages, host_queue: Ints, limits: PickLimits, at: np.datetime64
) -> Bools:
    """Return the due rows of host queues where first crawls and others share the turns.

    Requests are none of them, because they come first.
    """
    none = np.zeros(len(rows), np.bool_)
    if limits.turns is None or limits.n_first < 1:
        return none
    first_room = limits.room if limits.first_room is None else limits.first_room
    first = is_first(rows)
    due: Bools = (rows.next_at <= at) & ~rows.requested
    due &= (limits.room > 0)[host_queue] & ((first_room > 0)[host_queue] | ~first)
    if not first[due].any():
        return none
    both = contested(host_queue[due], first[due], len(limits.room))
    counted: Bools = due & both[host_queue]
    return counted


def _take_turns(
    rows: QueuedPages, overdue: Floats, turn: Ints, some: Ints, host_queue: Ints, turns: HostTurns
) -> None:
    """Lower the lateness of the first crawls among some rows that come after others of their host.

    Write the turns that decide between rows of the same lateness.
    """
    order = _ordered(rows, overdue, turn, some)
    of_queue, first = host_queue[order], is_first(rows)[order]
    place = turns.places(of_queue, first)
    in_turns = np.lexsort((place, of_queue))
    order, of_queue, place = order[in_turns], of_queue[in_turns], place[in_turns]
    begins = np.flatnonzero(np.diff(of_queue, prepend=-1))
    for start, end in pairwise([*begins.tolist(), len(order)]):
        own = order[start:end]
        lowest = np.minimum.accumulate(overdue[own])
        turn[own] = np.where(lowest >= FIRST, 0, place[start:end])
        overdue[own] = lowest


def _ordered(rows: QueuedPages, overdue: Floats, turn: Ints, some: Ints) -> Ints:
    """Return some rows, the most overdue first."""
    return some[np.lexsort((rows.page_id[some], rows.next_at[some], turn[some], -overdue[some]))]


def _shared(
    rows: QueuedPages,
    overdue: Floats,
    turn: Ints,
    can: Ints,
    host_queue: Ints,
    limits: PickLimits,
) -> Ints:
    """Return the rows to which a day's share of their windows entitles them."""
    closes = can[:0] if limits.closes is None else can[limits.closes[host_queue[can]]]
    order = within_room(_ordered(rows, overdue, turn, closes), host_queue, limits.room)
    return order[: limits.in_windows]


def lateness(rows: QueuedPages, at: np.datetime64) -> Floats:
    """Return the time since each row's last crawl, in its intervals; inf for requested pages."""
    rate = np.where(rows.crawl_rate > 0, rows.crawl_rate, UNSCHEDULED_RATE)
    first = is_first(rows)
    # rows have no time of registration; a page that was never crawled is due from then on
    since: Instants = np.where(first, rows.next_at, rows.last_crawl_at)
    overdue: Floats = np.maximum(days(at - since), 0.0) * rate + first
    overdue[rows.requested] = np.inf
    return overdue


def is_first(rows: QueuedPages) -> Bools:
    """Return which rows are of pages that were never crawled."""
    never: Bools = np.isnat(rows.last_crawl_at)
    return never


def within_room(order: Ints, host_queue: Ints, room: Ints) -> Ints:
    """Return the first rows of an order that the room of each host queue allows."""
    return order[ranks(host_queue[order]) < room[host_queue[order]]]
