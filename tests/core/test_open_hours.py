"""Open hours: open time by brute force, its inverse, and even due times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.open_hours import DAY_US, LAST, OpenHours

BEGIN = np.datetime64("2026-05-01", "us")
HOUR = np.timedelta64(1, "h")


def nights(n=60, hours=8):
    openings = BEGIN + np.arange(n) * np.timedelta64(1, "D")
    return OpenHours.of(openings, openings + hours * HOUR, BEGIN, openings[-1] + 24 * HOUR)


@st.composite
def stretches(draw):
    minutes = draw(st.lists(st.integers(2, 5_000), min_size=4, max_size=30))
    edges = BEGIN + np.cumsum(minutes) * np.timedelta64(1, "m")
    edges = edges[: len(edges) // 2 * 2]
    return OpenHours.of(edges[::2], edges[1::2], BEGIN, edges[-1])


@given(stretches(), st.floats(0, 1), st.floats(0, 1))
def test_open_time_is_the_time_in_open_stretches(hours, one, other):
    span = hours.closes[-1] - hours.opens[0]
    low, high = sorted([one, other])
    a, b = (hours.opens[0] + (span * part).astype("m8[us]") for part in (low, high))
    expected = 0
    for opens, closes in zip(hours.opens, hours.closes, strict=True):
        both = min(closes, b) - max(opens, a)
        expected += max(int(both.astype(np.int64)), 0)
    elapsed = hours.elapsed(np.array([a, b]))
    assert elapsed[1] - elapsed[0] == expected


def test_shares_of_intervals_pass_in_open_time_alone():
    hours = nights()
    last = np.full(3, BEGIN + 6 * HOUR)
    due = last + np.array([24, 48, 24 * 5]) * HOUR
    closing = hours.passed(last, due, BEGIN + 8 * HOUR)
    # the last 30 seconds of a window count as closed
    np.testing.assert_allclose(closing, [0.25, 0.125, 0.05], atol=2e-3)
    assert (hours.passed(last, due, BEGIN + 24 * HOUR) == closing).all()
    np.testing.assert_allclose(hours.passed(last, due, due[0]), [1.0, 0.5, 0.2])
    never = OpenHours.of(last[:0], last[:0], BEGIN, BEGIN + 24 * HOUR)
    assert never.passed(last, due, due[0]).tolist() == [0.0, 0.0, 0.0]


@given(stretches(), st.lists(st.floats(0.0, 1.5), min_size=1, max_size=20))
def test_an_instant_of_open_time_is_found_again_and_open(hours, parts):
    elapsed = (np.array(parts) * hours.elapsed(hours.closes[-1:])).astype(np.int64)
    at = hours.instant(elapsed)
    assert (np.abs(hours.elapsed(at) - elapsed) <= 1).all()
    inside = at < hours.closes[-1]
    assert (hours.opening(at)[inside] == at[inside]).all()


@given(stretches(), st.lists(st.floats(1e-4, 1e3), min_size=2, max_size=20, unique=True))
def test_intervals_and_their_open_time_are_inverse_and_ascend(hours, days):
    days = np.sort(days)
    step = hours.step(days)
    np.testing.assert_allclose(hours.interval(step), days, rtol=1e-9)
    assert (np.diff(step) >= 0).all()
    assert (step <= days * (1 + 1e-12)).all()


@pytest.mark.dear
@settings(max_examples=12, deadline=None)
@given(st.floats(0.1, 9.0))
def test_a_page_makes_the_crawls_that_its_interval_promises(days):
    hours = nights(150)
    at, n = BEGIN + 3 * HOUR, 0
    end = hours.opens[-1] - np.timedelta64(30, "D")
    while at < end and n < 20_000:
        at = hours.due(np.array([at]), np.array([days]))[0]
        n += 1
    span = (end - BEGIN) / np.timedelta64(1, "D")
    expected = span / days * hours.kept(np.array([1.0 / days]))[0]
    assert n == pytest.approx(expected, rel=0.02, abs=2)
    if days >= 16 / 24:
        assert hours.kept(np.array([1.0 / days]))[0] == pytest.approx(1.0, rel=1e-3)


def test_due_times_are_even_over_the_open_time():
    hours, rng = nights(), np.random.default_rng(7)
    # the last crawls are even over the open time, as after some time they are
    last = hours.instant((rng.random(20_000) * 20 * 8 / 24 * DAY_US).astype(np.int64))
    due = hours.due(last, rng.uniform(0.7, 5.0, 20_000))
    hour = ((due - due.astype("M8[D]")) / HOUR).astype(int)
    share = np.bincount(hour, minlength=24) / len(hour)
    assert share[:8] == pytest.approx(np.full(8, 1 / 8), rel=0.06)
    assert share[8:].sum() == 0


def test_a_long_closure_leaves_no_burst():
    openings = BEGIN + np.arange(60) * np.timedelta64(1, "D")
    kept = np.r_[0:20, 40:60]  # a blackout of twenty days
    usual = openings, openings + 8 * HOUR
    hours = OpenHours.of(
        openings[kept], openings[kept] + 8 * HOUR, BEGIN, openings[-1] + 24 * HOUR, usual
    )
    rng = np.random.default_rng(3)
    last = hours.instant((19 + rng.random(5_000)) * 8 / 24 * DAY_US // 1)
    due = hours.due(last, np.full(5_000, 1.0))
    first_hour = (due >= openings[40]) & (due < openings[40] + HOUR)
    assert first_hour.mean() == pytest.approx(1 / 8, abs=0.03)


def test_no_crawl_begins_in_the_last_seconds():
    hours = nights()
    closing = hours.closes[0] + LAST
    at = np.array([closing - LAST - np.timedelta64(1, "us"), closing - LAST, closing])
    assert (hours.opening(at) == at).tolist() == [True, False, False]
    assert hours.closing(at).tolist() == [closing.item(), closing.item(), None]


def test_waits_after_failures_are_not_shortened_and_keep_their_order():
    hours = nights()
    last = BEGIN + np.array([7.5, 7.6, 7.7]) * 3_600_000_000 // 1 * np.timedelta64(1, "us")
    due = hours.due(last, np.full(3, 1 / 24), np.ones(3, bool))
    assert (due - last >= np.timedelta64(1, "h")).all()
    assert (hours.opening(due) == due).all()
    assert (np.diff(due) > np.timedelta64(0, "us")).all()


def test_a_host_without_an_opening_is_due_at_the_end_of_the_horizon():
    none = np.zeros(0, "M8[us]")
    hours = OpenHours.of(none, none, BEGIN, BEGIN + np.timedelta64(400, "D"))
    assert hours.is_never_open
    at = np.array([BEGIN, np.datetime64("NaT", "us")])
    assert hours.due(at, np.ones(2)).tolist() == [hours.until.item(), None]
    assert hours.opening(at[:1]).tolist() == [hours.until.item()]
