"""Read made feeds at learnt rates and at a fixed one, and print how long new entries waited.

    python -m benchmarks.feeds [--feeds 100] [--days 60] [--seeds 1 2 3] [--every-h 1] [--median 1]

Both read the same feeds, with the same requests a day: one read of each feed in `--every-h` hours.
The entries of the second half of the time count.
"""

import argparse
import logging
from collections.abc import Sequence

import numpy as np
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.feeds.trial import Delays, delays, feeds, fixed, learnt, least_ratio

MINUTES = 1_440


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trial and print a row for each seed."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.feeds")
    options.add_argument("--feeds", type=int, default=100)
    options.add_argument("--days", type=float, default=60.0)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--every-h", type=float, default=1.0, help="interval of the fixed poll")
    options.add_argument("--median", type=float, default=1.0, help="median rate of entries a day")
    given = options.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    table = Table()
    for name in ("seed", "", "delay, min", "of feeds, min", "lost", "requests a day", "ratio"):
        table.add_column(name)
    for seed in given.seeds:
        both = trial(given.feeds, given.days, given.median, given.every_h, seed)
        for name, found in both.items():
            ratio = f"{found.mean / both['fixed'].mean:.3f}"
            figures = (found.mean * MINUTES, found.of_feeds * MINUTES)
            times = (f"{minutes:.1f}" for minutes in figures)
            table.add_row(
                str(seed), name, *times, f"{found.lost:.4f}", f"{found.requests:.0f}", ratio
            )
    Console().print(table)
    rate = feeds(given.feeds, 0.0, given.median, np.random.default_rng(1)).change_rate
    Console().print(f"ratio of the best periodic reads at known rates: {least_ratio(rate):.3f}")


def trial(n: int, days: float, median: float, every_h: float, seed: int) -> dict[str, Delays]:
    """Return the delays of one set of feeds at a fixed rate and at learnt ones."""
    rng = np.random.default_rng(seed)
    world, requests = feeds(n, days, median, rng), n * 24 / every_h
    return {
        "fixed": delays(world, fixed(world, requests, rng)),
        "learnt": delays(world, learnt(world, requests, seed)),
    }


if __name__ == "__main__":
    main()
