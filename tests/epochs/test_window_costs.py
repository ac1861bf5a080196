"""Costs of a plan within windows: the intervals that closures leave, against a simulation."""

from dataclasses import replace

import numpy as np
import pytest
from support.plan_cases import basis_of

from service.core.costs import costs
from service.core.estimators.gamma import Gamma
from service.core.open_hours import OpenHours
from service.epochs.bandwidth_plans import planned
from service.epochs.plan import Plan
from service.epochs.solve import total_costs
from service.epochs.windows import HostWindows
from service.model.domain import Timing

DAY = np.timedelta64(1, "D")
BEGIN = np.datetime64("2026-05-01", "us")
RATES = [0.02, 0.3, 1.0, 1.7, 6.0, 48.0]


def nights(hours: float, n: int = 400) -> OpenHours:
    """Open for some hours of each day."""
    opens = BEGIN + np.arange(n) * DAY
    closes = opens + np.timedelta64(int(hours * 3_600), "s")
    return OpenHours.of(opens, closes, opens[0], opens[-1])


def windows_of(hours: OpenHours, delay_s: float = 0.0) -> HostWindows:
    """The windows of host 0."""
    own = np.empty(1, object)
    own[0] = hours
    at_delay = np.array([86_400 / delay_s if delay_s else np.inf])
    texts = np.empty(1, object)
    texts[0] = ("some", "")
    host = np.array(["a.example"], object)
    none = np.zeros(1, np.int64)
    return HostWindows(none, host, none, own, texts, at_delay * hours.share, at_delay)


def crawled_at(hours: OpenHours, rate: float) -> np.ndarray:
    """Crawl at the due times that leases have, one after the other."""
    at = [hours.opens[1]]
    while at[-1] < hours.until - 200 * DAY:
        at.append(hours.opening(hours.due(np.array([at[-1]]), np.array([1 / rate])))[0])
    return np.array(at)


@pytest.mark.parametrize("hours", [2.0, 8.0, 22.0])
@pytest.mark.parametrize("rate", RATES)
def test_the_costs_within_windows_are_those_of_the_intervals_of_due_times(hours, rate):
    own = nights(hours)
    intervals = np.diff(crawled_at(own, rate)) / DAY
    change = 1.3
    expected = [
        float(np.average(column, weights=intervals))
        for column in costs(
            *(np.ones(len(intervals)), np.full(len(intervals), change), 1 / intervals),
            *(np.zeros(len(intervals)), np.zeros(len(intervals), bool)),
            timing="periodic",
        )
    ]
    basis = basis_of([1.0], [change])
    rates = np.array([rate]), np.zeros(1)
    found = total_costs(basis.pages, basis.estimates, rates, Timing.periodic, windows_of(own))
    assert found == pytest.approx(expected, rel=0.05)


def test_the_shares_of_time_add_up_and_each_day_has_the_crawls_that_closures_keep():
    own, rate = nights(7.0), np.geomspace(0.01, 100.0, 50)
    (short, shorter), (long, longer) = own.spells(rate)
    assert shorter + longer == pytest.approx(1.0)
    assert shorter / short + longer / long == pytest.approx(rate * own.kept(rate), rel=1e-3)


def test_a_host_that_never_opens_is_stale():
    none = np.zeros(0, "M8[us]")
    own = OpenHours.of(none, none, BEGIN, BEGIN + 365 * DAY)
    basis = basis_of([1.0], [1.0])
    rates = np.array([4.0]), np.zeros(1)
    _, binary = total_costs(basis.pages, basis.estimates, rates, Timing.periodic, windows_of(own))
    assert binary > 0.99


def test_other_hosts_cost_what_they_cost_without_windows():
    basis = basis_of([1.0, 2.0], [1.0, 3.0], host=[0, 1])
    rates, timing = (np.array([5.0, 2.0]), np.zeros(2)), Timing.periodic
    each = [
        total_costs(replace(basis.pages, importance=np.array(own)), basis.estimates, rates, timing)
        for own in ([1.0, 0.0], [0.0, 2.0])
    ]
    own = total_costs(basis.pages, basis.estimates, rates, timing, windows_of(nights(1.0)))
    assert own[0] > 1.5 * each[0][0] + each[1][0]
    alone = basis_of([1.0], [1.0])
    first = (rates[0][:1], rates[1][:1])
    one = total_costs(alone.pages, alone.estimates, first, timing, windows_of(nights(1.0)))
    assert np.array(own) == pytest.approx(np.array(one) + each[1])


def test_the_fresh_share_of_a_plan_has_what_windows_take():
    basis = basis_of(np.ones(20), np.full(20, 2.0))
    free = planned(basis, Plan(Gamma()), 400.0).figures
    windows = windows_of(nights(2.0), delay_s=600.0)
    closed = planned(replace(basis, windows=windows), Plan(Gamma()), 400.0).figures
    (loss,) = closed.window_losses
    made = loss.wanted - loss.by_delay - loss.by_closures
    assert made == pytest.approx(12.0, rel=0.01)  # two hours of ten minutes a crawl
    assert free.fresh_share > 0.9
    # each page is crawled .6 times a day, and no host is asked within 22 hours
    assert closed.fresh_share < 0.5
    assert closed.gain == pytest.approx(0.0, abs=1e-6)
