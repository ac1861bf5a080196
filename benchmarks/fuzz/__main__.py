"""Send hostile requests, drawn by schemathesis or mutated, to a real server.

    python -m benchmarks.fuzz --requests 100000 --store postgres

Schemathesis draws a share of the requests from the OpenAPI document, valid and invalid ones. The
others are valid requests of every operation with bytes, fields, numbers, encodings, queries,
headers, paths and methods changed. The exit status is 1 after any of these:

- an answer with a 5xx other than an announced 503 or 507
- a refusal that is not problem+json
- a connection closed without an answer
- a traceback in the log
- a server that is not ready afterwards
"""

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.faults.deployment import migrate
from benchmarks.faults.postgres import cluster
from benchmarks.fuzz import described
from benchmarks.fuzz.judge import Judge
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.requests import Request, valid_requests
from benchmarks.fuzz.wire import Wire
from benchmarks.http.processes import Serving, megabytes, serving
from benchmarks.http.report import machine

DESCRIBED_SHARE = 0.2
"""Share of the requests that schemathesis draws; drawing one takes as long as sending ten."""
THREADS = 4
"""Number of connections for mutated requests."""
TELL_EVERY_S = 10.0
SHOWN = 400
"""Characters of an example to print; the JSON has more."""


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz", description=__doc__.splitlines()[0]
    )
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--store", choices=["postgres", "sqlite"], default="sqlite")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--described", type=float, default=DESCRIBED_SHARE, help="share drawn by schemathesis"
    )
    options.add_argument("--json", type=Path, help="default: bench-out/fuzz-STORE.json")
    return options


@dataclass
class Quota:
    """Number of requests that all threads together may still send."""

    left: int
    lock: threading.Lock

    def take(self) -> bool:
        with self.lock:
            self.left -= 1
            return self.left >= 0


def mutate(port: int, valid: Sequence[Request], quota: Quota, judge: Judge, draw: Random) -> None:
    """Send mutated requests until the quota is used up."""
    with Wire(port) as wire:
        while quota.take():
            request = mutated(draw.choice(valid), draw)
            data = request.written()
            try:
                answer = wire.send(data, head=request.method == "HEAD")
            except (OSError, ValueError) as error:
                wire.close()
                judge.hang_up("mutated", request.operation, f"{data!r}: {error!r}")
                continue
            if answer is None:
                judge.hang_up("mutated", request.operation, repr(data))
            else:
                judge.answer("mutated", request.operation, data.__repr__, *answer)


@contextmanager
def served(store: str, folder: Path) -> Iterator[Serving]:
    """Run the service on a new database and yield it."""
    settings = {
        "epoch_interval_s": 2,
        "lease_ttl_s": 2,
        "max_body_bytes": 1_000_000,
    }
    if store == "sqlite":
        with serving(f"sqlite:///{folder / 'fuzz.db'}", folder, **settings) as server:
            yield server
        return
    with cluster() as postgres:
        migrate(postgres.url())
        with serving(postgres.url(), folder, **settings) as server:
            yield server


def fuzz(server: Serving, options: argparse.Namespace, judge: Judge, console: Console) -> None:
    """Send all requests and print the progress."""
    document = httpx.get(f"{server.base}/openapi.json").json()
    n_described = int(options.requests * options.described)
    quota = Quota(options.requests - n_described, threading.Lock())
    valid, begun, done = valid_requests(document), time.monotonic(), threading.Event()
    with ThreadPoolExecutor(THREADS + 1) as pool:
        pool.submit(tell, options.requests, judge, console, done)
        try:
            draws = [Random(f"{options.seed} {i}") for i in range(THREADS)]
            work = partial(mutate, server.port, valid, quota, judge)
            list(pool.map(work, draws))
            described.fuzz(document, server.base, n_described, options.seed, judge)
        finally:
            done.set()
    seconds = time.monotonic() - begun
    console.print(f"{judge.n_requests / seconds:,.0f} requests/s")


def tell(n: int, judge: Judge, console: Console, done: threading.Event) -> None:
    """Print the number of requests so far."""
    while not done.wait(TELL_EVERY_S):
        complaints = judge.complaints.total()
        console.print(f"{judge.n_requests:,} of {n:,} requests, {complaints} complaints")


def inspect(server: Serving, folder: Path, judge: Judge) -> None:
    """Record a complaint about a server that is not ready, and about tracebacks."""
    with suppress(httpx.HTTPError):
        if httpx.get(f"{server.base}/readyz", timeout=10).status_code != 200:
            judge.complain("the server is not ready", "GET /readyz")
    lines = (folder / "service.log").read_text(errors="replace").splitlines()
    for i, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            end = next((k for k in range(i, len(lines)) if lines[k].startswith("{")), len(lines))
            judge.complain("a traceback in the log", "\n".join(lines[i:end])[-1_500:])


def show(judge: Judge, console: Console) -> None:
    """Print counts by operation, and the complaints."""
    statuses = sorted({status for _, status in judge.counts})
    table = Table(box=None, pad_edge=False)
    table.add_column("operation")
    for status in statuses:
        table.add_column(str(status or "none"), justify="right")
    for operation in sorted({operation for operation, _ in judge.counts}):
        cells = (judge.counts[operation, status] for status in statuses)
        table.add_row(operation, *(f"{n:,}" if n else "" for n in cells))
    console.print(table)
    for source, n in judge.shares.items():
        console.print(f"{source}: {n:,} requests")
    for kind, n in judge.complaints.items():
        console.print(f"{n:,} times {kind}", style="bold red", markup=False)
        for example in judge.examples[kind][:2]:
            console.print(f"  {example[:SHOWN]}", markup=False)
    console.print(f"{judge.complaints.total()} complaints about {judge.n_requests:,} requests")


def write(judge: Judge, options: argparse.Namespace, peak_mb: float, path: Path) -> None:
    """Write counts and examples as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = [[operation, status, n] for (operation, status), n in sorted(judge.counts.items())]
    written = {
        "counts": counts,
        "shares": judge.shares,
        "complaints": judge.complaints,
        "examples": judge.examples,
        "peak_mb": peak_mb,
        "arguments": vars(options),
        "machine": machine(),
    }
    path.write_text(json.dumps(written, indent=1, default=str) + "\n")


def main() -> None:
    """Fuzz one store."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as on Ctrl-C
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    judge = Judge()
    with tempfile.TemporaryDirectory(prefix="recrawl-fuzz-") as name:
        folder = Path(name)
        with served(options.store, folder) as server:
            fuzz(server, options, judge, console)
            inspect(server, folder, judge)
            peak_mb = megabytes(server.server, "VmHWM")
    show(judge, console)
    console.print(f"the server's memory reached {peak_mb:,.0f} MB")
    write(judge, options, peak_mb, options.json or Path(f"bench-out/fuzz-{options.store}.json"))
    sys.exit(judge.complaints.total() > 0)


if __name__ == "__main__":
    main()
