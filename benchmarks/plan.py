"""Measure plans of other bandwidths (`service.epochs.what_if`) against an epoch in the same run.

    python -m benchmarks.plan [--url URL] [--pages 1000000] [--hosts 10000] [--rounds 5]

Without a URL, the pages are in a new SQLite file; a Postgres database must be empty. A hundredth of
the hosts has a cap, a tenth of the pages a tag, a hundredth a minimum crawl rate.

- first: the first question after an epoch, which reads all pages, against load, estimate and
  allocate of that epoch
- next: each further bandwidth, median over rounds and bandwidths, against allocate of that epoch;
  `most` is the slowest of all, and its CPU is what a quiet machine needs at most
- kept: memory of the arrays that are kept after the first question, bytes a page
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console

from benchmarks.leases.data import BLOCK, WIDTH, Fleet, fill
from service.core.estimators.bursty import Bursty
from service.epochs.budgets import Basis
from service.epochs.run import run_epoch
from service.epochs.solve import Plan
from service.epochs.what_if import WhatIf
from service.leases.hosts import change_host
from service.leases.politeness import Politeness
from service.model.domain import PagePatch
from service.model.listing import PageTags
from service.runtime.bootstrap import configure_logging
from service.storage import Store, open_store

MULTIPLES = (0.25, 0.5, 0.8, 1.5, 2.0, 5.0)
"""Bandwidths, in multiples of that in force."""


def vary(store: Store, n_hosts: int, now: datetime) -> None:
    """Write importance, evidence, tags and minima of pages, and caps of hosts."""
    rng, after = np.random.default_rng(1), 0
    while True:
        with store.begin() as tx:
            ids = tx.next_page_ids(after, BLOCK // 2)
            if not len(ids):
                break
            states = tx.lock_states(ids)
            days = rng.uniform(5, 200, len(ids))
            changes = rng.poisson(rng.gamma(0.5, 0.4, len(ids)) * days).astype(np.float64)
            estimate = np.column_stack([changes, days, np.zeros(len(ids))])
            tx.save_states(replace(states, estimate=estimate, n_observations=changes.astype(int)))
            tagged = ids[ids % 10 == 0]
            names = np.array([f"tag{i}" for i in range(50)], object)
            tx.add_tags(PageTags(page_id=tagged, tag=names[tagged // 10 % 50]))
            for bound in range(5):
                some = ids[ids % 500 == bound]
                tx.change_many(some, PagePatch(importance=0.5 + 2.0**bound), now)
            tx.change_many(ids[ids % 100 == 7], PagePatch(min_crawl_rate=0.05), now)
            after = int(ids[-1])
    with store.begin() as tx:
        for host in range(0, n_hosts, 100):
            cap = {"max_crawl_rate": 10.0}
            change_host(tx, f"host{host:06}.example", cap, now, Politeness())


@contextmanager
def database(url: str | None) -> Iterator[str]:
    """Yield the URL of the database, by default a new file."""
    with tempfile.TemporaryDirectory() as folder:
        yield url or f"sqlite:///{Path(folder) / 'recrawl.db'}"


def kept_bytes(basis: Basis) -> int:
    """Return the memory of the arrays that are kept; one value for all rows takes none."""
    parts = (*basis.pages.arrays().values(), *basis.estimates, *basis.hosts, *basis.tags)
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    return sum(array.nbytes for array in arrays if array.strides[0])


def main() -> None:
    """Fill a store, run an epoch, ask for plans, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    configure_logging("error")
    now = datetime.now(UTC)
    with database(chosen.url) as url:
        fill(url, Fleet.half_due(chosen.pages, chosen.hosts), now)
        store = open_store(url, WIDTH)
        vary(store, chosen.hosts, now)
        report(store, chosen.pages, chosen.rounds)
        store.close()


def report(store: Store, n_pages: int, rounds: int) -> None:
    """Measure and print."""
    plan = Plan(Bursty(), bandwidth=0.2 * n_pages)
    for _ in range(2):  # the second starts from the prior of the first, as in a service
        epoch = run_epoch(store, plan, store.clock)
    if epoch.certificate is None:
        raise RuntimeError(epoch.reason)
    seconds = epoch.certificate.seconds
    what_if = WhatIf(store, plan, store.clock)
    started = time.perf_counter()
    what_if.ask([], 20)
    first = time.perf_counter() - started
    durations, cpu = [], []
    for _ in range(rounds):
        for multiple in MULTIPLES:
            started, used = time.perf_counter(), time.process_time()
            (item,) = what_if.ask([multiple * 0.2 * n_pages], 20).items
            durations.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
            if not item.feasible:
                raise RuntimeError(item.reason)
    stages = {name: seconds[name] for name in ("load", "estimate", "allocate")}
    each, most, allocate = median(durations), max(durations), seconds["allocate"]
    Console().print(f"{n_pages:,} pages; epoch: {stages}")
    Console().print(f"first  {first:.2f} s   {first / sum(stages.values()):.2f} of the epoch's")
    Console().print(f"next   {each:.2f} s   {each / allocate:.2f} of allocate; most {most:.2f} s")
    Console().print(
        f"       {median(cpu):.2f} s of CPU, {os.getloadavg()[0]:.0f} processes run or wait"
    )
    if what_if.kept is not None:
        Console().print(f"kept   {kept_bytes(what_if.kept.basis) / n_pages:.0f} bytes a page")


if __name__ == "__main__":
    main()
