"""Read made feeds at learnt rates, at known ones and at a fixed one; print how entries waited.

    python -m benchmarks.feeds [--feeds 100] [--days 60] [--seeds 1 2 3] [--every-h 1] [--median 1]

All read the same feeds, with the same requests a day: one read of each feed in `--every-h` hours.
The entries of the second half of the time count. With `--drawn` the rates of entries are drawn from
the log-normal, else they are its quantiles.
"""

import argparse
import logging
from collections.abc import Sequence

import numpy as np
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.feeds.trial import Delays, delays, feeds, fixed, known, learnt

MINUTES = 1_440


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trial and print a row for each seed."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.feeds")
    options.add_argument("--feeds", type=int, default=100)
    options.add_argument("--days", type=float, default=60.0)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--every-h", type=float, default=1.0, help="interval of the fixed poll")
    options.add_argument("--median", type=float, default=1.0, help="median rate of entries a day")
    options.add_argument("--drawn", action="store_true", help="draw the rates of entries")
    given = options.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    table = Table()
    for name in ("seed", "", "delay, min", "of feeds, min", "lost", "requests a day", "ratio"):
        table.add_column(name)
    for seed in given.seeds:
        found_by = trial(
            given.feeds, given.days, given.median, given.every_h, seed, drawn=given.drawn
        )
        for name, found in found_by.items():
            ratio = f"{found.mean / found_by['fixed'].mean:.3f}"
            figures = (found.mean * MINUTES, found.of_feeds * MINUTES)
            times = (f"{minutes:.1f}" for minutes in figures)
            table.add_row(
                str(seed), name, *times, f"{found.lost:.4f}", f"{found.requests:.0f}", ratio
            )
    Console().print(table)


def trial(
    n: int, days: float, median: float, every_h: float, seed: int, *, drawn: bool = False
) -> dict[str, Delays]:
    """Return the delays of one set of feeds at a fixed rate, at known rates and at learnt ones."""
    rng = np.random.default_rng(seed)
    world, requests = feeds(n, days, median, rng, drawn=drawn), n * 24 / every_h
    return {
        "fixed": delays(world, fixed(world, requests, rng)),
        "known": delays(world, known(world, requests, rng)),
        "learnt": delays(world, learnt(world, requests, seed)),
    }


if __name__ == "__main__":
    main()
