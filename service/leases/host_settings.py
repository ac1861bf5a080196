"""Settings of hosts and groups of hosts, and the state of a host's feed of pings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from service.core.ping_feeds import PingFeeds
from service.core.pings import PingQuality, PingState
from service.leases import politeness
from service.leases.politeness import Politeness
from service.model.arrays import (
    NO_TIME,
    Bools,
    Columns,
    Floats,
    Ints,
    distinct,
    instant,
    nothing,
)
from service.model.calendars import HourRules
from service.model.domain import Host, HostPages, HostQueue
from service.model.errors import GroupNotFound, HostNotFound
from service.model.windows import BLACKOUTS, WINDOWS
from service.storage import Transaction
from service.storage.queue.columns import NEVER_FILLED, HostQueues

CAP = "max_crawl_rate"
DOUBT = "false_304_at"
FIRST_SHARE = "first_share"
HOURS = WINDOWS, BLACKOUTS
"""Names of the fields of when hosts may be crawled."""
MOST_AUDITED = 1_000
"""Maximum number of members that an entry of the audit names."""
PAUSES = BLOCK, PAUSE = "blocked_until", "paused_until"
"""Names of the ends of the pauses of a host queue by an operator and by the site."""
SHUT_BY = (BLOCK, *politeness.STATE[:-1])
"""Fields that keep a gate shut, which move with a host into another host queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Columns):
    """(N,) hosts by ascending host_id, and the host queues that the hosts leave and join."""

    host_id: Ints
    left: Ints
    joined: Ints


@dataclass(frozen=True, slots=True)
class HostFeed:
    """The pings of a host's `auto` pages."""

    n_pages: int
    """Number of pages with a ping."""
    n_pings: int
    ping_rate: float
    """Pings of all pages, 1/day."""
    real: float
    """Share of the pings that announce a change."""
    trust: float
    """Mean log-likelihood ratio of "pings announce nearly all changes"."""
    last_ping_at: datetime
    silent_days: float
    silent: bool
    """True if the silence is too improbable, so that the pages are crawled as without pings."""


def in_force(host_queues: Sequence[HostQueue], polite: Politeness) -> list[Politeness]:
    """Return the delay and concurrency in force of each host queue."""
    columns = _columns(host_queues)
    delays, concurrencies = politeness.limits_s(columns, polite)
    pairs = zip(delays.tolist(), concurrencies.tolist(), strict=True)
    return [Politeness(delay_s, concurrency) for delay_s, concurrency in pairs]


def are_slowed(host_queues: Sequence[HostQueue], polite: Politeness) -> list[bool]:
    """Return which host queues are crawled more slowly because of their latency."""
    slow: list[bool] = politeness.slowed(_columns(host_queues), polite).tolist()
    return slow


def _columns(host_queues: Sequence[HostQueue]) -> HostQueues:
    """Return the settings and latencies of host queues; other columns are empty."""
    n = len(host_queues)
    columns = {f.name: nothing(f.type, n) for f in fields(HostQueues)}
    for name in (*politeness.SETTINGS, *politeness.LATENCY):
        cells = np.array([getattr(each, name) for each in host_queues], np.float64)
        whole = columns[name].dtype.kind == "i"
        columns[name] = np.nan_to_num(cells).astype(np.int64) if whole else cells
    return HostQueues(**columns)


def change_host(
    tx: Transaction, host: str, settings: Mapping[str, Any], now: datetime, polite: Politeness
) -> None:
    """Change settings of a host, new or not: fields of `Host`, `blocked_until`, `false_304_at`.

    None clears a setting, and of `paused_until` the pause by the site. The function creates a new
    group. Queued pages move with their host. A pause holds for the host queue that the host joins.
    """
    host_id = tx.host_ids([host])
    # The group comes before the host, as in `change_group`: the two cannot wait for each other.
    group = settings.get("group")
    chosen = host_id if group is None else np.array([-tx.group_id(group, near=host)])
    left = _locked(tx, host_id)
    joined = chosen if "group" in settings else left
    moves = Moves(host_id=host_id, left=left, joined=joined)
    looked_at = np.concatenate([left, joined])
    if DOUBT in settings:
        tx.set_false_304(host_id, settings[DOUBT])
    if FIRST_SHARE in settings:
        tx.save_first_share(int(host_id[0]), settings[FIRST_SHARE])
    _change(tx, moves, int(host_id[0]), int(joined[0]), looked_at, settings, now, polite)


def change_group(
    tx: Transaction,
    group: str,
    settings: Mapping[str, Any],
    members: Collection[str] | None,
    now: datetime,
    polite: Politeness,
) -> None:
    """Change settings of a group, new or not, and its members unless `members` is None.

    Settings are the fields of `HostGroup`, those of its host queue that callers set, and
    `blocked_until`.
    Otherwise the rules of `change_host` hold.
    """
    queue_id = -tx.group_id(group, near=min(members or (), default=None))
    stay = tx.host_ids(sorted(members or ()))
    leave = stay[:0] if members is None else tx.member_ids(-queue_id)
    host_id = distinct(np.concatenate([stay, leave]))
    left = _locked(tx, host_id)
    joined = np.where(np.isin(host_id, stay), queue_id, host_id)
    moves = Moves(host_id=host_id, left=left, joined=joined)
    looked_at = np.append(left[left < 0], queue_id)
    _change(tx, moves, queue_id, queue_id, looked_at, settings, now, polite)


def delete_host(tx: Transaction, host: str, now: datetime, polite: Politeness) -> None:
    """Delete a host without pages; raise `HostNotFound` or `HostHasPages`."""
    # no page may be registered between the check for pages and the deletion
    tx.hold_hosts()
    if tx.host(host).group is not None:
        change_host(tx, host, {"group": None}, now, polite)
    tx.delete_host(tx.host(host))


def delete_group(tx: Transaction, group: str, now: datetime, polite: Politeness) -> None:
    """Delete a group, whose hosts leave it first; raise `GroupNotFound`."""
    tx.hold_hosts()
    group_id = tx.group(group).group_id
    change_group(tx, group, {}, [], now, polite)
    tx.delete_group(group_id)


def _change(
    tx: Transaction,
    hosts: Moves,
    queue_id: int,
    blocked: int,
    looked_at: Ints,
    settings: Mapping[str, Any],
    now: datetime,
    polite: Politeness,
) -> None:
    """Move locked hosts, then change one host queue's settings and block another.

    The host queues `looked_at` may be ready from now on, because their gates may open sooner.
    """
    at, moves = instant(now), hosts.take(hosts.left != hosts.joined)
    filled = tx.move_hosts(moves.host_id, moves.joined)
    # all at once, ascending: two changes of hosts cannot wait for each other
    ids = np.concatenate([hosts.host_id, hosts.left, hosts.joined, [queue_id]])
    locked = tx.lock_host_queues(distinct(ids))
    inherited = inherit(locked, moves)
    own = configure(inherited, locked.queue_id == queue_id, settings)
    tx.save_settings(own.take(politeness.differs(locked, own, politeness.SETTINGS)))
    if CAP in settings:
        tx.save_cap(queue_id, settings[CAP])
    for name in settings.keys() & {*HOURS}:
        tx.save_hours(queue_id, name, settings[name])
    # host queues of groups have negative ids
    groups = own.queue_id[own.queue_id < 0]
    # after the members are saved, because the query reads their rows
    after = follow_robots(own, *tx.robots_delays(groups))
    tx.save_settings(after.take(politeness.differs(own, after, politeness.SETTINGS)))
    again = np.isin(locked.queue_id, looked_at)
    after = keep_last_crawl(inherited, after, again, polite)
    after = hold_first_delay(tx, inherited, after, again, at, polite)
    after = fill(after, np.isin(locked.queue_id, filled), at)
    for name in settings.keys() & {*PAUSES}:
        until = NO_TIME if settings[name] is None else instant(settings[name])
        after = pause(after, locked.queue_id == blocked, name, until, at)
    after = look_again(after, again, at)
    tx.save_host_queues(after.take(politeness.differs(locked, after)))
    tx.save_blocks(after.take(politeness.differs(locked, after, (BLOCK,))))
    if len(moves) or settings.keys() & {*HOURS}:
        tx.note_hours(now)
        # pages may be due sooner by other windows than by those for which they were queued
        tx.set_filled(NEVER_FILLED)


def host_settings(tx: Transaction, name: str) -> dict[str, Any] | None:
    """Return the settings of a host for the audit; None for a host that is not registered."""
    try:
        host = tx.host(name)
    except HostNotFound:
        return None
    fields = ("group", *politeness.SETTINGS, CAP, FIRST_SHARE, DOUBT, *HOURS)
    own = {field: getattr(host, field) for field in fields}
    return {**own, **pauses(host.host_queue)}


def group_settings(tx: Transaction, name: str) -> dict[str, Any] | None:
    """Return the settings and members of a group for the audit; None for no group."""
    try:
        group = tx.group(name)
    except GroupNotFound:
        return None
    own = {field: getattr(group.host_queue, field) for field in (*politeness.SETTINGS, *HOURS)}
    return {
        **own,
        CAP: group.max_crawl_rate,
        **pauses(group.host_queue),
        "members": tx.members(group.group_id, MOST_AUDITED),
    }


def rules_of_host(host: Host, of_all: HourRules) -> HourRules:
    """Return the windows and blackouts in force of a host."""
    wider = of_all if host.group is None else rules_of_group(host.host_queue, of_all)
    return HourRules(host.windows, host.blackouts or ()).within(wider)


def rules_of_group(host_queue: HostQueue, of_all: HourRules) -> HourRules:
    """Return the windows and blackouts of a group's hosts that have none of their own."""
    return HourRules(host_queue.windows, host_queue.blackouts or ()).within(of_all)


def pauses(host_queue: HostQueue) -> dict[str, datetime | None]:
    """Return the ends of the pauses of a host queue."""
    return {BLOCK: host_queue.blocked_until, PAUSE: host_queue.paused_until}


def _locked(tx: Transaction, host_id: Ints) -> Ints:
    """Lock hosts and return their queues; raise `HostNotFound` if one was deleted meanwhile."""
    queue_id = tx.lock_hosts(host_id)
    if len(queue_id) < len(host_id):
        raise HostNotFound("a host was deleted meanwhile; send this again")
    return queue_id


def configure(host_queues: HostQueues, row: Bools, settings: Mapping[str, Any]) -> HostQueues:
    """Return host queues with new settings in the selected rows; None clears a setting."""
    values = {name: settings[name] for name in politeness.SETTINGS if name in settings}
    if values.get("max_concurrency", 0) is None:
        # the column has integers, which have no NaN; 0 is no setting
        values["max_concurrency"] = 0
    return _put(host_queues, row, {n: np.nan if v is None else v for n, v in values.items()})


def follow_robots(host_queues: HostQueues, group: Ints, robots_delay_s: Floats) -> HostQueues:
    """Return host queues; a group's has the longest delay that a member's robots.txt requests.

    `group` has the host queue of each member with a `robots_delay_s`.
    """
    longest = np.where(host_queues.queue_id < 0, np.nan, host_queues.robots_delay_s)
    np.fmax.at(longest, host_queues.queue_id.searchsorted(group), robots_delay_s)
    return replace(host_queues, robots_delay_s=longest)


def inherit(host_queues: HostQueues, moves: Moves) -> HostQueues:
    """Return host queues; a queue that hosts join stays shut as long as the queues they leave."""
    source = host_queues.queue_id.searchsorted(moves.left)
    target = host_queues.queue_id.searchsorted(moves.joined)
    columns = {name: getattr(host_queues, name).copy() for name in SHUT_BY}
    for name, column in columns.items():
        np.fmax.at(column, target, getattr(host_queues, name)[source])
    return replace(host_queues, **columns)


def keep_last_crawl(
    before: HostQueues, after: HostQueues, row: Bools, polite: Politeness
) -> HostQueues:
    """Return `after`; in the selected rows the new delay counts from the same crawl as the old."""
    (old, _), (new, _) = politeness.limits(before, polite), politeness.limits(after, polite)
    return _put(after, row, {"ready_at": (after.ready_at + (new - old))[row]})


def hold_first_delay(
    tx: Transaction,
    before: HostQueues,
    after: HostQueues,
    row: Bools,
    at: np.datetime64,
    polite: Politeness,
) -> HostQueues:
    """Return `after`; a first delay counts from now in the selected rows with running leases.

    A queue without a delay keeps no time of its last crawl. A crawler reports the delay of
    robots.txt during its first crawl, and the second one must wait.
    """
    (old, _), (new, _) = politeness.limits(before, polite), politeness.limits(after, polite)
    first = row & (old == politeness.NO_DELAY) & (new > politeness.NO_DELAY)
    if not first.any():
        return after
    n_running, _ = tx.running(after.queue_id[first], at.repeat(first.sum()))
    held = first.copy()
    held[first] = n_running > 0
    return _put(after, held, {"ready_at": (at + new)[held]})


def pause(
    host_queues: HostQueues, row: Bools, name: str, until: np.datetime64, at: np.datetime64
) -> HostQueues:
    """Return host queues, the selected rows paused until an instant; NaT ends the pause.

    `name` is that of the pause, `BLOCK` or `PAUSE`. A pause by the site begins at `at`.
    """
    began = {"paused_at": NO_TIME if np.isnat(until) else at} if name == PAUSE else {}
    return _put(host_queues, row, {name: until, **began})


def look_again(host_queues: HostQueues, row: Bools, at: np.datetime64) -> HostQueues:
    """Return host queues; the selected ones with queued pages may be ready from `at` on."""
    sooner = np.where(np.isnat(host_queues.next_at), NO_TIME, np.fmin(host_queues.next_at, at))
    return _put(host_queues, row, {"next_at": sooner[row]})


def fill(host_queues: HostQueues, row: Bools, at: np.datetime64) -> HostQueues:
    """Return host queues; the selected ones, into which pages moved, may be ready from `at` on."""
    return _put(host_queues, row, {"next_at": at})


def _put(host_queues: HostQueues, row: Bools, values: Mapping[str, Any]) -> HostQueues:
    columns = {name: getattr(host_queues, name).copy() for name in values}
    for name, column in columns.items():
        column[row] = values[name]
    return replace(host_queues, **columns)


def feed_of(pages: HostPages, host_id: int, feeds: PingFeeds, now: datetime) -> HostFeed | None:
    """Return a host's feed; None if no `auto` page has pings.

    It is silent by the sums of the last epoch (`feeds`), as for the pages of the host.
    """
    if pages.last_ping_at is None or pages.trust is None:
        return None
    evidence = PingState(0.0, 0.0, pages.real_pings, pages.false_pings, pages.n_pings, 0.0)
    last_ping_at = np.array([instant(pages.last_ping_at)])
    return HostFeed(
        n_pages=pages.n_pinged,
        n_pings=pages.n_pings,
        ping_rate=pages.ping_rate,
        real=float(PingQuality().estimate(evidence).precision),
        trust=pages.trust,
        last_ping_at=pages.last_ping_at,
        silent_days=max((now - pages.last_ping_at) / timedelta(days=1), 0.0),
        silent=bool(feeds.silent(np.array([host_id]), last_ping_at, instant(now))[0]),
    )
