"""Reports of crawls and pings, batched.

A batch is recorded like a single request, so the items of each page are in the order of time. One
statement locks all pages of a batch, because crawls and pings have separate batchers. This avoids
deadlocks.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.batching.apart import look_again, queue_apart
from service.batching.batcher import Batcher, Flush, JobT, Limits, ResultT, slices
from service.batching.held import (
    PATIENCE_S,
    Attempt,
    Prepare,
    WaitingItems,
    attempted,
    patched,
    selected,
)
from service.budget.admission import NO_CRAWLS
from service.budget.keeper import Keeper
from service.estimation.rules import InForce
from service.ingest.crawls import needs_rates
from service.ingest.first_crawls import admitted
from service.ingest.page_names import PageNames, PageRows, merge_names, resolve
from service.ingest.recent_digests import RecentDigests
from service.ingest.record import CrawlOutcome, PingOutcome, pages_of, ping, record
from service.leases.settle import LeaseSettler, nobody
from service.leases.starts import started
from service.model.arrays import (
    DAY,
    INSTANT,
    UNSPECIFIED,
    Bools,
    Codes,
    Columns,
    Floats,
    Ints,
    distinct,
)
from service.model.columns import CrawlColumns, PageColumns, PingColumns
from service.model.domain import ItemVerdict, PingReason
from service.model.incidents import EndedIncident
from service.model.outcomes import OFFERED, Leads, is_redirect
from service.storage import Store, Transaction
from service.storage.budget.pace import days_since_1970

LIMITS = Limits(max_batch=10_000, max_waiting=100_000, min_batch=1_000)
"""Limits of crawls and of pings; an item is a crawl or a ping."""

ColumnsT = TypeVar("ColumnsT", CrawlColumns, PingColumns)


@dataclass(frozen=True, eq=False)  # slots and a call of `Report[…]` exclude each other in 3.11
class Report(Generic[ColumnsT]):
    """The crawls or the pings of one request."""

    columns: ColumnsT
    names: PageNames
    register: bool
    """True: register URLs that no page has."""
    now: datetime

    @property
    def kind(self) -> bool:
        """Reports that register unknown URLs are committed apart from the others."""
        return self.register

    @property
    def size(self) -> int:
        """Number of crawls or pings, at least one."""
        return max(len(self.columns), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedCrawls(Columns):
    """(N,) outcomes of the crawls of one report."""

    page_id: Ints
    """Id of the page; 0 where no page has the URL."""
    verdict: Codes
    lease_ended: Bools
    """True if the crawl's lease was in force and ended."""
    is_request: Bools
    """True if the crawl counts against the budget of its day."""


class Following(NamedTuple):
    """Work that other transactions do after the commit of crawls."""

    queued: Ints
    """Pages that may be due sooner, ascending."""
    ended: tuple[EndedIncident, ...]
    """Incidents whose pages are looked at again."""


CommittedT = TypeVar("CommittedT", CommittedCrawls, PingOutcome)
CrawlReport = Report[CrawlColumns]
PingReport = Report[PingColumns]
CrawlReports = Batcher[Report[CrawlColumns], CommittedCrawls]
PingReports = Batcher[Report[PingColumns], PingOutcome]


def some_items(job: Report[ColumnsT], rows: Ints) -> Report[ColumnsT]:
    """Return the report of some items."""
    return replace(job, columns=job.columns.take(rows), names=selected(job.names, rows))


class Recorder:
    """Records the reports of several requests in one transaction.

    `settler` ends leases; None: the store has no queue. `patience_s` is the time for which items of
    locked pages are tried. `keeper` counts the crawls without a lease; None: no budget is kept.
    """

    def __init__(
        self,
        store: Store,
        rules: InForce,
        settler: LeaseSettler | None,
        patience_s: float = PATIENCE_S,
        keeper: Keeper | None = None,
    ) -> None:
        self.store = store
        self.keeper = keeper
        self.rules = rules
        self.settler = settler
        self.recent = RecentDigests()
        self.crawls: WaitingItems[CrawlReport, CommittedCrawls] = WaitingItems(
            store, self._flush_crawls, some_items, patience_s
        )
        self.pings: WaitingItems[PingReport, PingOutcome] = WaitingItems(
            store, self._flush_pings, some_items, patience_s
        )

    def flush_crawls(
        self, jobs: list[CrawlReport], prepare: Prepare = lambda _: None
    ) -> Sequence[CommittedCrawls | Future[CommittedCrawls]]:
        """Record crawls, end their leases and queue their pages again.

        The outcome of a report with crawls of locked pages is a future.
        """
        outcomes = self.flush_free_crawls(jobs, prepare)
        pairs = zip(jobs, outcomes, strict=True)
        return [self.crawls.result(job, own, prepare) for job, own in pairs]

    def flush_free_crawls(
        self, jobs: list[CrawlReport], prepare: Prepare = lambda _: None
    ) -> Sequence[CommittedCrawls]:
        """Record crawls as `flush_crawls`; those of locked pages have the verdict `locked`."""
        flush = partial(self._flush_crawls, jobs, [prepare])
        return attempted(self.store, self.crawls.pages(), flush)

    def _flush_crawls(
        self, jobs: list[CrawlReport], prepares: Sequence[Prepare], attempt: Attempt
    ) -> Sequence[CommittedCrawls]:
        with self.store.begin() as tx:
            for prepare in prepares:
                prepare(tx)
            tx.hurry()
            committed, following = self.record_crawls(tx, jobs, attempt)
        self.after_commit(jobs, committed, following)
        return [committed] if len(jobs) == 1 else [committed.take(rows) for rows in _rows(jobs)]

    def record_crawls(
        self, tx: Transaction, jobs: list[CrawlReport], attempt: Attempt
    ) -> tuple[CommittedCrawls, Following]:
        """Record crawls in a transaction that hurries; return the work for `after_commit`."""
        now, crawls = _latest(jobs), CrawlColumns.concatenate([job.columns for job in jobs])
        pages = _resolve(tx, jobs, now, leased=crawls.leased_page_id)
        crawls = replace(
            crawls,
            page_id=pages.page_id,
            redirects_to=pages.redirects_to,
            leads=pages.leads,
        )
        crawls = without_own_urls(without_other_pages(crawls))
        free = attempt.free(crawls.page_id)
        if free is None:
            committed, following = self._record_free(tx, crawls, now, attempt, pages.added)
        else:
            some = crawls.take(free)
            own, following = self._record_free(tx, some, now, attempt, pages.added)
            committed = spread_out(own, free, crawls.page_id)
        queued = distinct(np.append(pages.new, following.queued))
        return committed, following._replace(queued=queued)

    def _record_free(
        self,
        tx: Transaction,
        crawls: CrawlColumns,
        now: datetime,
        attempt: Attempt,
        added: PageColumns | None,
    ) -> tuple[CommittedCrawls, Following]:
        """Record crawls of pages that are not set aside; queue those that fail or are gone."""
        attempt.page_id = pages_of(crawls.page_id)
        waiting = nobody
        if self.settler is None:
            # nothing is leased, so all times are stated
            outcome = record(tx, crawls, self.rules, recent=self.recent, added=added)
            lease_ended = np.zeros(len(crawls), np.bool_)
        else:
            outcome, lease_ended, waiting = self._record_leased(
                tx, self.settler, crawls, attempt.page_id, now, added
            )
        committed = CommittedCrawls(
            page_id=crawls.page_id,
            verdict=outcome.verdict,
            lease_ended=lease_ended,
            is_request=outcome.is_request,
        )
        # the end of a lease has queued its page already
        sooner = crawls.page_id[outcome.sooner & ~lease_ended]
        # a report ends the wait after unfinished leases
        queued = np.concatenate([sooner, outcome.again, waiting()])
        return committed, Following(queued, outcome.ended)

    def _record_leased(
        self,
        tx: Transaction,
        settler: LeaseSettler,
        crawls: CrawlColumns,
        page_id: Ints,
        now: datetime,
        added: PageColumns | None,
    ) -> tuple[CrawlOutcome, Bools, Callable[[], Ints]]:
        """Record crawls of some pages, ascending, and end their leases.

        Return the outcome, which leases ended, and the function of `LeasedCrawls.waiting`.
        """
        needs_rate = self.rules.estimator.needs_crawl_rate or needs_rates(crawls)
        states, leased = settler.lock(tx, page_id, crawls, scheduled=needs_rate)
        crawls, starts = started(crawls, leased, states, now, tx.incarnations)
        outcome = record(tx, crawls, self.rules, states, starts, self.recent, added)
        held = settler.settle_crawls(
            tx, crawls, outcome.is_news, outcome.states, leased, tx.now(), outcome.in_incident
        )
        return outcome, held, leased.waiting

    def flush_pings(self, jobs: list[PingReport]) -> Sequence[PingOutcome | Future[PingOutcome]]:
        """Record pings and queue the pages whose crawls they request.

        The outcome of a report with pings of locked pages is a future.
        """
        flush = partial(self._flush_pings, jobs, [])
        outcomes = attempted(self.store, self.pings.pages(), flush)
        return [self.pings.result(job, own) for job, own in zip(jobs, outcomes, strict=True)]

    def _flush_pings(
        self, jobs: list[PingReport], _: Sequence[Prepare], attempt: Attempt
    ) -> Sequence[PingOutcome]:
        now, pings = _latest(jobs), PingColumns.concatenate([job.columns for job in jobs])
        with self.store.begin() as tx:
            tx.hurry()
            pages = _resolve(tx, jobs, now)
            pings = replace(pings, page_id=pages.page_id)
            free = attempt.free(pings.page_id)
            some = pings if free is None else pings.take(free)
            attempt.page_id = pages_of(some.page_id)
            outcome = ping(tx, some, self.rules, now)
            new = admitted(tx, pages.added, NO_CRAWLS)
            later = outcome.reason == PingReason.later
            if self.settler is not None and (outcome.requested | later).any():
                ids = some.page_id
                self.settler.queue_requested(tx, ids[outcome.requested], tx.now(), ids[later])
        self._queue_apart(new, now)
        if free is not None:
            outcome = spread_out(outcome, free, pings.page_id)
        return [outcome.take(rows) for rows in _rows(jobs)]

    def after_commit(
        self, jobs: list[CrawlReport], committed: CommittedCrawls, following: Following
    ) -> None:
        """Do the work that `record_crawls` returned; count what the crawls took."""
        now = _latest(jobs)
        if self.keeper is not None and any(self.keeper.counts(job.columns.token) for job in jobs):
            crawls = CrawlColumns.concatenate([job.columns for job in jobs])
            day = int(days_since_1970(now))
            today = committed.is_request & begun_on(day, crawls)
            self.keeper.count_reports(day, crawls.token[today], amounts_of(crawls)[today])
        self._queue_apart(following.queued, now)
        if self.settler is not None:
            look_again(self.store, self.settler, following.ended, now)

    def _queue_apart(self, page_id: Ints, now: datetime) -> None:
        """Queue pages in another transaction, because the first one has locked host queues.

        If the database fails here, the next epoch queues the pages.
        """
        if self.settler is not None and len(page_id):
            queue_apart(self.store, self.settler, page_id, now)


def begun_on(day: int, crawls: CrawlColumns) -> Bools:
    """Return the crawls of a day since 1970; one under a lease may state no time."""
    midnight, at = np.datetime64(day, "D").astype(INSTANT), crawls.observed_at
    today: Bools = (at >= midnight) & (at < midnight + DAY) | np.isnat(at) & (crawls.token != 0)
    return today


def amounts_of(crawls: CrawlColumns) -> Floats:
    """Return what crawls took, in the unit of the budget; NaN: no report. A price took nothing."""
    if crawls.cost is None:
        return np.full(len(crawls), np.nan)
    return np.where(crawls.status == OFFERED, 0.0, crawls.cost)


def spread_out(own: CommittedT, free: Ints, page_id: Ints) -> CommittedT:
    """Return the outcomes of free items among those of all items, which are of locked pages."""
    every = replace(lost(type(own), len(page_id), ItemVerdict.locked), page_id=page_id)
    return patched(every, free, own)


def without_other_pages(crawls: CrawlColumns) -> CrawlColumns:
    """Return crawls, with those whose URL names another page than their lease as ends of leases."""
    wrong = (crawls.page_id == UNSPECIFIED) & (crawls.token != 0)
    if not wrong.any():
        return crawls
    judged = UNSPECIFIED if crawls.verdict is None else crawls.verdict
    return replace(
        crawls,
        page_id=np.where(wrong, crawls.leased_page_id, crawls.page_id),
        redirects_to=np.where(wrong, 0, crawls.redirects_to),
        verdict=np.where(wrong, ItemVerdict.elsewhere, judged).astype(np.int16),
    )


def without_own_urls(crawls: CrawlColumns) -> CrawlColumns:
    """Return crawls without the targets of those that ended at their own page: no redirects."""
    own = (crawls.redirects_to == crawls.page_id) & ~is_redirect(crawls.status)
    if not own.any():
        return crawls
    return replace(
        crawls,
        redirects_to=np.where(own, 0, crawls.redirects_to),
        leads=np.where(own, Leads.on, crawls.leads).astype(np.int16),
    )


def _rows(jobs: list[Report[ColumnsT]]) -> list[slice]:
    return slices(len(job.columns) for job in jobs)


def _latest(jobs: list[Report[ColumnsT]]) -> datetime:
    return max(job.now for job in jobs)


def _resolve(
    tx: Transaction, jobs: list[Report[ColumnsT]], now: datetime, leased: Ints | None = None
) -> PageRows:
    names = merge_names([job.names for job in jobs])
    return resolve(tx, names, now, register=jobs[0].register, leased=leased)


def batched(
    name: str,
    flush: Callable[[list[JobT]], Sequence[ResultT | Future[ResultT]]],
    n_writers: int = 1,
    watch: Callable[[Flush], None] = lambda _: None,
) -> Batcher[JobT, ResultT]:
    """Return a batcher of crawls or pings; a single writer lingers for a full batch."""
    limits = LIMITS if n_writers > 1 else replace(LIMITS, min_batch=LIMITS.max_batch)
    return Batcher(name, flush, limits, n_writers=n_writers, watch=watch)


def lost(
    kind: type[CommittedT], n: int, verdict: ItemVerdict = ItemVerdict.unavailable
) -> CommittedT:
    """Return the outcomes of n items that no database has committed."""
    values = {"verdict": int(verdict), "reason": PingReason.unknown_page}
    columns: dict[str, NDArray[Any]] = {
        name: np.full(n, values.get(name, 0), column.dtype)
        for name, column in kind.empty().arrays().items()
    }
    return kind(**columns)
