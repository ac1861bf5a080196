"""The next lease of hosts and groups: when it can begin, and what it waits for until then."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from recrawl_client.wire.hosts import NextReason
from service.api.assembly import Service
from service.api.holds.reading import full_caps
from service.core.open_hours import OpenHours
from service.leases.politeness import Politeness, ends_of_pauses, limits
from service.model.arrays import LATEST, NO_TIME, Instants, Ints, instant, moment
from service.model.calendars import Calendars
from service.storage import Transaction
from service.storage.queue.columns import HostQueues


class NextLease(NamedTuple):
    """The next lease of a host or a group."""

    at: datetime | None
    """None: no lease can begin, or none within a year."""
    reason: NextReason


NOTHING_QUEUED = NextLease(None, "nothing_queued")


def next_leases(
    tx: Transaction, service: Service, owners: Sequence[int], queue_id: Ints
) -> list[NextLease]:
    """Return the next lease of each of (N,) hosts and groups, by their host queues.

    `owners` are hosts, or minus the ids of groups: their windows and caps hold.
    """
    now, unique = tx.now(), np.unique(queue_id)
    queues = tx.read_host_queues(unique)
    if not len(queues):
        return [NOTHING_QUEUED] * len(owners)
    rows = tx.first_rows(queues.queue_id)
    # the two are bounds that may be early: each knows of waits that the other does not know of
    head = np.fmax(queues.next_at, rows)
    ends: dict[NextReason, Instants] = {
        "due": np.where(np.isnat(rows), NO_TIME, head),
        "delay": queues.ready_at,
        "lease": _ends_of_leases(tx, queues, service.settler.polite, now),
        "paused": ends_of_pauses(queues),
    }
    of_all = tx.orders().paused_until
    if of_all is not None:
        ends["paused"] = np.fmax(ends["paused"], instant(of_all))
    capped = _ends_of_caps(tx, owners, queue_id, now)
    place = {queue: n for n, queue in enumerate(queues.queue_id.tolist())}
    answers = []
    for owner, queue in zip(owners, queue_id.tolist(), strict=True):
        n = place.get(queue)
        if n is None or np.isnat(ends["due"][n]):
            answers.append(NOTHING_QUEUED)
            continue
        waits = {reason: each[n] for reason, each in ends.items()}
        waits["cap"] = np.fmax(capped.get(owner, NO_TIME), capped.get(queue, NO_TIME))
        last = _last_of(waits, instant(now))
        answers.append(_in_windows(tx.calendars, owner, last, now))
    return answers


def _last_of(waits: dict[NextReason, np.datetime64], at: np.datetime64) -> NextLease:
    """Return the wait that ends last; of two that end at once, the later in the order."""
    reason: NextReason = "ready"
    until = at
    for name, end in waits.items():
        if end > at and end >= until:
            reason, until = name, end
    ends_at = moment(until)
    return NextLease(None if ends_at is None or ends_at >= LATEST else ends_at, reason)


def _in_windows(calendars: Calendars, owner: int, last: NextLease, now: datetime) -> NextLease:
    """Return the next lease of a host or group inside of its windows."""
    if last.at is None or not calendars.in_use:
        return last
    rules = [calendars.rules_of(owner)]
    if owner < 0:
        rules = [calendars.rules_of_group(-owner), *calendars.own_in_group(-owner)]
    hours = [calendars.hours(each, now) for each in rules]
    closing = [each for each in hours if isinstance(each, OpenHours)]
    if len(closing) < len(hours):  # a host of the group is always open
        return last
    at = instant(last.at)
    opens = [each.opening(np.array([at]))[0] for each in closing if each.opens_from(at)]
    if not opens:
        return NextLease(None, "never_opens")
    return last if min(opens) <= at else NextLease(moment(min(opens)), "window")


def _ends_of_leases(
    tx: Transaction, queues: HostQueues, polite: Politeness, now: datetime
) -> Instants:
    """Return when a lease ends that leaves room on (N,) full host queues; NaT: there is room.

    A lease counts until a delay after its end, as where leases are given.
    """
    delay, concurrency = limits(queues, polite)
    frees_at = np.full(len(queues), NO_TIME)
    if not concurrency.any():
        return frees_at
    queue_id, ends = tx.lease_ends(queues.queue_id, now - delay.max().item())
    for n in np.flatnonzero(np.isin(queues.queue_id, queue_id)).tolist():
        own = np.sort(ends[queue_id == queues.queue_id[n]] + delay[n])[::-1]
        if 0 < concurrency[n] <= np.count_nonzero(own > instant(now)):
            frees_at[n] = own[concurrency[n] - 1]
    return frees_at


def _ends_of_caps(
    tx: Transaction, owners: Sequence[int], queue_id: Ints, now: datetime
) -> dict[int, np.datetime64]:
    """Return the end of the day by host or host queue, of those that have had its crawls."""
    of_owners = np.array(owners, np.int64)
    members = np.unique(of_owners[(of_owners > 0) & (queue_id < 0)])
    names = dict.fromkeys([*owners, *queue_id.tolist()], "")
    full = full_caps(tx.ask_capped(np.unique(queue_id))(), names, now)
    if len(members):
        full |= full_caps(tx.capped_members(members), names, now)
    return {queue: instant(cap.until) for queue, cap in full.items()}
