"""Families of metrics from values of the database."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from service.core.calibration import calibration
from service.history.reading import Row
from service.model.amounts import CRAWLS as UNIT_OF_CRAWLS
from service.model.amounts import fine_units
from service.model.changes import age_s
from service.model.domain import Epoch
from service.model.history import Calibrations, Gauges
from service.model.subscriptions import SubscriptionState
from service.model.unfinished import Ending
from service.model.webhooks import WebhookProgress, WebhookStatus
from service.status.needs import KINDS, Need
from service.storage.queue.columns import QueueCensus
from service.storage.stores.contract import Disk

PREFIX = "recrawl_"
CRAWLS = {
    "leased": "n_leased",
    "reported": "n_reported",
    "failed": "n_failed",
    "changed": "n_changed",
    "wasted": "n_wasted",
}
"""Counts of a step by the outcome of a crawl."""
PINGS = {
    "accepted": "n_pings",
    "confirmed": "n_true_pings",
    "refuted": "n_false_pings",
    "missed": "n_missed",
}
"""Counts of a step by the outcome of a ping."""


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """Return a gauge without labels."""
    return GaugeMetricFamily(f"{PREFIX}{name}", help_text, value=value)


def labelled(
    name: str, help_text: str, label: str, values: Mapping[str, float | None]
) -> GaugeMetricFamily:
    """Return a gauge with one label; a value of None has no time series."""
    family = GaugeMetricFamily(f"{PREFIX}{name}", help_text, labels=[label])
    for word, value in values.items():
        if value is not None:
            family.add_metric([word], value)
    return family


def of_disk(disk: Disk) -> Iterator[Metric]:
    """Yield the metrics of the file system of a SQLite file."""
    yield gauge("disk_size_bytes", "Size of the file system of the SQLite file", disk.size)
    yield gauge("disk_free_bytes", "Room on the file system of the SQLite file", disk.free)


def of_epoch(epoch: Epoch, now: datetime) -> Iterator[Metric]:
    """Yield the metrics of the epoch in force."""
    certificate, finished = epoch.certificate, epoch.finished_at
    if certificate is None or finished is None:
        return
    age = (now - finished).total_seconds()
    yield gauge("epoch", "Number of the epoch in force", epoch.epoch)
    yield gauge("epoch_age_seconds", "Time since the epoch in force was published", age)
    duration = sum(certificate.seconds.values())
    yield gauge("epoch_duration_seconds", "Duration of the epoch in force", duration)
    yield gauge("pages", "Pages of the epoch in force", certificate.n_pages)
    allowed, used = certificate.bandwidth, certificate.bandwidth_used
    unit = certificate.unit
    if unit == UNIT_OF_CRAWLS:
        yield gauge("bandwidth_crawls_per_day", "Crawls a day that the budget allows", allowed)
        yield gauge("bandwidth_used_crawls_per_day", "Crawls a day that the schedule makes", used)
    yield labelled("budget_per_day", "Amount that the budget allows a day", "unit", {unit: allowed})
    if certificate.planned is not None:
        help_text = "Amount a day for refreshes: the rest pays for first crawls and retries"
        yield labelled(
            "budget_for_refreshes_per_day", help_text, "unit", {unit: certificate.planned}
        )
    yield labelled("budget_used_per_day", "Amount that refreshes take", "unit", {unit: used})
    cost = certificate.harmonic_cost
    yield gauge("harmonic_cost", "Expected harmonic staleness, all pages", cost)


def of_step(step: Row, gauges: Gauges, now: datetime) -> Iterator[Metric]:
    """Yield what was achieved, as of the end of a step of the history."""
    age = max((now - gauges.measured_at).total_seconds(), 0.0)
    yield gauge("measured_age_seconds", "Time since the state of all pages was measured", age)
    yield gauge("never_crawled_pages", "Pages that were never crawled", gauges.n_never_crawled)
    if gauges.n_no_content is not None:
        help_text = "Pages that had no content in three crawls in a row or more"
        yield gauge("no_content_pages", help_text, gauges.n_no_content)
    yield gauge(
        "overdue_pages",
        "Pages due before, leased ones and those that wait included",
        gauges.n_overdue,
    )
    yield labelled(
        "expected_fresh_ratio",
        "Expected share of copies that are up to date; pages count by importance, or alike",
        "weight",
        {"importance": gauges.fresh_share, "page": gauges.fresh_share_plain},
    )
    yield labelled(
        "harmonic_staleness",
        "Expected harmonic staleness of a page; pages count by importance, or alike",
        "weight",
        {"importance": gauges.harmonic_staleness, "page": gauges.harmonic_staleness_plain},
    )
    crawls = {outcome: step.counts[name] for outcome, name in CRAWLS.items()}
    yield labelled("step_crawls", "Crawls of ten minutes, and changes found", "outcome", crawls)
    pings = {outcome: step.counts[name] for outcome, name in PINGS.items()}
    yield labelled("step_pings", "Pings of ten minutes, and changes without", "outcome", pings)


def of_spent(step: Row, unit: str) -> Metric:
    """Return what the crawls of a step took, in the unit of the budget."""
    spent = float(step.counts["n_reported"])
    if unit != UNIT_OF_CRAWLS:
        spent = step.counts["spent"] / fine_units(unit)
    return labelled("step_spent", "Amount that crawls of ten minutes took", "unit", {unit: spent})


def of_calibrations(calibrations: Calibrations) -> Iterator[Metric]:
    """Yield how predictions of changes compare with the crawls of the last day."""
    scores = {name: calibration(sums) for name, sums in calibrations.items()}
    some = {name: one for name, one in scores.items() if one is not None}
    for name, help_text, values in (
        (
            "crawls",
            "Crawls of the last day that are compared with predictions",
            {estimator: float(one.n_predictions.sum()) for estimator, one in some.items()},
        ),
        (
            "error_ratio",
            "Mean difference between predicted and observed changes, last day",
            {estimator: one.expected_error for estimator, one in some.items()},
        ),
        (
            "log_loss",
            "Log loss of the predictions, last day",
            {estimator: one.log_loss for estimator, one in some.items()},
        ),
        (
            "log_loss_constant",
            "Log loss of the best constant prediction, last day",
            {estimator: one.log_loss_constant for estimator, one in some.items()},
        ),
    ):
        yield labelled(f"calibration_{name}", help_text, "estimator", values)


def of_queue(census: QueueCensus) -> Iterator[Metric]:
    """Yield the numbers of the queue, leases and hosts."""
    for name, help_text, value in (
        ("queue_pages", "Pages that are due soon or now, leased or not", census.n_queued),
        (
            "queue_due_pages",
            "Due pages that no lease holds, other than feeds, as leases explain counts",
            census.n_due,
        ),
        ("leases_running", "Leases that run", census.n_leased),
        (
            "leases_expired",
            "Leases that ended by time and are not counted yet, as nobody leased from their hosts",
            census.n_expired,
        ),
        (
            "unfinished_pages",
            "Pages whose last lease ended without a report",
            census.n_unfinished,
        ),
        ("hosts", "Hosts, or groups of hosts, with a queue", census.n_host_queues),
        (
            "hosts_in_incident",
            "Hosts most of whose pages show the same, which teaches nothing for a day",
            census.n_incidents,
        ),
        (
            "held_pages",
            "New pages that wait until their URL group is worth a first crawl",
            census.n_held,
        ),
        (
            "url_groups_stopped",
            "URL groups whose first crawls brought too little",
            census.n_stopped,
        ),
    ):
        yield gauge(name, help_text, value)
    yield labelled(
        "set_aside_pages",
        "Pages that are tried once a day, as three leases in a row ended without a report, by the "
        "end of the last one",
        "ending",
        {each.name: getattr(census, f"n_set_aside_{each.name}") for each in Ending},
    )
    yield labelled(
        "hosts_blocked",
        "Hosts, or groups of hosts, that may not be crawled now: by an operator, or after trouble",
        "reason",
        {"operator": census.n_blocked, "trouble": census.n_paused},
    )


def of_needs(needs: Sequence[Need]) -> Iterator[Metric]:
    """Yield what needs somebody; each kind has a series, so that an alert on it can end."""
    numbers: dict[str, float | None] = {kind.name: 0.0 for kind in KINDS}
    for need in needs:
        numbers[need.kind] = (numbers[need.kind] or 0.0) + need.n
    help_text = "Subjects that need somebody, by kind; GET /status has sentences and remedies"
    yield labelled("needs_you", help_text, "kind", numbers)


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
    yield gauge("webhooks_disabled", "Webhooks that the service stopped", n_disabled)


def of_subscriptions(numbers: Mapping[SubscriptionState, int]) -> Iterator[Metric]:
    """Yield the metric of subscriptions at WebSub hubs."""
    yield labelled(
        "websub_subscriptions",
        "Subscriptions at WebSub hubs, by state",
        "state",
        {state.value: float(numbers.get(state, 0)) for state in SubscriptionState},
    )
