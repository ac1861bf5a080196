"""Metrics for operators, in Prometheus's format."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.batching.batcher import Flush
from service.model.changes import age_s
from service.model.domain import Epoch, EpochStatus
from service.model.errors import RecrawlError
from service.model.webhooks import WebhookProgress, WebhookStatus
from service.storage import Store

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods with their own time series; clients may send any word as a method."""


MOST_WEBHOOKS = 1_000
"""Maximum webhooks with their own time series."""


class Epochs(NamedTuple):
    """Rows that a scrape reads from the database."""

    published: Epoch | None
    newest: Epoch | None
    ready_at: datetime | None
    webhooks: list[WebhookProgress]


class EpochCollector(Collector):
    """Metrics of the epoch in force, as read by the last scrape."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self.store = store
        self.now = now
        self.epochs: Epochs | None = None

    def read(self) -> None:
        """Read a few rows; without an answer of the database, these metrics are absent."""
        self.epochs = None
        with suppress(RecrawlError), self.store.begin(write=False) as tx:
            ready_at = tx.next_ready_at() if self.store.has_queue else None
            webhooks = tx.webhook_progress(MOST_WEBHOOKS) if self.store.has_queue else []
            self.epochs = Epochs(tx.epoch_in_force(), tx.newest_epoch(), ready_at, webhooks)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last read."""
        epochs = self.epochs
        yield gauge("recrawl_up", "1 when the database answered", float(epochs is not None))
        if epochs is None:
            return
        failed = epochs.newest is not None and epochs.newest.status is EpochStatus.failed
        yield gauge("recrawl_epoch_failed", "1 when the newest epoch failed", float(failed))
        if epochs.ready_at is not None:
            waits = max((self.now() - epochs.ready_at).total_seconds(), 0.0)
            yield gauge("recrawl_ready_seconds", "Time since a crawl became ready to lease", waits)
        if epochs.published is not None:
            yield from self._published(epochs.published)
        yield from self._webhooks(epochs.webhooks)

    def _webhooks(self, webhooks: list[WebhookProgress]) -> Iterator[Metric]:
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
                oldest = one.oldest
                lag.add_metric([one.id], 0.0 if oldest is None else age_s(oldest, self.now()))
            for outcome in ("confirmed", "refused", "failed"):
                deliveries.add_metric([one.id, outcome], getattr(one, f"n_{outcome}"))
        n_disabled = sum(one.status is WebhookStatus.disabled for one in webhooks)
        yield lag
        yield deliveries
        yield gauge("recrawl_webhooks_disabled", "Webhooks that the service stopped", n_disabled)

    def _published(self, epoch: Epoch) -> Iterator[Metric]:
        certificate, finished = epoch.certificate, epoch.finished_at
        if certificate is None or finished is None:
            return
        age = (self.now() - finished).total_seconds()
        yield gauge("recrawl_epoch", "Number of the epoch in force", epoch.epoch)
        yield gauge("recrawl_epoch_age_seconds", "Time since the epoch in force was published", age)
        duration = sum(certificate.seconds.values())
        yield gauge("recrawl_epoch_duration_seconds", "Duration of the epoch in force", duration)
        yield gauge("recrawl_pages", "Pages of the epoch in force", certificate.n_pages)
        yield gauge("recrawl_bandwidth", "Crawls a day asked for", certificate.bandwidth)
        used = certificate.bandwidth_used
        yield gauge("recrawl_bandwidth_used", "Crawls a day scheduled", used)
        cost = certificate.harmonic_cost
        yield gauge("recrawl_harmonic_cost", "Expected harmonic staleness, all pages", cost)


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """Return one gauge without labels."""
    return GaugeMetricFamily(name, help_text, value=value)


class Telemetry:
    """The metrics of one process."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self.registry = CollectorRegistry()
        self.epochs = EpochCollector(store, now)
        self.registry.register(self.epochs)
        self.requests = Counter(
            "recrawl_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "recrawl_request_seconds",
            "Time to answer, without the time that requests wait on purpose",
            ("method", "route"),
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=self.registry,
        )
        self.waits = Histogram(
            "recrawl_wait_seconds",
            "Time that requests waited on purpose, by wait_s; only of requests that waited",
            ("method", "route"),
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60),
            registry=self.registry,
        )
        self.items = Counter(
            "recrawl_items", "Items of batches", ("kind", "outcome"), registry=self.registry
        )

        self.leases = Counter(
            "recrawl_leases", "Leases by outcome", ("outcome",), registry=self.registry
        )
        self.commit_seconds = Histogram(
            "recrawl_commit_seconds",
            "Time to write one group commit of evidence",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=self.registry,
        )
        self.commit_requests = Histogram(
            "recrawl_commit_requests",
            "Requests written by one group commit",
            buckets=(1, 2, 5, 10, 20, 50, 100),
            registry=self.registry,
        )

        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def scrape(self) -> bytes:
        """Return all metrics; reads the database."""
        self.epochs.read()
        return generate_latest(self.registry)

    def scrape_process(self) -> bytes:
        """Return the metrics of this process alone, without the database."""
        self.epochs.epochs = None
        return generate_latest(self.registry)

    def count_request(
        self, method: str, route: str, status: int, seconds: float, waited_s: float = 0.0
    ) -> None:
        """Count one request; the time series of its labels are cached."""
        series = self._series.get((method, route, status))
        if series is None:
            series = (
                self.requests.labels(method, route, str(status)),
                self.seconds.labels(method, route),
            )
            self._series[method, route, status] = series
        series[0].inc()
        series[1].observe(seconds)
        if waited_s:
            self.waits.labels(method, route).observe(waited_s)

    def count_commit(self, flush: Flush) -> None:
        """Count one group commit."""
        self.commit_seconds.observe(flush.seconds)
        self.commit_requests.observe(flush.n_jobs)

    def count_leases(self, outcome: str, n_leases: int) -> None:
        """Count leases by outcome: granted, ended by a report, returned, or reported late."""
        if n_leases:
            self.leases.labels(outcome).inc(n_leases)

    def count_reported_leases(self, n_leases: int, n_ended: int) -> None:
        """Count the leases of reports; leases that the reports did not end had ended before."""
        self.count_leases("ended", n_ended)
        self.count_leases("late", n_leases - n_ended)

    def watch(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Add a gauge that calls `read` at every scrape."""
        Gauge(name, help_text, registry=self.registry).set_function(read)

    def count_items(self, kind: str, counts: dict[str, Any]) -> None:
        """Count the outcomes of a batch's items."""
        for outcome in ("accepted", "duplicate", "late", "rejected"):
            n_items = counts["n_rejected" if outcome == "rejected" else outcome]
            if n_items:
                self.items.labels(kind, outcome).inc(n_items)

    def count_lost(self, kind: str, outcome: str, n_items: int) -> None:
        """Count items that were lost after their answer."""
        self.items.labels(kind, outcome).inc(n_items)

    def count_unsigned(self) -> None:
        """Count content of a hub without the agreed signature."""
        self.items.labels("websub", "unsigned").inc()
