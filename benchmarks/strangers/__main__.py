"""Attack a server that checks IndexNow keys, and measure the costs to others.

    python -m benchmarks.strangers [--submissions 10000] [--peers 8]

Hostile peers, each with its own address (127.0.1.1, 127.0.1.2, …), submit bogus keys for hosts
whose key files hang. Their bodies are small, a megabyte, or gzip that inflates to 32 MB.
Meanwhile honest sites submit one after the other from 127.0.2.1, and /healthz is polled. The
targets are at most 50 MB more resident memory, and acceptance of each honest site within 10 s.
The results are a table and JSON.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.http.report import machine
from benchmarks.strangers.attack import attack, client

KEY = "0123abcd-4567-ef89"
PAUSE_S = 2.0
"""Time from one honest site to the next, seconds."""

PATIENCE_S = 60.0
"""Maximum time that an honest site repeats its submission, seconds."""


class Figures(NamedTuple):
    """Measurements of a campaign."""

    statuses: dict[int, int]
    """Number of hostile submissions by status; 0 is a closed connection."""
    seconds: float
    rss_before_mb: float
    rss_peak_mb: float
    rss_after_mb: float
    honest_s: list[float]
    """Time from an honest site's first submission to the acceptance of its key, seconds."""
    healthz_p99_s: float
    healthz_worst_s: float


def main() -> None:
    """Measure, print and write the results."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.strangers", description=__doc__.splitlines()[0]
    )
    options.add_argument("--submissions", type=int, default=10_000)
    options.add_argument("--peers", type=int, default=8)
    options.add_argument("--json", type=Path, default=Path("bench-out/strangers.json"))
    chosen = options.parse_args()
    with sites() as port, attacked(port) as (url, pid):
        figures = campaign(url, pid, chosen.submissions, chosen.peers)
    show(figures)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": machine(), "peers": chosen.peers, **figures._asdict()}
    chosen.json.write_text(json.dumps(written, indent=1) + "\n")


@contextmanager
def sites() -> Iterator[int]:
    """Serve the key files of all sites: honest sites show the key, hostile ones hang."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"Host: honest-" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(KEY) + KEY.encode())
        await reader.read()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def attacked(port: int) -> Iterator[tuple[str, int]]:
    """Run the server and yield its URL and process id."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.strangers.server"]
        server = subprocess.Popen(
            [*command, f"{folder}/recrawl.db", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.stdin.close()
            server.wait(30)


def campaign(url: str, pid: int, n_submissions: int, n_peers: int) -> Figures:
    """Attack the server and measure; the measurements start before the attack and end with it."""
    httpx.get(f"{url}/healthz")
    before, started = rss_mb(pid), time.perf_counter()
    with ExitStack() as watchers:
        peak = watchers.enter_context(repeated(lambda: rss_mb(pid), 0.02))
        healthz = watchers.enter_context(repeated(lambda: healthz_s(url), 0.02))
        honest = watchers.enter_context(repeated(honest_sites(url), PAUSE_S))
        with ProcessPoolExecutor(1, get_context("spawn")) as attackers:  # beside the measurements
            statuses = attackers.submit(attack, url, n_submissions, n_peers).result()
    seconds = time.perf_counter() - started
    return Figures(
        dict(sorted(statuses.items())),
        seconds,
        before,
        max(peak),
        rss_mb(pid),
        honest,
        float(np.quantile(healthz, 0.99)),
        max(healthz),
    )


@contextmanager
def repeated(measure: Callable[[], float], pause_s: float) -> Iterator[list[float]]:
    """Repeat a measurement during the block, and yield the list of its values."""
    figures, over = [], threading.Event()

    def run() -> None:
        figures.append(measure())
        while not over.wait(pause_s):
            figures.append(measure())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield figures
    finally:
        over.set()
        thread.join()


def honest_sites(url: str) -> Callable[[], float]:
    """Return a function that submits for a new site and returns the seconds to acceptance."""
    numbers = iter(range(1_000_000))

    def submit() -> float:
        host = f"honest-{next(numbers)}.example"
        body = {"host": host, "key": KEY, "urlList": [f"http://{host}/"]}
        started = time.perf_counter()
        with client(url, "127.0.2.1") as web:
            while (seconds := time.perf_counter() - started) < PATIENCE_S:
                if web.post("/indexnow", json=body).status_code == httpx.codes.OK:
                    break
                time.sleep(0.05)
        return seconds

    return submit


def healthz_s(url: str) -> float:
    """Return the response time of /healthz, seconds."""
    started = time.perf_counter()
    httpx.get(f"{url}/healthz", timeout=60).raise_for_status()
    return time.perf_counter() - started


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process, MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096 / 1e6


def show(figures: Figures) -> None:
    """Print the table of measurements and targets."""
    table = Table("figure", "value", "target")
    statuses = ", ".join(f"{status}: {n:,}" for status, n in figures.statuses.items())
    table.add_row("hostile submissions by status", statuses, "")
    table.add_row("time of the attack", f"{figures.seconds:.1f} s", "")
    more = figures.rss_peak_mb - figures.rss_before_mb
    table.add_row("memory before", f"{figures.rss_before_mb:.0f} MB", "")
    table.add_row("memory at its peak", f"{figures.rss_peak_mb:.0f} MB (+{more:.0f})", "+50 MB")
    table.add_row("memory after", f"{figures.rss_after_mb:.0f} MB", "")
    worst = f"{max(figures.honest_s):.2f} s of {len(figures.honest_s)}"
    table.add_row("honest site accepted, worst", worst, "10 s")
    healthz = f"{figures.healthz_p99_s:.3f} s, {figures.healthz_worst_s:.3f} s"
    table.add_row("/healthz p99, worst", healthz, "")
    Console().print(table)


if __name__ == "__main__":
    main()
