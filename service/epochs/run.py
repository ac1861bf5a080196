"""Run an epoch: read every page's estimate, allocate the bandwidth, publish the schedule.

A `Runner` runs an epoch whenever one is due, and fills the queue of due pages.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from time import perf_counter

import structlog

from service.budget.admission import admit_waiting, sample
from service.budget.in_force import BudgetInForce
from service.budget.spending import adopt_unit
from service.budget.window_shares import follow_windows
from service.core.checks import BandwidthInfeasible
from service.epochs.inputs import Task
from service.epochs.part import Run
from service.epochs.parts import EpochParts, Spread, in_this_process, recovered
from service.epochs.plan import Plan
from service.history.steps import HistoryKeeper
from service.leases.early import EarlyPages
from service.leases.politeness import Politeness
from service.leases.queue import fill_queue, redate
from service.model.amounts import CRAWLS, typical_cost
from service.model.domain import Certificate, Epoch, EpochStatus
from service.model.errors import (
    OUTAGES,
    ArchiveDamaged,
    ArchiveUnavailable,
    EpochRunning,
    LeadershipLost,
    PartLost,
    StoreFull,
    StoreUnavailable,
)
from service.storage import Lead, Store
from service.storage.clock import SET_BACK, Clock
from service.storage.queue.columns import NEVER_FILLED
from service.storage.queue.hours import follow_hours

TROUBLE = (*OUTAGES, LeadershipLost, PartLost)
"""Outages of the database, a lost lead and lost parts, which are logged without a traceback."""
EXPECTED = (*TROUBLE, BandwidthInfeasible, ArchiveUnavailable, ArchiveDamaged)
"""Errors that make an epoch fail without a fault of the service."""
MAX_CUT = 10_000
"""Maximum number of old entries of the audit that one round deletes."""
MAX_REASON = 500
"""Maximum length of a database's message in the reason of a failed epoch, characters."""

log = structlog.get_logger()


def run_epoch(store: Store, plan: Plan, now: Clock, spread: Spread = in_this_process) -> Epoch:
    """Run one epoch and return its record, published or failed.

    `spread` chooses the processes that compute it.

    A failed epoch has a reason and leaves the old schedule in force. If the process dies, readers
    see either the whole old schedule or the whole new one.

    Raises
    ------
    EpochRunning
        Another process is running an epoch.
    """
    with store.lead() as lead:
        _keep_house(lead, plan, now)  # first, because a run that died may have left its schedule
        with lead.begin() as tx:
            last, epoch = tx.epoch_in_force(), tx.start_epoch(now())
        log.info("this process leads: epoch started", epoch=epoch.epoch)
        try:
            with spread(store, lead, Task(plan, last, now())) as parts:
                _load_solve_publish(store, lead, parts, epoch.epoch, last, now)
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
    """Return the reason of a failed epoch; a database's message comes without the statement."""
    if isinstance(error, StoreUnavailable) and error.__cause__ is not None:
        message = str(getattr(error.__cause__, "orig", error.__cause__))
        return f"the database failed: {' '.join(message.split())[:MAX_REASON]}"
    return f"{type(error).__name__}: {error}"


def _keep_house(lead: Lead, plan: Plan, now: Clock) -> None:
    try:
        lead.housekeep(None if plan.retention is None else now() - plan.retention, now())
        with lead.begin() as tx:
            tx.forget_incidents(now())
        if plan.audit_retention is not None:
            with lead.begin() as tx:
                tx.cut_audit(now() - plan.audit_retention, MAX_CUT)
    except StoreFull:
        # Dropping takes room too. The epoch fails later if it does not fit.
        log.warning("the database has no room left to drop old schedules and log entries")


def _load_solve_publish(
    store: Store, lead: Lead, parts: EpochParts, epoch: int, last: Epoch | None, now: Clock
) -> None:
    certificate = recovered(parts, lambda n: _attempted(parts, lead, Run(epoch, n)))
    with lead.begin() as tx:
        tx.publish(epoch, certificate, now(), parts.unwritten)
        if store.has_queue:
            follow_windows(tx, None if last is None else last.certificate, certificate)
    published = {"epoch": epoch, "n_pages": certificate.n_pages}
    log.info("epoch published", **published, seconds=certificate.seconds)


def _attempted(parts: EpochParts, lead: Lead, run: Run) -> Certificate:
    """Compute an epoch; a part that was lost in an earlier attempt can no longer write."""
    if run.attempt:
        lead.allow(run.epoch, run.attempt)
    return computed(parts, run)


def computed(parts: EpochParts, run: Run) -> Certificate:
    """Return the certificate of an epoch whose schedule all parts have prepared."""
    seconds: dict[str, float] = {}
    with stopwatch(seconds, "load"):
        sizes = parts.ask_all("load")
        n_pages = sum(sizes)
        # parts without pages stay out, but one part must compute an epoch of no pages
        parts.ask("census", [(n > 0 or not (n_pages or i),) for i, n in enumerate(sizes)])
    epoch_log = log.bind(epoch=run.epoch, n_pages=n_pages)
    epoch_log.info("epoch loaded", seconds=seconds["load"])
    with stopwatch(seconds, "estimate"):
        parts.joined("estimate")
    certificate: Certificate
    with stopwatch(seconds, "allocate"):
        certificate, *_ = parts.joined("allocate")
    epoch_log.info("epoch allocated", seconds=seconds["allocate"], passes=certificate.passes)
    with stopwatch(seconds, "publish"):
        parts.prepare(run)
    return replace(certificate, seconds=seconds)


@contextmanager
def stopwatch(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Write the duration of a stage to `seconds`."""
    started = perf_counter()
    yield
    seconds[stage] = round(perf_counter() - started, 6)


FILL_EVERY = timedelta(hours=1)
"""Maximum time between two fills of the queue, for any interval of epochs."""

FOLLOWED = timedelta(seconds=5)
"""Time within which every server follows an order."""

POLITE = Politeness()

STANDS_IN = "no worker fills the queue of due pages, so this server does; start `recrawl worker`"
WAITING = "waiting for the next epoch to be due"
STANDBY = "waiting: another process leads"


class Runner:
    """A runner of epochs: after each interval, on request, or after a run that died.

    Any number of runners may share a store. One of them leads at a time, and the others wait.
    `stop` ends `run_every` after the round in progress.
    """

    POLL_S = 1.0
    """Time between two rounds, seconds."""
    LOOK_S = 10.0
    """Maximum time between two looks of a server at a queue that workers fill, seconds."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        interval: timedelta,
        now: Clock,
        polite: Politeness = POLITE,
        spread: Spread = in_this_process,
        budget: BudgetInForce | None = None,
    ) -> None:
        self.store = store
        self.own_plan = plan
        self.budget = budget
        self.interval = interval
        self.now = now
        self.polite = polite
        self.spread = spread
        self.history = HistoryKeeper(store, plan.estimator, plan.history_retention, now)
        self._early: dict[int, EarlyPages] = {}
        """Choice of the pages that an idle budget brings forward, by database."""
        self._latest: datetime | None = None
        """Time of the last round; None: none yet."""
        self._state = ""
        self._wake = threading.Event()
        self._stopped = threading.Event()

    @property
    def plan(self) -> Plan:
        """The plan with the budget in force."""
        return self.own_plan.within(self.budget)

    def wake(self) -> None:
        """Check at once whether an epoch is due."""
        self._wake.set()

    def stop(self) -> None:
        """End `run_every`."""
        self._stopped.set()
        self._wake.set()

    def due(self) -> bool:
        """Return whether an epoch should start now."""
        with self.store.begin(write=False) as tx:
            newest = tx.newest_epoch()
            if newest is None:
                return len(tx.next_page_ids(0, 1)) > 0
        if newest.started_at is None or newest.status is EpochStatus.running:
            return True
        # abs: otherwise epochs would stop after the clock was set back, until it has caught up
        return abs(self.now() - newest.started_at) >= self.interval

    def run_once(self) -> Epoch | None:
        """Run an epoch if one is due and no other runner does; queue pages; keep the history."""
        epoch = None
        self.store.keep_time()
        self.store.recognise()
        try:
            self.follow()
            epoch = self._run_due()
            self.fill_queue()
            self.keep_history()
        except EpochRunning:
            self._log_once(STANDBY)
        else:
            self._state = self._state if epoch is None else ""
            self._log_once(WAITING)
        return epoch

    def follow(self) -> None:
        """Follow the orders of operators; forget costs that are stored in another unit."""
        if self.budget is None:
            return
        with self.store.begin(write=False) as tx:
            orders = tx.orders()
            self.budget.follow(orders)
            follow_hours(tx, orders.hours)
            unit, at = self.budget.unit, self.budget.orders.budget_at
            same = unit == CRAWLS or tx.cost_unit() == unit
        # all servers report in the new unit by then
        if not same and not (at and self.now() - at < FOLLOWED):
            with self.store.lead():
                adopt_unit(self.store, unit)

    def _run_due(self) -> Epoch | None:
        """Run an epoch if one is due; a database that is away stops the epoch, not the queues."""
        try:
            if not self.due():
                return None
            self.store.counter.write()  # predictions of the epoch that is about to end
            return run_epoch(self.store, self.plan, self.now, self.spread)
        except OUTAGES:
            # an epoch needs every database, a queue only its own
            if len(self.store.parts) > 1:
                self.fill_queue()
            raise

    def _log_once(self, state: str) -> None:
        """Log a state when it begins; an epoch that runs here ends the state."""
        if state != self._state:
            log.info(state, epoch_interval_s=self.interval.total_seconds())
        self._state = state

    @property
    def ahead(self) -> timedelta:
        """Time ahead for which pages are queued: one round may fail without a gap."""
        return 2 * min(self.interval, FILL_EVERY)

    def fill_queue(self) -> None:
        """Queue the pages due soon, after a new schedule or in time; one process at a time."""
        if not self.store.has_queue:
            return
        now, failed = self.now(), None
        for part in self.store.parts:
            try:
                self._fill(part, now)
            except (*OUTAGES, EpochRunning) as error:  # the queues of other databases go on
                failed = error
        if failed is not None:
            raise failed
        self._latest = now

    def _fill(self, part: Store, now: datetime) -> None:
        """Queue the pages of one database, if it is time."""
        with part.begin(write=False) as tx:
            mark, in_force = tx.filled(), tx.number_in_force()
        in_time = now + self.ahead / 2 < mark.until <= now + self.ahead
        # a mark without its begin is of an older version, which may have queued further ahead
        began_at = mark.until - self.ahead if mark.at is None else mark.at
        set_back = now < max(began_at, self._latest or began_at) - SET_BACK
        if mark.epoch != in_force or not in_time or set_back:
            with part.lead():
                if set_back:
                    log.warning("the clock was set back; later times of crawls are set to now")
                    redate(part, self.polite, self.now)
                admit_waiting(part, now)
                crawls, each = self._crawls_a_day(part)
                sample(part, crawls / len(self.store.parts), now)
                early = self._early.setdefault(id(part), EarlyPages(self.plan.bandwidth))
                early.budget, early.each = self.plan.bandwidth, each
                fill_queue(part, now + self.ahead, self._stopped.is_set, early, now)

    def stand_in(self) -> bool:
        """Fill a queue that ends soon, because no worker has filled it; return whether one did not.

        Rates and shares of hosts stay those of the epoch in force.
        """
        now, late = self.now(), False
        for part in self.store.parts:
            with part.begin(write=False) as tx:
                mark = tx.filled()
            if mark == NEVER_FILLED or mark.until > now + self.ahead / 4:
                continue
            late = True
            if self._state != STANDS_IN:
                log.warning(STANDS_IN, filled_until=mark.until.isoformat())
                self._state = STANDS_IN
            with suppress(EpochRunning):  # a worker, or another server, fills the queue now
                self._fill(part, now)
        self._latest = now
        return late

    def stand_in_every(self) -> None:
        """Look at the queue until stopped, and fill it where no worker does."""
        every_s = min(self.LOOK_S, self.ahead.total_seconds() / 8)  # before a short queue ends
        while not self._stopped.wait(every_s):
            try:
                self.stand_in()
            except TROUBLE as error:
                log.warning("the queue was not filled", reason=str(error))
            except Exception:
                log.exception("the queue was not filled")

    def _crawls_a_day(self, part: Store) -> tuple[float, float]:
        """Return the crawls a day of the epoch in force, 0 before the first, and their mean cost.

        In units other than crawls, both follow from the maximum of first crawls.
        """
        with part.begin(write=False) as tx:
            epoch = tx.epoch_in_force()
        certificate = None if epoch is None else epoch.certificate
        unit = self.plan.unit if certificate is None else certificate.unit
        if certificate is None:
            return 0.0, typical_cost(unit)
        each, first = typical_cost(unit), certificate.first_crawls
        if unit != CRAWLS and first and self.plan.first_share:
            each = self.plan.first_share * certificate.bandwidth / first
        return certificate.bandwidth / each, each

    def keep_history(self) -> None:
        """Merge the sums of commits, and write the rows of a step that has ended."""
        if self.store.has_queue and self.history.due():
            with self.store.lead():
                self.history.keep()

    def run_every(
        self, loops: int | None = None, after_each: Callable[[], None] = lambda: None
    ) -> None:
        """Run `run_once` until stopped, or `loops` times; log its errors and continue.

        `after_each` is called after every epoch that this runner ran.
        """
        done = 0
        while not self._stopped.is_set() and done != loops:
            started = self.now()
            try:
                if self.run_once() is not None:
                    after_each()
            except TROUBLE as error:
                cause = repr(error.__cause__)
                log.warning(
                    "the round failed; the next round tries again", reason=str(error), cause=cause
                )
            except Exception:
                log.exception("the round failed; the next round tries again")
            if (took := self.now() - started) > self.interval:
                log.warning("an epoch outlasts its interval", took_s=took.total_seconds())
            self._wake.wait(self.POLL_S)
            self._wake.clear()
            done += 1
