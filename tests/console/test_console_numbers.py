"""Every number of every view against SQL, in Chromium, on a small fleet."""

from contextlib import closing
from datetime import timedelta

import pytest
from support.chromium import Watched, chromium
from support.console_comparison import Database, differences, places
from support.console_life import KEY, SETTINGS, StandingClock, live
from support.console_shown import Shown, same
from support.live_server import START, cloned, running

pytestmark = [pytest.mark.slow, pytest.mark.external]

N_PAGES, N_HOSTS = 400, 20
FEWEST = 1_000
"""Least number of numbers that the views of the fleet show."""


@pytest.fixture(scope="module")
def fleet(postgres_server, postgres_template):
    """A small fleet after six steps, the window of an administrator, and its database."""
    clock = StandingClock(START)
    settings = SETTINGS | {"bandwidth": float(N_PAGES)}
    with (
        cloned(postgres_server, postgres_template) as url,
        running(url, clock=clock, **settings) as served,
        chromium() as browser,
    ):
        urls = [f"https://host{n % N_HOSTS:06}.example/{n}" for n in range(N_PAGES)]
        served.register(*urls)
        crawled = [
            {"url": each, "observed_at": clock().isoformat(), "digest": "a"} for each in urls[:-40]
        ]
        assert served.post("/observations", crawled).status_code == 200
        clock.at += timedelta(days=2)
        live(served.service, served.client, clock, steps=6, crawls=30)
        window = Watched(browser, served.url)
        window.sign_in(KEY)
        with closing(Database(url, clock())) as database:
            yield served, window, database


def test_each_number_of_each_view_is_that_of_sql(fleet):
    served, window, database = fleet
    compared, wrong, empty = 0, [], []
    for view in places(served.client, database):
        window.open(f"/console{view.path}")
        n, differing = differences(view, Shown.of(window.page), database)
        compared, wrong = compared + n, wrong + differing
        empty += [view.path] if view.compare is not None and not n else []
    assert (wrong, empty, window.faults) == ([], [], [])
    assert compared >= FEWEST


def test_a_number_that_is_wrong_by_one_is_noticed(fleet):
    """The comparison itself can fail: a page more."""
    served, window, database = fleet
    by_path = {view.path: view for view in places(served.client, database)}
    window.open("/console")
    before = Shown.of(window.page)
    served.register("https://one.more.example/")
    _, wrong = differences(by_path[""], before, database)
    assert {each.name for each in wrong} == {"pages", "never crawled"}


def test_what_a_plan_has_for_the_budget_in_force_is_what_the_next_epoch_publishes(fleet):
    """The last test, because its epoch changes the numbers of all views."""
    served, window, database = fleet
    window.open(f"/console/plan?bandwidth={1.5 * N_PAGES:g}")
    shown = Shown.of(window.page).cards["Crawls a day"][1]
    assert served.client.post("/epochs").is_success
    served.service.runner.run_once()
    # the plan has the overhead of the epoch before: none
    used = database.one("SELECT bandwidth_used + overhead FROM epochs ORDER BY epoch DESC LIMIT 1")
    assert same(shown.split()[0], used), (shown, used)
    assert shown.endswith("with the budget in force")
