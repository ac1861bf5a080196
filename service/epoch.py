"""Run an epoch: read every page's estimate, allocate the bandwidth, publish the schedule."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from time import perf_counter
from typing import Any

import numpy as np
import structlog

from service import crawls
from service.arrays import Floats, instant
from service.clock import SET_BACK, Clock
from service.columns import CapColumns, EpochColumns, ScheduleColumns
from service.constraints import constrain
from service.core.allocation import ALLOCATORS, Allocation
from service.core.conditions import BandwidthInfeasible
from service.core.costs import costs
from service.core.estimators import (
    Estimator,
    corpus_of,
    fit_corpus,
    from_columns,
    section_rate_of,
    with_corpus,
)
from service.core.pings import PingEstimate
from service.core.trust import audit_rate
from service.domain import Certificate, Epoch, EpochStatus, Observability, Timing
from service.errors import OUTAGES, EpochRunning, LeadershipLost, StoreFull, StoreUnavailable
from service.estimates import Known, known, rates_from_log
from service.lanes import Politeness
from service.pace import pace, steady
from service.redating import redate
from service.sections import n_buckets
from service.storage import Lead, QueueStore, Store, Transaction

DEFAULT_BANDWIDTH_PER_PAGE = 0.2
"""Crawls a day for each page where no bandwidth is set: the ratio of K19's experiments."""

FILL_EVERY = timedelta(hours=1)
"""Where epochs are rarer, what falls due is queued so often all the same."""

COST_BLOCK = 1 << 16
"""Pages whose costs are computed at a time."""

NAMED = 3
"""Pages that the reason of a failed epoch names."""

TROUBLE = (*OUTAGES, LeadershipLost)
"""What befalls databases; the round that meets it ends, and the log needs no trace of it."""
EXPECTED = (*TROUBLE, BandwidthInfeasible)
"""Why an epoch may fail without a fault of the service; the bandwidth the operator has set."""

POLITE = Politeness()

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Plan:
    """What an epoch aims at."""

    estimator: Estimator[Any]
    objective: str = "harmonic"
    timing: Timing = Timing.periodic
    bandwidth: float | None = None
    """Crawls a day; None: 0.2 for each page."""
    retention: timedelta | None = None
    """How long the log is kept; None: for ever."""
    siblings: bool = True
    """Whether what siblings have shown moves a page's next crawl. Never on Poisson clocks, under
    which the estimators count on the rates in force."""

    @property
    def paced(self) -> bool:
        """Whether clocks may run faster or slower than the rates."""
        return self.siblings and self.timing is Timing.periodic


def run_epoch(store: Store, plan: Plan, now: Clock) -> Epoch:
    """Run one epoch and give its record, published or failed.

    A failure is recorded with its reason and leaves the old schedule in force. Whatever
    instant the process dies at, readers see the old schedule or the new one, whole.

    Raises
    ------
    EpochRunning
        Another process is running one.
    """
    with store.lead() as lead:
        _keep_house(lead, plan, now)  # first of all what a run that died has left
        with lead.begin() as tx:
            last, epoch = tx.epoch_in_force(), tx.start_epoch(now())
        try:
            _load_solve_publish(lead, plan, epoch, last, now)
        except Exception as error:
            fault = not isinstance(error, EXPECTED)
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, StoreUnavailable) and error.__cause__ is not None:
                said = getattr(error.__cause__, "orig", error.__cause__)  # without the statement
                reason = f"the database failed: {' '.join(str(said).split())[:500]}"
            log.exception("epoch failed", epoch=epoch.epoch, reason=reason, exc_info=fault)
            with lead.begin() as tx:
                tx.fail_epoch(epoch.epoch, reason, now())
        _keep_house(lead, plan, now)
        with lead.begin(write=False) as tx:
            return tx.epoch(epoch.epoch)


def _keep_house(lead: Lead, plan: Plan, now: Clock) -> None:
    try:
        lead.housekeep(None if plan.retention is None else now() - plan.retention, now())
    except StoreFull:  # dropping takes room too; whether an epoch still fits is seen by running it
        log.warning("no room to drop what is no longer kept")


def _load_solve_publish(
    lead: Lead, plan: Plan, epoch: Epoch, last: Epoch | None, now: Clock
) -> None:
    seconds: dict[str, float] = {}
    told = log.bind(epoch=epoch.epoch)
    with lead.begin(write=False) as tx, stopwatch(seconds, "load"):
        pages, caps = tx.load_columns(), tx.load_caps()
        fitted = fitted_last(tx, plan.estimator, last)
        from_log = None
        if plan.estimator.needs_history:
            from_log = rates_from_log(tx, pages.page_id, plan.estimator)
    told = told.bind(n_pages=len(pages))
    told.info("epoch loaded", seconds=seconds["load"])
    with stopwatch(seconds, "estimate"):
        estimator = refit(plan.estimator, pages, fitted)
        rates = known(pages, estimator, instant(now()), from_log)
    with stopwatch(seconds, "allocate"):
        schedule, certificate = solve(pages, rates, plan, last, caps)
        clocks = steady(len(pages))
        if plan.paced:
            clocks = pace(pages, rates, schedule.crawl_rate, caps, instant(now()))
        schedule = replace(schedule, pace=clocks.of_pages)
    told.info("epoch allocated", seconds=seconds["allocate"], passes=certificate.passes)
    with stopwatch(seconds, "publish"):
        lead.write_schedule(epoch.epoch, schedule)
    with lead.begin() as tx:
        prior = corpus_of(estimator)
        certificate = replace(certificate, prior=prior, seconds=seconds, haste=clocks.haste)
        tx.publish(epoch.epoch, certificate, now(), section_rate_of(estimator))
    told.info("epoch published", seconds=seconds)


def fitted_last(tx: Transaction, estimator: Estimator[Any], last: Epoch | None) -> Estimator[Any]:
    """Give the estimator with the prior of the epoch in force."""
    if last is None or last.certificate is None:
        return estimator
    return with_corpus(estimator, last.certificate.prior, tx.section_rate(last.epoch))


def refit(
    estimator: Estimator[Any], pages: EpochColumns, last: Estimator[Any] | None = None
) -> Estimator[Any]:
    """Give the estimator with what is known of all incomplete pages, by section, as its prior.

    Pages that take no part, among them those that are gone, have no say in it. The `last` fit is
    where the search for this one begins.
    """
    if estimator.needs_history:
        return estimator
    heard = (pages.observability != Observability.complete) & (pages.importance > 0)
    state = from_columns(estimator, pages.estimate[heard])
    return fit_corpus(estimator, state, pages.section[heard], n_buckets(len(pages)), last)


def solve(
    pages: EpochColumns, known: Known, plan: Plan, last: Epoch | None, caps: CapColumns
) -> tuple[ScheduleColumns, Certificate]:
    """Allocate the bandwidth; gives the schedule and what certifies it. Pure."""
    n_pages = len(pages)
    bandwidth = DEFAULT_BANDWIDTH_PER_PAGE * n_pages if plan.bandwidth is None else plan.bandwidth
    start = last.certificate.multiplier if last and last.certificate else None
    constraints = constrain(pages, known, caps, plan.objective)
    try:
        allocation = allocate(pages, known, plan.objective, bandwidth, start, constraints.given())
    except BandwidthInfeasible as error:
        raise BandwidthInfeasible(f"{error}; {greediest(pages)}") from error
    audits = audit_rates(pages, known, allocation)
    crawl_rate = allocation.crawl_rate
    if audits.any():
        spared = max(bandwidth - float(audits.sum()), float(np.nansum(pages.min_crawl_rate)))
        given, start = constraints.given(audits), allocation.multiplier
        allocation = allocate(pages, known, plan.objective, spared, start, given)
        crawl_rate = allocation.crawl_rate + audits
    schedule = ScheduleColumns(
        page_id=pages.page_id,
        change_rate=known.change_rate,
        crawl_rate=crawl_rate,
        crawl_probability=allocation.crawl_probability,
        pace=np.broadcast_to(1.0, n_pages),
    )
    certificate = certify(pages, known, schedule, allocation, plan.timing)
    used = allocation.bandwidth_used + float(audits.sum())
    return schedule, replace(certificate, bandwidth=bandwidth, bandwidth_used=used)


def greediest(pages: EpochColumns) -> str:
    """Name the pages whose minimum crawl rates are the highest."""
    low = np.nan_to_num(pages.min_crawl_rate)
    first = np.argsort(-low, kind="stable")[:NAMED]
    named = (f"page {pages.page_id[i]} ({low[i]:g})" for i in first.tolist() if low[i] > 0)
    return f"the most is asked by {', '.join(named)}"


def allocate(
    pages: EpochColumns, known: Known, objective: str, bandwidth: float, start: float | None,
    constraints: dict[str, Any],
) -> Allocation:  # fmt: skip
    """Call the objective's solver."""
    solver: Callable[..., Allocation] = ALLOCATORS[objective]
    complete = pages.observability == Observability.complete
    importance = np.ascontiguousarray(pages.importance)
    return solver(importance, known.change_rate, complete, bandwidth, start=start, **constraints)


def audit_rates(pages: EpochColumns, known: Known, allocation: Allocation) -> Floats:
    """Give the crawls on the clock that show what the pings of `auto` pages miss, 1/day.

    They are asked for only where the optimum itself has (nearly) none; never more than a page's
    maximum.
    """
    heard = known.ping_rate > 0
    if not heard.any():
        return np.broadcast_to(0.0, len(pages))
    unannounced = (1.0 - known.recall) * known.change_rate
    estimate = PingEstimate(unannounced, known.ping_rate, known.precision)
    wanted = audit_rate(estimate, allocation.crawl_probability)
    missing = np.fmin(np.maximum(wanted - allocation.crawl_rate, 0.0), pages.max_crawl_rate)
    return np.where(heard, missing, 0.0)


def certify(
    pages: EpochColumns, known: Known, schedule: ScheduleColumns, allocation: Allocation,
    timing: Timing,
) -> Certificate:  # fmt: skip
    """Put down the costs and the residuals of a schedule."""
    harmonic, binary = total_costs(pages, known, schedule, timing)
    return Certificate(
        bandwidth=allocation.bandwidth,
        bandwidth_used=allocation.bandwidth_used,
        multiplier=allocation.multiplier,
        harmonic_cost=harmonic,
        binary_cost=binary,
        kkt_residual=allocation.kkt_residual,
        passes=allocation.passes,
        n_pages=len(pages),
        prior={},
        crawl_rate_quantiles=percentiles(schedule.crawl_rate),
        seconds={},
        haste=1.0,
    )


def percentiles(values: Floats) -> tuple[float, ...]:
    """Give the least, 99 percentiles and the most, as `np.quantile` does in 4 to 10 times as long.

    Examples
    --------
    >>> percentiles(np.arange(201.0))[:3]
    (0.0, 2.0, 4.0)
    """
    if not len(values):
        return ()
    ranks, ordered = np.arange(len(values)), np.sort(values)
    return tuple(np.interp(np.linspace(0, len(values) - 1, 101), ranks, ordered).tolist())


def total_costs(
    pages: EpochColumns, known: Known, schedule: ScheduleColumns, timing: Timing
) -> tuple[float, float]:
    """Sum both costs over all pages; those with noisy pings as on Poisson clocks, a bound."""
    total = np.zeros(2)
    for start in range(0, len(pages), COST_BLOCK):
        block = slice(start, start + COST_BLOCK)
        complete = pages.observability[block] == Observability.complete
        columns = (
            pages.importance[block], known.change_rate[block], schedule.crawl_rate[block],
            schedule.crawl_probability[block], complete,
        )  # fmt: skip
        heard = known.ping_rate[block] > 0
        if not heard.any():
            total += np.sum(costs(*columns, timing=timing.value), axis=1)
            continue
        told = (column[~heard] for column in columns)
        total += np.sum(costs(*told, timing=timing.value), axis=1)
        told = (column[heard] for column in columns)
        recall, precision = known.recall[block][heard], known.precision[block][heard]
        total += np.sum(costs(*told, ping_recall=recall, ping_precision=precision), axis=1)
    return float(total[0]), float(total[1])


@contextmanager
def stopwatch(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Write down how long a stage took."""
    started = perf_counter()
    yield
    seconds[stage] = round(perf_counter() - started, 6)


class Runner:
    """Runs an epoch whenever one is due: by the clock, on request, or left behind by the dead.

    Any number of runners may share a store; one of them leads at a time and the others find
    nothing due. `stop` ends `run_every` after the round it is in.
    """

    POLL_S = 1.0

    def __init__(
        self,
        store: Store,
        plan: Plan,
        interval: timedelta,
        now: Clock,
        polite: Politeness = POLITE,
    ) -> None:
        self.store = store
        self.plan = plan
        self.interval = interval
        self.now = now
        self.polite = polite
        self._latest = now()
        self._wake = threading.Event()
        self._stopped = threading.Event()

    def wake(self) -> None:
        """Look at once whether an epoch is due."""
        self._wake.set()

    def stop(self) -> None:
        """End `run_every`."""
        self._stopped.set()
        self._wake.set()

    def due(self) -> bool:
        """Tell whether an epoch should start now."""
        with self.store.begin(write=False) as tx:
            newest = tx.newest_epoch()
            if newest is None:
                return len(tx.next_page_ids(0, 1)) > 0
        if newest.started_at is None or newest.status is EpochStatus.running:
            return True
        # a clock set back by as much would otherwise stop epochs until it has caught up
        return abs(self.now() - newest.started_at) >= self.interval

    def run_once(self) -> Epoch | None:
        """Run an epoch if one is due and nobody else runs it; queue what falls due after it."""
        epoch = None
        self.store.keep_time()
        with suppress(EpochRunning):
            epoch = run_epoch(self.store, self.plan, self.now) if self.due() else None
            self.fill_queue()
        return epoch

    @property
    def ahead(self) -> timedelta:
        """So far ahead pages are queued: one round may fail and nothing is missed."""
        return 2 * min(self.interval, FILL_EVERY)

    def fill_queue(self) -> None:
        """Queue what falls due, by every new schedule and in time; alone, as an epoch is."""
        if not isinstance(self.store, QueueStore):
            return
        with self.store.begin(write=False) as tx:
            filled, in_force = tx.filled(), tx.number_in_force()
        now = self.now()
        in_time = now + self.ahead / 2 < filled.until <= now + self.ahead
        set_back = filled.until > now + self.ahead or now < self._latest - SET_BACK
        if filled.epoch != in_force or not in_time or set_back:
            with self.store.lead():
                if set_back:
                    log.warning("the clock was set back; what is dated later is dated now")
                    redate(self.store, self.polite, self.now)
                crawls.fill(self.store, now + self.ahead, self._stopped.is_set)
        self._latest = now

    def run_every(
        self, loops: int | None = None, after_each: Callable[[], None] = lambda: None
    ) -> None:
        """Run `run_once` until stopped, or `loops` times; what it raises is logged, not fatal.

        `after_each` is called after every epoch that ran here.
        """
        done = 0
        while not self._stopped.is_set() and done != loops:
            started = self.now()
            try:
                if self.run_once() is not None:
                    after_each()
            except TROUBLE as error:
                told = {"reason": str(error), "cause": repr(error.__cause__)}
                log.warning("the round failed; the next one tries again", **told)
            except Exception:
                log.exception("the round failed; the next one tries again")
            if (took := self.now() - started) > self.interval:
                log.warning("an epoch outlasts its interval", took_s=took.total_seconds())
            self._wake.wait(self.POLL_S)
            self._wake.clear()
            done += 1
