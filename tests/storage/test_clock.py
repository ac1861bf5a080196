"""Clocks that follow another one, and clocks that let no step pass unseen."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.storage.clock import DRIFT, FollowingClock, SteadyClock

T0 = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Seconds:
    """Elapsed seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def off_by(clock, truth) -> float:
    return abs((clock() - truth).total_seconds())


@given(
    trips=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.floats(0, 100)), min_size=1),
    origin=st.floats(-1e6, 1e6),
)
def test_a_following_clock_is_off_by_half_of_the_quickest_answer_at_most(trips, origin):
    seconds, quickest = Seconds(), float("inf")
    clock = FollowingClock(seconds)

    def truth(at: float) -> datetime:
        return T0 + timedelta(seconds=origin + at)

    for way_there, way_back, pause in trips:
        sent = seconds.now
        seconds.now += way_there + way_back
        clock.read(truth(sent + way_there), sent=sent, received=seconds.now)
        quickest = min(quickest, (way_there + way_back) / 2)
        assert off_by(clock, truth(seconds.now)) <= quickest + DRIFT * 1_000 + 1e-5
        seconds.now += pause
        quickest += DRIFT * pause


@pytest.mark.parametrize("step", [DAY, -DAY, timedelta(minutes=5), -timedelta(minutes=5)])
def test_a_following_clock_goes_along_when_the_other_is_set(step):
    seconds = Seconds()
    clock = FollowingClock(seconds)
    clock.read(T0, sent=999.9, received=1_000.0)
    assert off_by(clock, T0) <= 0.1
    seconds.now += 10
    later = T0 + timedelta(seconds=10) + step
    clock.read(later, sent=1_009.99, received=1_010.0)
    assert off_by(clock, later) <= 0.01


def test_a_slow_answer_says_nothing_against_a_quick_one():
    seconds = Seconds()
    clock = FollowingClock(seconds)
    clock.read(T0, sent=999.999, received=1_000.0)
    seconds.now += 30
    clock.read(T0 + timedelta(seconds=1), sent=1_000.5, received=1_030.0)
    assert off_by(clock, T0 + timedelta(seconds=30)) <= 0.1


def test_a_following_clock_does_not_ask_the_machine_once_it_has_a_reading(monkeypatch):
    clock = FollowingClock(Seconds())
    monkeypatch.setattr("service.storage.clock.system_clock", lambda: T0 + DAY)
    assert clock() == T0 + DAY
    clock.read(T0, sent=1_000.0, received=1_000.0)
    assert clock() == T0


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_steady_clock_goes_on_until_it_is_told_to_follow(step):
    seconds, wall = Seconds(), [T0]
    clock = SteadyClock(lambda: wall[0], seconds)
    seconds.now += 5
    wall[0] += timedelta(seconds=5) + step
    assert clock() == T0 + timedelta(seconds=5)
    assert clock.wall_start() - clock.start == step
    clock.start = clock.wall_start()
    assert clock() == wall[0]
