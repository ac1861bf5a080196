"""Replay sites on a clock with and without the clocks of hosts, over kinds, bandwidths and seeds.

    python -m benchmarks.clocks [--kinds daily cron …] [--bandwidths .5 1] [--seeds 1 2 3 4 5]
        [--pages 1000] [--days 360] [--processes 2] [--json FILE]

A site has 20 hosts of 50 pages (`recrawl replay --clock KIND`). Each row divides the harmonic
staleness of the default by that of `recrawl-no-clocks`, as the mean over seeds with its standard
error. The column "last" is the same over the last sixth of the time. "Crawls" is the share of the
bandwidth that the default used. "Load" is the largest share of a host's crawls in one hour of the
day over the mean of an hour, after the first quarter, the mean over hosts.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from recrawl_lab.policies.lineup import LINEUP, RECRAWL, Game
from recrawl_lab.replay.measures import measured, terms
from recrawl_lab.replay.staleness import Crawls, averaged, uncrawled
from recrawl_lab.worlds.clocked import KINDS, PAGES_PER_HOST, Kind, clocked_world
from recrawl_lab.worlds.world import World
from service.runtime.bootstrap import configure_logging

WITHOUT = "recrawl-no-clocks"
LAST = 6
"""Parts of the time; the last one is a column of its own."""
LEARNT_AFTER = 0.25
"""Share of the time after which the load of hours counts."""


class Task(NamedTuple):
    """A site to play with a seed."""

    kind: Kind
    bandwidth_per_page: float
    seed: int


class Played(NamedTuple):
    """Measures of one policy."""

    harmonic: float
    last: float
    """Harmonic staleness in the last part of the time."""
    crawls: float
    """Crawls, as a share of the bandwidth."""
    load: float
    """Crawls of the busiest hour of a host over the mean of an hour."""


def play(task: Task, policy: str, pages: int, days: float) -> Played:
    """Play one policy on one site."""
    rng = np.random.default_rng(task.seed)
    world = clocked_world(task.kind, pages, days, rng=rng)
    bandwidth = task.bandwidth_per_page * pages
    crawls = LINEUP[policy].play(Game(world, bandwidth, seed=task.seed), None).crawls
    steps = uncrawled(world, crawls)
    return Played(
        float(measured(terms(world, steps)).harmonic),
        float(averaged(world, steps, LAST).harmonic_curve[-1]),
        len(crawls.at) / (bandwidth * days),
        load(world, crawls),
    )


def load(world: World, crawls: Crawls) -> float:
    """Return the crawls of the busiest hour of the day over the mean, averaged over hosts."""
    late = crawls.at > LEARNT_AFTER * world.days
    hour = (crawls.at[late] % 1.0 * 24).astype(np.int64)
    host = crawls.page[late] // PAGES_PER_HOST
    counts = np.zeros((host.max() + 1, 24))
    np.add.at(counts, (host, hour), 1)
    return float((counts.max(axis=1) / counts.mean(axis=1)).mean())


def row(task: Task, pages: int, days: float) -> dict[str, Any]:
    """Return the figures of one site and seed."""
    ours, without = (play(task, name, pages, days) for name in (RECRAWL, WITHOUT))
    return {
        **task._asdict(),
        "ratio": ours.harmonic / without.harmonic,
        "last": ours.last / without.last,
        "crawls": ours.crawls,
        "load": ours.load,
        "harmonic": ours.harmonic,
        "harmonic_without": without.harmonic,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """Return the means over seeds."""
    view = Table("site", "R", "seeds", "staleness", "last", "crawls", "load")
    cells = dict.fromkeys((one["kind"], one["bandwidth_per_page"]) for one in rows)
    for kind, bandwidth in cells:
        alike = [r for r in rows if (r["kind"], r["bandwidth_per_page"]) == (kind, bandwidth)]
        figures = (_mean([r[name] for r in alike]) for name in ("ratio", "last", "crawls", "load"))
        view.add_row(kind, f"{bandwidth:g}", str(len(alike)), *figures)
    return view


def _mean(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ± {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--bandwidths", nargs="+", type=float, default=[0.5, 1.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--days", type=float, default=360.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    tasks = [
        Task(*each) for each in product(arguments.kinds, arguments.bandwidths, arguments.seeds)
    ]
    work = partial(row, pages=arguments.pages, days=arguments.days)
    quiet, spawn = partial(configure_logging, "warning"), get_context("spawn")
    rows = []
    with ProcessPoolExecutor(arguments.processes, mp_context=spawn, initializer=quiet) as pool:
        for done in pool.map(work, tasks):
            rows.append(done)
            print(json.dumps(done), flush=True)
    Console().print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
