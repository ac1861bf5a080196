"""Play sites whose sections keep hours of their own, with and without hours of URL groups.

    python -m benchmarks.sections [KIND …] [--rates 1 .5] [--seeds 1 2] [--hosts 1] [--sections 20]
    python -m benchmarks.sections --traces DIR --sites data-feeds --days 365
    python -m benchmarks.sections --loan 3    # through the gate, which keeps the budget of each day

The kinds are those of `recrawl_lab.worlds.sections`. Each game is played on the product's own
epochs and ingest: by the default, by change hours of hosts alone, and without change hours. A line
has the harmonic staleness of each, and over that of uniform crawling. The figures go to --json too.
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

from recrawl_lab.policies.lineup import DEFAULT_PLAN, LINEUP, UNIFORM, Game, suitable_step
from recrawl_lab.replay.gated import replay_gated
from recrawl_lab.replay.replay import Replayed, replay
from recrawl_lab.replay.staleness import Crawls, averaged, uncrawled
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.sections import KINDS, section_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World
from service.epochs.plan import Plan

PLANS = {
    "groups": DEFAULT_PLAN,
    "hosts": replace(DEFAULT_PLAN, group_hours=False),
    "none": replace(DEFAULT_PLAN, change_hours=False),
}
"""Plans by the name of their figure."""
Line = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.sections", description=__doc__.splitlines()[0]
    )
    options.add_argument("kinds", nargs="*", default=list(KINDS), metavar="KIND")
    options.add_argument("--rates", type=float, nargs="+", default=[1.0, 0.5])
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--plans", nargs="+", default=list(PLANS), choices=list(PLANS))
    options.add_argument("--hosts", type=int, default=1)
    options.add_argument("--sections", type=int, default=20)
    options.add_argument("--pages", type=int, default=10)
    options.add_argument("--days", type=float, default=240.0)
    options.add_argument("--loan", type=float, help="days of loan; absent: no gate")
    options.add_argument("--traces", type=Path, help="folder of traces, in place of made worlds")
    options.add_argument("--sites", nargs="+", default=["data-feeds"])
    options.add_argument("--json", type=Path, default=Path("bench-out/sections.jsonl"))
    return options


def worlds(asked: argparse.Namespace) -> Iterator[tuple[str, int, World]]:
    """Yield the name, the seed and the world of each game."""
    for name in asked.kinds if asked.traces is None else asked.sites:
        for seed in asked.seeds:
            rng = np.random.default_rng(seed)
            if asked.traces is not None:
                trace = read_trace(str(asked.traces / name))
                yield name, seed, recorded_world(trace, rng=rng, days=asked.days, bulk=True)
                continue
            sizes = {"n_hosts": asked.hosts, "n_sections": asked.sections, "n_pages": asked.pages}
            yield name, seed, section_world(name, rng=rng, days=asked.days, **sizes)


def lines(asked: argparse.Namespace) -> Iterator[Line]:
    """Yield a line for each game."""
    for rate in asked.rates:
        for name, seed, world in worlds(asked):
            start = time.perf_counter()
            bandwidth = rate * world.mean_pages
            step = suitable_step(world, bandwidth)
            crawls = LINEUP[UNIFORM].play(Game(world, bandwidth, None, None, seed), None).crawls
            line: Line = {"world": name, "rate": rate, "seed": seed}
            line["uniform"] = uniform = staleness(world, crawls)
            for plan in asked.plans:
                played = play(world, bandwidth, PLANS[plan], step, seed, asked.loan)
                line[plan] = staleness(world, played.crawls)
                line[f"{plan}_of_uniform"] = line[plan] / uniform
                line[f"{plan}_used"] = len(played.crawls.at) / (bandwidth * world.days)
            yield {**line, "seconds": time.perf_counter() - start}


def play(
    world: World, bandwidth: float, plan: Plan, step: float, seed: int, loan: float | None
) -> Replayed:
    """Play a game, through the gate if there is a loan."""
    if loan is None:
        return replay(world, bandwidth, plan, step=step, seed=seed)
    return replay_gated(world, bandwidth, plan, step=step, loan_days=loan, seed=seed)


def staleness(world: World, crawls: Crawls) -> float:
    """Return the mean harmonic staleness of all time."""
    return averaged(world, uncrawled(world, crawls), 40).harmonic


def main() -> None:
    """Print a line of JSON for each game."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asked = parser().parse_args()
    if unfit := set(asked.kinds) - set(KINDS):
        raise SystemExit(f"no kind {', '.join(sorted(unfit))}; choose from {', '.join(KINDS)}")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    with asked.json.open("a") as file:
        for line in lines(asked):
            rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}
            file.write(json.dumps(rounded) + "\n")
            file.flush()
            print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
