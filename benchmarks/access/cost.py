"""Compare the server's CPU for a post of one observation, with and without keys, in turns."""

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from benchmarks.access.fairness import asked, written
from benchmarks.access.keys import ADMIN, sqlite_url, with_keys
from benchmarks.http.processes import READY_WITHIN_S, TICKS, free_port
from service.access.keys import PREFIX
from service.model.access import Role

MOST = 1.03
"""Greatest ratio of the CPU with a key of the database to that with a key of the environment."""


class Variant(NamedTuple):
    """A running server and the key to show."""

    name: str
    port: int
    pid: int
    key: str


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--seconds", type=float, default=2.0, help="duration of a turn")
    command.add_argument("--rounds", type=int, default=15)
    command.add_argument("--connections", type=int, default=16)
    command.add_argument(
        "--against", type=Path, action="append", help="Python of another checkout to compare with"
    )


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure all variants in turns; return whether keys of the database cost no more."""
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
    base = np.array(cpu["against 0" if options.against else "environment"])
    for name, values in cpu.items():
        ratios = np.array(values) / base
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        print(
            f"{name}: {1e6 * np.median(values):.0f} us of CPU a post, ratio {middle:.3f} "
            f"({low:.3f} to {high:.3f})",
            flush=True,
        )
    return float(np.median(np.array(cpu["database"]) / np.array(cpu["environment"]))) <= MOST


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
