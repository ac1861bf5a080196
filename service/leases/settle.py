"""Settle the leases that reports end: end them, queue their pages, update their host queues.

**Fencing.** A lease ends once, by a report, a release or time. Later messages with its token change
neither the page's next lease nor its host queue.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.leases.due import due_at, of_crawled
from service.leases.politeness import (
    Politeness,
    SettledLeases,
    after_reports,
    differs,
    set_back,
    sum_up,
)
from service.leases.queue import queue_due, queue_rows
from service.model.arrays import (
    NO_TIME,
    UNSPECIFIED,
    Bools,
    Codes,
    Floats,
    Groups,
    Instants,
    Ints,
    distinct,
    instant,
    is_among,
)
from service.model.columns import CrawlColumns, DueColumns, PageStates
from service.model.outcomes import Outcome, host_in_trouble, outcome_of
from service.storage import Transaction
from service.storage.queue.columns import HostQueues, LeaseTokens, LockedLeases


class LeaseReports(NamedTuple):
    """(N,) reports of crawls to their host queues; a release reports nothing."""

    page_id: Ints
    observed_at: Instants
    status: Codes
    """HTTP status; 0: no answer; UNSPECIFIED: not reported."""
    retry_after_s: Floats
    """Pause that the host requested, seconds; NaN: none, or the crawl has content."""
    new: Bools
    """True if the report was accepted. A duplicate or late report counts only under a lease in
    force, because a lease ends only once."""


class LeasedCrawls(NamedTuple):
    """Crawls of a report that may end a lease, or that may pause a host."""

    row: Ints
    """(R,) positions in the report."""
    locked: LockedLeases
    """(R,) locked leases of these crawls."""


NO_LEASES = LockedLeases.empty()


@dataclass(frozen=True, slots=True)
class LeaseSettler:
    """Ends leases in the transaction that records evidence."""

    polite: Politeness
    horizon: timedelta
    """Time ahead for which pages are queued: `Runner.ahead`."""
    rng: np.random.Generator

    def lock(
        self, tx: Transaction, page_id: Ints, crawls: CrawlColumns, *, scheduled: bool
    ) -> tuple[PageStates, LeasedCrawls]:
        """Lock the states of pages (ascending, unique), then the leases that crawls may end."""
        speaks = host_in_trouble(crawls.status) | (crawls.retry_after_s > 0)
        row = np.flatnonzero((crawls.token != 0) | speaks)
        if not len(row):
            states = tx.lock_states(page_id, scheduled=scheduled)
            return states, LeasedCrawls(row, NO_LEASES)
        tokens = LeaseTokens(page_id=crawls.page_id[row], token=crawls.token[row])
        states, locked = tx.lock_states_and_leases(page_id, tokens, scheduled=scheduled)
        return states, LeasedCrawls(row, locked)

    def settle_crawls(
        self,
        tx: Transaction,
        crawls: CrawlColumns,
        new: Bools,
        states: PageStates,
        leased: LeasedCrawls,
        now: datetime,
    ) -> Bools:
        """End the leases of reported crawls; return which of the leases were in force.

        `states` are the states of the pages after the crawls. Host queues ignore crawls that are
        not `new`, except under a lease in force.
        """
        held = np.zeros(len(crawls), np.bool_)
        row, locked = leased
        if not len(row):
            return held
        counts = (crawls.token[row] != 0) | new[row]
        # an item without a page has no state by which a page could be queued
        counts &= is_among(crawls.page_id[row], states.page_id)
        if not counts.all():
            row, locked = row[counts], locked.take(counts)
        if len(row):
            some = crawls.take(row)
            foreign = concerns_others(tx, some, locked.queue_id)
            reports = LeaseReports(
                some.page_id,
                # like a release: the lease ends, and the host queue neither fails nor recovers
                np.where(foreign, NO_TIME, some.observed_at),
                np.where(foreign, UNSPECIFIED, some.status).astype(np.int16),
                np.where(foreign, np.nan, _pauses(some)),
                new[row],
            )
            pages = of_crawled(states.take(states.page_id.searchsorted(some.page_id)))
            held[row] = self.settle(tx, reports, pages, locked, now)
        return held

    def settle(
        self,
        tx: Transaction,
        reports: LeaseReports,
        pages: DueColumns,
        locked: LockedLeases,
        now: datetime,
    ) -> Bools:
        """End reported leases, queue their pages again and update their host queues.

        `pages` are the leased pages after the reports, without their rates. Return which tokens
        were in force. Trouble counts for crawls without a lease too.
        """
        at, until = instant(now), instant(now + self.horizon)
        pages = replace(pages, due_rate=locked.due_rate)
        held = _once(locked.held, reports.page_id)
        due = due_at(pages)
        soon = held & (due < until)
        next_at = np.where(soon, due, NO_TIME)
        tx.requeue(queue_rows(pages, next_at).where(held))
        # reports lock only host queues that they change, so that others need not wait
        changes = soon | host_in_trouble(reports.status) | locked.limited | self.polite.gated
        changes |= reports.retry_after_s > 0
        host_queues = HostQueues.empty()
        if changes.any():
            host_queues = tx.lock_reported(distinct(locked.queue_id[changes]))
        if len(host_queues):
            leased_at = np.where(held, locked.leased_at, NO_TIME)
            settled = SettledLeases(locked.queue_id, held, next_at, leased_at, host_queues)
            summary = sum_up(settled, *reports[1:], at)
            own = set_back(host_queues, self.polite, at)
            after = after_reports(own, summary, self.polite, at, self.rng.random(len(own)))
            tx.save_host_queues(after.where(differs(host_queues, after)))
        return held

    def release(self, tx: Transaction, page_id: int, token: int, now: datetime) -> bool:
        """End a lease without a crawl; return whether the lease still ran."""
        if not tx.extend_lease(page_id, token, now, now):
            return False
        tokens = LeaseTokens(page_id=np.array([page_id]), token=np.array([token]))
        report = LeaseReports(
            tokens.page_id,
            observed_at=np.array([NO_TIME]),
            status=np.array([UNSPECIFIED], np.int16),
            retry_after_s=np.array([np.nan]),
            new=np.array([False]),
        )
        locked, pages = tx.lock_leases(tokens), tx.due_columns(tokens.page_id)
        return bool(self.settle(tx, report, pages, locked, now)[0])

    def queue_pinged(self, tx: Transaction, page_id: Ints, now: datetime) -> None:
        """Queue the pages whose crawls pings have requested."""
        queue_due(tx, page_id, now + self.horizon)


def concerns_others(tx: Transaction, crawls: CrawlColumns, queue_id: Ints) -> Bools:
    """Return which crawls of limited keys would pause hosts that are not those of the key.

    The hosts of a group share one host queue, whose id is negative.
    """
    foreign = np.zeros(len(crawls), np.bool_)
    if crawls.own_hosts is None:
        return foreign
    judged: dict[tuple[int, frozenset[str]], bool] = {}
    for row, own in enumerate(crawls.own_hosts.tolist()):
        if own == "":
            continue
        place = int(queue_id[row]), own
        if place not in judged:
            hosts = tx.members(-place[0], len(own) + 1) if place[0] < 0 else []
            judged[place] = not own or not own.issuperset(hosts)
        foreign[row] = judged[place]
    return foreign


def _pauses(crawls: CrawlColumns) -> Floats:
    """Return the pauses that hosts requested with crawls, seconds; NaN with content."""
    outcome = outcome_of(crawls.status, crawls.changed, crawls.digest, crawls.redirects_to)
    return np.where(outcome == Outcome.content, np.nan, crawls.retry_after_s)


def _once(held: Bools, page_id: Ints) -> Bools:
    """Return the first token in force of each page, because a lease ends only once."""
    row = np.flatnonzero(held)
    row = row[np.argsort(page_id[row], kind="stable")]
    once = np.zeros(len(held), np.bool_)
    once[row[Groups.of(page_id[row]).start]] = True
    return once
