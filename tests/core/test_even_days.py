"""What a day keeps for hosts with windows: even shares, and nothing in the last open hour."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.even_days import FREE, NOTHING_KEPT, Demand, kept
from service.core.open_hours import DAY, OpenHours
from service.core.pace import Pace, TakenAmounts, advanced, room, taken

BEGIN = np.datetime64("2026-05-01", "us")
HOUR = np.timedelta64(1, "h")
DAYS = BEGIN + np.arange(22) * DAY


def daily(begin, hours, days=DAYS):
    return OpenHours.of(days + begin * HOUR, days + (begin + hours) * HOUR, BEGIN, days[-1])


def at(hour, day=3):
    return DAYS[day] + np.timedelta64(round(hour * 3_600e6), "us")


@given(
    st.lists(st.tuples(st.integers(0, 23), st.integers(1, 23), st.floats(0, 9)), max_size=4),
    st.floats(0, 9),
    st.floats(0, 23.9),
    st.floats(0, 23.9),
)
def test_a_day_keeps_less_and_less_and_at_most_the_share_of_windows(windows, always, one, other):
    demands = [Demand(None, always)]
    demands += [Demand(daily(begin, hours), a_day) for begin, hours, a_day in windows]
    first, second = (kept(demands, at(hour)) for hour in sorted([one, other]))
    for name in ("due", "early"):
        assert getattr(second, name) <= getattr(first, name) + 1e-9
    for each in (first, second):
        assert 0 <= each.due <= each.in_windows + 1e-9 <= 1 + 2e-9
        assert each.due <= each.early + 1e-9


def test_hosts_that_are_always_open_keep_nothing():
    assert kept([Demand(None, 5.0)], at(1)) == NOTHING_KEPT
    assert kept([], at(1)) == NOTHING_KEPT


def test_a_day_without_an_opening_keeps_nothing():
    weekend = daily(0, 24, DAYS[[1, 2, 8, 9]])
    assert kept([Demand(None, 1.0), Demand(weekend, 1.0)], at(5, day=3)).due == 0.0
    assert kept([Demand(weekend, 1.0)], at(5, day=3)) == NOTHING_KEPT
    # seven days of demand in two: 3.5 of 4.5
    inside = kept([Demand(None, 1.0), Demand(weekend, 1.0)], at(0, day=1))
    assert inside.due == pytest.approx(inside.in_windows, abs=1e-3)
    assert inside.due > 0.6


def test_a_host_that_never_opens_keeps_nothing():
    never = OpenHours.of(DAYS[:0], DAYS[:0], BEGIN, DAYS[-1])
    assert kept([Demand(never, 3.0), Demand(None, 1.0)], at(0)) == NOTHING_KEPT


def test_the_last_open_hour_of_a_day_is_free():
    hours = daily(12, 8)
    left = [kept([Demand(hours, 1.0)], at(hour)).due for hour in (0, 12, 16, 18.95, 19.5)]
    assert left == pytest.approx([1, 1, 0.422, 0, 0], abs=2e-3)
    assert FREE * 24 > 1
    assert kept([Demand(daily(2, 1), 1.0)], at(2)).due == 0.0, "a window of an hour is free"


@pytest.mark.parametrize("every", [1 / 288, 1 / 24])
def test_a_fleet_that_is_behind_is_even_over_its_windows_and_spends_each_day(every):
    """Nights of five days, seen in UTC: 3, 8, 8, 8, 8 and 5 open hours a day."""
    nights = np.concatenate([DAYS[:5], DAYS[7:12], DAYS[14:19]]) + 21 * HOUR
    hours = OpenHours.of(nights, nights + 8 * HOUR, BEGIN, DAYS[-1])
    budget, by_hour, since = 240.0, np.zeros(14 * 24), np.zeros(8)
    pace = Pace.starting(budget, 0.0)
    for k in range(round(14 / every)):
        day = k * every
        now = BEGIN + np.timedelta64(round(day * 86_400e6), "us")
        pace = advanced(pace, day, budget)
        if hours.opening(np.array([now]))[0] > now:
            continue
        n = int(room(pace, kept=kept([Demand(hours, 1.0)], now)).due + 1e-6)
        pace = taken(pace, TakenAmounts(float(n)))
        by_hour[int(day * 24 + 1e-6)] += n
        opened = hours.opens[hours.opens.searchsorted(now, side="right") - 1]
        since[int((now - opened) / HOUR + 1e-6)] += n
    by_day = by_hour.reshape(14, 24).sum(axis=1)
    for day in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12):
        assert by_day[day] == pytest.approx(budget, abs=1), day
    assert since[0] <= 2.0 * since.mean()
