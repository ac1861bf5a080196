"""Metrics that a process reads from the database.

A scrape reads a few rows by their keys. The numbers of the queue need a pass over the queue, which
may hold millions of rows. Therefore the process counts apart from scrapes, and rarely where it
takes long. While the database does not answer, `recrawl_up` is 0 and all other metrics are those
of the last answer.
"""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.model.changes import age_s
from service.model.domain import Epoch, EpochStatus
from service.model.errors import RecrawlError
from service.model.webhooks import WebhookProgress, WebhookStatus
from service.storage import Store
from service.storage.clock import Clock
from service.storage.contract import Disk
from service.storage.queue import QueueCensus

MOST_WEBHOOKS = 1_000
"""Maximum webhooks with their own time series."""
CENSUS_SHARE = 0.01
"""Maximum share of its time that a process spends on counting the queue."""
CENSUS_EVERY_S = 1.0
"""Minimum time between two counts of the queue, seconds."""


class Reading(NamedTuple):
    """Rows that a scrape reads."""

    published: Epoch | None
    newest: Epoch | None
    ready_at: datetime | None
    webhooks: list[WebhookProgress]
    at: datetime


class DatabaseCollector(Collector):
    """Metrics of the epoch in force and of webhooks, as of the last answer of the database."""

    def __init__(self, store: Store, now: Clock) -> None:
        self.store = store
        self.now = now
        self.answered = False
        self.reading: Reading | None = None
        self.disk: Disk | None = None

    def read(self) -> None:
        """Read a few rows; without an answer of the database, keep those of the last answer."""
        self.disk = self.store.disk()
        try:
            with self.store.begin(write=False) as tx:
                ready_at = tx.next_ready_at() if self.store.has_queue else None
                webhooks = tx.webhook_progress(MOST_WEBHOOKS) if self.store.has_queue else []
                published, newest = tx.epoch_in_force(), tx.newest_epoch()
        except RecrawlError:
            self.answered = False
            return
        self.reading = Reading(published, newest, ready_at, webhooks, self.now())
        self.answered = True

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last read."""
        yield gauge("recrawl_up", "1 when the database answered this scrape", float(self.answered))
        if self.disk is not None:
            yield from of_disk(self.disk)
        if (reading := self.reading) is None:
            return
        now = self.now()
        yield gauge(
            "recrawl_database_answer_age_seconds",
            "Time since the last answer of the database to a scrape",
            max((now - reading.at).total_seconds(), 0.0),
        )
        failed = reading.newest is not None and reading.newest.status is EpochStatus.failed
        yield gauge("recrawl_epoch_failed", "1 when the newest epoch failed", float(failed))
        if reading.ready_at is not None:
            waits = max((now - reading.ready_at).total_seconds(), 0.0)
            yield gauge("recrawl_ready_seconds", "Time since a crawl became ready to lease", waits)
        if reading.published is not None:
            yield from of_epoch(reading.published, now)
        yield from of_webhooks(reading.webhooks, now)


class QueueCollector(Collector):
    """Numbers of the queue, as of the last count."""

    def __init__(
        self, store: Store, now: Clock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self.now = now
        self.clock = clock
        self.next_at = clock()
        self.census: tuple[QueueCensus, datetime] | None = None

    def count(self) -> None:
        """Count the queue, unless the last count was short ago for the time that it took."""
        started = self.clock()
        if started < self.next_at or not self.store.has_queue:
            return
        try:
            with self.store.begin(write=False) as tx:
                now = self.now()
                self.census = tx.queue_census(now), now
        except RecrawlError:
            pass  # the last numbers stay, with their age
        took = self.clock() - started
        self.next_at = started + max(CENSUS_EVERY_S, took / CENSUS_SHARE)

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of the last count."""
        if self.census is None:
            return
        census, at = self.census
        age = max((self.now() - at).total_seconds(), 0.0)
        yield gauge("recrawl_queue_age_seconds", "Time since the queue was counted", age)
        for name, help_text, value in (
            ("queue_pages", "Pages that are due soon or now, leased or not", census.n_queued),
            ("queue_due_pages", "Pages that are due now and not leased", census.n_due),
            ("leases_running", "Leases that run", census.n_leased),
            (
                "leases_expired",
                "Leases that ended without a report and were not taken again",
                census.n_expired,
            ),
            ("hosts", "Hosts, or groups of hosts, with a queue", census.n_host_queues),
        ):
            yield gauge(f"recrawl_{name}", help_text, value)
        blocked = GaugeMetricFamily(
            "recrawl_hosts_blocked",
            "Hosts, or groups of hosts, that may not be crawled now: by an operator or in trouble",
            labels=["reason"],
        )
        blocked.add_metric(["operator"], census.n_blocked)
        blocked.add_metric(["trouble"], census.n_paused)
        yield blocked


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """Return one gauge without labels."""
    return GaugeMetricFamily(name, help_text, value=value)


def of_disk(disk: Disk) -> Iterator[Metric]:
    """Yield the metrics of the file system of a SQLite file."""
    yield gauge("recrawl_disk_size_bytes", "Size of the file system of the SQLite file", disk.size)
    yield gauge("recrawl_disk_free_bytes", "Room on the file system of the SQLite file", disk.free)


def of_epoch(epoch: Epoch, now: datetime) -> Iterator[Metric]:
    """Yield the metrics of the epoch in force."""
    certificate, finished = epoch.certificate, epoch.finished_at
    if certificate is None or finished is None:
        return
    age = (now - finished).total_seconds()
    yield gauge("recrawl_epoch", "Number of the epoch in force", epoch.epoch)
    yield gauge("recrawl_epoch_age_seconds", "Time since the epoch in force was published", age)
    duration = sum(certificate.seconds.values())
    yield gauge("recrawl_epoch_duration_seconds", "Duration of the epoch in force", duration)
    yield gauge("recrawl_pages", "Pages of the epoch in force", certificate.n_pages)
    for name, help_text, value in (
        ("bandwidth", "Crawls a day that are allowed", certificate.bandwidth),
        ("bandwidth_used", "Crawls a day that the schedule makes", certificate.bandwidth_used),
    ):
        yield gauge(f"recrawl_{name}_crawls_per_day", help_text, value)
    cost = certificate.harmonic_cost
    yield gauge("recrawl_harmonic_cost", "Expected harmonic staleness, all pages", cost)


def of_webhooks(webhooks: list[WebhookProgress], now: datetime) -> Iterator[Metric]:
    """Yield the metrics of webhooks."""
    lag = GaugeMetricFamily(
        "recrawl_webhook_lag_seconds",
        "Age of the oldest change that an active webhook has not confirmed",
        labels=["webhook"],
    )
    deliveries = CounterMetricFamily(
        "recrawl_webhook_deliveries",
        "Requests to the address of a webhook, by all processes: confirmed, refused or failed",
        labels=["webhook", "outcome"],
    )
    for one in webhooks:
        if one.status is WebhookStatus.active:
            lag.add_metric([one.id], 0.0 if one.oldest is None else age_s(one.oldest, now))
        for outcome in ("confirmed", "refused", "failed"):
            deliveries.add_metric([one.id, outcome], getattr(one, f"n_{outcome}"))
    n_disabled = sum(one.status is WebhookStatus.disabled for one in webhooks)
    yield lag
    yield deliveries
    yield gauge("recrawl_webhooks_disabled", "Webhooks that the service stopped", n_disabled)
