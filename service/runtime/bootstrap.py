"""Start and end of every process: the store and its users, the log, the threads."""

import logging
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TextIO, cast

import numpy as np
import structlog
from structlog.typing import EventDict, Processor

from service.budget.in_force import BudgetInForce
from service.budget.spending import adopt_budget
from service.connectors.guarded import FetchLimits, guarded_client
from service.connectors.renewals import Renewer
from service.connectors.websub import hub_client
from service.core.estimators import ESTIMATORS
from service.epochs.constraints import CONSTRAINED
from service.epochs.parts import Spread, in_this_process
from service.epochs.plan import Plan
from service.epochs.run import Runner
from service.estimation.estimates import width
from service.estimation.rules import Rules
from service.events.courier import Courier
from service.history.counting import HistoryCounter
from service.model.amounts import CRAWLS
from service.model.calendars import Calendars
from service.model.errors import EstimatorMismatch, InvalidSettings, RecrawlError
from service.model.redaction import redacted
from service.runtime.settings import Settings
from service.storage import Store, open_store
from service.storage.clock import Clock
from service.storage.queue.hours import follow_hours
from service.transfer.archiving import Archivist, Retention

if TYPE_CHECKING:
    from service.runtime.tracing import Tracing

WEBHOOK_LIMITS = FetchLimits(seconds=15.0, max_bytes=65_536)
"""Limits of a request to the address of a webhook."""


class LossyStream:
    """A stream that ignores failures to write, as on a full disk or a closed pipe."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        """Write the text; drop the text after an error."""
        with suppress(OSError, ValueError):
            self.stream.write(text)

    def flush(self) -> None:
        """Flush the stream; ignore an error."""
        with suppress(OSError, ValueError):
            self.stream.flush()


def configure_logging(level: str) -> None:
    """Write the log to standard error: one JSON object a line, or plain lines on a terminal."""
    numeric = logging.getLevelNamesMapping()[level.upper()]
    render: Processor = structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        render = structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            without_passwords,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LossyStream(sys.stderr))),
    )


def without_passwords(_: object, __: str, line: EventDict) -> EventDict:
    """Return a line of the log without the passwords of URLs, such as in messages of drivers."""
    return {
        name: redacted(value) if isinstance(value, str) else value for name, value in line.items()
    }


@dataclass(frozen=True, slots=True)
class Opened:
    """The store and the parts that use the store; frozen, shared by all threads."""

    store: Store
    plan: Plan
    budget: BudgetInForce
    rules: Rules
    runner: Runner
    courier: Courier
    archivist: Archivist
    renewer: Renewer


def opened(
    settings: Settings,
    *,
    now: Clock | None = None,
    rng: np.random.Generator | None = None,
    existing: bool = False,
    batch: bool = True,
    spread: Spread = in_this_process,
) -> Opened:
    """Return the opened store with its users; the caller closes the store.

    A SQLite file is migrated to the revision of this code. A missing file is created, except with
    `existing`. A Postgres database must exist and be migrated. Statements have the time limit of
    the settings, except with `batch`. `now` replaces the store's clock. `spread` chooses the
    processes that compute epochs.

    Raises
    ------
    StartupRefused
        The schema is of another version, the database holds another estimator's states, or the
        file does not exist.
    StoreUnavailable
        The database does not answer.
    """
    url = settings.database_url.get_secret_value()
    first = settings.plan()
    timeout_s = None if batch else settings.database_timeout_s
    archive = settings.log_archive()
    store = open_store(url, width(first.estimator), clock=now, timeout_s=timeout_s, archive=archive)
    try:
        store.prepare(existing=existing)
        store.check()
        store.recognise()
        plan = _plan(store, settings)
        budget = _budget(store, settings)
        adopt_budget(store, budget.unit, budget.amount and budget.amount.value)
    except RecrawlError:
        store.close()
        raise
    if plan != first:
        store.close()
        store = open_store(
            url, width(plan.estimator), clock=now, timeout_s=timeout_s, archive=archive
        )
        store.recognise()
    store.counter = HistoryCounter(store)
    store.holds_new = settings.admission == "learned"
    store.calendars = Calendars(settings.hours())
    with store.begin(write=False) as tx:
        follow_hours(tx, tx.orders().hours)
    rng = rng or np.random.default_rng()
    rules = Rules(plan.estimator, plan.timing, rng, settings.ping_delay_s, budget)
    interval = timedelta(seconds=settings.epoch_interval_s)
    runner = Runner(store, plan, interval, store.clock, settings.politeness(), spread, budget)
    of_deliveries = rng.spawn(1)[0]
    deliveries = courier(store, settings, of_deliveries)
    archivist = Archivist(store, Retention(plan.retention, settings.changes_retention))
    hubs = partial(hub_client, private=settings.websub_private, outgoing=settings.outgoing)
    renewer = Renewer(store, hubs, of_deliveries.spawn(1)[0])
    return Opened(store, plan, budget, rules, runner, deliveries, archivist, renewer)


def log_unused_proxies(settings: Settings) -> None:
    """Log a line where the environment sets a proxy that requests do not go through."""
    if (notice := settings.outgoing.notice()) is not None:
        structlog.get_logger().warning("a proxy is not used", reason=notice)


def started_tracing(settings: Settings) -> "Tracing | None":
    """Return the traces of this process, if the settings ask for them; raise `InvalidSettings`."""
    if not settings.tracing:
        return None
    try:
        from service.runtime.tracing import Tracing, exporting
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"RECRAWL_TRACING needs the package {error.name}; pip install 'recrawl[otel]', or set "
            "RECRAWL_TRACING=false"
        ) from error
    tracing = Tracing(exporting())
    tracing.start()
    return tracing


def courier(store: Store, settings: Settings, rng: np.random.Generator) -> Courier:
    """Return the deliveries of webhooks, through guarded clients."""
    client = partial(
        guarded_client,
        WEBHOOK_LIMITS,
        private=settings.webhooks_private,
        remedy="RECRAWL_WEBHOOKS_PRIVATE=true",
        outgoing=settings.outgoing,
    )
    return Courier(store, client, rng, settings.changes_retention)


def joined(threads: Collection[threading.Thread], within_s: float) -> bool:
    """Wait at most `within_s` seconds for threads to end; return whether all have ended."""
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    return not any(thread.is_alive() for thread in threads)


def _plan(store: Store, settings: Settings) -> Plan:
    """Return the plan for the stored states; raise `EstimatorMismatch`."""
    plan = settings.plan()
    stored = _stored_estimator(store, plan.estimator.name)
    if settings.estimator is None and stored in ESTIMATORS:
        return settings.plan(stored)
    if stored != plan.estimator.name:
        otherwise = ", or unset RECRAWL_ESTIMATOR" if stored in ESTIMATORS else ""
        raise EstimatorMismatch(
            f"the database holds states of estimator {stored}, the settings ask for "
            f"{plan.estimator.name}; stop the service and run `recrawl rebuild` to replay the "
            f"log{otherwise}"
        )
    return plan


def _budget(store: Store, settings: Settings) -> BudgetInForce:
    """Return the budget in force; raise `InvalidSettings` where the objective cannot keep it."""
    with store.begin(write=False) as tx:
        budget = BudgetInForce(settings.budget_settings(), tx.orders())
    if budget.unit != CRAWLS and settings.objective != CONSTRAINED:
        raise InvalidSettings(
            f"an operator has set a budget in {budget.unit}, which needs "
            f"RECRAWL_OBJECTIVE={CONSTRAINED}, not {settings.objective}; start with it, and end "
            "the order by `recrawl budget unset` before you choose another objective"
        )
    return budget


def _stored_estimator(store: Store, name: str) -> str:
    """Return the estimator of the stored states; a new store is marked with `name`."""
    with store.begin() as tx:
        tx.now()
        stored = tx.estimator()
        if stored is None:
            tx.set_estimator(name)
        return stored or name
