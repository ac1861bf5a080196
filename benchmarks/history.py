"""Measure what the history adds to ingest: CPU of its steps over that of the commits.

    python -m benchmarks.history [--url postgresql://…/postgres | --sqlite] [--rounds 9]

Whole processes cannot show it: two of one code differ by some percent. Here one process records
crawls in commits of several sizes, without HTTP, and its counter writes when the benchmark says so.
CPU time is that of the process and of its database session.

- crawl: all steps of a crawl but the write of the counts, µs
- in commit: the steps of the history within a commit, over it
- write: the counter's transaction after the crawls of `EVERY_S` seconds at a rate, over them
"""

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks import trees
from service.history import counting
from service.ingest import record
from service.runtime.bootstrap import configure_logging, opened
from service.runtime.settings import read_settings
from service.storage.history.contract import HistoryStatements

CASES = ((1, 100), (1, 350), (16, 350), (1_000, 20))
"""Crawls of a commit, and commits a second."""


class Spent:
    """CPU seconds of this thread within some functions."""

    def __init__(self) -> None:
        began = time.thread_time()
        for _ in range(10_000):
            time.thread_time()
        self.of_clock = (time.thread_time() - began) / 10_000
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its CPU time, less that of the clock."""

        def call(*arguments: Any) -> Any:
            began = time.thread_time()
            result = function(*arguments)
            self.seconds += time.thread_time() - began - self.of_clock
            return result

        return call


def main() -> None:
    """Fill a database, and measure each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    configure_logging("error")
    with trees.migrated(arguments.url, sqlite=arguments.sqlite) as url:
        measure(url, arguments.rounds)


def measure(url: str, rounds: int) -> None:
    """Print a line for each case."""
    seconds, counting.EVERY_S = counting.EVERY_S, 86_400.0  # the benchmark writes
    now = [datetime(2026, 5, 1, tzinfo=UTC)]
    rng = np.random.default_rng(7)
    base = opened(read_settings(database_url=url), now=lambda: now[0], rng=rng)
    store, spent = base.store, Spent()
    crawls = trees.Crawls(base, trees.registered(store, now[0]), now, rng)
    for _ in range(3):
        crawls.record(trees.PAGES // 10, trees.PAGES)
    base.runner.run_once()
    now[0] += timedelta(days=1)
    HistoryStatements.count = spent.timed(HistoryStatements.count)  # type: ignore[method-assign]
    add = spent.timed(counting.HistoryCounter.add)
    counting.HistoryCounter.add = add  # type: ignore[method-assign]
    record._events = spent.timed(record._events)  # noqa: SLF001
    for size, rate in CASES:
        n = size * rate * round(seconds)
        figures = []
        for _ in range(1 + rounds):
            spent.seconds, began = 0.0, trees.cpu(store)
            crawls.record(size, n)
            recorded = trees.cpu(store)
            store.counter.write()
            figures.append((recorded - began, spent.seconds, trees.cpu(store) - recorded))
        whole, in_commit, write = np.median(figures[1:], axis=0)
        line = {"crawls": size, "commits_s": rate, "crawl_us": round(1e6 * whole / n, 1)}
        shares = {"in_commit": round(in_commit / whole, 4), "write": round(write / whole, 4)}
        print(json.dumps(line | shares), flush=True)
    store.close()


if __name__ == "__main__":
    main()
