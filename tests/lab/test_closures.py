"""Crawls that know no windows, kept within those of a site."""

import numpy as np

from recrawl_lab.replay.closures import REACH, within
from recrawl_lab.replay.replay import instants_of
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.simulated_time import START, instant_of
from service.model.calendars import ALWAYS, HourRules, hours_of

NIGHT = HourRules(("00:00-06:00 UTC",))


def test_a_site_that_is_always_open_changes_nothing():
    crawls = Crawls(np.arange(3), np.array([0.1, 0.4, 0.9]))
    assert within(crawls, ALWAYS, 5.0) is crawls


def test_crawls_of_a_closure_keep_their_order_over_the_window_that_follows():
    crawls = Crawls(np.arange(4), np.array([0.1, 0.3, 0.625, 0.9]))
    page, at = within(crawls, NIGHT, 5.0)
    assert page.tolist() == [0, 1, 2, 3]
    assert at[0] == 0.1
    assert ((at[1:] > 1.0) & (at[1:] < 1.25)).all()
    assert (np.diff(at) > 0).all()
    assert abs(at[2] - 1.125) < 0.001, "half of the closure is half of the window"


def test_crawls_without_a_window_before_the_end_are_left_out():
    crawls = Crawls(np.arange(2), np.array([1.1, 1.5]))
    assert within(crawls, NIGHT, 2.0).page.tolist() == [0]


def test_windows_hold_for_years():
    at = np.linspace(0.0, 3 * REACH, 5_000)
    kept = within(Crawls(np.arange(5_000), at), NIGHT, 3 * REACH + 1)
    for day in np.arange(0.0, 3 * REACH + 1, 100):
        some = instants_of(kept.at[(kept.at >= day) & (kept.at < day + 100)])
        hours = hours_of(NIGHT, instant_of(day))
        assert (hours.opening(some) == some).all()
    assert START.hour == 0
