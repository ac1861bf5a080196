"""The instants at which windows open and close, by the wall time of their zones.

A host is open while the wall time lies in a window, and in no blackout. So in March an hour of a
window vanishes, and in October one counts twice.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.open_hours import OpenHours
from service.model.arrays import INSTANT, Instants, instant
from service.model.windows import WEEK, Blackout, Window, zone_of

PAST, AHEAD = timedelta(days=40), timedelta(days=400)
"""Time before and after a day for which openings are computed: blackouts of a year ahead show."""
SAMPLED = timedelta(hours=6)
"""Time between two looks at the offset of a zone. No offset holds for a shorter time."""
DAY = np.timedelta64(1, "D")
MONDAY = np.datetime64("1970-01-05")

Stretches = tuple[Instants, Instants]
"""Begins and ends of stretches of time, ascending and apart."""
NOTHING: Stretches = (np.zeros(0, INSTANT), np.zeros(0, INSTANT))


class Offsets(NamedTuple):
    """(S,) stretches in which a zone has one offset from UTC."""

    begin: Instants
    end: Instants
    offset: NDArray[np.timedelta64]


def open_hours(
    windows: Sequence[Window] | None, blackouts: Iterable[Blackout], day: date
) -> OpenHours:
    """Return the open hours around a UTC day; without windows a host is open but in blackouts."""
    middle = datetime(day.year, day.month, day.day, tzinfo=UTC)
    begin, until = instant(middle - PAST), instant(middle + AHEAD)
    usual = (np.array([begin]), np.array([until]))
    if windows is not None:
        usual = within(merged([of_window(each, begin, until) for each in windows]), begin, until)
    dark = merged([of_blackout(each, begin, until) for each in blackouts])
    return OpenHours.of(*without(usual, dark), begin, until, usual)


def of_window(window: Window, begin: np.datetime64, until: np.datetime64) -> Stretches:
    """Return the stretches in which the wall time lies in a window."""
    # a window may have opened two local days before
    first, last = (at.astype("M8[D]") + n * DAY for at, n in ((begin, -3), (until, 3)))
    days = np.arange(first, last)
    opening = np.isin((days - MONDAY).astype(np.int64) % WEEK, window.days)
    midnight: Instants = days[opening].astype(INSTANT)
    wall = [midnight + np.timedelta64(minutes, "m") for minutes in (window.begin, window.end)]
    return at_wall_times(wall[0], wall[1], offsets(window.zone, begin, until))


def of_blackout(blackout: Blackout, begin: np.datetime64, until: np.datetime64) -> Stretches:
    """Return the stretch of the days of a blackout."""
    first, last = np.datetime64(blackout.first), np.datetime64(blackout.last) + DAY
    wall = np.array([first], INSTANT), np.array([last], INSTANT)
    return at_wall_times(*wall, offsets(blackout.zone, begin, until))


def at_wall_times(begin: Instants, end: Instants, zone: Offsets) -> Stretches:
    """Return the stretches in which the wall time of a zone lies between begins and ends."""
    starts = np.maximum(begin[:, None] - zone.offset, zone.begin)
    ends = np.minimum(end[:, None] - zone.offset, zone.end)
    some = starts < ends
    return starts[some], ends[some]


@lru_cache(maxsize=1_000)
def offsets(name: str, begin: np.datetime64, until: np.datetime64) -> Offsets:
    """Return the offsets of a zone from UTC between two instants."""
    zone = zone_of(name)

    def offset(at: datetime) -> timedelta:
        return at.astimezone(zone).utcoffset() or timedelta(0)

    at, end = (datetime.fromisoformat(f"{edge}+00:00") for edge in (begin, until))
    starts, spans = [begin], [offset(at)]
    while at < end:
        following = min(at + SAMPLED, end)
        if offset(following) != spans[-1]:
            low, high = at, following
            while high - low > timedelta(microseconds=1):
                middle = low + (high - low) / 2
                low, high = (middle, high) if offset(middle) == spans[-1] else (low, middle)
            starts.append(instant(high))
            spans.append(offset(high))
        at = following
    begins = np.array(starts, INSTANT)
    return Offsets(begins, np.append(begins[1:], until), np.array(spans, "m8[us]"))


# -- sets of stretches


def merged(parts: Sequence[Stretches]) -> Stretches:
    """Return the stretches that lie in any of several sets; those that touch become one."""
    if not parts:
        return NOTHING
    begins, ends = (np.concatenate(edges) for edges in zip(*parts, strict=True))
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order].astype(np.int64))
    ends = ends.astype(INSTANT)
    first = np.append(True, begins[1:] > ends[:-1])[: len(begins)]
    last = np.append(first[1:], True)[: len(begins)]
    return begins[first], ends[last]


def within(stretches: Stretches, begin: np.datetime64, until: np.datetime64) -> Stretches:
    """Return the parts of stretches between two instants."""
    begins, ends = np.maximum(stretches[0], begin), np.minimum(stretches[1], until)
    return begins[begins < ends], ends[begins < ends]


def without(stretches: Stretches, dark: Stretches) -> Stretches:
    """Return stretches without others."""
    if not len(dark[0]) or not len(stretches[0]):
        return stretches
    # between two dark stretches, and before the first and after the last
    begins = np.concatenate([stretches[0][:1], dark[1]])
    ends = np.concatenate([dark[0], stretches[1][-1:]])
    starts = np.maximum(stretches[0][:, None], begins)
    stops = np.minimum(stretches[1][:, None], ends)
    some = starts < stops
    return starts[some], stops[some]
