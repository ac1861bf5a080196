"""What to play: a world, and a budget and step that suit it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import Importance, World, synthetic_world

N_PAGES = 2000
DAYS = 60.0
BANDWIDTH_PER_PAGE = 0.2
"""The ratio of K19's experiments."""
STEP = 1.0
TRACE_DAYS = 1096.0
"""The last three years."""
TRACE_BANDWIDTH_PER_PAGE = 0.02
"""One crawl of a page in 50 days: a few crawls for each change on most documentation sites."""
TRACE_STEP = 7.0
"""At that bandwidth a schedule ages little in a week."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world to play with a constant budget."""

    world: World
    bandwidth: float
    """Crawls a day, over all pages."""
    step: float
    """Days from one epoch to the next."""


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
    """Build the synthetic world, or read DIR/SITE; None asks for what suits the world.

    Parameters
    ----------
    trace
        DIR/SITE of a recorded history; without one the world is made up.
    n_pages
        Of the synthetic world; a recording has the pages it has.
    days
        60, or the last three years of a recording.
    bandwidth_per_page
        Crawls a day for each page that exists, on average over time: 0.2, or 0.02.
    step
        Days between epochs: 1, or 7.
    importance
        "lognormal" for the synthetic world, "equal" for a recording.
    bulk
        Count revisions of a recording that touched more than 200 pages at once.

    Raises
    ------
    InvalidTrace
        The recording cannot be read.

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
