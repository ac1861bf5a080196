"""Settle the leases that reports end: end them, queue their pages, update their host queues.

**Fencing.** A lease ends once, by a report, a release or time. Later messages with its token change
neither the page's next lease nor its host queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.leases.due import due_at, of_crawled, of_new
from service.leases.latencies import after_crawls
from service.leases.pauses import SettledLeases, after_reports, sum_up
from service.leases.politeness import Politeness, differs, set_back
from service.leases.queue import enqueue, queue_due, queue_rows
from service.leases.unfinished import Ends, close
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
    positions,
)
from service.model.columns import CrawlColumns, DueColumns, PageStates
from service.model.domain import MOST_FAILURES
from service.model.outcomes import CONTENT, ROBOTS_DENIED, host_in_trouble, outcome_of
from service.model.unfinished import REPORTED, Ending
from service.storage import Transaction
from service.storage.queue.columns import HostQueues, LeaseTokens, LockedLeases


class LeaseReports(NamedTuple):
    """(N,) reports of crawls to their host queues; a lease may end without one."""

    page_id: Ints
    observed_at: Instants
    status: Codes
    """HTTP status; 0: no answer; UNSPECIFIED: not reported."""
    retry_after_s: Floats
    """Pause that the host requested, seconds; NaN: none, or the crawl has content."""
    new: Bools
    """True if the report was accepted. A duplicate or late report counts only under a lease in
    force, because a lease ends only once."""
    ending: Codes
    """End without a report (`Ending`), or `REPORTED`."""
    in_incident: Bools | None = None
    """True if the crawl shows the sign of an incident of its host; None: no crawl does."""
    seconds: Floats | None = None
    """Time that the crawl took, seconds; NaN: not reported; None: no report has any."""

    @classmethod
    def none(cls, page_id: Ints, ending: Ending) -> "LeaseReports":
        """Return the ends of leases without a report."""
        n = len(page_id)
        return cls(
            page_id,
            observed_at=np.full(n, NO_TIME),
            status=np.full(n, UNSPECIFIED, np.int16),
            retry_after_s=np.full(n, np.nan),
            new=np.zeros(n, np.bool_),
            ending=np.full(n, ending, np.int16),
        )


def nobody() -> Ints:
    """Return no page."""
    return np.zeros(0, np.int64)


class LeasedCrawls(NamedTuple):
    """Crawls of a report that may end a lease, or that may pause a host."""

    row: Ints
    """(R,) positions in the report."""
    locked: LockedLeases
    """(R,) locked leases of these crawls."""
    waiting: Callable[[], Ints] = nobody
    """Function that returns those pages of the other crawls that wait after unfinished leases."""


class ReturnedLease(NamedTuple):
    """A lease that its worker has returned."""

    token: int
    leased_at: np.datetime64
    first: bool
    """True if the page was never crawled."""


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
        if crawls.seconds is not None:
            timed = (crawls.seconds > 0) & (crawls.token == 0) & ~speaks
            # few hosts have a factor, and reports without a lease need no host queue then
            if timed.any() and (self.polite.latency_factor > 0 or tx.any_latency_factor()):
                speaks |= timed
        row = positions((crawls.token != 0) | speaks)
        waiting = nobody if len(row) == len(crawls) else tx.ask_waiting(page_id)
        if not len(row):
            states = tx.lock_states(page_id, scheduled=scheduled)
            return states, LeasedCrawls(row, NO_LEASES, waiting)
        tokens = LeaseTokens(page_id=crawls.page_id[row], token=crawls.token[row])
        states, locked = tx.lock_states_and_leases(page_id, tokens, scheduled=scheduled)
        return states, LeasedCrawls(row, locked, waiting)

    def settle_crawls(
        self,
        tx: Transaction,
        crawls: CrawlColumns,
        new: Bools,
        states: PageStates,
        leased: LeasedCrawls,
        now: datetime,
        in_incident: Bools | None = None,
    ) -> Bools:
        """End the leases of reported crawls; return which of the leases were in force.

        `states` are the states of the pages after the crawls. Host queues ignore crawls that are
        not `new`, except under a lease in force.
        """
        held = np.zeros(len(crawls), np.bool_)
        row, locked, _ = leased
        if not len(row):
            return held
        counts = (crawls.token[row] != 0) | new[row]
        # an item without a page counts only if its lease has outlived the page
        counts &= locked.held | is_among(crawls.page_id[row], states.page_id)
        if not counts.all():
            row, locked = row[counts], locked.take(counts)
        if len(row):
            some = crawls.in_order(row)
            # of a page that robots.txt forbids, nobody asked the host
            refused, denied = some.refused, some.status == ROBOTS_DENIED
            # like a release: the lease ends, and the host queue neither fails nor recovers
            silent = concerns_others(tx, some, locked.queue_id) | denied | refused
            reports = LeaseReports(
                some.page_id,
                np.where(silent, NO_TIME, some.observed_at),
                np.where(silent, UNSPECIFIED, some.status).astype(np.int16),
                np.where(silent, np.nan, _pauses(some)),
                new[row],
                np.where(refused, Ending.refused, REPORTED).astype(np.int16),
                None if in_incident is None else in_incident[row] & ~silent,
                None if some.seconds is None else np.where(silent, np.nan, some.seconds),
            )
            pages = pages_after(tx, some.page_id, states)
            if refused.any():  # a page that was never crawled has been due for some time
                pages = replace(pages, created_at=np.full(len(some), instant(now)))
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
        held = _once(locked.held, reports.page_id, reports.ending)
        due = due_at(pages)
        unreported = _without_report(reports, pages, locked, held)
        # a report proves that the page can be crawled, although its own lease has ended before
        is_news = reports.new & ~held & (locked.n_unfinished > 0)
        again = (held & ~unreported) | (is_news & locked.idle)
        next_at = np.where(again & (due < until), due, NO_TIME)
        tx.requeue(queue_rows(pages, next_at).where(again))
        if is_news.any():
            tx.forget_unfinished(reports.page_id[is_news & ~locked.idle])
        if unreported.any():
            n_unfinished = np.minimum(locked.n_unfinished + 1, MOST_FAILURES)
            ends = Ends(locked.leased_at, n_unfinished, reports.ending)
            ended = pages.take(unreported), due[unreported], ends.take(unreported)
            next_at[unreported] = close(tx, *ended, now)
        soon = ~np.isnat(next_at)
        # reports lock only host queues that they change, so that others need not wait
        changes = soon | host_in_trouble(reports.status) | locked.limited | self.polite.gated
        changes |= reports.retry_after_s > 0
        if reports.in_incident is not None:
            changes |= reports.in_incident
        if not changes.any():
            return held
        host_queues = tx.lock_reported(distinct(locked.queue_id[changes]))
        if len(host_queues):
            leased_at = np.where(held, locked.leased_at, NO_TIME)
            settled = SettledLeases(locked.queue_id, held, next_at, leased_at, host_queues)
            summary = sum_up(settled, *reports[1:5], at, reports.in_incident)
            own = set_back(host_queues, self.polite, at)
            own = self._after_latencies(own, reports, locked.queue_id)
            after = after_reports(own, summary, self.polite, at, self.rng.random(len(own)))
            tx.save_host_queues(after.where(differs(host_queues, after)))
        return held

    def _after_latencies(
        self, host_queues: HostQueues, reports: LeaseReports, queue_id: Ints
    ) -> HostQueues:
        """Return host queues after the latencies of new reports, in the order of the crawls."""
        if (seconds := reports.seconds) is None:
            return host_queues
        row = np.minimum(host_queues.queue_id.searchsorted(queue_id), len(host_queues) - 1)
        # a host queue that was not locked has no factor
        locked = host_queues.queue_id[row] == queue_id
        some = positions(locked & reports.new & (seconds > 0))
        some = some[np.argsort(reports.observed_at[some], kind="stable")]
        failed = host_in_trouble(reports.status[some])
        return after_crawls(host_queues, row[some], seconds[some], failed, self.polite)

    def release(
        self, tx: Transaction, page_id: int, token: int, now: datetime
    ) -> ReturnedLease | None:
        """Return a lease, whose crawl is not made; None: the lease was not in force any more."""
        if not tx.extend_lease(page_id, token, now, now):
            return None
        tokens = LeaseTokens(page_id=np.array([page_id]), token=np.array([token]))
        locked, pages = tx.lock_leases(tokens), tx.due_columns(tokens.page_id)
        if not self._returned(tx, tokens, locked, pages, now).all():
            return None
        return ReturnedLease(token, locked.leased_at[0], bool(np.isnat(pages.last_crawl_at[0])))

    def return_leases(self, tx: Transaction, tokens: LeaseTokens, now: datetime) -> Bools:
        """Return leases, whose crawls are not made; return which of them were in force."""
        return self._returned(
            tx, tokens, tx.lock_leases(tokens), tx.due_columns(tokens.page_id), now
        )

    def _returned(
        self,
        tx: Transaction,
        tokens: LeaseTokens,
        locked: LockedLeases,
        pages: DueColumns,
        now: datetime,
    ) -> Bools:
        reports = LeaseReports.none(tokens.page_id, Ending.returned)
        return self.settle(tx, reports, pages, locked, now)

    def queue_requested(
        self, tx: Transaction, page_id: Ints, now: datetime, sooner: Ints | None = None
    ) -> None:
        """Queue the pages whose crawls were requested, and end their waits after lost leases.

        The pages in `sooner` were not requested, but may be due sooner.
        """
        if len(page_id):
            tx.lift_waits(page_id)
        # all at once, because rows are locked in ascending order
        every = page_id if sooner is None else np.concatenate([page_id, sooner])
        self.queue_pinged(tx, every, now)

    def queue_pinged(self, tx: Transaction, page_id: Ints, now: datetime) -> None:
        """Queue pages that may be due sooner."""
        queue_due(tx, page_id, now + self.horizon)

    def queue_new(self, tx: Transaction, page_id: Ints, now: datetime) -> None:
        """Queue pages that this transaction registered at `now`, without reading them again."""
        if len(page_id):
            pages = tx.with_hours(of_new(np.sort(page_id), now))
            enqueue(tx, pages, now + self.horizon)


def pages_after(tx: Transaction, page_id: Ints, states: PageStates) -> DueColumns:
    """Return the pages of crawls after the crawls; deleted pages are never due."""
    there = is_among(page_id, states.page_id)
    own = of_crawled(states).in_order(states.page_id.searchsorted(page_id[there]))
    own = tx.with_hours(own)
    if there.all():
        return own
    every = DueColumns.concatenate([own, tx.due_columns(page_id[~there])])
    back = np.argsort(np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)]))
    return every.take(back)


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
    if np.isnan(crawls.retry_after_s).all():
        return crawls.retry_after_s
    columns = crawls.status, crawls.changed, crawls.digest, crawls.redirects_to, crawls.leads
    return np.where(outcome_of(*columns) == CONTENT, np.nan, crawls.retry_after_s)


def _without_report(
    reports: LeaseReports, pages: DueColumns, locked: LockedLeases, held: Bools
) -> Bools:
    """Return which leases end without a report, by their token or by the page alone."""
    unreported: Bools = held & (reports.ending != REPORTED)
    return unreported & ~(pages.last_crawl_at >= locked.leased_at)


def _once(held: Bools, page_id: Ints, ending: Codes) -> Bools:
    """Return the first token in force of each page, because a lease ends only once.

    A report comes before an end without one, in whatever order they arrived.
    """
    row = positions(held)
    row = row[np.lexsort((ending[row] != REPORTED, page_id[row]))]
    once = np.zeros(len(held), np.bool_)
    once[row[Groups.of(page_id[row]).start]] = True
    return once
