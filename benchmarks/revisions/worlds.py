"""A site of which most pages hardly ever change, and one revision of many pages at once."""

from dataclasses import dataclass

import numpy as np

from recrawl_lab.replay.staleness import Steps, harmonic_numbers
from recrawl_lab.worlds.world import World, in_order, offsets

N_PAGES, N_DIRECTORIES, DAYS = 4_000, 500, 730.0
MEDIAN, SIGMA = 0.0002, 2.5
"""Median change rate, 1/day, and the deviation of its logarithm."""
KINDS = ("p95", "p60", "p25", "g125", "none")
"""Revisions of a share of the pages, of every page of some directories, and none."""


@dataclass(frozen=True)
class Revised:
    """A world, and the instant of its revision; NaN: none."""

    world: World
    at: float


def revised(kind: str, seed: int) -> Revised:
    """Return a world with a revision between days 401 and 403."""
    rng = np.random.default_rng(seed)
    rate = rng.lognormal(np.log(MEDIAN), SIGMA, N_PAGES)
    directory = np.arange(N_PAGES) % N_DIRECTORIES
    count = rng.poisson(rate * DAYS)
    page = np.repeat(np.arange(N_PAGES), count)
    when = DAYS * (1 - rng.random(count.sum()))
    at = 401.0 + 2.0 * rng.random()
    hit = np.zeros(N_PAGES, np.bool_)
    if kind.startswith("p"):
        hit = rng.random(N_PAGES) < float(kind[1:]) / 100
    elif kind.startswith("g"):
        hit = np.isin(directory, rng.permutation(N_DIRECTORIES)[: int(kind[1:])])
    page = np.concatenate([page, np.flatnonzero(hit)])
    when = np.concatenate([when, np.full(hit.sum(), at)])
    count = np.bincount(page, minlength=N_PAGES)
    world = World(
        name=kind,
        days=DAYS,
        url=tuple(f"https://wide.example/d{directory[i]}/p{i}" for i in range(N_PAGES)),
        importance=np.ones(N_PAGES),
        announced=np.zeros(N_PAGES, np.bool_),
        created=np.zeros(N_PAGES),
        ended=np.full(N_PAGES, DAYS),
        changed_at=in_order(page, when),
        first=offsets(count),
        change_rate=count / DAYS,
    )
    return Revised(world, at if hit.any() else np.nan)


def between(world: World, steps: Steps, start: float, end: float) -> float:
    """Return the harmonic staleness of a stretch of time."""
    a, b = np.maximum(steps.at, start), np.minimum(steps.at + steps.days, end)
    weight = harmonic_numbers(steps.n_uncrawled) * world.importance[steps.page]
    lived = np.minimum(world.ended, end) - np.maximum(world.created, start)
    return float(weight @ np.maximum(b - a, 0.0) / (np.maximum(lived, 0.0) @ world.importance))
