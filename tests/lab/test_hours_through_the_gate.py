"""Change hours in a fleet that keeps a budget, where most pages want more than a crawl a day."""

from dataclasses import replace

import numpy as np
import pytest

from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.gated import replay_gated
from recrawl_lab.replay.staleness import staleness
from recrawl_lab.worlds.sections import section_world

EVERY = 0.25
"""Time between two epochs, days."""


def stale(world, *, change_hours):
    """Return the staleness of a game at two crawls a page and day."""
    plan, budget = replace(DEFAULT_PLAN, change_hours=change_hours), 2 * world.mean_pages
    played = replay_gated(world, budget, plan, step=EVERY, loan_days=0.0, even_epochs=True)
    return staleness(world, played.crawls).harmonic


@pytest.mark.slow
def test_pages_on_one_hour_gain_where_the_budget_has_two_crawls_a_day_for_each():
    """Fewer planned crawls would leave a budget over, which is spent at any hour of the day."""
    rng = np.random.default_rng(1)
    world = section_world("host", rng=rng, n_sections=2, n_pages=10, days=40.0)
    assert stale(world, change_hours=True) < 0.95 * stale(world, change_hours=False)
