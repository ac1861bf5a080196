"""Measure the share of the history in the CPU time of ingest over HTTP.

    python -m benchmarks.history [--stores postgres sqlite] [--rounds 8] [--seconds 4]

One server takes all posts. In turns it counts for the history and counts nothing, so both figures
are of the same process. CPU time is that of the server and of its database sessions. A turn ends
two seconds after its last post, when its counts have been written.

The share is the measured CPU time of the history's own parts over that of the turn: `tx.count` and
the counter's `add` in each commit, and the thread and the database session that write the counts of
a second. The difference between the turns also has what no clock of a part sees, such as caches,
with its standard error. The exit status is 1 if a share is above 2 %.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psycopg

from benchmarks.history.counters import VARIABLE, Counters, session_s
from benchmarks.http import clients
from benchmarks.http.processes import cpu_seconds
from benchmarks.http.rows import Bench, prepared

MOST = 0.02
"""Greatest share of the history."""
SERVER = "benchmarks.history.server"
WRITTEN_S = 2.0
"""Time from the last post of a turn until its counts have been written, seconds."""


class Load(NamedTuple):
    """Clients that post batches of one size."""

    name: str
    n_clients: int
    batch: int
    most_per_s: int
    """Maximum posts prepared for a second."""


LOADS = (
    Load("1,000 crawls a post, 8 clients", 8, 1_000, 160),
    Load("1 crawl a post, 32 clients", 32, 1, 10_000),
    Load("1 crawl a post, 1 client", 1, 1, 1_000),
)
PARTS = ("total", "commit", "write", "backend")


class Turn(NamedTuple):
    """CPU time of a turn, seconds a crawl."""

    n_crawls: int
    crawls_per_commit: float
    total: float
    commit: float
    write: float
    backend: float

    @property
    def share(self) -> float:
        """Share of the history's parts."""
        return (self.commit + self.write + self.backend) / self.total


def main() -> None:
    """Measure all loads on each store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stores", nargs="+", default=["postgres", "sqlite"])
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=8, help="pairs of turns of each load")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of a turn")
    parser.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres")
    options = parser.parse_args()
    options.pid = os.getpid()
    shares = []
    for store in options.stores:
        with tempfile.TemporaryDirectory(prefix="recrawl-history-") as folder:
            counters = Counters(Path(folder) / "counters", "w+")
            os.environ[VARIABLE] = f"{folder}/counters"
            with prepared(store, options.pages, options, Path(folder), print, SERVER) as bench:
                shares += [compared(bench, counters, load) for load in LOADS]
    sys.exit(max(shares) > MOST)


def compared(bench: Bench, counters: Counters, load: Load) -> float:
    """Print the figures of a load, from turns with the history and without, and return its share.

    A round has both turns; the first one changes from round to round. One more round warms up.
    """
    turns: dict[bool, list[Turn]] = {True: [], False: []}
    for number in range(bench.options.rounds + 1):
        for off in (number % 2 == 0, number % 2 == 1):
            turn = measured(bench, counters, load, off=off)
            if number:
                turns[off].append(turn)
    counting, not_counting = turns[False], turns[True]
    ratios = np.array([a.total / b.total for a, b in zip(counting, not_counting, strict=True)])
    error = ratios.std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.nan
    us = {name: 1e6 * statistics.median(getattr(t, name) for t in counting) for name in PARTS}
    share = statistics.median(turn.share for turn in counting)
    parts = ", ".join(f"{name} {us[name]:.2f}" for name in PARTS)
    print(
        f"{bench.store}, {load.name}: {share:.2%} of ingest\n"
        f"  us a crawl: {parts}; "
        f"crawls a commit {statistics.median(t.crawls_per_commit for t in counting):.1f}, "
        f"a second {statistics.median(t.n_crawls for t in counting) / bench.options.seconds:,.0f}\n"
        f"  ratio of turns with and without {ratios.mean():.3f}, standard error {error:.3f}",
        flush=True,
    )
    return share


def measured(bench: Bench, counters: Counters, load: Load, *, off: bool) -> Turn:
    """Run a turn."""
    counters.switch(off=off)
    seconds = bench.options.seconds
    work = bench.crawls(
        load.n_clients, load.batch, seconds, by_url=False, most_per_s=load.most_per_s
    )
    with clients.started(bench.service.port, work, load.n_clients, seconds) as group:
        began, before = used(bench), counters.read()
        answers = clients.gathered(group.go(), group)
    time.sleep(WRITTEN_S)
    spent = used(bench) - began
    after = {name: value - before[name] for name, value in counters.read().items()}
    n = int(answers.items.sum())
    return Turn(
        n,
        n / max(after["commits"], 1.0),
        spent / n,
        *(after[name] / n for name in ("commit", "write", "backend")),
    )


def used(bench: Bench) -> float:
    """Return the CPU time of the server and of the database's sessions, seconds."""
    total = cpu_seconds(bench.service.server)
    if bench.on_postgres():
        with psycopg.connect(bench.url) as connection:
            sessions = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()
        total += sum(session_s(pid) for (pid,) in sessions)
    return total


if __name__ == "__main__":
    main()
