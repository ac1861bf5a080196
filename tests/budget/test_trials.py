"""Floods of pings, honest bursts and dear pages through a running service, in simulated time."""

import shutil

import numpy as np
import pytest
from support.budget_cases import service
from support.played_trials import TrialFleet

from benchmarks.budget.pings import PER_PAGE, false_pings, honest_burst, stale_by_day
from recrawl_lab.replay.staleness import Crawls

SMALL = pytest.param(100, 16.0, 8.0, id="small", marks=pytest.mark.slow)
LARGE = pytest.param(300, 50.0, 25.0, id="large", marks=pytest.mark.slow)
SIZES = pytest.mark.parametrize(("n", "days", "begin"), [SMALL, LARGE])
"""Numbers of pages, days of a trial, and the first day of its disturbance."""
WARM = 6
"""Days after which pages are due at all times, so that no budget is left over."""
DEAR = 20.0
"""Cost of one page in ten; the others cost 1."""


@pytest.fixture
def other_url(sqlite_template, tmp_path):
    """A database for the trial that the one of the test is compared with."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'other.db')}"


@pytest.fixture
def silent_url(sqlite_template, tmp_path):
    """A database for the same trial without pings."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'silent.db')}"


def crawls_of(database_url, trial):
    """Play a trial through a service with two workers; every day has its budget."""
    budget = PER_PAGE * len(trial.world)
    with service(database_url, bandwidth=budget) as live:
        fleet = TrialFleet(live, trial.world)
        crawls = fleet.play_trial(trial.notices)
        days = fleet.days()
    assert max(days) <= budget + 1
    assert days[WARM:] == pytest.approx([budget] * (len(days) - WARM), abs=2)
    return crawls


@SIZES
def test_a_flood_of_false_pings_costs_at_most_15_percent(database_url, other_url, n, days, begin):
    trials = (false_pings(n, 1, times, days, begin) for times in (10.0, 0.0))
    flood, quiet = (
        stale_by_day(trial, crawls_of(url, trial))[int(begin) :].mean()
        for url, trial in zip((database_url, other_url), trials, strict=True)
    )
    assert flood <= 1.15 * quiet


@SIZES
def test_an_honest_burst_costs_others_at_most_10_percent_and_is_no_staler_than_without_its_pings(
    database_url, other_url, silent_url, n, days, begin
):
    burst, usual = (honest_burst(n, 1, times, days, begin) for times in (10.0, 1.0))
    silent = burst._replace(notices=Crawls.none())
    trials = {"burst": burst, "usual": usual, "silent": silent}
    urls = dict(zip(trials, (database_url, other_url, silent_url), strict=True))
    made = {name: crawls_of(urls[name], trial) for name, trial in trials.items()}

    rest = ~burst.measured
    of_others = {
        name: stale_by_day(trials[name]._replace(measured=rest), made[name])[int(begin) :].mean()
        for name in ("burst", "usual")
    }
    assert of_others["burst"] <= 1.1 * of_others["usual"]

    during = slice(int(begin), int(begin) + 5)
    by_ping, blind = (
        stale_by_day(burst, made[name])[during].mean() for name in ("burst", "silent")
    )
    assert by_ping <= 1.1 * blind


@pytest.mark.parametrize(
    ("n", "days"),
    [
        pytest.param(300, 9, id="small", marks=pytest.mark.dear),
        pytest.param(600, 25, id="large", marks=pytest.mark.slow),
    ],
)
def test_days_spend_the_budget_where_one_page_in_ten_costs_twenty_times(database_url, n, days):
    quiet = false_pings(n, 1, 0.0, days, days)
    cost = np.where(np.arange(n) % 10 == 3, DEAR, 1.0)
    budget = PER_PAGE * cost.sum()
    with service(database_url, bandwidth=None, budget=f"{budget} bytes") as live:
        fleet = TrialFleet(live, quiet.world, cost)
        fleet.play_trial(quiet.notices)
        spent = fleet.spent()
    assert len(spent) == days
    assert (spent <= budget + 1e-9).all()
    # what is left of a day is less than one dear page costs
    assert (spent[WARM:] > budget - DEAR).all()
