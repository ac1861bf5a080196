"""Scenarios: a world with a suitable budget and step."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import Importance, World, synthetic_world

N_PAGES = 2000
DAYS = 60.0
BANDWIDTH_PER_PAGE = 0.2
"""Default bandwidth of K19's experiments, crawls a page and day."""
STEP = 1.0
TRACE_DAYS = 1096.0
"""Default window of a recording, days: the last three years."""
TRACE_BANDWIDTH_PER_PAGE = 0.02
"""Default bandwidth of a recording, crawls a page and day.

At one crawl of a page in 50 days, most documentation sites have a few crawls for each change.
"""
TRACE_STEP = 7.0
"""Default time between epochs of a recording, days; the schedule ages little in that time."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world to play with a constant budget."""

    world: World
    bandwidth: float
    """Bandwidth over all pages, crawls a day."""
    step: float
    """Time from one epoch to the next, days."""


def scenario(
    trace: str | Path | None = None,
    *,
    seed: int = 1,
    n_pages: int = N_PAGES,
    days: float | None = None,
    bandwidth_per_page: float | None = None,
    step: float | None = None,
    importance: Importance | None = None,
    bulk: bool = False,
) -> Scenario:
    """Return the synthetic world, or the recorded one of DIR/SITE; None selects a suitable default.

    A recording has its own pages; `bulk` counts its revisions of more than 200 pages at once.
    `bandwidth_per_page` is in crawls a day, `step` in days between epochs. Raise `InvalidTrace`
    for a recording that cannot be read.

    Examples
    --------
    >>> chosen = scenario(n_pages=50)
    >>> len(chosen.world), chosen.bandwidth, chosen.step
    (50, 10.0, 1.0)
    """
    rng = np.random.default_rng(seed)
    if trace is None:
        world = synthetic_world(
            n_pages, days or DAYS, rng=rng, importance=importance or "lognormal"
        )
        per_page, epochs_every = BANDWIDTH_PER_PAGE, STEP
    else:
        world = recorded_world(
            read_trace(trace),
            rng=rng,
            days=days or TRACE_DAYS,
            importance=importance or "equal",
            bulk=bulk,
        )
        per_page, epochs_every = TRACE_BANDWIDTH_PER_PAGE, TRACE_STEP
    bandwidth = (bandwidth_per_page or per_page) * world.mean_pages
    return Scenario(world, bandwidth, step or epochs_every)


def stages(base: Scenario) -> list[Scenario]:
    """Return the same web three times: with pages alike, with pings, with importance as well."""
    world = base.world
    alike, silent = np.ones(len(world)), np.zeros(len(world), np.bool_)
    kinds = {
        "all pages alike": (alike, silent),
        f"{world.announced.mean():.0%} of pages announce changes": (alike, world.announced),
        "and importance differs": (world.importance, world.announced),
    }
    return [
        replace(base, world=replace(world, name=name, importance=importance, announced=announced))
        for name, (importance, announced) in kinds.items()
    ]
