"""Facts that decide about needs: plain values, read from the database at one instant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.budget.allotments import Terms
from service.budget.room_today import spent_until
from service.budget.shown import STOPPED, judged
from service.history.reading import counts_between
from service.model.acceptances import Acceptance
from service.model.arrays import Instants, instant
from service.model.domain import Epoch
from service.model.history import STEP, step_of
from service.model.incidents import Incident
from service.model.subscriptions import TroubledSubscription
from service.model.webhooks import TroubledWebhook
from service.status.asked import LastAsked
from service.status.slow_hosts import SlowHost, slow_hosts
from service.storage import Store, Transaction
from service.storage.epochs.contract import EpochFailures
from service.storage.history.measured import MeasuredStep
from service.storage.queue.columns import ALL_PAGES
from service.storage.queue.signs import Asked, PausedQueue, ReturnedPages
from service.storage.queue.unfinished import WorkerCounts

PATIENCE = timedelta(minutes=10)
"""Minimum time after which an epoch is late, pages wait for a crawler, or a webhook fails."""
MOST_READ = 1_000
"""Maximum number of pauses, webhooks and workers that are read."""
MOST_STOPPED = 100
"""Maximum number of stopped URL groups that are read."""
MOST_LOST = 10_000
"""Maximum number of a worker's lost leases that are read."""
LOSES_LEAST = 10
"""Minimum number of lost leases of a worker whose times are read."""
STEPS_FOR = timedelta(days=8)
"""Time whose steps are read: seven days before today, and today."""
HOUR = timedelta(hours=1)


class EpochFacts(NamedTuple):
    """The epochs, and when one must begin."""

    interval: timedelta
    began_at: datetime | None
    """Start of the newest epoch that has started; None: none has."""
    runs: bool
    """True while that epoch runs."""
    failures: EpochFailures
    first_page_at: datetime | None
    """Registration of the first page, where no epoch has started; None: there is no page."""
    in_server: bool
    """True where the server itself runs epochs."""


class CrawlerFacts(NamedTuple):
    """Work for crawlers, and their last requests."""

    ready_since: datetime | None
    """Time since which a page is due and open; None: none, no budget, or all are paused."""
    leases: Asked | None
    schedule: Asked | None
    leases_end: datetime | None
    """Latest end of leases that run, or have just expired; None: none."""
    reported_by: datetime | None
    """End of the newest step with a reported crawl, at most now; None: none lately."""


class UnaskedHost(NamedTuple):
    """A host, or a group, whose pages are due, and that no recent request asks for."""

    name: str
    is_group: bool
    asked: Asked | None
    """The last request for its pages; None: none is known."""


class WorkerFacts(NamedTuple):
    """A worker that has lost leases."""

    name: str
    n_running: int
    lost_at: Instants
    """Ends of the leases that it lost, the newest first."""


class StoppedGroup(NamedTuple):
    """A URL group that what it brought has stopped."""

    name: str
    since: datetime
    n_first: int
    """First crawls with an answer."""
    n_new: int
    """Those that brought something new."""
    n_forbidden: int = 0
    """Those that robots.txt forbade, where they are most of the others; else 0."""


class NeverOpen(NamedTuple):
    """A host or a group whose windows do not open within a year."""

    name: str
    since: datetime
    """Time of the last change of windows."""
    is_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts that decide about needs."""

    at: datetime
    acceptances: Sequence[Acceptance] = ()
    epochs: EpochFacts
    crawlers: CrawlerFacts
    pauses: Sequence[PausedQueue]
    incidents: Sequence[tuple[str, Incident]] = ()
    """Hosts with an incident in force, the one with most pages first."""
    webhooks: Sequence[TroubledWebhook]
    webhooks_held: datetime | None = None
    """Time of a restore since which no webhook sends; None: they send."""
    subscriptions: Sequence[TroubledSubscription]
    budget: Terms | None
    """The budget that leases keep; None: none is set."""
    spent_until: datetime | None = None
    """Midnight to which the budget is spent; None: it is not, or none is set."""
    unit_since: datetime | None = None
    """Last change of the budget's unit; None: it has never changed."""
    steps: Sequence[MeasuredStep]
    running: MeasuredStep | None = None
    """Counts of the step that runs, whether it has a row yet or not; None: not read."""
    stopped: Sequence[StoppedGroup]
    unasked: Sequence[UnaskedHost] = ()
    asked_since: datetime | None = None
    """Time from which requests for single hosts are known; None: none is."""
    workers: Sequence[WorkerFacts]
    returned: Sequence[ReturnedPages]
    n_workers: int
    """Number of workers that hold leases or have lost some."""
    n_leased: int
    """Leases of the last hour."""
    n_running: int
    """Leases that run."""
    never_open: Sequence[NeverOpen] = ()
    """Hosts and groups whose windows do not open within a year."""
    slow_hosts: Sequence[SlowHost] = ()
    """Hosts whose delay costs much freshness, the worst first."""
    window_losses: Sequence[tuple[str, float, float, float, float]] = ()
    """As in `Certificate`, of the epoch in force."""
    in_force: Epoch | None = None
    """The epoch in force; None: no epoch."""


def read_facts(
    store: Store,
    tx: Transaction,
    asked: LastAsked,
    interval: timedelta,
    terms: Terms | None,
    delay_s: float = 0.0,
) -> Facts:
    """Return the facts at the time of the database; `delay_s` is that of hosts without another."""
    at = tx.now()
    workers, steps = tx.workers(at, MOST_READ), tx.measured_steps(at - STEPS_FOR)
    hour = counts_between(tx, at - HOUR, at).counts
    epoch = tx.epoch_in_force()
    certificate = None if epoch is None else epoch.certificate
    crawlers = _crawlers(tx, asked, at, terms)._replace(
        reported_by=at if hour["n_reported"] + hour["n_late"] > 0 else reported_by(steps)
    )
    asked_since, unasked = (None, []) if crawlers.ready_since is None else _unasked(tx, at)
    return Facts(
        at=at,
        acceptances=tx.acceptances(at),
        epochs=_epochs(store, tx, interval),
        crawlers=crawlers,
        unasked=unasked,
        asked_since=asked_since,
        pauses=tx.pauses(at, MOST_READ),
        incidents=tx.incidents_in_force(at, MOST_READ),
        webhooks=tx.troubled_webhooks(MOST_READ),
        webhooks_held=tx.webhooks_held(),
        subscriptions=tx.troubled_subscriptions(at, MOST_READ),
        budget=terms,
        spent_until=_spent_to_midnight(tx, terms, at),
        unit_since=tx.pace_unit_since(),
        steps=steps,
        running=_running_step(tx, at),
        stopped=stopped_groups(tx),
        workers=[_losses(tx, each, at) for each in workers if each.n_lost >= LOSES_LEAST],
        returned=tx.returned_again(MOST_READ),
        n_workers=len(workers),
        n_leased=hour["n_leased"],
        n_running=sum(each.n_running for each in workers),
        never_open=_never_open(tx, at),
        slow_hosts=slow_hosts(tx, certificate, delay_s),
        window_losses=certificate.window_losses if certificate and tx.calendars.in_use else (),
        in_force=epoch,
    )


def _never_open(tx: Transaction, at: datetime) -> list[NeverOpen]:
    """Return the hosts and groups with rules of their own that leave no opening."""
    closed = tx.calendars.never_open(at)
    if not len(closed):
        return []
    since = datetime.fromisoformat(tx.calendars.version.partition(" ")[0])
    named = zip(closed.tolist(), tx.queue_names(closed), strict=True)
    return [NeverOpen(name, since, queue_id < 0) for queue_id, name in named]


def _epochs(store: Store, tx: Transaction, interval: timedelta) -> EpochFacts:
    newest = next((each for each in tx.epochs(None, 2) if each.started_at is not None), None)
    first_page_at = None
    if newest is None:
        for page_id in tx.next_page_ids(0, 1).tolist():
            first_page_at = tx.page(page_id).created_at
    return EpochFacts(
        interval=interval,
        began_at=None if newest is None else newest.started_at,
        runs=newest is not None and newest.finished_at is None,
        failures=tx.epoch_failures(),
        first_page_at=first_page_at,
        in_server=store.embedded,
    )


def _crawlers(tx: Transaction, asked: LastAsked, at: datetime, terms: Terms | None) -> CrawlerFacts:
    ready_since = tx.ready_since()
    paused_until = tx.orders().paused_until
    is_shut = paused_until is not None and paused_until > at
    if ready_since is not None and (
        is_shut or ready_since > at or spent_until(tx, terms) is not None
    ):
        ready_since = None
    signs = asked.leases(tx), asked.schedule(tx), tx.leases_end()
    return CrawlerFacts(ready_since, *signs, reported_by=None)


def _unasked(tx: Transaction, at: datetime) -> tuple[datetime | None, list[UnaskedHost]]:
    """Return since when requests are known, and hosts with due pages that none asks for."""
    of_all = tx.askers(())
    if of_all.since is None or any(
        each.slices == 1 and at - each.asked.until < PATIENCE for each in of_all.each
    ):
        return of_all.since, []
    queues = tx.next_in_reach(ALL_PAGES, MOST_READ)
    late = queues.next_at <= instant(at)
    late &= ~(np.fmax(queues.blocked_until, queues.paused_until) > instant(at))
    late &= tx.n_running(queues.queue_id, at) == 0
    queue_id = queues.queue_id[late]
    hours = dict(tx.calendars.of_queues(queue_id, at)) if tx.calendars.in_use else {}
    shut = [n for n, own in hours.items() if own.opening(np.array([instant(at)]))[0] > instant(at)]
    queue_id = np.delete(queue_id, shut)
    names = tx.queue_names(queue_id)
    members = {
        queue: tx.members(-queue, MOST_READ) if queue < 0 else [name]
        for queue, name in zip(queue_id.tolist(), names, strict=True)
    }
    askers = tx.askers(sorted({name for own in members.values() for name in own}))
    unasked = list[UnaskedHost]()
    for name, (queue, own) in zip(names, members.items(), strict=True):
        newest = [askers.newest(host, queue) for host in own]
        asked = max((each for each in newest if each is not None), default=None)
        if asked is None or at - asked.until >= PATIENCE:
            unasked.append(UnaskedHost(name, queue < 0, asked))
    return askers.since, unasked


def _spent_to_midnight(tx: Transaction, terms: Terms | None, at: datetime) -> datetime | None:
    """Return the midnight to which the budget is spent; None: a crawl comes before."""
    until, midnight = spent_until(tx, terms), at.replace(hour=0, minute=0, second=0, microsecond=0)
    return until if until is not None and until >= midnight + timedelta(days=1) else None


def _running_step(tx: Transaction, at: datetime) -> MeasuredStep:
    """Return the counts of the step that runs at an instant."""
    begin = step_of(at)
    counts = counts_between(tx, begin, begin + STEP).counts
    return MeasuredStep(
        at=begin,
        n_leased=counts["n_leased"],
        n_reported=counts["n_reported"],
        n_failed=counts["n_failed"],
        spent=counts["spent"],
        measured_at=None,
        n_pages=None,
        n_overdue=None,
        n_no_content=None,
        budget=None,
        unit=None,
        n_late=counts["n_late"],
    )


def reported_by(steps: Sequence[MeasuredStep]) -> datetime | None:
    """Return the end of the newest step with a reported crawl; None: no step has any."""
    newest_first = reversed(steps)
    return next((s.at + STEP for s in newest_first if s.n_reported + s.n_late > 0), None)


def stopped_groups(tx: Transaction) -> list[StoppedGroup]:
    """Return groups with pages that wait, and that no rule of an operator decides about.

    A group below another one of them is a part of the same problem, and left out.
    """
    levels = tx.stopped_levels(MOST_STOPPED)
    level = np.array([each.level for each in levels], np.int64)
    stopped = {group.level.level for group in judged(tx, level) if group.state == STOPPED}
    stopped &= set(tx.n_waiting(level))
    names = {each.name for each in levels if each.level in stopped}
    return [
        StoppedGroup(
            *(each.name, each.since, each.n_first, each.n_new),
            n_forbidden=each.n_forbidden if each.is_forbidden else 0,
        )
        for each in levels
        if each.level in stopped and not names & _above(each.name)
    ]


def _above(name: str) -> set[str]:
    """Return the names of the host, the directories and the path above a URL group.

    >>> sorted(_above("a.example/p/list?day")), _above("a.example/p")
    (['a.example', 'a.example/p', 'a.example/p/list'], {'a.example'})
    """
    path, has_shape, _ = name.partition("?")
    parts = path.split("/")
    return {"/".join(parts[:n]) for n in range(1, len(parts) + bool(has_shape))}


def _losses(tx: Transaction, worker: WorkerCounts, at: datetime) -> WorkerFacts:
    lost_at = tx.lost_at(worker.worker, at, MOST_LOST)
    return WorkerFacts(worker.worker, worker.n_running, lost_at)
