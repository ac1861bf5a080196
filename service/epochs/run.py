"""Run an epoch: read every page's estimate, allocate the bandwidth, publish the schedule."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

import structlog

from service.core.conditions import BandwidthInfeasible
from service.core.estimators import (
    Estimator,
    from_columns,
)
from service.epochs.plan import Plan
from service.epochs.solve import solve
from service.epochs.urgency import steady, urgency
from service.estimation.estimates import RateEstimates, estimate_rates, rates_from_log
from service.model.arrays import instant
from service.model.columns import CapColumns, EpochColumns, ScheduleColumns
from service.model.domain import Certificate, Epoch, Observability
from service.model.errors import OUTAGES, LeadershipLost, StoreFull, StoreUnavailable
from service.model.url_groups import n_buckets
from service.storage import Lead, Store, Transaction
from service.storage.clock import Clock

TROUBLE = (*OUTAGES, LeadershipLost)
"""Database outages: an epoch that meets one fails, and its log line carries no traceback."""
EXPECTED = (*TROUBLE, BandwidthInfeasible)
"""Failures of an epoch that are no fault of the service."""
MAX_REASON = 500
"""Maximum length of a database's message in the reason of a failed epoch, characters."""

log = structlog.get_logger()


def run_epoch(store: Store, plan: Plan, now: Clock) -> Epoch:
    """Run one epoch and return its record, published or failed.

    A failure is recorded with its reason and leaves the old schedule in force. Whatever
    instant the process dies at, readers see the old schedule or the new one, whole.

    Raises
    ------
    EpochRunning
        Another process is running one.
    """
    with store.lead() as lead:
        _keep_house(lead, plan, now)  # first, because a run that died may have left its schedule
        with lead.begin() as tx:
            last, epoch = tx.epoch_in_force(), tx.start_epoch(now())
        try:
            _load_solve_publish(lead, plan, epoch, last, now)
        except Exception as error:
            reason = failure(error)
            fault = not isinstance(error, EXPECTED)
            log.exception("epoch failed", epoch=epoch.epoch, reason=reason, exc_info=fault)
            with lead.begin() as tx:
                tx.fail_epoch(epoch.epoch, reason, now())
        _keep_house(lead, plan, now)
        with lead.begin(write=False) as tx:
            return tx.epoch(epoch.epoch)


def failure(error: Exception) -> str:
    """Return the reason of a failed epoch; of a database's message without the statement."""
    if isinstance(error, StoreUnavailable) and error.__cause__ is not None:
        message = str(getattr(error.__cause__, "orig", error.__cause__))
        return f"the database failed: {' '.join(message.split())[:MAX_REASON]}"
    return f"{type(error).__name__}: {error}"


def _keep_house(lead: Lead, plan: Plan, now: Clock) -> None:
    try:
        lead.housekeep(None if plan.retention is None else now() - plan.retention, now())
    except StoreFull:
        # Dropping takes room too. The epoch itself shows whether it still fits.
        log.warning("no room to drop what is no longer kept")


def _load_solve_publish(
    lead: Lead, plan: Plan, epoch: Epoch, last: Epoch | None, now: Clock
) -> None:
    seconds: dict[str, float] = {}
    epoch_log = log.bind(epoch=epoch.epoch)
    with lead.begin(write=False) as tx, stopwatch(seconds, "load"):
        pages, caps = tx.load_columns(), tx.load_caps()
        fitted = fitted_last(tx, plan.estimator, last)
        from_log = None
        if plan.estimator.needs_history:
            from_log = rates_from_log(tx, pages.page_id, plan.estimator)
    epoch_log = epoch_log.bind(n_pages=len(pages))
    epoch_log.info("epoch loaded", seconds=seconds["load"])
    with stopwatch(seconds, "estimate"):
        estimator = refit(plan.estimator, pages, fitted)
        estimates = estimate_rates(pages, estimator, instant(now()), from_log)
    with stopwatch(seconds, "allocate"):
        schedule, certificate = _scheduled(pages, estimates, plan, last, caps, now)
    epoch_log.info("epoch allocated", seconds=seconds["allocate"], passes=certificate.passes)
    with stopwatch(seconds, "publish"):
        lead.write_schedule(epoch.epoch, schedule)
    with lead.begin() as tx:
        certificate = replace(certificate, prior=estimator.corpus(), seconds=seconds)
        tx.publish(epoch.epoch, certificate, now(), estimator.url_group_rate)
    epoch_log.info("epoch published", seconds=seconds)


def _scheduled(
    pages: EpochColumns,
    estimates: RateEstimates,
    plan: Plan,
    last: Epoch | None,
    caps: CapColumns,
    now: Clock,
) -> tuple[ScheduleColumns, Certificate]:
    start = last.certificate.multiplier if last and last.certificate else None
    schedule, certificate = solve(pages, estimates, plan, start, caps)
    clocks = steady(len(pages))
    if plan.with_urgency:
        clocks = urgency(pages, estimates, schedule.crawl_rate, caps, instant(now()))
    return (
        replace(schedule, urgency=clocks.of_pages),
        replace(certificate, budget_factor=clocks.budget_factor),
    )


def fitted_last(tx: Transaction, estimator: Estimator[Any], last: Epoch | None) -> Estimator[Any]:
    """Return the estimator with the prior of the epoch in force."""
    if last is None or last.certificate is None:
        return estimator
    return estimator.with_corpus(last.certificate.prior, tx.url_group_rate(last.epoch))


def refit(
    estimator: Estimator[Any], pages: EpochColumns, last: Estimator[Any] | None = None
) -> Estimator[Any]:
    """Return the estimator with the prior that the incomplete pages of each URL group bear out.

    Pages without importance, among them those that are gone, do not count. The search begins at
    the `last` fit.
    """
    if estimator.needs_history:
        return estimator
    counted = (pages.observability != Observability.complete) & (pages.importance > 0)
    state = from_columns(estimator, pages.estimate[counted])
    return estimator.fit(state, pages.url_group[counted], n_buckets(len(pages)), last)


@contextmanager
def stopwatch(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Write the duration of a stage to `seconds`."""
    started = perf_counter()
    yield
    seconds[stage] = round(perf_counter() - started, 6)
