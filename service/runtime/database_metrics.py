"""Metrics that a process reads from the database.

A scrape reads a few rows by their keys. Numbers of the queue need a pass over the queue, which may
hold millions of rows. Therefore a process counts apart from scrapes, and rarely where a count takes
long. While the database does not answer, `recrawl_up` is 0, and the other metrics are those of its
last answer.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from service.history import reading
from service.history.reading import Row
from service.model.amounts import CRAWLS
from service.model.domain import Epoch, EpochStatus
from service.model.errors import RecrawlError
from service.model.history import Calibrations, merged_calibrations
from service.model.subscriptions import SubscriptionState
from service.model.webhooks import WebhookProgress
from service.runtime.metric_families import (
    gauge,
    of_calibrations,
    of_disk,
    of_epoch,
    of_needs,
    of_queue,
    of_spent,
    of_step,
    of_subscriptions,
    of_webhooks,
)
from service.status.needs import Need
from service.storage import Store
from service.storage.clock import Clock
from service.storage.queue.columns import QueueCensus
from service.storage.stores.contract import Disk

MOST_WEBHOOKS = 1_000
"""Maximum webhooks with their own time series."""
COUNT_SHARE = 0.01
"""Maximum share of its time that a process spends on counting."""
COUNT_EVERY_S = 1.0
"""Minimum time between two counts, seconds."""
CALIBRATED = timedelta(days=1)
"""Time whose predictions the calibration compares."""


class Reading(NamedTuple):
    """Rows that a scrape reads."""

    published: Epoch | None
    newest: Epoch | None
    ready_at: datetime | None
    webhooks: list[WebhookProgress]
    step: Row | None
    """Newest step of the history that was measured."""
    snapshot_at: datetime | None
    """Begin of the oldest snapshot; None: none is held."""
    at: datetime
    unit: str
    """Unit of the budget that leases keep."""
    unit_since: datetime | None
    """Its last change; None: it has never changed."""


class DatabaseCollector(Collector):
    """Metrics of the epoch in force and of webhooks, as of the last answer of the database."""

    def __init__(self, store: Store, now: Clock) -> None:
        self.store = store
        self.now = now
        self.answered = False
        self.last: Reading | None = None
        self.disk: Disk | None = None

    def read(self) -> None:
        """Read a few rows; without an answer of the database, keep those of the last answer."""
        self.disk = self.store.disk()
        try:
            with self.store.begin(write=False) as tx:
                ready_at = tx.ready_since() if self.store.has_queue else None
                webhooks = tx.webhook_progress(MOST_WEBHOOKS) if self.store.has_queue else []
                step = reading.newest(tx) if self.store.has_queue else None
                snapshot_at = tx.oldest_snapshot() if self.store.has_queue else None
                unit = (tx.pace_unit() if self.store.has_queue else None) or CRAWLS
                unit_since = tx.pace_unit_since() if self.store.has_queue else None
                published, newest = tx.epoch_in_force(), tx.newest_epoch()
            away = self.store.check_ready() if len(self.store.parts) > 1 else ()
        except RecrawlError:
            self.answered = False
            return
        own = published, newest, ready_at, webhooks, step, snapshot_at
        self.last = Reading(*own, self.now(), unit, unit_since)
        self.answered = not away

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last read."""
        yield gauge(
            "up",
            "1 when the database, or each of several, answered this scrape",
            float(self.answered),
        )
        if self.disk is not None:
            yield from of_disk(self.disk)
        if (last := self.last) is None:
            return
        now = self.now()
        yield gauge(
            "database_answer_age_seconds",
            "Time since the last answer of the database to a scrape",
            max((now - last.at).total_seconds(), 0.0),
        )
        failed = last.newest is not None and last.newest.status is EpochStatus.failed
        yield gauge("epoch_failed", "1 when the newest epoch failed", float(failed))
        if last.ready_at is not None:
            waits = max((now - last.ready_at).total_seconds(), 0.0)
            yield gauge("ready_seconds", "Time since a crawl became ready to lease", waits)
        held = 0.0 if last.snapshot_at is None else (last.at - last.snapshot_at).total_seconds()
        yield gauge(
            "oldest_snapshot_seconds",
            "Age of the oldest snapshot, such as that of pg_dump, at the last answer; leases slow "
            "down while it is held",
            max(held, 0.0),
        )
        if last.published is not None:
            yield from of_epoch(last.published, now)
        if last.step is not None and last.step.gauges is not None:
            certificate = None if last.published is None else last.published.certificate
            unit = CRAWLS if certificate is None else certificate.unit
            yield from of_step(last.step, last.step.gauges, now)
            # the epoch in force may have another unit than the servers, and the step than both
            since = last.unit_since
            in_unit = unit == last.unit and (since is None or since < last.step.at)
            if in_unit or unit == CRAWLS:
                yield of_spent(last.step, unit)
        yield from of_webhooks(last.webhooks, now)


class Sums(NamedTuple):
    """Numbers that need more than a few rows."""

    census: QueueCensus
    calibrations: Calibrations
    """Predictions and outcomes of the last day."""
    subscriptions: dict[SubscriptionState, int]
    """Number of subscriptions by state."""
    at: datetime


class RareCollector(Collector):
    """Numbers that are counted rarely where a count takes long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.next_at = clock()

    def count(self) -> None:
        """Count, unless the last count was short ago for the time that it took."""
        started = self.clock()
        if started < self.next_at:
            return
        with suppress(RecrawlError):  # the last numbers stay
            self.read()
        took = self.clock() - started
        self.next_at = started + max(COUNT_EVERY_S, took / COUNT_SHARE)

    @abstractmethod
    def read(self) -> None:
        """Read the numbers of the database."""


class NeedsCollector(RareCollector):
    """The numbers of needs by kind, as of the last count."""

    def __init__(
        self, needs: Callable[[], Sequence[Need]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self.needs = needs
        self.last: Sequence[Need] | None = None

    @override
    def read(self) -> None:
        self.last = self.needs()

    @override
    def collect(self) -> Iterator[Metric]:
        if self.last is not None:
            yield from of_needs(self.last)


class SumsCollector(RareCollector):
    """Numbers of queue, calibration and subscriptions, as of the last count."""

    def __init__(
        self, store: Store, now: Clock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self.store = store
        self.now = now
        self.sums: Sums | None = None

    @override
    def read(self) -> None:
        if not self.store.has_queue:
            return
        with self.store.begin(write=False) as tx:
            now = self.now()
            steps = tx.calibrations(now - CALIBRATED, now)
            day = merged_calibrations(step.calibrations for step in steps)
            self.sums = Sums(tx.queue_census(now), day, tx.count_subscriptions(now), now)

    @override
    def collect(self) -> Iterator[Metric]:
        if self.sums is None:
            return
        census, calibrations, subscriptions, at = self.sums
        age = max((self.now() - at).total_seconds(), 0.0)
        yield gauge("count_age_seconds", "Time since queue and leases were counted", age)
        yield from of_queue(census)
        yield from of_calibrations(calibrations)
        yield from of_subscriptions(subscriptions)
