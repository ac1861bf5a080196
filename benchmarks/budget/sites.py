"""Real sites through the gate, over the same sites without it: first crawls are free in both."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recrawl_lab.policies.lineup import DEFAULT_PLAN, suitable_step
from recrawl_lab.replay.gated import replay_gated
from recrawl_lab.replay.replay import Replayed, replay
from recrawl_lab.replay.staleness import staleness
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World

WORLD_SEED = 1
"""Seed of the instants within the days of a trace."""


def site_lines(
    traces: Path,
    sites: Sequence[str] | None,
    rates: Sequence[float],
    loans: Sequence[float],
    seeds: Sequence[int],
    days: float,
    hours: float | None,
) -> Iterator[dict[str, Any]]:
    """Yield a line for each site, rate, seed and loan; rates are crawls a day for each page.

    `hours` is the time between two epochs of all games; None: each game has its own epochs.
    """
    names = sites or sorted(path.name.split(".")[0] for path in traces.glob("*.csv.gz"))
    for name in names:
        rng = np.random.default_rng(WORLD_SEED)
        world = recorded_world(read_trace(str(traces / name)), rng=rng, days=days, bulk=True)
        for rate in rates:
            for seed in seeds:
                yield from lines_of(world, {"site": name, "rate": rate, "seed": seed}, loans, hours)


def lines_of(
    world: World, place: dict[str, Any], loans: Sequence[float], hours: float | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a line for each loan; `place` has the rate and the seed."""
    rate, seed = place["rate"], place["seed"]
    bandwidth = rate * world.mean_pages
    step = suitable_step(world, bandwidth) if hours is None else hours / 24
    how: Any = {"step": step, "seed": seed, "even_epochs": hours is not None}
    before = replay(world, bandwidth, DEFAULT_PLAN, **how)
    least = staleness(world, before.crawls).harmonic
    for loan in loans:
        gated = replay_gated(world, bandwidth, DEFAULT_PLAN, loan_days=loan, **how)
        yield {**place, "loan": loan, **_kept(world, gated, bandwidth, least)}


def _kept(world: World, played: Replayed, bandwidth: float, least: float) -> dict[str, Any]:
    at, n_days = played.crawls.at, int(world.days)
    by_day = np.bincount(np.minimum(at.astype(np.int64), n_days - 1), minlength=n_days)
    beyond = np.concatenate([[0.0], np.cumsum(by_day - bandwidth)])
    own = staleness(world, played.crawls).harmonic
    return {
        "staleness": own,
        "before": least,
        "ratio": own / least,
        "used": len(at) / (bandwidth * world.days),
        "worst_day": float(by_day.max() / bandwidth),
        "days_of_loan": float((beyond - np.minimum.accumulate(beyond)).max() / bandwidth),
    }
