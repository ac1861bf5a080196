"""Measure what the clocks of hosts add to ingest and to epochs: CPU seconds on a whole corpus.

    python -m benchmarks.clocks_cost [--pages 1000000] [--url postgresql://…/postgres]
        [--on-clock .2] [--warm-up 20] [--epochs 24]

There are 500 hosts. Some of them change all their pages once a day, at an hour of their own; the
pages of the others change at any time. A fifth of all pages are crawled a day: at random while the
clocks are learnt, then those due first. Epochs run once a day during the warm-up, then once an
hour, without filling the queue. CPU time is that of the process and of its database sessions.

- ingest: crawls recorded in commits of 1,000, µs a crawl
- lessons: reading, learning and writing the evidence of hosts, µs a crawl
- epoch: with clocks and without, each after one of its kind; medians, and that of differences
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks import trees
from service.epochs import clocks, shard
from service.epochs.run import run_epoch
from service.epochs.shard import Run, Shard
from service.epochs.solve import Plan
from service.model.arrays import Floats, Ints, instant
from service.runtime.bootstrap import configure_logging, opened
from service.runtime.settings import read_settings
from service.storage.stores.postgres import PostgresTransaction

HOSTS = 500
"""Hosts of `trees.registered`."""
PER_DAY = 0.2
"""Crawls a page and day."""
ON_TIME = 4
"""Days of the warm-up in which pages are crawled on time."""
COMMIT = 1_000
BLOCK = 50_000
LEAST = 120_000
"""Least pages, for one commit an hour."""

LESSONS = (
    (clocks, "lesson"),
    (PostgresTransaction, "clocks"),
    (shard, "learn_clocks"),
    (PostgresTransaction, "save_clocks"),
)
"""Functions that read, learn and write the evidence of hosts."""


class Corpus:
    """Pages whose versions follow from the time."""

    def __init__(self, base: Any, now: list[datetime], n_pages: int, on_clock: float) -> None:
        self.store, self.runner, self.now = base.store, base.runner, now
        self.rng = np.random.default_rng(1)
        self.page_id = np.concatenate(
            [
                trees.registered(self.store, now[0], range(at, min(at + BLOCK, n_pages)))
                for at in range(0, n_pages, BLOCK)
            ]
        )
        host = np.arange(n_pages) % HOSTS
        self.clocked = host < on_clock * HOSTS
        hour = self.rng.random(HOSTS)[host]
        self.phase = np.where(self.clocked, hour, self.rng.random(n_pages))
        self.rate = np.where(self.clocked, 1.0, self.rng.gamma(1.0, 0.05, n_pages))
        self.crawled_at, self.crawl_rate = np.zeros(n_pages), np.full(n_pages, 1e9)
        prepare = Shard.prepare

        def prepared(its: Shard, run: Run) -> None:
            """Take the rates of a schedule before they are written."""
            (stages,) = its.stages.values()
            rate = stages.schedule.crawl_rate * stages.schedule.urgency
            self.crawl_rate = np.maximum(rate, 1e-9)
            prepare(its, run)

        Shard.prepare = prepared  # type: ignore[method-assign]
        self.crawls = trees.Crawls(base, self.page_id, now, self.rng)

    def version(self, page: Ints, at: Floats) -> Ints:
        """Return the versions of pages at some instants, days."""
        return np.floor(at * self.rate[page] + 1.0 - self.phase[page]).astype(np.int64)

    def crawl(self, hours: float, *, at_random: bool = False) -> int:
        """Crawl the pages due first, or any, for some hours; return their number."""
        n = round(len(self.page_id) * PER_DAY * hours / 24) // COMMIT
        step = timedelta(hours=hours) / n
        due_at = self.crawled_at + 1.0 / self.crawl_rate
        order = self.rng.permutation(len(due_at)) if at_random else np.argsort(due_at)
        for page in order[: n * COMMIT].reshape(n, COMMIT):
            self.now[0] += step
            self.record(page)
        return n * COMMIT

    def epoch(self, plan: Plan) -> None:
        """Run an epoch."""
        run_epoch(self.store, plan, lambda: self.now[0])

    def record(self, page: Ints) -> None:
        """Record one commit of crawls."""
        at = instant(self.now[0])
        days = (at - np.datetime64("2026-05-01")) / np.timedelta64(1, "D")
        self.crawled_at[page] = days
        digest = self.version(page, np.full(COMMIT, days)) + 1
        self.crawls.commit(self.page_id[page], digest)


class Lessons:
    """CPU seconds of the lessons, in the process and in the database."""

    def __init__(self, store: Any) -> None:
        self.store, self.seconds = store, 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its CPU time, less that of the measuring."""

        def call(*arguments: Any) -> Any:
            empty = -trees.cpu(self.store) + trees.cpu(self.store)
            began = trees.cpu(self.store)
            result = function(*arguments)
            self.seconds += trees.cpu(self.store) - began - empty
            return result

        return call


def main() -> None:
    """Fill a database, and measure hours of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--url", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--on-clock", type=float, default=0.2, help="share of hosts on a clock")
    parser.add_argument("--warm-up", type=int, default=20, help="days before the hours count")
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    if arguments.pages < LEAST:
        parser.error(f"--pages must be at least {LEAST}, so that each hour has crawls")
    configure_logging("error")
    with trees.migrated(arguments.url, sqlite=False) as url:
        now = [datetime(2026, 5, 1, tzinfo=UTC)]
        base = opened(read_settings(database_url=url), now=lambda: now[0])
        corpus = Corpus(base, now, arguments.pages, arguments.on_clock)
        for day in range(arguments.warm_up):
            began = time.perf_counter()
            corpus.crawl(24.0, at_random=day < arguments.warm_up - ON_TIME)
            corpus.epoch(base.runner.plan)
            print(f"day {day}: {time.perf_counter() - began:.1f} s", flush=True)
        print(json.dumps(measured(corpus, arguments.epochs)), flush=True)
        base.store.close()


def measured(corpus: Corpus, n_epochs: int) -> dict[str, Any]:
    """Return the figures of some hourly epochs, with clocks and without in turn."""
    store, plan = corpus.store, corpus.runner.plan
    lessons = Lessons(store)
    for owner, name in LESSONS:
        setattr(owner, name, lessons.timed(getattr(owner, name)))
    ingest, n_crawls, epochs = 0.0, 0, {True: [], False: []}
    for number in range(4 * n_epochs):
        before = trees.cpu(store)
        n_crawls += corpus.crawl(1.0)
        recorded = trees.cpu(store)
        ingest += recorded - before
        with_clocks = number // 2 % 2 == 1
        corpus.epoch(replace(plan, clocks=with_clocks))
        if number % 2:  # the epoch before was of the same kind
            epochs[with_clocks].append(trees.cpu(store) - recorded)
    with store.begin(write=False) as tx:
        n_clocks = len(tx.host_clocks())
    with_clocks, without = (np.array(epochs[each]) for each in (True, False))
    crawls_us = 1e6 * ingest / n_crawls
    lessons_us = 1e6 * lessons.seconds / (n_crawls / 2)
    return {
        "pages": len(corpus.page_id),
        "hosts_on_clock": n_clocks,
        "ingest_us": round(crawls_us, 2),
        "lessons_us": round(lessons_us, 2),
        "lessons_over_ingest": round(lessons_us / crawls_us, 4),
        "epoch_s": round(float(np.median(with_clocks)), 3),
        "epoch_without_s": round(float(np.median(without)), 3),
        "added_s": round(float(np.median(with_clocks - without)), 3),
    }


if __name__ == "__main__":
    main()
