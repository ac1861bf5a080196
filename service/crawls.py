"""Hand out crawls that are due, each under a lease, and take the reports back.

The most overdue page comes first, by (now - last crawl) x crawl rate; pages that a ping asked
for come before all others. Politeness is a gate in front of each lane (a host, or hosts that
share a server): a delay from one crawl to the next, so many leases at a time, and a pause after
trouble. A page whose lane is shut waits, and comes first when it opens.

**Fencing.** A lease that has ended, by a report, a release or time, ends once: whatever comes
later under its token touches neither the page's next lease nor its lane.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.arrays import (
    INSTANT,
    NEVER,
    UNSAID,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    days,
    distinct,
    instant,
)
from service.columns import CrawlColumns
from service.core import timing
from service.lanes import (
    Gates,
    Politeness,
    gates,
    heads,
    hear,
    limits,
    moved,
    set_back,
    shut,
    sum_up,
    trouble,
)
from service.storage.queue import (
    UNSCHEDULED_RATE,
    DuePages,
    Filled,
    Lanes,
    Leases,
    QueuedCrawls,
    QueueStore,
    QueueTransaction,
    Reach,
    Tokens,
    share,
)

COMPARED = 64
"""So many waiting pages are compared at a time, at the least: the most overdue of these come."""

LANES = 8
"""So many lanes are looked at, beside one for each crawl asked for."""

PROMPT = np.timedelta64(1, "s")
"""A crawl that is no older is taken at its word; see `dated`."""

FILL_BLOCK = 20_000
"""Pages that are queued in one transaction."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker asks for."""

    worker: str
    count: int
    ttl: timedelta


class Leased(NamedTuple):
    """(N,) crawls handed out, the most overdue first."""

    pages: DuePages
    leases: Leases
    overdue: Floats
    """(now - last crawl) x crawl rate; of a page never crawled 1 more than since it came."""


class Reports(NamedTuple):
    """(N,) what crawls have to say to their lanes; of a release nothing."""

    held: Tokens
    """Token 0: the crawl was not leased."""
    observed_at: Instants
    status: Codes
    """HTTP status; 0: no answer; UNSAID: none told."""
    retry_after_s: Floats
    """How long the host asked to be left alone; NaN: it did not."""
    new: Bools
    """Whether the report was accepted. One that was not, as it came before or is late, is heard
    only under a lease in force, which ends but once."""


def dated(tx: QueueTransaction, crawls: CrawlColumns, now: datetime) -> CrawlColumns:
    """Give the crawls, none of them dated before the lease in force that it was made under.

    Who dates one so has a slow clock. It would come late, or leave its page due, again and again.
    What is no older than `PROMPT` is believed: to look leases up takes time, and a page that is
    due again too early by as much does no harm.
    """
    row = np.flatnonzero((crawls.token != 0) & (crawls.observed_at < instant(now) - PROMPT))
    if not len(row):
        return crawls
    told = crawls.take(row)
    observed_at = crawls.observed_at.copy()
    leased_at = tx.leased_at(Tokens(page_id=told.leased_page_id, token=told.token))
    observed_at[row] = np.fmax(told.observed_at, leased_at)
    return replace(crawls, observed_at=observed_at)


def release(tx: QueueTransaction, page_id: int, token: int, desk: "Desk", now: datetime) -> bool:
    """Give a crawl back that was not done; tells whether its lease still ran."""
    if not tx.extend_lease(page_id, token, now, now):
        return False
    held = Tokens(page_id=np.array([page_id]), token=np.array([token]))
    silent = Reports(
        held, np.array([NEVER]), np.array([UNSAID], np.int16), np.array([np.nan]), np.array([False])
    )
    return bool(settle(tx, silent, desk.polite, desk.horizon, now, desk.rng)[0])


@dataclass(frozen=True, slots=True)
class Desk:
    """Where evidence meets leases, in the transaction that records it."""

    polite: Politeness
    horizon: timedelta
    """So far ahead pages are queued: `Runner.ahead`."""
    rng: np.random.Generator

    def hear_crawls(
        self, tx: QueueTransaction, crawls: CrawlColumns, new: Bools, now: datetime
    ) -> Bools:
        """Settle the leases that were reported; tells which were in force.

        Of what was not `new`, lanes hear under a lease in force alone.
        """
        held = np.zeros(len(crawls), np.bool_)
        said = np.flatnonzero(
            ((crawls.token != 0) | (new & trouble(crawls.status))) & (crawls.page_id != UNSAID)
        )
        if len(said):
            leased = crawls.token[said] != 0
            reports = Reports(
                Tokens(
                    page_id=np.where(leased, crawls.leased_page_id[said], crawls.page_id[said]),
                    token=crawls.token[said],
                ),
                crawls.observed_at[said],
                crawls.status[said],
                crawls.retry_after_s[said],
                new[said],
            )
            held[said] = settle(tx, reports, self.polite, self.horizon, now, self.rng)
        return held

    def hear_pings(self, tx: QueueTransaction, page_id: Ints, now: datetime) -> None:
        """Queue the pages that pings want crawled."""
        queue(tx, page_id, now + self.horizon)


def queue(tx: QueueTransaction, page_id: Ints, until: datetime) -> None:
    """Queue those of these pages that are due before `until`."""
    if len(page_id):
        tx.lower_lanes(tx.enqueue(distinct(page_id), until))


def fill(store: QueueStore, until: datetime, stopped: Callable[[], bool] = lambda: False) -> None:
    """Queue every page that is due before `until`, a block a transaction.

    When this dies half-way, or is stopped, whoever runs epochs next finds that it was not done.
    """
    with store.begin(write=False) as tx:
        epoch = tx.number_in_force()
    after = 0
    while not stopped():
        with store.begin() as tx:
            block = tx.next_page_ids(after, FILL_BLOCK)
            if not len(block):
                tx.set_filled(Filled(epoch, until))
                return
            tx.lower_lanes(tx.fill_queue(after, int(block[-1]), until))
        after = int(block[-1])


class Looked(NamedTuple):
    """What is known of the lanes that may have something now."""

    lanes: Lanes
    gates: Gates
    first_end: Instants
    """When the first lease of each lane ends."""
    rows: QueuedCrawls
    lane: Ints
    """Which of the lanes each row is in."""
    each: int
    """So many rows of each were read at the most."""


def lease(
    tx: QueueTransaction,
    asks: Sequence[Ask],
    of: Reach,
    polite: Politeness,
    rng: np.random.Generator,
) -> tuple[list[Leased], bool]:
    """Deal what is due to those who ask, in turns, and tell whether there may be more.

    One transaction locks lanes once, so that nobody can wait for each other; who wants more asks
    again in another. Leases and delays count from the store's time once the lanes are locked.
    """
    wanted = sum(ask.count for ask in asks)
    n_rows = max(COMPARED, 2 * wanted)
    lanes, rows = tx.ready(tx.clock(), LANES + wanted, n_rows, of)
    now = tx.now()
    at = instant(now)
    if not len(lanes):
        nothing = Leased(DuePages.empty(), Leases.empty(), np.zeros(0))
        return [nothing] * len(asks), False
    locked, lanes = lanes, set_back(lanes, polite, at)
    looked = look(tx, lanes, rows, share(n_rows, len(lanes)), polite, now)
    picked = choose(looked.rows, looked.lane, looked.gates.room, wanted, at)
    to = deal([ask.count for ask in asks], len(picked))
    leases = _leases(looked.rows.page_id[picked], [asks[i] for i in to], now, rng)
    truth, taken = tx.lease(leases, now)
    stale = ~(truth.due_at <= at)
    tx.requeue(truth.page_id[stale], truth.due_at[stale])
    bound = looked.rows.next_at.copy()
    bound[picked[stale]] = truth.due_at[stale]
    bound[picked[taken]] = leases.expires_at[taken]
    after = leave(looked, picked[taken], bound, of, at)
    tx.save_lanes(after.take(moved(locked, after)))
    overdue = how_overdue(truth, at)
    order = _most_urgent_first(truth, overdue)
    order = order[taken[order]]
    parts = [order[to[order] == i] for i in range(len(asks))]
    given = [Leased(truth.take(part), leases.take(part), overdue[part]) for part in parts]
    return given, len(picked) > 0 or len(lanes) == LANES + wanted


def look(
    tx: QueueTransaction, lanes: Lanes, rows: QueuedCrawls, each: int, polite: Politeness,
    now: datetime,
) -> Looked:  # fmt: skip
    """Tell what lets the rows of locked lanes pass."""
    n_running: Ints = np.zeros(len(lanes), np.int64)
    first_end: Instants = np.full(len(lanes), NEVER)
    at, (delay, concurrency) = instant(now), limits(lanes, polite)
    if concurrency.any():
        n_running, first_end = tx.running(lanes.lane_id, at - delay)
    lane = lanes.lane_id.searchsorted(rows.lane_id)
    open_ = gates(lanes, delay, concurrency, n_running, at)
    return Looked(lanes, open_, first_end, rows, lane, each)


def leave(looked: Looked, taken: Ints, bound: Instants, of: Reach, at: np.datetime64) -> Lanes:
    """Give the lanes after rows were taken; `bound` is from when each row can be taken now."""
    lanes, lane, n = looked.lanes, looked.lane, len(looked.lanes)
    head = heads(n, lane, bound, looked.rows.next_at, looked.each)
    if of.hosts:  # of a group's other hosts nothing was read
        head = np.where(lanes.lane_id < 0, lanes.next_at, head)
    ends = looked.first_end.copy()
    np.fmin.at(ends, lane[taken], bound[taken])
    return shut(lanes, looked.gates, np.bincount(lane[taken], minlength=n), ends, head, at)


def _most_urgent_first(pages: DuePages, overdue: Floats) -> Ints:
    """Give the order in which pages are told: those wanted by a ping, then the most overdue."""
    urgency = np.where(pages.wanted, np.inf, overdue)
    return np.lexsort((pages.page_id, pages.due_at, -urgency))


def _leases(page_id: Ints, asks: Sequence[Ask], now: datetime, rng: np.random.Generator) -> Leases:
    workers, ends = np.empty(len(asks), object), np.empty(len(asks), INSTANT)
    workers[:] = [ask.worker for ask in asks]
    ends[:] = [instant(now + ask.ttl) for ask in asks]
    token = rng.integers(1, 2**63 - 1, len(asks))
    return Leases(page_id=page_id, token=token, worker=workers, expires_at=ends)


def how_overdue(pages: DuePages, at: np.datetime64) -> Floats:
    """Give (now - last crawl) x crawl rate; a page never crawled was due when it came."""
    rate = np.where(pages.crawl_rate > 0, pages.crawl_rate, UNSCHEDULED_RATE)
    first = np.isnat(pages.last_crawl_at)
    since: Instants = np.where(first, pages.created_at, pages.last_crawl_at)
    return timing.overdue(days(at - since), rate) + first


def choose(rows: QueuedCrawls, lane: Ints, room: Ints, wanted: int, at: np.datetime64) -> Ints:
    """Give the rows to take: of each lane as many as it has room for, the most overdue first."""
    rate = np.where(rows.crawl_rate > 0, rows.crawl_rate, UNSCHEDULED_RATE)
    first = np.isnat(rows.last_crawl_at)
    since: Instants = np.where(first, rows.next_at, rows.last_crawl_at)
    overdue = timing.overdue(np.maximum(days(at - since), 0.0), rate) + first
    overdue[rows.wanted] = np.inf
    can = np.flatnonzero((rows.next_at <= at) & (room[lane] > 0))
    order = can[np.lexsort((rows.page_id[can], rows.next_at[can], -overdue[can]))]
    by_lane = np.argsort(lane[order], kind="stable")
    sorted_lane = lane[order][by_lane]
    place = np.empty(len(order), np.int64)
    place[by_lane] = np.arange(len(order)) - np.searchsorted(sorted_lane, sorted_lane)
    return order[place < room[lane[order]]][:wanted]


def deal(counts: Sequence[int], n: int) -> Ints:
    """Tell who gets each of n pages when they are dealt in turns to those who asked for so many.

    >>> deal([1, 3, 2], 6).tolist()
    [0, 1, 2, 1, 2, 1]
    """
    who = np.repeat(np.arange(len(counts)), counts)
    turn = np.concatenate([np.arange(count) for count in counts])
    return who[np.lexsort((who, turn))][:n]


def settle(
    tx: QueueTransaction, reports: Reports, polite: Politeness, horizon: timedelta, now: datetime,
    rng: np.random.Generator,
) -> Bools:  # fmt: skip
    """End the leases that were reported, queue their pages again and tell their lanes.

    Gives which tokens were in force. When a page is due again is read from its state, which is
    written already. Trouble is heard of crawls without a lease too.
    """
    heard = trouble(reports.status) | polite.gated
    settled = tx.settle(reports.held, heard, now + horizon)
    if len(settled.lanes):
        at = instant(now)
        summary = sum_up(settled, *reports[1:], at)
        lanes = set_back(settled.lanes, polite, at)
        after = hear(lanes, summary, polite, at, rng.random(len(lanes)))
        tx.save_lanes(after.take(moved(settled.lanes, after)))
    return settled.held
