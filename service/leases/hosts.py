"""Hosts and groups of hosts: their politeness, and whether a host's feed of pings lives."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from service.core.pings import PingQuality, PingState, silent_feeds
from service.leases import politeness
from service.leases.politeness import Moves, Politeness
from service.model.arrays import NO_TIME, Ints, days, distinct, instant
from service.model.domain import HostPages, HostQueue
from service.storage import Transaction

CAP = "max_crawl_rate"


@dataclass(frozen=True, slots=True)
class Feed:
    """The pings of a host's `auto` pages."""

    n_pages: int
    """Pages that have had one."""
    n_pings: int
    ping_rate: float
    """1/day."""
    real: float
    """Share of the pings that announce a change."""
    trust: float
    """Mean log-likelihood ratio of "pings announce nearly all changes"."""
    last_ping_at: datetime
    silent_days: float
    silent: bool
    """Whether so long a silence is too improbable: the pages are crawled as without pings."""


def in_force(host_queues: Sequence[HostQueue], polite: Politeness) -> list[Politeness]:
    """Return the delay and concurrency in force of each host queue."""
    own, robots, at_most = (
        np.array([getattr(host_queue, name) for host_queue in host_queues], np.float64)
        for name in politeness.SETTINGS
    )
    delays = politeness.delays(own, robots, polite)
    concurrencies = politeness.concurrencies(np.nan_to_num(at_most).astype(np.int64), polite)
    pairs = zip(delays.tolist(), concurrencies.tolist(), strict=True)
    return [Politeness(delay_s, concurrency) for delay_s, concurrency in pairs]


def change_host(
    tx: Transaction, host: str, settings: Mapping[str, Any], now: datetime, polite: Politeness
) -> None:
    """Change settings of a host, seen before or not: fields of `Host` and `blocked_until`.

    None clears a setting. A group of a new name is created. Queued pages move with their host. A
    block holds for the host queue that the host is crawled in afterwards.
    """
    host_id = tx.host_ids([host])
    left = joined = tx.lock_hosts(host_id)
    if "group" in settings:
        group = settings["group"]
        joined = host_id if group is None else np.array([-tx.group_id(group)])
    moves = Moves(host_id=host_id, left=left, joined=joined)
    looked_at = np.concatenate([left, joined])
    _change(tx, moves, int(host_id[0]), int(joined[0]), looked_at, settings, now, polite)


def change_group(
    tx: Transaction,
    group: str,
    settings: Mapping[str, Any],
    members: Collection[str] | None,
    now: datetime,
    polite: Politeness,
) -> None:
    """Change settings of a group, seen before or not, and its members, unless None.

    Settings are the fields of `HostGroup`, `min_delay_s`, `max_concurrency` and `blocked_until`;
    the rest is as in `change_host`.
    """
    queue_id = -tx.group_id(group)
    stay = tx.host_ids(sorted(members or ()))
    leave = stay[:0] if members is None else tx.member_ids(-queue_id)
    host_id = distinct(np.concatenate([stay, leave]))
    left = tx.lock_hosts(host_id)
    joined = np.where(np.isin(host_id, stay), queue_id, host_id)
    moves = Moves(host_id=host_id, left=left, joined=joined)
    looked_at = np.append(left[left < 0], queue_id)
    _change(tx, moves, queue_id, queue_id, looked_at, settings, now, polite)


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

    The host queues of `looked_at` are looked at again, because their gates may open sooner.
    """
    at, moves = instant(now), hosts.take(hosts.left != hosts.joined)
    filled = tx.move_hosts(moves.host_id, moves.joined)
    ids = np.concatenate([hosts.host_id, hosts.left, hosts.joined, [queue_id]])
    locked = tx.lock_host_queues(distinct(ids))
    inherited = politeness.inherit(locked, moves)
    own = politeness.configure(inherited, locked.queue_id == queue_id, settings)
    tx.save_settings(own.take(politeness.differs(locked, own, politeness.SETTINGS)))
    if CAP in settings:
        tx.save_cap(queue_id, settings[CAP])
    groups = own.queue_id[own.queue_id < 0]
    after = politeness.follow_robots(own, *tx.robots_delays(groups))
    tx.save_settings(after.take(politeness.differs(own, after, politeness.SETTINGS)))
    again = np.isin(locked.queue_id, looked_at)
    after = politeness.keep_last_crawl(inherited, after, again, polite)
    after = politeness.fill(after, np.isin(locked.queue_id, filled), at)
    if "blocked_until" in settings:
        until = settings["blocked_until"]
        until = NO_TIME if until is None else instant(until)
        after = politeness.block(after, locked.queue_id == blocked, until)
    after = politeness.look_again(after, again, at)
    tx.save_host_queues(after.take(politeness.differs(locked, after)))


def feed_of(pages: HostPages, now: datetime) -> Feed | None:
    """Return a host's feed as an epoch judges it; None where no ping of an `auto` page counts."""
    if pages.last_ping_at is None or pages.trust is None:
        return None
    evidence = PingState(0.0, 0.0, pages.real_pings, pages.false_pings, pages.n_pings, 0.0)
    silent_days = np.maximum(days(np.array([instant(now) - instant(pages.last_ping_at)])), 0.0)
    return Feed(
        n_pages=pages.n_pinged,
        n_pings=pages.n_pings,
        ping_rate=pages.ping_rate,
        real=float(PingQuality().estimate(evidence).precision),
        trust=pages.trust,
        last_ping_at=pages.last_ping_at,
        silent_days=float(silent_days[0]),
        silent=bool(silent_feeds([0], [pages.ping_rate], silent_days)[0]),
    )
