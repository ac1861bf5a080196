"""A year through the gate: windows that miss whole days, over both changes of clocks."""

from datetime import timedelta

import numpy as np
import pytest

from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.gated import replay_gated
from recrawl_lab.replay.replay import instants_of
from recrawl_lab.worlds.simulated_time import START
from recrawl_lab.worlds.world import synthetic_world
from service.model.calendars import HourRules, hours_of

SHAPES = {
    "nights": ("22:00-06:00 Europe/Berlin",),
    "nights of five days, and an hour": (
        "Mon-Fri 22:00-06:00 Europe/Berlin",
        "Sun 02:00-03:00 UTC",
    ),
    "nights of five days": ("Mon-Fri 22:00-06:00 Europe/Berlin",),
    "office hours": ("Mon-Fri 09:00-17:00 America/New_York",),
    "weekends": ("Sat-Sun 00:00-24:00 UTC",),
    "twice a day": ("01:00-03:00 Australia/Lord_Howe", "13:00-15:00 Australia/Lord_Howe"),
}
HOUR, DAY = np.timedelta64(1, "h"), np.timedelta64(1, "D")
WARM = 10


def first_hour(hours, at, begin, end):
    """Return the load of the first hours after openings, over that of a mean open hour."""
    some = (hours.opens >= begin) & (hours.opens < end)
    opens, length = hours.opens[some], ((hours.closes - hours.opens) / HOUR)[some]
    at = at[at >= opens[0]]
    since = at - opens[opens.searchsorted(at, side="right") - 1]
    n_first = np.count_nonzero(since < HOUR)
    return (n_first / np.minimum(length, 1.0).sum()) / (len(at) / length.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "each"),
    [*((shape, 0.2) for shape in SHAPES), ("nights of five days, and an hour", 1.0)],
)
def test_a_year_of_a_budget_is_spent_without_bursts(shape, each):
    n, days = 60, 365
    rules = HourRules(SHAPES[shape])
    world = synthetic_world(n, float(days), rng=np.random.default_rng(2), complete_share=0.0)
    options = {"step": 2.0, "loan_days": 0.0, "hours": rules}
    played = replay_gated(world, n * each, DEFAULT_PLAN, **options).crawls
    hours = hours_of(rules, START + timedelta(days=35))
    begin, end = instants_of(np.array([WARM, days - 1]))
    at = instants_of(played.at)
    assert (hours.opening(at) == at).all()
    at = at[(at >= begin) & (at < end)]
    of_days = begin + np.arange(days - 1 - WARM) * DAY
    n_open = sum(hours.open_days_between(day, day + DAY) > 0 for day in of_days)
    assert len(at) >= 0.98 * n * each * n_open
    assert first_hour(hours, at, begin, end) <= 2.0
