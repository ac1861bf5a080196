"""Metrics for operators, in Prometheus's format: of one process, or of all of one server."""

import platform
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import product
from typing import Any, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from service import __version__
from service.batching.batcher import Flush
from service.runtime.database_metrics import DatabaseCollector, NeedsCollector, SumsCollector
from service.runtime.siblings import Siblings
from service.status.needs import Need
from service.storage import Store
from service.storage.clock import Clock

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods with their own time series; clients may send any word as a method."""

FAILURES = (500, 503, 507)
"""Statuses of requests that the service could not answer."""
LEASE_OUTCOMES = ("granted", "ended", "returned", "late")
ITEM_OUTCOMES = ("accepted", "duplicate", "late", "rejected")
SHOWN_EVERY_S = 1.0
"""Time after which a scrape at another process may miss a change of a gauge, seconds."""
KINDS = ("page", "observation", "ping", "sitemap", "feed", "indexnow", "websub")
"""Kinds of items."""

# Prometheus does not read them, and they are a quarter of the lines
disable_created_metrics()  # type: ignore[no-untyped-call]


Encoder = Callable[[CollectorRegistry], bytes]
"""Function that writes metrics in a format."""


class Monitor:
    """The metrics that every process has: its own resources, and rows of the database."""

    def __init__(
        self,
        store: Store,
        now: Clock,
        epoch_interval: timedelta,
        estimator: str,
        siblings: Siblings | None = None,
    ) -> None:
        self.registry = self.scraped = CollectorRegistry()
        self.shares = siblings is not None
        if siblings is None:
            ProcessCollector(registry=self.registry)
        else:
            self.scraped = siblings.share_metrics()
        self.watched: list[tuple[Gauge, Callable[[], float]]] = []
        """Gauges, and what they show, where several processes share them."""
        self.showing = threading.Lock()
        self.stopped = threading.Event()
        self.database = DatabaseCollector(store, now)
        self.sums = SumsCollector(store, now)
        self.needs: NeedsCollector | None = None
        for collector in (self.database, self.sums):
            self.scraped.register(collector)
        Info("recrawl_build", "Version of the service and its parts", registry=self.scraped).info(
            {
                "version": __version__,
                "python": platform.python_version(),
                "database": "sqlite" if store.embedded else "postgres",
                "estimator": estimator,
            }
        )
        self.watch(
            "recrawl_time_seconds",
            "Time of the clock that the service uses, since 1970",
            lambda: now().timestamp(),
            "livemax",
        )
        self.watch(
            "recrawl_epoch_interval_seconds",
            "Time from the start of one epoch to the start of the next, as set",
            epoch_interval.total_seconds,
            "livemax",
        )
        self.skipped = Counter(
            "recrawl_calibration_skipped_crawls",
            "Crawls that were not compared with a prediction: too many at once, or an outage",
            registry=self.registry,
        )
        self.n_skipped = 0

    def watch_needs(self, read: Callable[[], Sequence[Need]]) -> None:
        """Add the needs that a function reads at a count."""
        self.needs = NeedsCollector(read)
        self.scraped.register(self.needs)

    def count(self) -> None:
        """Count what needs more than a few rows, unless the last count was short ago."""
        self.sums.count()
        if self.needs is not None:
            self.needs.count()

    def watch(
        self,
        name: str,
        help_text: str,
        read: Callable[[], float],
        mode: Literal["livesum", "livemax"] = "livesum",
    ) -> None:
        """Add a gauge that calls `read` at every scrape; `mode` puts several processes together."""
        gauge = Gauge(name, help_text, registry=self.registry, multiprocess_mode=mode)
        if self.shares:
            self.watched.append((gauge, read))
        else:
            gauge.set_function(read)

    def start(self) -> list[threading.Thread]:
        """Return the started thread that shows other processes the gauges of this one, if any."""
        if not self.shares:
            return []
        thread = threading.Thread(target=self._show_others, name="metrics", daemon=True)
        thread.start()
        return [thread]

    def _show_others(self) -> None:
        while not self.stopped.wait(SHOWN_EVERY_S):
            self.show()

    def show(self) -> None:
        """Write what only this process can read, for a scrape at any process."""
        for gauge, read in self.watched:
            gauge.set(read())
        with self.showing:  # of two threads, one counts what was skipped
            n_skipped = self.database.store.counter.n_not_compared
            self.skipped.inc(n_skipped - self.n_skipped)
            self.n_skipped = n_skipped

    def scrape(self, encode: Encoder = generate_latest) -> bytes:
        """Return all metrics; reads a few rows of the database."""
        self.database.read()
        self.show()
        return encode(self.scraped)

    def scrape_process(self, encode: Encoder = generate_latest) -> bytes:
        """Return all metrics without the database: its metrics as they were at its last answer."""
        self.database.answered = False
        self.show()
        return encode(self.scraped)


class Telemetry(Monitor):
    """The metrics of a server."""

    def __init__(
        self,
        store: Store,
        now: Clock,
        epoch_interval: timedelta,
        estimator: str,
        siblings: Siblings | None = None,
    ) -> None:
        super().__init__(store, now, epoch_interval, estimator, siblings)
        self.requests = Counter(
            "recrawl_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.failures = Counter(
            "recrawl_failures",
            "Requests answered 500 (a fault), 503 (busy or away) or 507 (full), without /readyz",
            ("status",),
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
            "recrawl_leases",
            "Leases that workers took, ended by a report, returned, or reported too late",
            ("outcome",),
            registry=self.registry,
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

        # a series that starts above 0 has no rate: alerts would miss the first failures
        for status in FAILURES:
            self.failures.labels(str(status))
        for outcome in LEASE_OUTCOMES:
            self.leases.labels(outcome)
        for kind, outcome in product(KINDS, ITEM_OUTCOMES):
            self.items.labels(kind, outcome)
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

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
        if status in FAILURES and route != "/readyz":
            self.failures.labels(str(status)).inc()
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

    def count_items(self, kind: str, counts: dict[str, Any]) -> None:
        """Count the outcomes of a batch's items."""
        for outcome in ITEM_OUTCOMES:
            n_items = counts["n_rejected" if outcome == "rejected" else outcome]
            if n_items:
                self.items.labels(kind, outcome).inc(n_items)

    def count_lost(self, kind: str, outcome: str, n_items: int) -> None:
        """Count items that were lost after their answer."""
        self.items.labels(kind, outcome).inc(n_items)

    def count_unsigned(self) -> None:
        """Count content of a hub without the agreed signature."""
        self.items.labels("websub", "unsigned").inc()
