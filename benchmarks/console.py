"""Measure how long each view of the console takes on many pages, as a table.

    python -m benchmarks.console [--pages 1000000] [--rounds 7]

A server on a new Postgres database with pages over 10,000 hosts, half of them due. Each row is the
median of the rounds after a first request. The floor is `GET /pages?limit=50` of the same server,
with which the views take turns. The target is a second a view.
"""

import argparse
import os
import time
from datetime import UTC, datetime
from statistics import median

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import postgres_database
from benchmarks.leases.data import Fleet, fill, tidy
from service.api.server import running
from service.api.service import open_service
from service.console.app import create_app_with_console
from service.runtime.settings import read_settings

FLOOR = "/pages?limit=50"
VIEWS = (
    "/console",
    "/console?range=30d",
    "/console/pages",
    "/console/pages?state=overdue",
    "/console/pages?host=host000007.example",
    "/console/pages?change_rate_from=20",
    "/console/pages/500000",
    "/console/hosts",
    "/console/hosts?blocked=true",
    "/console/hosts/host000007.example",
    "/console/epochs",
    "/console/epochs/2",
    "/console/plan?bandwidth=300000",
    "/console/leases",
    "/console/changes",
    "/console/access",
)


def measure(client: httpx.Client, rounds: int) -> dict[str, list[float]]:
    """Return the times of each address, seconds; the first request of each is apart."""
    paths = (FLOOR, *VIEWS)
    times: dict[str, list[float]] = {path: [] for path in paths}
    for _ in range(rounds + 1):
        for path in paths:
            start = time.perf_counter()
            response = client.get(path)
            times[path].append(time.perf_counter() - start)
            response.raise_for_status()
    return times


def show(times: dict[str, list[float]]) -> None:
    """Print a table."""
    table = Table("view", "first, ms", "median, ms", "slowest, ms", "ratio to the floor")
    floor = median(times[FLOOR][1:])
    for path, seconds in times.items():
        rest = seconds[1:]
        figures = (seconds[0], median(rest), max(rest))
        texts = (f"{1_000 * each:.0f}" for each in figures)
        table.add_row(path, *texts, f"{median(rest) / floor:.1f}")
    Console().print(table)


def main() -> None:
    """Fill a database, or use a filled one, measure and print."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.console")
    options.add_argument("--pages", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument(
        "--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres", help="a superuser"
    )
    arguments = options.parse_args()
    with postgres_database(arguments.postgres, f"recrawl_console_{os.getpid()}") as url:
        fill(url, Fleet.half_due(arguments.pages, 10_000), datetime.now(UTC))
        tidy(url)
        service = open_service(read_settings(database_url=url))
        app = create_app_with_console(service)
        with running(service, app) as address, httpx.Client(base_url=address, timeout=60) as client:
            show(measure(client, arguments.rounds))


if __name__ == "__main__":
    main()
