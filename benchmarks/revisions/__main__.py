"""Play a site most of whose pages change at once, and compare with uniform crawling.

    python -m benchmarks.revisions [KIND …] [--rates .02 .1 .5] [--loans 3 0] [--seeds 1 2 3]
    python -m benchmarks.revisions --traces DIR --sites oi-wiki powershell-docs [--days 730]

    p95 p60 p25   a revision of a share of all pages, of 4,000 on one host
    g125          a revision of every page of 125 of 500 directories
    none          no revision

Each game is played on the product's own epochs, ingest and pace, with and without wide revisions.
A line has the harmonic staleness over that of uniform crawling: of the 3/R days after the revision,
and of the two years. The figures go to --json too.
"""

import argparse
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from benchmarks.revisions.worlds import KINDS, Revised, between, revised
from recrawl_lab.policies.lineup import DEFAULT_PLAN, LINEUP, UNIFORM, Game, suitable_step
from recrawl_lab.replay.gated import replay_gated
from recrawl_lab.replay.staleness import Crawls, averaged, uncrawled
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace

STEP = 0.5
"""Maximum time between two epochs, days."""
WORLD_SEED = 1
"""Seed of the instants within the days of a trace."""
AFTER = 3.0
"""Length of the stretch after a revision, in mean intervals of a page."""

Line = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.revisions", description=__doc__.splitlines()[0]
    )
    options.add_argument("kinds", nargs="*", default=list(KINDS), metavar="KIND")
    options.add_argument("--rates", type=float, nargs="+", default=[0.02, 0.1, 0.5])
    options.add_argument("--loans", type=float, nargs="+", default=[3.0, 0.0])
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--without", action="store_true", help="play without wide revisions too")
    options.add_argument("--traces", type=Path, help="folder of traces, in place of made worlds")
    options.add_argument("--sites", nargs="+", default=["oi-wiki", "powershell-docs"])
    options.add_argument("--days", type=float, default=730.0)
    options.add_argument("--json", type=Path, default=Path("bench-out/revisions.jsonl"))
    return options


def worlds(asked: argparse.Namespace) -> Iterator[tuple[str, int, Revised]]:
    """Yield the name, the seed and the world of each game."""
    if asked.traces is None:
        for kind in asked.kinds:
            for seed in asked.seeds:
                yield kind, seed, revised(kind, seed)
        return
    for site in asked.sites:
        rng = np.random.default_rng(WORLD_SEED)
        trace = read_trace(str(asked.traces / site))
        world = recorded_world(trace, rng=rng, days=asked.days, bulk=True)
        for seed in asked.seeds:
            yield site, seed, Revised(world, np.nan)


def lines(asked: argparse.Namespace) -> Iterator[Line]:
    """Yield a line for each game."""
    for rate in asked.rates:
        for name, seed, game in worlds(asked):
            world, bandwidth = game.world, rate * game.world.mean_pages
            step = min(STEP, suitable_step(world, bandwidth))
            place = {"world": name, "rate": rate, "seed": seed}
            crawls = LINEUP[UNIFORM].play(Game(world, bandwidth, None, None, seed), None).crawls
            uniform = figures(game, rate, crawls)
            for loan in asked.loans:
                for wide in (True, False) if asked.without else (True,):
                    start = time.perf_counter()
                    plan = replace(DEFAULT_PLAN, wide_revisions=wide)
                    played = replay_gated(
                        world, bandwidth, plan, step=step, loan_days=loan, seed=seed
                    )
                    own = figures(game, rate, played.crawls)
                    yield {
                        **place,
                        "loan": loan,
                        "wide": wide,
                        **{name: own[name] / uniform[name] for name in own},
                        "staleness": own["all"],
                        "used": len(played.crawls.at) / (bandwidth * world.days),
                        "seconds": time.perf_counter() - start,
                    }


def figures(game: Revised, rate: float, crawls: Crawls) -> dict[str, float]:
    """Return the staleness of all time, and that after the revision."""
    steps = uncrawled(game.world, crawls)
    result = {"all": averaged(game.world, steps, 40).harmonic}
    if not np.isnan(game.at):
        result["after"] = between(game.world, steps, game.at, game.at + AFTER / rate)
    return result


def main() -> None:
    """Print a line of JSON for each game."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asked = parser().parse_args()
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    with asked.json.open("a") as file:
        for line in lines(asked):
            rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}
            file.write(json.dumps(rounded) + "\n")
            file.flush()
            print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
