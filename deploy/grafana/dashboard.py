"""The dashboard of Grafana.

    python deploy/grafana/dashboard.py           write recrawl.json
    python deploy/grafana/dashboard.py --check   compare the file; status 1 if it differs

A row of `ROWS` is a row of the dashboard; a panel has a title, a unit and queries by their legend.
All processes report the same database, so queries on it take the maximum or the minimum.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("recrawl.json")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 24, 8
"""Columns of the dashboard; rows of a graph."""
STAT_HEIGHT = 4


class Panel(NamedTuple):
    """A graph, or numbers for `kind` "stat"."""

    title: str
    unit: str
    queries: dict[str, str]
    """Expressions by their legend."""
    help: str = ""
    kind: str = "timeseries"
    bounds: tuple[float, float] | None = None
    """Least and largest value of the axis."""


def stat(title: str, unit: str, expression: str, help_text: str = "") -> Panel:
    """Return a panel of one number."""
    return Panel(title, unit, {title: expression}, help_text, "stat")


def quantile(q: float, by: str) -> str:
    """Return the expression of a quantile of the durations of requests."""
    rate = f"sum by (le{by}) (rate(recrawl_request_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({q}, {rate})"


FRESH, LOSS = "recrawl_expected_fresh_ratio", "recrawl_calibration_log_loss"
RATE = "[$__rate_interval]"
A_DAY = "86400 * sum(rate"
ROWS: dict[str, list[Panel]] = {
    "Now": [
        stat(
            "Fresh copies",
            "percentunit",
            f'max({FRESH}{{weight="importance"}})',
            "Expected share of copies that are up to date, by importance",
        ),
        stat("Never crawled", "short", "max(recrawl_never_crawled_pages)"),
        stat("Overdue", "short", "max(recrawl_overdue_pages)"),
        stat("Age of the schedule", "s", "min(recrawl_epoch_age_seconds)"),
        stat("Hosts not crawled", "short", "sum(max by (reason) (recrawl_hosts_blocked))"),
        stat("Database answers", "bool_yes_no", "min(recrawl_up)"),
    ],
    "What is achieved": [
        Panel(
            "Expected fresh copies",
            "percentunit",
            {"{{weight}}": f"max by (weight) ({FRESH})"},
            "The share of copies that are up to date, weighted by importance or by page",
            bounds=(0, 1),
        ),
        Panel(
            "Harmonic staleness",
            "short",
            {
                "now, by {{weight}}": "max by (weight) (recrawl_harmonic_staleness)",
                "planned, all pages": "max(recrawl_harmonic_cost)",
            },
            "The quantity that epochs minimise",
        ),
        Panel(
            "Budget a day, in its unit",
            "short",
            {
                "allowed, {{unit}}": "max by (unit) (recrawl_budget_per_day)",
                "for refreshes, {{unit}}": "max by (unit) (recrawl_budget_for_refreshes_per_day)",
                "scheduled, {{unit}}": "max by (unit) (recrawl_budget_used_per_day)",
                "spent, {{unit}}": "144 * max by (unit) (recrawl_step_spent)",
                "crawls leased": f'{A_DAY}(recrawl_leases_total{{outcome="granted"}}{RATE}))',
                "crawls reported": f'{A_DAY}(recrawl_items_total{{kind="observation",'
                f'outcome="accepted"}}{RATE}))',
            },
            "Amounts are in crawls, bytes, seconds or money; leases and reports are crawls",
        ),
        Panel(
            "Crawls of ten minutes",
            "short",
            {"{{outcome}}": "max by (outcome) (recrawl_step_crawls)"},
            "Crawls that found a change, or none (wasted), or failed",
        ),
        Panel(
            "Pings of ten minutes",
            "short",
            {"{{outcome}}": "max by (outcome) (recrawl_step_pings)"},
        ),
        Panel(
            "Calibration error",
            "percentunit",
            {"{{estimator}}": "max by (estimator) (recrawl_calibration_error_ratio)"},
            "Mean difference of predicted and observed changes, of the last day's crawls",
        ),
        Panel(
            "Log loss of predictions",
            "short",
            {
                "{{estimator}}": f"max by (estimator) ({LOSS})",
                "best constant": f"max by (estimator) ({LOSS}_constant)",
            },
        ),
        Panel("Pages", "short", {"in the epoch": "max(recrawl_pages)"}),
    ],
    "Queue, leases and hosts": [
        Panel(
            "Queue",
            "short",
            {
                "queued": "max(recrawl_queue_pages)",
                "due, not leased": "max(recrawl_queue_due_pages)",
            },
        ),
        Panel(
            "Leases",
            "short",
            {"running": "max(recrawl_leases_running)", "expired": "max(recrawl_leases_expired)"},
        ),
        Panel(
            "Leases by outcome",
            "ops",
            {"{{outcome}}": f"sum by (outcome) (rate(recrawl_leases_total{RATE}))"},
        ),
        Panel(
            "Hosts not crawled, by reason",
            "short",
            {"{{reason}}": "max by (reason) (recrawl_hosts_blocked)", "all": "max(recrawl_hosts)"},
        ),
        Panel("Longest wait of a ready crawl", "s", {"wait": "min(recrawl_ready_seconds)"}),
        Panel("Needs you", "short", {"{{kind}}": "max by (kind) (recrawl_needs_you)"}),
    ],
    "Epochs and webhooks": [
        Panel(
            "Age of the schedule, and interval",
            "s",
            {
                "age": "min(recrawl_epoch_age_seconds)",
                "interval": "max(recrawl_epoch_interval_seconds)",
            },
        ),
        Panel("Duration of epochs", "s", {"duration": "max(recrawl_epoch_duration_seconds)"}),
        Panel(
            "Lag of webhooks",
            "s",
            {"{{webhook}}": "max by (webhook) (recrawl_webhook_lag_seconds)"},
        ),
        Panel(
            "Deliveries of webhooks",
            "ops",
            {
                "{{outcome}}": "sum by (outcome) (max by (webhook, outcome) "
                f"(rate(recrawl_webhook_deliveries_total{RATE})))"
            },
        ),
        Panel(
            "Subscriptions by state",
            "short",
            {"{{state}}": "max by (state) (recrawl_websub_subscriptions)"},
            "Those that ended or were denied bring no pings",
        ),
    ],
    "Requests": [
        Panel(
            "Requests by status",
            "reqps",
            {"{{status}}": f"sum by (status) (rate(recrawl_requests_total{RATE}))"},
        ),
        Panel(
            "Duration of requests",
            "s",
            {"median": quantile(0.5, ""), "99 %": quantile(0.99, "")},
        ),
        Panel("Slowest routes, 99 %", "s", {"{{route}}": f"topk(5, {quantile(0.99, ', route')})"}),
        Panel(
            "Items by outcome",
            "ops",
            {"{{kind}} {{outcome}}": f"sum by (kind, outcome) (rate(recrawl_items_total{RATE}))"},
        ),
        Panel(
            "Failures",
            "ops",
            {"{{status}}": f"sum by (status) (rate(recrawl_failures_total{RATE}))"},
        ),
        Panel(
            "Group commits",
            "s",
            {
                "mean duration": f"sum(rate(recrawl_commit_seconds_sum{RATE})) / "
                f"sum(rate(recrawl_commit_seconds_count{RATE}))"
            },
        ),
        Panel(
            "Requests and items that wait",
            "short",
            {
                "requests for an epoch": "sum(recrawl_waiting_requests)",
                "items to be written": "sum(recrawl_waiting_items)",
            },
        ),
    ],
    "Processes": [
        Panel("CPU", "percentunit", {"{{instance}}": f"rate(process_cpu_seconds_total{RATE})"}),
        Panel("Memory", "bytes", {"{{instance}}": "process_resident_memory_bytes"}),
        Panel("Open files", "short", {"{{instance}}": "process_open_fds"}),
        Panel("Connections", "short", {"{{instance}}": "recrawl_connections"}),
        Panel(
            "Room for the SQLite file",
            "bytes",
            {"free": "min(recrawl_disk_free_bytes)", "size": "max(recrawl_disk_size_bytes)"},
        ),
        Panel(
            "Clock",
            "s",
            {"{{instance}}": "recrawl_time_seconds - timestamp(recrawl_time_seconds)"},
            "Difference of the service's clock from Prometheus's",
        ),
        Panel(
            "Versions",
            "short",
            {
                "{{version}} on {{database}}, {{estimator}}": "count by (version, database, "
                "estimator) (recrawl_build_info)"
            },
        ),
    ],
}


def graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """Return the JSON of a panel."""
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.bounds is not None:
        defaults |= dict(zip(("min", "max"), panel.bounds, strict=True))
    targets = [
        {"refId": chr(ord("A") + i), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
        for i, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def panels() -> Iterator[dict[str, Any]]:
    """Yield the JSON of all rows and panels, from top to bottom."""
    number, top = 0, 0
    for title, row in ROWS.items():
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top += 1
        numbers = row[0].kind == "stat"
        n_columns, height = (len(row), STAT_HEIGHT) if numbers else (2, HEIGHT)
        width = WIDTH // n_columns
        for i, panel in enumerate(row):
            number += 1
            x, y = width * (i % n_columns), top + height * (i // n_columns)
            yield graph(panel, number, {"x": x, "y": y, "w": width, "h": height})
        top += height * -(-len(row) // n_columns)


def dashboard() -> dict[str, Any]:
    """Return the JSON of the dashboard."""
    epochs = {
        "name": "Epochs",
        "enable": True,
        "datasource": DATASOURCE,
        "expr": "changes(max(recrawl_epoch)[$__interval:]) > 0",
        "titleFormat": "epoch published",
        "iconColor": "blue",
    }
    datasource = {"name": "datasource", "label": "Data source", "type": "datasource"}
    return {
        "uid": "recrawl",
        "title": "Recrawl",
        "tags": ["recrawl"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [{**datasource, "query": "prometheus"}]},
        "annotations": {"list": [epochs]},
        "panels": list(panels()),
    }


def main() -> None:
    """Write or compare the file."""
    text = json.dumps(dashboard(), indent=2) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif not FILE.is_file() or FILE.read_text() != text:
        sys.exit(f"{FILE.name} differs; run `python deploy/grafana/dashboard.py`")


if __name__ == "__main__":
    main()
