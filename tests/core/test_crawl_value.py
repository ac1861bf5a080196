"""The value of a crawl against independent formulas, and what it means for due times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import lambertw

from service.core.costs import costs
from service.core.crawl_value import crawl_value, days_to_value, earnings, expected_changes
from service.core.pings import PingEstimate

RATES = st.floats(1e-3, 1e3)
SHARES = st.floats(0.01, 1.0)


def pings_of(unannounced, ping_rate, precision):
    return PingEstimate(*(np.asarray(v, float) for v in (unannounced, ping_rate, precision)))


def periodic_cost(change_rate, crawl_rate):
    one = [1.0], [change_rate], [crawl_rate], [0.0], [False]
    return float(costs(*one, timing="periodic").harmonic[0])


@pytest.mark.parametrize(("change_rate", "days"), [(0.01, 3.0), (0.5, 2.0), (4.0, 9.0)])
def test_without_pings_the_value_is_the_expected_time_out_of_date(change_rate, days):
    stale, _ = quad(lambda at: 1.0 - np.exp(-change_rate * at), 0.0, days, epsabs=1e-13)
    found = crawl_value(3.0, pings_of(change_rate, 0.0, 1.0), days, 0)
    np.testing.assert_allclose(found, 3.0 * stale, rtol=1e-10)


@pytest.mark.parametrize(("change_rate", "crawl_rate"), [(0.05, 1.0), (0.5, 0.5), (3.0, 0.2)])
def test_the_value_at_the_end_of_an_interval_is_the_gain_of_one_more_crawl_a_day(
    change_rate, crawl_rate
):
    step = 1e-5 * crawl_rate
    more, less = (periodic_cost(change_rate, crawl_rate + d) for d in (step, -step))
    value = crawl_value(1.0, pings_of(change_rate, 0.0, 1.0), 1.0 / crawl_rate, 0)
    np.testing.assert_allclose(value, (less - more) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_the_value_of_complete_pings_is_the_gain_of_a_crawl_one_ping_earlier(k):
    change_rate, harmonic = 0.4, np.cumsum(1.0 / np.arange(1, k + 1))
    saved = harmonic[k - 1] - harmonic[k - 2]
    spent = change_rate / (k - 1) - change_rate / k
    value = crawl_value(1.0, pings_of(0.0, change_rate, 1.0), 5.0, k - 1)
    np.testing.assert_allclose(value, saved / spent, rtol=1e-12)


@given(st.floats(1e-9, 1e6), SHARES, st.floats(0.0, 1.0), RATES)
def test_the_changes_of_a_value_are_those_by_lambert_w(changes, precision, recall, rate):
    pings = pings_of((1 - recall) * rate, recall * rate / precision, precision)
    k = 1.0 - recall * precision
    value = float(crawl_value(2.0, pings, 0.0, changes / precision))
    y = value * rate / 2.0
    branch = -np.exp(-1.0) * (1 - 1e-15)
    by_lambert = y + k + lambertw(max(-k * np.exp(-(y + k)), branch)).real
    # next to the branch point W has half of the digits
    np.testing.assert_allclose(changes, by_lambert, rtol=1e-6, atol=1e-4 * (changes < 1))
    if recall < 0.99:
        days = days_to_value(value, 2.0, pings, 0)
        np.testing.assert_allclose(expected_changes(pings, days, 0), changes, rtol=1e-9)


@given(RATES, RATES, SHARES, st.floats(0.01, 1e3), st.floats(0.0, 1e3), st.integers(0, 50))
def test_the_value_is_that_of_the_plan_when_the_planned_changes_are_expected(
    unannounced, ping_rate, precision, crawls, days, n_pings
):
    pings = pings_of(unannounced, ping_rate, precision)
    planned = pings.change_rate / crawls
    bar = crawl_value(1.0, pings, 1.0 / crawls, ping_rate / crawls)
    changes = expected_changes(pings, days, n_pings)
    if abs(changes / planned - 1.0) > 1e-6:
        assert (crawl_value(1.0, pings, days, n_pings) > bar) == (changes > planned)
    due = np.maximum(planned - precision * n_pings, 0.0) / unannounced
    found = days_to_value(bar, 1.0, pings, n_pings)
    np.testing.assert_allclose(found, due, rtol=1e-6, atol=1e-9 * planned / unannounced)


def test_importance_moves_the_instant_and_a_bar_out_of_reach_has_none():
    pings = pings_of([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], 1.0)
    days = days_to_value(2.0, [1.0, 9.0, 1.0, 1.0], pings, [0, 0, 0, 1])
    assert days[0] > days[1] > 0
    assert np.isinf(days[2])
    assert days[3] == 0.0, "one ping of a page that changes every two days is worth 2"
    assert np.isinf(days_to_value(1.0, 0.0, pings_of(0.5, 0.0, 1.0), 0))


def test_values_of_any_size_are_finite_and_rise():
    changes = np.geomspace(1e-150, 1e150, 301)
    for recall, precision in ((0.0, 1.0), (0.5, 0.5), (1.0, 1.0), (1.0, 1e-9)):
        pings = pings_of((1 - recall), recall / precision, precision)
        value = crawl_value(1.0, pings, 0.0, changes / precision)
        assert np.isfinite(value).all()
        assert (np.diff(value) > 0).all()


def test_a_page_without_changes_has_no_value_and_earns_nothing():
    still = pings_of([0.0, 0.0], [0.0, 3.0], [1.0, 0.0])
    assert crawl_value(9.0, still, 100.0, [0, 50]).tolist() == [0.0, 0.0]
    earned = earnings(still, [0.0, 0.5])
    assert [*earned.by_ping, *earned.by_day] == [0.0] * 4


@given(RATES, RATES, SHARES, RATES)
def test_a_page_earns_the_crawls_of_its_plan(unannounced, ping_rate, precision, crawls):
    earned = earnings(pings_of(unannounced, ping_rate, precision), crawls)
    np.testing.assert_allclose(earned.by_day + earned.by_ping * ping_rate, crawls, rtol=1e-12)


@given(RATES, st.floats(0.0, 1.0))
def test_complete_pings_earn_the_crawl_probability(ping_rate, probability):
    earned = earnings(pings_of(0.0, ping_rate, 1.0), probability * ping_rate)
    np.testing.assert_allclose(earned.by_ping, probability, rtol=1e-12, atol=1e-300)
    assert earned.by_day == 0.0


def test_arrays_of_any_layout_are_read_only():
    wide = np.tile(np.array([0.2, 0.4, 0.6]), (2, 1)).T[:, 0]
    wide.flags.writeable = False
    pings = pings_of(wide, wide, 0.5)
    one_by_one = [
        float(crawl_value(1.0, pings_of(rate, rate, 0.5), 2.0, 1)) for rate in wide.tolist()
    ]
    assert crawl_value(1.0, pings, 2.0, 1).tolist() == one_by_one
    assert not len(crawl_value(1.0, pings_of([], [], []), 2.0, []))
