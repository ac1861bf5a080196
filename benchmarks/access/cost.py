"""Compare the server's CPU for a post of one observation, with and without keys, in turns.

The CPU of a post differs by some percent from run to run. So the cost of the access layer is also
measured alone: all its steps for one request with a key of the database, in one thread.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import httpx
import numpy as np
from fastapi import Request, Response

from benchmarks.access.fairness import asked, written
from benchmarks.access.keys import ADMIN, sqlite_url, with_keys
from benchmarks.http.processes import READY_WITHIN_S, TICKS, free_port
from service.access.gate import Gate
from service.access.keyring import KeyRing
from service.access.keys import PREFIX
from service.access.roles import right_of
from service.api import admission
from service.model.access import Role
from service.storage import open_store

MOST = 1.03
"""Greatest ratio of the CPU of a post with the access layer to that without."""
REQUESTS = 5_000
"""Requests of one measurement of the access layer alone."""


class Variant(NamedTuple):
    """A running server and the key to show."""

    name: str
    port: int
    pid: int
    key: str


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--seconds", type=float, default=2.0, help="duration of a turn")
    command.add_argument("--rounds", type=int, default=4, help="turns of each server of a start")
    command.add_argument(
        "--starts", type=int, default=8, help="servers of each kind, one after the other"
    )
    command.add_argument("--connections", type=int, default=16)
    command.add_argument(
        "--against", type=Path, action="append", help="Python of another checkout to compare with"
    )


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure all variants in turns; return whether keys of the database cost no more.

    Two processes with the same code differ by some percent for as long as they live. So all servers
    are started again and again, and the spread between starts is the error.
    """
    starts = []
    for i in range(options.starts):
        (own := folder / f"start-{i}").mkdir()
        starts.append(measured(options, own))
    base = "against 0" if options.against else "environment"
    for name in starts[0]:
        ratios = np.array([cpu[name] / cpu[base] for cpu in starts])
        error = ratios.std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.nan
        print(
            f"{name}: {1e6 * np.median([cpu[name] for cpu in starts]):.0f} us of CPU a post, "
            f"ratio {ratios.mean():.3f}, standard error {error:.3f}",
            flush=True,
        )
    alone_us = 1e6 * admission_s(folder)
    share = alone_us / (1e6 * min(cpu["database"] for cpu in starts))
    print(f"the access layer alone: {alone_us:.1f} us, {share:.1%} of the cheapest post")
    return share <= MOST - 1


def admission_s(folder: Path) -> float:
    """Return the time of all steps of the access layer for a request, seconds: the least of 20."""
    url = sqlite_url(folder)
    (key,) = with_keys(url, [Role.report])
    store = open_store(url, 3)
    ring = KeyRing(store, [], store.clock, n_slots=16)
    ring.refresh()
    state = SimpleNamespace(service=SimpleNamespace(gate=Gate(ring), key_checks=None))
    operation = "post_observations"
    right = right_of(operation)
    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {key}".encode())]

    async def admit(n: int) -> float:
        began = time.process_time()
        for _ in range(n):
            scope = {"type": "http", "app": SimpleNamespace(state=state), "headers": headers}
            await admission.enter(Request(scope), operation, right)
            admission.add_limits(scope, Response())
            admission.leave(scope)
        return (time.process_time() - began) / n

    least = min(asyncio.run(admit(REQUESTS)) for _ in range(20))
    store.close()
    return least


def measured(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Return the CPU of a post to each variant, the median of turns with one start, seconds."""
    with ExitStack() as stack:
        variants = [
            stack.enter_context(served(folder, name, key, sys.executable))
            for name, key in (("no key", ""), ("environment", ADMIN), ("database", PREFIX))
        ]
        for i, python in enumerate(options.against or []):
            variants.append(stack.enter_context(served(folder, f"against {i}", ADMIN, python)))
        cpu: dict[str, list[float]] = {variant.name: [] for variant in variants}
        for i in range(options.rounds):
            for variant in variants[i % len(variants) :] + variants[: i % len(variants)]:
                cpu[variant.name].append(turn(variant, options.connections, options.seconds))
    return {name: float(np.median(values)) for name, values in cpu.items()}


@contextmanager
def served(folder: Path, name: str, key: str, python: Path | str) -> Iterator[Variant]:
    """Run a server with a database of its own."""
    (own := folder / name.replace(" ", "-")).mkdir()
    url, port = sqlite_url(own), free_port()
    if key == PREFIX:
        (key,) = with_keys(url, [Role.report])
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("RECRAWL_")},
        "RECRAWL_DATABASE_URL": url,
        "RECRAWL_LOG_LEVEL": "warning",
        "RECRAWL_EPOCH_INTERVAL_S": "86400",
        **({"RECRAWL_API_KEYS": key} if key == ADMIN else {}),
    }
    root = Path(python).absolute().parents[2]
    command = [str(Path(python).absolute()), "-m", "service", "serve", "--port", str(port)]
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=log)
        try:
            until_ready(f"http://127.0.0.1:{port}/readyz")
            yield Variant(name, port, process.pid, key)
        finally:
            process.terminate()
            process.wait()


def until_ready(url: str) -> None:
    """Wait until a server is ready."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            httpx.get(url).raise_for_status()
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def turn(variant: Variant, n_connections: int, seconds: float) -> float:
    """Return the server's CPU for one post, seconds."""
    counts = [0] * n_connections
    deadline = time.monotonic() + seconds

    def send(i: int) -> None:
        with socket.create_connection(("127.0.0.1", variant.port)) as connection:
            while time.monotonic() < deadline:
                assert asked(connection, written(variant.key or "none", counts[i])) == 200
                counts[i] += 1

    before = used(variant.pid)
    threads = [threading.Thread(target=send, args=(i,)) for i in range(n_connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (used(variant.pid) - before) / max(sum(counts), 1)


def used(pid: int) -> float:
    """Return the CPU time of a process, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
