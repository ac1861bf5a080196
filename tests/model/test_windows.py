"""Windows and blackouts as texts, and the instants at which they open and close."""

from datetime import UTC, date, datetime, time, timedelta
from unittest import mock
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.model.arrays import instant
from service.model.calendars import Calendars, HourRules, StoredRules, hours_of, never_open
from service.model.errors import InvalidField
from service.model.open_time import open_hours
from service.model.windows import (
    BLACKOUTS,
    DAY_MINUTES,
    WINDOWS,
    Blackout,
    Window,
    checked,
    read_blackout,
    read_window,
)

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Pacific/Apia",
)
ZONE = st.sampled_from(ZONES)


@st.composite
def windows(draw):
    days = draw(st.sets(st.integers(0, 6), min_size=1))
    begin = draw(st.integers(0, DAY_MINUTES - 1))
    length = draw(st.integers(1, DAY_MINUTES))
    end = begin + length if begin + length <= DAY_MINUTES else begin + length % DAY_MINUTES
    if end == begin:
        begin, end = 0, DAY_MINUTES
    return Window(tuple(sorted(days)), begin, end, draw(ZONE))


def blackouts(around):
    first = st.integers(-30, 30).map(lambda n: around + timedelta(days=n))
    return st.builds(
        lambda day, n, zone: Blackout(day, day + timedelta(days=n), zone),
        first,
        st.integers(0, 5),
        ZONE,
    )


def is_open(wanted, dark, at):
    """Return whether the wall time lies in a window, by the words of the documentation."""
    open_now = False
    for window in wanted:
        wall = at.astimezone(ZoneInfo(window.zone)).replace(tzinfo=None)
        for back in (0, 1):  # a window past midnight belongs to the day before
            day = wall.date() - timedelta(days=back)
            midnight = datetime.combine(day, time())
            minutes = (wall - midnight) / timedelta(minutes=1)
            open_now |= day.weekday() in window.days and window.begin <= minutes < window.end
    for each in dark:
        open_now &= not each.first <= at.astimezone(ZoneInfo(each.zone)).date() <= each.last
    return open_now


@given(windows())
def test_a_window_is_read_as_it_is_written(window):
    assert read_window(str(window)) == window


@given(blackouts(date(2026, 3, 1)))
def test_a_blackout_is_read_as_it_is_written(blackout):
    assert read_blackout(str(blackout)) == blackout


DST = [date.fromisoformat(f"2026-{day}") for day in ("03-29", "10-25", "04-05", "10-04")]
DST.append(date(2011, 12, 30))  # a day that Apia skipped


@pytest.mark.dear
@settings(max_examples=12, deadline=None)
@given(
    st.lists(windows(), min_size=1, max_size=4),
    st.sampled_from(DST).flatmap(
        lambda day: st.tuples(st.just(day), st.lists(blackouts(day), max_size=2))
    ),
    st.integers(0, 6),
)
@example(
    [read_window("Sat-Mon 22:00-06:00 Pacific/Apia")],
    (date(2011, 12, 30), [read_blackout("2011-12-30/2011-12-31 Pacific/Apia")]),
    3,
)
@example([read_window("Sun 01:30-02:15 Australia/Lord_Howe")], (date(2026, 4, 5), []), 0)
@example([read_window("Sun 02:00-03:00 Europe/Berlin")], (date(2026, 3, 29), []), 0)
@example([read_window("Sat-Sun 00:00-24:00 UTC")], (date(2026, 10, 25), []), 0)
def test_a_host_is_open_while_the_wall_time_lies_in_a_window(wanted, around, offset):
    middle, dark = around
    hours = open_hours(wanted, dark, middle - timedelta(days=offset))
    begin = datetime(middle.year, middle.month, middle.day, tzinfo=UTC) - timedelta(hours=40)
    minutes = [begin + timedelta(minutes=n) for n in range(3 * DAY_MINUTES)]
    at = np.array([instant(minute) for minute in minutes])
    shown = ~np.isnat(hours.closing(at))
    if hours.is_never_open:
        shown[:] = False
    expected = np.array([is_open(wanted, dark, minute) for minute in minutes])
    np.testing.assert_array_equal(shown, expected)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (WINDOWS, "Mon-Fri 22:00-06:00", "form"),
        (WINDOWS, "Mon-Fri 22:00-06:00 Europe/Berln", "no time zone"),
        (WINDOWS, "Mon-Fri 22:00-06:00 ../etc/passwd", "no time zone"),
        (WINDOWS, "Mon-Fri 22:00-06:00 Europe", "no time zone"),
        (WINDOWS, "Mo-Fr 22:00-06:00 UTC", "no day"),
        (WINDOWS, "Mon 25:00-06:00 UTC", "no day has"),
        (WINDOWS, "Mon 22:60-06:00 UTC", "no day has"),
        (WINDOWS, "Mon 06:00-06:00 UTC", "same time"),
        (WINDOWS, "Mon 24:00-06:00 UTC", "24:00"),
        (WINDOWS, "", "form"),
        (WINDOWS, "Mon \u0660\u0669:00-17:00 UTC", "form"),
        (BLACKOUTS, "2026-02-30 UTC", "no calendar"),
        (BLACKOUTS, "2026-12-26/2026-12-24 UTC", "before it begins"),
        (BLACKOUTS, "24.12.2026 UTC", "form"),
        (BLACKOUTS, "\u0662\u0660\u0662\u0666-12-24 UTC", "form"),
        (BLACKOUTS, "2026-12-24/2026-12-26", "form"),
    ],
)
def test_a_wrong_one_is_refused_with_its_place_and_a_right_example(name, text, fault):
    right = {WINDOWS: "Sun 02:00-03:00 UTC", BLACKOUTS: "2026-12-24 UTC"}[name]
    with pytest.raises(InvalidField, match="send such as") as error:
        checked(name, [right, text])
    assert error.value.field == f"{name}[1]"
    assert fault in error.value.detail


def test_windows_past_the_end_of_the_week_open_on_the_day_they_name():
    hours = hours_of(HourRules(("Sun 22:00-06:00 UTC",)), datetime(2026, 5, 1, tzinfo=UTC))
    monday = np.array(["2026-05-04T03:00", "2026-05-05T03:00"], "M8[us]")
    assert (~np.isnat(hours.closing(monday))).tolist() == [True, False]


def test_windows_that_overlap_are_one():
    at = datetime(2026, 5, 1, tzinfo=UTC)
    two = hours_of(HourRules(("Mon 08:00-12:00 UTC", "Mon 11:00-14:00 UTC")), at)
    one = hours_of(HourRules(("Mon 08:00-14:00 UTC",)), at)
    np.testing.assert_array_equal(two.opens, one.opens)
    np.testing.assert_array_equal(two.closes, one.closes)


def test_blackouts_that_leave_no_opening_are_named():
    at = datetime(2026, 5, 1, tzinfo=UTC)
    rules = HourRules(("Sun 02:00-03:00 UTC",), ("2026-01-01/2029-01-01 UTC",))
    assert "within a year" in never_open(rules, at)
    assert never_open(rules._replace(blackouts=()), at) == ""
    assert never_open(HourRules(), at) == ""
    hours = hours_of(rules, at)
    assert hours.due(np.array([instant(at)]), np.array([1.0])).tolist() == [hours.until.item()]


@pytest.mark.parametrize("zone", ["localtime", "posixrules", "Factory"])
def test_zones_that_differ_by_machine_are_refused(zone):
    with pytest.raises(InvalidField, match="differs by machine"):
        checked(WINDOWS, [f"22:00-06:00 {zone}"])


def test_rules_in_a_zone_that_this_machine_does_not_know_never_open():
    at = datetime(2026, 5, 1, tzinfo=UTC)
    for rules in (
        HourRules(("22:00-06:00 Mars/Phobos", "00:00-24:00 UTC")),
        HourRules(("00:00-24:00 UTC",), ("2026-05-02 Mars/Phobos",)),
    ):
        assert hours_of(rules, at).is_never_open


def test_open_hours_are_computed_for_the_hosts_that_are_asked_for_alone():
    """Two thousand hosts with windows of their own took half a second of the first lease a day."""
    calendars = Calendars()
    rules = {host: HourRules((f"{host:02}:00-{host:02}:30 UTC",)) for host in range(1, 20)}
    calendars.adopt("1", StoredRules(rules))
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    with mock.patch("service.model.calendars.hours_of", side_effect=hours_of) as made:
        asked = calendars.of_hosts(np.array([7, 3, 7, 99]), now)
    assert made.call_count == 2
    assert [hours and hours.closing(hours.opens[:1])[0].item().hour for hours in asked] == [
        7,
        3,
        7,
        "",
    ]


def test_a_thread_that_reads_while_windows_change_finds_the_old_or_the_new_ones(monkeypatch):
    calendars, now = Calendars(), datetime(2026, 5, 1, 12, tzinfo=UTC)
    night = HourRules(("22:00-06:00 UTC",))
    calendars.adopt("1", StoredRules(dict.fromkeys(range(1, 20), night)))
    array, found = np.array, []

    def read_between(*values, **options):
        monkeypatch.setattr(np, "array", array)
        found.append(calendars.of_hosts(array([19]), now)[0])
        monkeypatch.setattr(np, "array", read_between)
        return array(*values, **options)

    monkeypatch.setattr(np, "array", read_between)
    calendars.adopt("2", StoredRules({1: night}))
    monkeypatch.undo()
    assert len(found) == 2
    assert all(found), "the old windows hold until all is there"
    assert calendars.of_hosts(np.array([19]), now)[0] == ""
