"""Measure lists of pages by each filter on many pages: time to the first byte, and rows a second.

    python -m benchmarks.lists [--store postgres] [--pages 10000000] [--rounds 5]

A server on a new database: pages over 100,000 hosts, half of them due; a thousandth each is gone,
fails, was never crawled or is observed completely. A third has one tag, every 100,003rd another.
The first request of each row comes after all other rows, so it finds the caches as they left them.
The floor is `GET /pages/1` of the same server. The target is 200 ms to the first byte, and 50,000
rows a second of the whole list. `--database` keeps a filled database for the next run.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from sqlalchemy import text

from benchmarks.http.processes import Serving, Usage, postgres_database, serving
from benchmarks.http.report import machine
from benchmarks.leases.data import Fleet, fill, tidy
from service.storage import open_store
from service.storage.stores.sqlite import SqliteStore

N_HOSTS = 100_000
REPEATS = 20
"""Requests of a row whose CPU time is read together."""
FLOOR = "/pages/1"
LISTS = (
    "",
    "host=host000007.example",
    "host=host000007.example&state=overdue",
    "url_prefix=https://host000007.example/articles/in/the/archive/0000",
    "tag=third",
    "tag=rare",
    "tag=third&state=gone",
    "state=active",
    "state=overdue",
    "state=failing",
    "state=gone",
    "state=retired",
    "state=never_crawled",
    "observability=complete",
    "change_rate_from=20",
    "change_rate_from=1000000",
    "crawl_rate_to=0.05",
    "changed_since=2020-01-01T00:00:00Z",
)
"""Queries of `GET /pages`; the last rate and the last date match no page."""
STREAM = {"Accept": "application/x-ndjson"}
PLAIN = {"Accept-Encoding": "identity"}
"""Header that keeps the client from compressed answers, whose lines it could not count."""

MARKS = """
UPDATE page_states SET gone = true, n_failures = CASE WHEN page_id % 4000 = 0 THEN 40 ELSE 2 END
WHERE page_id % 1000 = 0;
UPDATE page_states SET n_failures = 3 WHERE page_id % 1000 = 1;
UPDATE page_states SET last_crawl_at = NULL, last_observed_at = NULL WHERE page_id % 1000 = 2;
UPDATE page_states SET observability = 1 WHERE page_id % 1000 = 3;
INSERT INTO tags (tag) VALUES ('third'), ('rare');
INSERT INTO page_tags (tag_id, page_id) SELECT tag_id, page_id FROM tags JOIN pages
ON page_id % CASE tag WHEN 'third' THEN 3 ELSE 100003 END = 0 ORDER BY tag_id, page_id
"""


def mark(url: str) -> None:
    """Give pages states and tags, unless they have them."""
    store: Any = open_store(url, 3)
    try:
        with store.engine.begin() as connection:
            if connection.execute(text("SELECT count(*) FROM tags")).scalar():
                return
            for statement in MARKS.split(";"):
                connection.execute(text(statement))
            if isinstance(store, SqliteStore):
                connection.execute(text("ANALYZE"))
    finally:
        store.close()
    tidy(url)


@contextmanager
def filled(options: argparse.Namespace) -> Iterator[str]:
    """Yield the address of a database with pages."""
    fleet = Fleet.half_due(options.pages, min(N_HOSTS, options.pages))
    if options.database:
        yield options.database
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.store == "sqlite":
            url = f"sqlite:///{folder}/lists.db"
            fill(url, fleet, datetime.now(UTC))
            yield url
            return
        with postgres_database(options.postgres, f"recrawl_lists_{os.getpid()}") as url:
            fill(url, fleet, datetime.now(UTC))
            yield url


def first_byte(client: httpx.Client, path: str, headers: dict[str, str]) -> float:
    """Return the time to the first byte of the answer, seconds."""
    start = time.perf_counter()
    with client.stream("GET", path, headers=headers) as response:
        response.raise_for_status()
        return time.perf_counter() - start


def cases() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the name, the path and the headers of each row."""
    yield FLOOR, FLOOR, {}
    for query in LISTS:
        yield query or "all", f"/pages?{query}", {}
        yield f"{query or 'all'} (stream)", f"/pages?{query}", STREAM


def measure(client: httpx.Client, rounds: int) -> dict[str, list[float]]:
    """Return the times of each row, seconds; the rows take turns."""
    times: dict[str, list[float]] = {name: [] for name, *_ in cases()}
    for _ in range(rounds + 1):
        for name, path, headers in cases():
            times[name].append(first_byte(client, path, headers))
    return times


def cpu_seconds(client: httpx.Client, server: Serving, url: str) -> dict[str, float]:
    """Return the CPU time of one request of each row of JSON, service and database, seconds."""
    used: dict[str, float] = {}
    for name, path, headers in cases():
        if headers == STREAM:
            continue
        before = Usage.now(server, url)
        for _ in range(REPEATS):
            client.get(path).raise_for_status()
        after = Usage.now(server, url)
        cores = after.since(before)
        used[name] = (cores["service"] + cores["postgres"]) * (after.at - before.at) / REPEATS
    return used


def whole(client: httpx.Client, media: str, most: int) -> tuple[int, float]:
    """Return the number of lines of the list of all pages, and its duration, seconds.

    The reading ends after `most` lines.
    """
    start, n_lines = time.perf_counter(), 0
    with client.stream("GET", "/pages", headers={"Accept": media}) as response:
        response.raise_for_status()
        for part in response.iter_raw():
            n_lines += part.count(b"\n")
            if n_lines >= most:
                break
    return n_lines, time.perf_counter() - start


def main() -> None:
    """Fill a database, measure, print and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lists")
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the stream to read")
    parser.add_argument("--folder", type=Path, help="folder for SQLite")
    parser.add_argument("--database", help="address of a database that an earlier run filled")
    parser.add_argument(
        "--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres", help="a superuser"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=120, highlight=False)
    with filled(options) as url, tempfile.TemporaryDirectory() as folder:
        mark(url)
        with (
            serving(url, Path(folder)) as server,
            httpx.Client(base_url=server.base, timeout=300, headers=PLAIN) as client,
        ):
            times = measure(client, options.rounds)
            cpu_s = cpu_seconds(client, server, url)
            before = Usage.now(server, url)
            n_rows, seconds = whole(client, "application/x-ndjson", options.rows)
            usage = Usage.now(server, url).since(before)
    floor = median(times[FLOOR][1:])
    names = ("list", "first, ms", "median, ms", "slowest, ms", "of the floor", "CPU, ms")
    table = Table(*names, box=None)
    for name, (first, *rest) in times.items():
        figures = [f"{1_000 * each:.1f}" for each in (first, median(rest), max(rest))]
        cpu = f"{1_000 * cpu_s[name]:.1f}" if name in cpu_s else ""
        table.add_row(name, *figures, f"{median(rest) / floor:.1f}", cpu)
    console.print(table)
    stream_cpu_s = (usage["service"] + usage["postgres"]) * seconds
    console.print(
        f"list of all: {n_rows:,} rows in {seconds:.1f} s, {n_rows / seconds:,.0f} a second, "
        f"{n_rows / stream_cpu_s:,.0f} a CPU second"
    )
    path = options.json or Path(f"bench-out/lists-{options.store}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"seconds": times, "cpu_s": cpu_s}
    result |= {"rows": n_rows, "stream_s": seconds, "stream_cpu_s": stream_cpu_s}
    result |= {"arguments": vars(options), "machine": machine()}
    path.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
