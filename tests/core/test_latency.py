"""Latencies of hosts: soon high after a rise, deaf to one slow page, soon low again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.latency import (
    DELAYED,
    FIRST,
    LAST,
    MEMORY,
    ONE_AT_A_TIME,
    Latency,
    delay_s,
    learn,
)
from service.core.latency import one_at_a_time as is_slow

USUAL = 0.2


def known(n=200, usual=USUAL):
    return Latency(np.array([usual]), np.array([usual]), np.array([n]))


def after(latency, *seconds, failed=False):
    for each in seconds:
        latency = learn(latency, np.array([each]), np.array([failed]))
    return latency


def delay(latency, factor=5.0, most_s=30.0):
    return float(delay_s(latency, np.array([factor]), np.array([most_s]))[0])


@pytest.mark.parametrize("n", [FIRST, 10, 50, 200, MEMORY])
def test_ten_crawls_of_ten_times_the_latency_are_known_and_fifty_are_forgotten(n):
    slow = after(known(n), *[10 * USUAL] * 10)
    assert delay(slow) >= 5 * 5 * USUAL
    assert slow.usual[0] < 1.4 * USUAL
    fast = after(slow, *[USUAL] * 50)
    assert delay(fast) == 0
    assert not is_slow(fast)[0]
    assert fast.present[0] == pytest.approx(USUAL, rel=0.01)


def test_one_crawl_at_a_time_comes_before_the_delay():
    stages, latency = [], known()
    for _ in range(10):
        latency = after(latency, 10 * USUAL)
        stages.append((bool(is_slow(latency)[0]), delay(latency) > 0))
    assert stages == sorted(stages)
    assert (True, False) in stages
    assert stages[-1] == (True, True)


@pytest.mark.parametrize("seconds", [100 * USUAL, 1e9, float("inf")])
def test_one_slow_page_slows_no_host(seconds):
    slow = after(known(), seconds)
    assert not is_slow(slow)[0]
    assert slow.present[0] < 1.5 * USUAL


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), -float("inf")])
def test_what_is_no_duration_teaches_nothing(seconds):
    for latency in (known(), Latency(np.array([np.nan]), np.array([np.nan]), np.array([0]))):
        for old, new in zip(latency, after(latency, seconds), strict=True):
            np.testing.assert_array_equal(new, old)


def test_a_connection_that_is_refused_at_once_does_not_show_a_fast_host():
    assert after(known(), *[0.001] * 20, failed=True) == known()
    assert after(known(), *[60.0] * 10, failed=True).present[0] > DELAYED * USUAL


def test_a_host_that_stays_slow_becomes_usual_after_about_a_thousand_crawls():
    latency = known(MEMORY)
    slow_for = 0
    while delay(latency := after(latency, 10 * USUAL)) > 0 or slow_for < 20:
        slow_for += 1
    assert 500 < slow_for < 2_000


@pytest.mark.parametrize("n", [FIRST, 10, 20])
def test_a_host_that_becomes_slow_soon_stays_slow_for_dozens_of_crawls(n):
    latency = after(known(n), *[10 * USUAL] * 10)
    for _ in range(50):
        latency = after(latency, 10 * USUAL)
        assert delay(latency) > 0


def test_a_host_whose_first_crawls_came_from_a_cache_is_slow_for_a_hundred_crawls_or_two():
    latency = after(known(0), *[USUAL] * FIRST)
    slow_for = 0
    while delay(latency := after(latency, 10 * USUAL)) > 0 or slow_for < 20:
        slow_for += 1
    assert 60 < slow_for < 200


def test_a_host_that_was_slow_at_first_is_usual_after_fifty_fast_crawls():
    latency = after(known(0), *[10 * USUAL] * 3, *[USUAL] * 50)
    assert not is_slow(after(latency, *[USUAL] * 10))[0]
    assert delay(after(latency, *[10 * USUAL] * 10)) > 0


def test_the_maximum_bounds_the_delay():
    slow = after(known(), *[1_000.0] * 40)
    assert delay(slow, most_s=12.0) == 12.0


def test_latencies_that_vary_rarely_slow_a_host():
    rng = np.random.default_rng(3)
    latency = Latency(*(np.full(500, v) for v in (1.0, 1.0)), np.zeros(500, np.int64))
    n_slow = n_delayed = 0
    for k in range(300):
        latency = learn(latency, rng.lognormal(0.0, 0.7, 500), np.zeros(500, np.bool_))
        if k >= 100:
            n_slow += is_slow(latency).sum()
            n_delayed += (delay_s(latency, np.full(500, 5.0), np.full(500, 9.0)) > 0).sum()
    assert n_slow / (200 * 500) < 0.02
    assert n_delayed / (200 * 500) < 0.001


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_any_series_leaves_finite_latencies(series):
    latency = after(Latency(np.array([np.nan]), np.array([np.nan]), np.array([0])), *series)
    n_counted = sum(each > 0 for each in series)
    assert latency.n[0] == min(n_counted, MEMORY)
    if n_counted:
        assert 1e-3 <= latency.present[0] <= 3_600
        assert 1e-3 <= latency.usual[0] <= 3_600
        assert np.isfinite(delay(latency))


def test_crawls_before_the_last_of_a_batch_hardly_weigh():
    assert 0.75**LAST < 0.011
    assert ONE_AT_A_TIME < DELAYED
