"""Measure the console in a real browser on many pages, and compare its numbers with SQL.

    python -m benchmarks.console [--pages 1000000] [--rounds 7] [--json FILE]

A server on a new Postgres database with pages over 10,000 hosts, half of them due. An epoch runs,
then crawls are leased and reported in steps of the history; the clock then stands. Chromium (from
apt) visits each view. The target is a second a view: the time until a page is loaded and painted,
in the browser, at its first visit and after. The floor is `GET /pages?limit=50` over HTTP, with
which the views take turns. Errors of the browser, violations of the policy, requests to other
hosts, slow views, and numbers that differ from those of SQL make the command fail.
"""

import argparse
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.console.browser import Watched, chromium
from benchmarks.console.comparison import Database, Difference, View, differences, views
from benchmarks.console.life import KEY, SETTINGS, StandingClock, live
from benchmarks.console.shown import Shown
from benchmarks.http.processes import postgres_database
from benchmarks.leases.data import Fleet, fill, tidy
from service.api.server import running
from service.api.service import open_service
from service.console.app import create_app_with_console
from service.model.history import step_of
from service.runtime.settings import read_settings

FLOOR = "/pages?limit=50"
TARGET_S = 1.0
"""Maximum median time of a view, seconds."""
STEPS, CRAWLS = 3, 1_000
"""Steps of the history before the visits, and crawls of each worker in a step."""


@dataclass
class Row:
    """Figures of one view."""

    path: str
    seconds: list[float] = field(default_factory=list)
    """Times of the visits in the browser."""
    n_compared: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the visits after the first one."""
        return median(self.seconds[1:])


def places(client: httpx.Client, database: Database) -> tuple[View, ...]:
    """Return the views, with the page that was crawled last and the epoch in force."""
    hook = client.get("/webhooks").raise_for_status().json()["items"][0]["id"]
    newest = client.get("/epochs").raise_for_status().json()["items"][0]
    page_id = database.one("SELECT page_id FROM observations ORDER BY observed_at DESC, page_id")
    return views(page_id, newest["epoch"], 1.5 * newest["bandwidth"], hook)


def measure(
    base: str, client: httpx.Client, database: Database, rounds: int
) -> tuple[list[Row], list[float], list[str]]:
    """Return the figures of all views, the times of the floor, and the browser's faults."""
    visited = places(client, database)
    rows, floor = [Row(view.path) for view in visited], []
    with chromium() as browser:
        window = Watched(browser, base)
        window.sign_in(KEY)
        for number in range(rounds + 1):
            for view, row in zip(visited, rows, strict=True):
                start = time.perf_counter()
                client.get(FLOOR).raise_for_status()
                floor.append(time.perf_counter() - start)
                window.page.goto(f"/console{view.path}")
                row.seconds.append(window.loaded_s())
                if number == rounds:
                    shown = Shown.of(window.page)
                    row.n_compared, row.differences = differences(view, shown, database)
    return rows, floor, window.faults


def show(rows: list[Row], floor: float) -> None:
    """Print a table."""
    headings = ("view", "first, ms", "median, ms", "slowest, ms", "ratio to the floor")
    table = Table(*headings, "numbers", "that differ")
    for row in rows:
        figures = (row.seconds[0], row.median, max(row.seconds[1:]))
        texts = (f"{1_000 * each:.0f}" for each in figures)
        counts = str(row.n_compared), str(len(row.differences))
        table.add_row(f"/console{row.path}", *texts, f"{row.median / floor:.1f}", *counts)
    console = Console(width=120, soft_wrap=True)
    console.print(table)
    console.print(f"floor, GET {FLOOR}: {1_000 * floor:.0f} ms")
    for each in (difference for row in rows for difference in row.differences):
        console.print(f"{each.view}: {each.name}: {each.shown!r}, SQL {each.expected!r}")


def main() -> int:
    """Fill a database, live, visit, print; return 1 if something is wrong."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.console")
    options.add_argument("--pages", type=int, default=1_000_000)
    options.add_argument("--hosts", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--json", type=Path, help="file for the figures")
    options.add_argument(
        "--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres", help="a superuser"
    )
    arguments = options.parse_args()
    with postgres_database(arguments.postgres, f"recrawl_console_{os.getpid()}") as url:
        clock = StandingClock(step_of(datetime.now(UTC)))
        fill(url, Fleet.half_due(arguments.pages, arguments.hosts), clock())
        tidy(url)
        settings: dict[str, Any] = {**SETTINGS, "bandwidth": arguments.pages / 5}
        service = open_service(read_settings(database_url=url, **settings), now=clock)
        headers = {"Authorization": f"Bearer {KEY}"}
        with (
            running(service, create_app_with_console(service)) as base,
            httpx.Client(base_url=base, timeout=300, headers=headers) as client,
        ):
            live(service, client, clock, steps=STEPS, crawls=CRAWLS)
            tidy(url)
            with closing(Database(url, clock())) as database:
                rows, floor, faults = measure(base, client, database, arguments.rounds)
    show(rows, median(floor))
    if arguments.json:
        content = {"rows": [asdict(row) for row in rows], "floor": floor, "faults": faults}
        arguments.json.write_text(json.dumps(content, default=str, indent=1))
    slow = [row.path for row in rows if row.median > TARGET_S]
    wrong = [difference for row in rows for difference in row.differences]
    print("\n".join(faults + [f"slow: /console{path}" for path in slow]), file=sys.stderr)
    return 1 if faults or slow or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
