"""Measure reports with and without a webhook on all changes, by turns: rate and CPU time.

    python -m benchmarks.webhooks [--rounds 6] [--seconds 5] [--changed 0.1]

A server and a worker on a new Postgres database. One client reports crawls in batches of 1,000; in
every other round a webhook sends the changes to a receiver on this machine. The rounds without a
webhook are the floor. The target is a rate of at least 0.9 of the floor, and 99 % of the changes at
the receiver within a second of their commit.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import Serving, Usage, free_port, postgres_database, serving

N_PAGES, BATCH = 20_000, 1_000
DRAINED_WITHIN_S = 60.0


def receive(port: int, lags: Connection) -> None:
    """Answer webhooks, and send the lag of each change, until the process ends."""

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            now = time.time()
            self.send_response(204)
            self.end_headers()
            events = msgspec.json.decode(content)
            at = [datetime.fromisoformat(e["data"]["recorded_at"]).timestamp() for e in events]
            lags.send([now - each for each in at])

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()


def drain(pipe: Connection, lags: list[float]) -> None:
    """Collect the lags of a receiver, which must never wait for its pipe."""
    with suppress(EOFError):
        while True:
            lags += pipe.recv()


class Reporter:
    """A client that reports crawls of random pages in batches, each later than the last."""

    def __init__(self, base: str, share_changed: float) -> None:
        self.client = httpx.Client(base_url=base, timeout=60)
        self.share = share_changed
        self.rng = np.random.default_rng(1)
        self.at = datetime.now(UTC) - timedelta(days=30)
        items = [{"url": f"https://h{i % 100}.example/{i}"} for i in range(N_PAGES)]
        for first in range(0, N_PAGES, BATCH):
            self.client.post("/pages", json=items[first : first + BATCH]).raise_for_status()
        self.urls = [item["url"] for item in items]

    def batch(self) -> None:
        """Report one batch."""
        self.at += timedelta(seconds=60)
        page = self.rng.choice(N_PAGES, BATCH, replace=False).tolist()
        changed = (self.rng.random(BATCH) < self.share).tolist()
        items = [
            {"url": self.urls[p], "observed_at": self.at, "changed": c}
            for p, c in zip(page, changed, strict=True)
        ]
        headers = {"Content-Type": "application/json"}
        content = msgspec.json.encode(items)
        answer = self.client.post("/observations", content=content, headers=headers)
        if answer.raise_for_status().json()["accepted"] != BATCH:
            raise RuntimeError(answer.text[:500])

    def round(self, server: Serving, url: str, seconds: float) -> dict[str, float]:
        """Report for some seconds; return the rate and the CPU time of an observation."""
        before, n = Usage.now(server, url), 0
        start = time.monotonic()
        while (span := time.monotonic() - start) < seconds:
            self.batch()
            n += BATCH
        after = Usage.now(server, url)
        cores = after.since(before)
        cpu = (cores["service"] + cores["postgres"]) * (after.at - before.at)
        return {"rate": n / span, "cpu_us": 1e6 * cpu / n, "n": n}


@contextmanager
def webhook(client: httpx.Client, port: int) -> Iterator[None]:
    """Have all changes sent, and wait for the last one before the end."""
    body = {"url": f"http://127.0.0.1:{port}/", "max_items": 1_000}
    name = client.post("/webhooks", json=body).raise_for_status().json()["id"]
    yield
    ends_at = time.monotonic() + DRAINED_WITHIN_S
    while client.get(f"/webhooks/{name}").json()["lag_s"] > 0:
        if time.monotonic() > ends_at:
            raise RuntimeError("the webhook fell behind")
        time.sleep(0.05)
    client.delete(f"/webhooks/{name}").raise_for_status()


def measure(server: Serving, url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all rounds, and the lags of changes, seconds."""
    port, (here, there) = free_port(), get_context("spawn").Pipe()
    receiver = get_context("spawn").Process(target=receive, args=(port, there), daemon=True)
    receiver.start()
    reporter = Reporter(server.base, options.changed)
    rounds: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    lags: list[float] = []
    threading.Thread(target=drain, args=(here, lags), daemon=True).start()
    try:
        reporter.round(server, url, options.seconds)  # caches and pools
        for _ in range(options.rounds):
            rounds["without"].append(reporter.round(server, url, options.seconds))
            with webhook(reporter.client, port):
                rounds["with"].append(reporter.round(server, url, options.seconds))
    finally:
        receiver.kill()
    return rounds | {"lags": lags}


def main() -> None:
    """Measure, print and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webhooks")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--changed", type=float, default=0.1, help="share of changes")
    parser.add_argument(
        "--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres", help="a superuser"
    )
    parser.add_argument("--json", type=Path, default=Path("bench-out/webhooks.json"))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_database(options.postgres, f"recrawl_webhooks_{os.getpid()}") as url,
    ):
        with serving(url, Path(folder), new=True):
            pass  # creates the tables
        with serving(url, Path(folder), webhooks_private="true") as server:
            figures = measure(server, url, options)
    table = Table("figure", "without", "with", "ratio, median of pairs", "lowest", box=None)
    for name, title, worst in (
        ("rate", "observations a second", min),
        ("cpu_us", "CPU of service, worker and Postgres, µs an observation", max),
    ):
        without, sent = ([one[name] for one in figures[kind]] for kind in ("without", "with"))
        ratios = [b / a for a, b in zip(without, sent, strict=True)]
        cells = (median(without), median(sent), median(ratios), worst(ratios))
        table.add_row(title, *(f"{each:,.2f}" for each in cells))
    console = Console(width=120, highlight=False)
    console.print(table)
    lags = figures.pop("lags")
    p50, p99, most = np.quantile(lags, [0.5, 0.99, 1.0])
    console.print(
        f"{len(lags):,} changes received: p50 {p50:.3f} s, p99 {p99:.3f}, most {most:.3f}"
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    result = figures | {"lag_s": {"p50": p50, "p99": p99, "most": most, "n": len(lags)}}
    options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
