"""Caps where crawls are leased: what a UTC day allows of a host queue, and of a group's hosts."""

from math import isfinite
from typing import NamedTuple

import numpy as np

from service.budget.allotments import Allotment
from service.budget.host_days import after, first_room, midnight_after, on_day, room
from service.leases.politeness import Gates
from service.leases.turns import ranks
from service.model.arrays import NO_TIME, Bools, Instants, Ints, distinct, instant
from service.storage import Transaction
from service.storage.budget.caps import NO_DAYS, CappedDays
from service.storage.queue.columns import DuePages, HostQueues


class NextDays(NamedTuple):
    """(Q,) next days of host queues that have had their crawls of this one; NaT: of the others."""

    at: Instants
    first_at: Instants
    """The same for first crawls."""


def not_before(days: NextDays | None, opens_at: Instants | None) -> NextDays | None:
    """Return next days, not before the openings of closed host queues; NaT or None: open."""
    if opens_at is None:
        return days
    if days is None:
        return NextDays(opens_at, np.full(len(opens_at), NO_TIME))
    return days._replace(at=np.fmax(days.at, opens_at))


class QueueCaps(NamedTuple):
    """Host queues with a cap among those that a transaction has locked."""

    days: CappedDays
    """(C,) counts as of the day."""
    row: Ints
    """(C,) position of each among the locked host queues."""
    day: int

    @classmethod
    def of(cls, host_queues: HostQueues, days: CappedDays, day: int) -> "QueueCaps":
        """Return the caps of locked host queues on a day."""
        if not len(days):
            return cls(days, NO_ROWS, day)
        row = host_queues.queue_id.searchsorted(days.queue_id)
        return cls(on_day(days, day), row, day)

    def limited(self, gates: Gates) -> Gates:
        """Return the gates with the room that the caps leave."""
        if not len(self.row):
            return gates
        left = gates.room.copy()
        left[self.row] = np.minimum(left[self.row], room(self.days))
        return gates._replace(room=left)

    def first_room(self, gates: Gates, first_share: float) -> Ints:
        """Return the (Q,) first crawls that may begin while first crawls have a maximum."""
        if not len(self.row):
            return gates.room
        left = gates.room.copy()
        left[self.row] = np.minimum(left[self.row], first_room(self.days, first_share))
        return left

    def after(self, host_queue: Ints, first: Bools) -> "QueueCaps":
        """Return the caps after crawls of host queues, by their position."""
        if not len(self.row):
            return self
        n = 1 + max(host_queue.max(initial=0), self.row.max(initial=0))
        n_crawls = np.bincount(host_queue, minlength=n)[self.row]
        n_first = np.bincount(host_queue[first], minlength=n)[self.row]
        return self._replace(days=after(self.days, n_crawls, n_first))

    def next_days(self, n: int, left: Allotment) -> NextDays | None:
        """Return when n host queues open that have had their crawls of the day; None: none has.

        `left` is what the day leaves of the budget.
        """
        had_last_first = left.next_first_at is not None and left.first < 1
        if not len(self.row) and not had_last_first:
            return None
        opens = np.full(n, NO_TIME)
        midnight, first_opens = midnight_after(np.array(self.day)), opens.copy()
        opens[self.row[room(self.days) < 1]] = midnight
        if isfinite(left.first):
            first_opens[self.row[first_room(self.days, left.first_share) < 1]] = midnight
        if left.next_first_at is not None and had_last_first:
            first_opens[:] = np.fmax(first_opens, instant(left.next_first_at))
        return NextDays(opens, first_opens)


NO_ROWS = np.zeros(0, np.int64)


class MemberCaps(NamedTuple):
    """Pages of groups, and what their hosts' own caps allow."""

    days: CappedDays
    member: Ints
    """(N,) row of each page's host in `days`; -1: no cap of its own."""
    allowed: Bools
    """(N,) False for pages whose host has had its crawls of the day."""


def members(
    tx: Transaction, pages: DuePages, wanted: Bools, in_group: Bools, day: int
) -> MemberCaps:
    """Return what the caps of hosts in groups allow of wanted pages, the first pages first."""
    allowed, member = np.ones(len(pages), np.bool_), np.full(len(pages), -1)
    some = np.flatnonzero(wanted & in_group)
    if not len(some):
        return MemberCaps(NO_DAYS, member, allowed)
    host_id = pages.host_id[some]
    days = on_day(tx.capped_members(distinct(host_id)), day)
    if len(days):
        place = np.minimum(days.queue_id.searchsorted(host_id), len(days) - 1)
        capped = days.queue_id[place] == host_id
        some, place = some[capped], place[capped]
        member[some] = place
        allowed[some] = ranks(place) < room(days)[place]
    return MemberCaps(days, member, allowed)


def save(tx: Transaction, caps: QueueCaps | MemberCaps, before: CappedDays) -> None:
    """Write the counts of host queues that have more crawls than before."""
    more = caps.days.n_crawls > before.n_crawls
    if len(more) and more.any():
        tx.save_capped(caps.days.where(more))


def save_members(tx: Transaction, caps: MemberCaps, taken: Bools, first: Bools) -> None:
    """Write the counts of hosts in groups after crawls."""
    n, of = len(caps.days), caps.member[taken]
    if n and (of >= 0).any():
        own = of >= 0
        n_crawls = np.bincount(of[own], minlength=n)
        n_first = np.bincount(of[own & first[taken]], minlength=n)
        saved = caps._replace(days=after(caps.days, n_crawls, n_first))
        save(tx, saved, caps.days)
