"""Measure whole epochs over several databases: by one process, and by actors of Dask.

    python -m benchmarks.scale.whole --postgres URL [--pages 1000000] [--databases 4] [--rounds 3]

An epoch loads, computes and writes. The server at the URL must be on this machine and serve nobody
else, because all its processes are counted.

- cpu: CPU seconds of all processes and of Postgres, and over those of one process
- seconds: wall clock; databases and processes share the cores of this machine
- MB: bytes of all questions and answers
- bytes a page: peak of the fullest process, less its memory before the first load, over its pages
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import TICKS, megabytes
from benchmarks.scale.made import PLAN
from benchmarks.scale.measure import filled, pages_of_shards
from recrawl_cluster.epochs.actors import LOCAL, Actors
from recrawl_cluster.epochs.databases import for_processes
from service.epochs.inputs import Task
from service.epochs.parts import EpochParts, Spread, in_this_process
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.runtime.bootstrap import configure_logging

COUNTED = slice(11, 15)
"""Fields of /proc/PID/stat: CPU time of a process, and of its children that have ended."""
RESET_PEAK = "5"


def tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(folder.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_of_tree(root: int) -> float:
    """Return the CPU seconds of a process, its descendants, and those that have ended."""
    ticks = 0
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[COUNTED]))
    return ticks / TICKS


def postmaster(server: str) -> int:
    """Return the process of a Postgres server of this machine."""
    with psycopg.connect(server) as connection:
        (folder,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    return int((Path(folder) / "postmaster.pid").read_text().split()[0])


class Watched:
    """A runner of epochs, and the memory of its processes before their first load."""

    def __init__(self, spread: Spread, pool: Actors | None) -> None:
        self.spread, self.pool = spread, pool
        self.before: dict[int, float] = {}

    def pids(self) -> list[int]:
        """Return the processes that may have parts."""
        return [os.getpid()] if self.pool is None else tree(os.getpid())[1:]

    @contextmanager
    def opened(self, store: Any, lead: Any, task: Task) -> Iterator[EpochParts]:
        """Open the parts of an epoch."""
        with self.spread(store, lead, task) as parts:
            if not self.before:
                parts.ask_all("learnt")  # starts the processes
                self.before = {pid: megabytes(pid, "VmRSS") for pid in self.pids()}
            yield parts

    def n_bytes(self) -> int:
        """Return the bytes of all questions and answers so far."""
        return 0 if self.pool is None else self.pool.n_bytes


def epochs(
    store: Any, watched: Watched, cpu: Callable[[], float], rounds: int, plan: Plan = PLAN
) -> list[dict[str, float]]:
    """Return the figures of epochs after one that warms up."""
    figures = []
    for _ in range(1 + rounds):
        for pid in watched.pids():
            Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
        used, began, sent = cpu(), time.perf_counter(), watched.n_bytes()
        record = run_epoch(store, plan, store.clock, watched.opened)
        if record.certificate is None:
            raise RuntimeError(f"the epoch failed: {record.reason}")
        peaks = {pid: megabytes(pid, "VmHWM") for pid in watched.before}
        figures.append(
            {
                "cpu": cpu() - used,
                "seconds": time.perf_counter() - began,
                "megabytes": (watched.n_bytes() - sent) / 1e6,
                "grown": max(peaks[pid] - watched.before[pid] for pid in peaks),
                **record.certificate.seconds,
            }
        )
    return figures[1:]


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--postgres", required=True)
    options.add_argument("--pages", type=int, default=1_000_000)
    options.add_argument("--databases", type=int, default=4)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    configure_logging("error")
    console, server = Console(), postmaster(chosen.postgres)
    actors = Actors(for_processes, LOCAL)
    runners = {
        "one process": Watched(in_this_process, None),
        "actors of Dask": Watched(actors.opened, actors),
    }
    results = {}
    with (
        tempfile.TemporaryDirectory(prefix="recrawl-whole-") as folder,
        filled(
            chosen.postgres, chosen.databases, chosen.pages, Path(folder), console.print
        ) as store,
    ):
        spans = np.array_split(pages_of_shards(store), chosen.databases)
        every, largest = (float(f(span.sum() for span in spans)) for f in (sum, max))
        for name, watched in runners.items():
            cpu = lambda: cpu_of_tree(os.getpid()) + cpu_of_tree(server)  # noqa: E731
            rounds = epochs(store, watched, cpu, chosen.rounds)
            middle = {key: float(np.median([one[key] for one in rounds])) for key in rounds[0]}
            own = every if watched.pool is None else largest
            results[name] = {**middle, "bytes_a_page": middle["grown"] * 2**20 / own}
            if watched.pool is not None:
                watched.pool.close()
    show(console, results)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


def show(console: Console, results: dict[str, dict[str, float]]) -> None:
    """Print the figures."""
    table = Table("row", "cpu s", "over one process", "seconds", "MB", "bytes a page", box=None)
    floor = results["one process"]["cpu"]
    for name, row in results.items():
        numbers = row["cpu"], row["cpu"] / floor, row["seconds"]
        table.add_row(
            name,
            *(f"{number:.3g}" for number in (*numbers, row["megabytes"], row["bytes_a_page"])),
        )
    console.print(table)


if __name__ == "__main__":
    main()
