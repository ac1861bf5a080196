"""Windows and blackouts of hosts as texts: when a host may be crawled, and when it may not.

A window names days and local times, such as `Mon-Fri 22:00-06:00 Europe/Berlin`. A window past
midnight belongs to the day on which it opens. A blackout names whole local days, such as
`2026-12-24/2026-12-26 Europe/Berlin`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from zoneinfo import ZoneInfo

from service.model.errors import InvalidField

WINDOWS, BLACKOUTS = "windows", "blackouts"
"""Names of the fields."""
MOST = 50
"""Maximum number of windows, or of blackouts, of one host."""
SEPARATOR = ";"
"""Character between the windows of one text, as in settings."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES = 1_440
"""Length of a day, minutes."""
WEEK = len(DAYS)

WINDOW_EXAMPLE = "Mon-Fri 22:00-06:00 Europe/Berlin"
BLACKOUT_EXAMPLE = "2026-12-24/2026-12-26 Europe/Berlin"

WINDOW_FORM = re.compile(r"(?:(\S*[A-Za-z]\S*) )?(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d) (\S+)", re.ASCII)
BLACKOUT_FORM = re.compile(r"(\d{4}-\d\d-\d\d)(?:/(\d{4}-\d\d-\d\d))? (\S+)", re.ASCII)


class Unreadable(ValueError):
    """A text that is no window or no blackout."""


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A window of a week."""

    days: tuple[int, ...]
    """Days on which it opens, from 0 for Monday, ascending."""
    begin: int
    """Local time of the opening, minutes from midnight."""
    end: int
    """Local time of the closing, minutes from the midnight of the same day; above `begin`."""
    zone: str

    def __str__(self) -> str:
        return f"{_named(self.days)}{_time(self.begin)}-{_time(self._clock_end)} {self.zone}"

    @property
    def _clock_end(self) -> int:
        return self.end if self.end <= DAY_MINUTES else self.end - DAY_MINUTES


@dataclass(frozen=True, slots=True, order=True)
class Blackout:
    """Whole days without crawls."""

    first: date
    last: date
    zone: str

    def __str__(self) -> str:
        days = f"{self.first}" if self.first == self.last else f"{self.first}/{self.last}"
        return f"{days} {self.zone}"


def read_window(text: str) -> Window:
    """Return the window of a text; raise `Unreadable`.

    >>> str(read_window("mon-wed,Sun  22:00-6:00 Europe/Berlin"))
    'Mon-Wed,Sun 22:00-06:00 Europe/Berlin'
    >>> str(read_window("00:00-24:00 UTC"))
    '00:00-24:00 UTC'
    """
    matched = WINDOW_FORM.fullmatch(" ".join(text.split()))
    if matched is None:
        raise Unreadable("has not the form DAYS HH:MM-HH:MM ZONE")
    days, *clock, zone = matched.groups()
    begin, end = _minutes(*clock[:2]), _minutes(*clock[2:])
    if begin == end:
        raise Unreadable("begins and ends at the same time; a whole day is 00:00-24:00")
    if begin == DAY_MINUTES:
        raise Unreadable("begins at 24:00, which is 00:00 of the next day")
    end += DAY_MINUTES if end < begin else 0
    return Window(_days(days), begin, end, _zone(zone))


def read_blackout(text: str) -> Blackout:
    """Return the blackout of a text; raise `Unreadable`.

    >>> str(read_blackout("2026-12-24 Europe/Berlin"))
    '2026-12-24 Europe/Berlin'
    """
    matched = BLACKOUT_FORM.fullmatch(" ".join(text.split()))
    if matched is None:
        raise Unreadable("has not the form DATE/DATE ZONE")
    begin, end, zone = matched.groups()
    try:
        first, last = date.fromisoformat(begin), date.fromisoformat(end or begin)
    except ValueError:
        raise Unreadable("has a date that no calendar has") from None
    if last < first:
        raise Unreadable(f"ends on {last}, before it begins")
    return Blackout(first, last, _zone(zone))


def checked(name: str, texts: Iterable[str], field: str | None = None) -> tuple[str, ...]:
    """Return windows or blackouts in their usual form, by the name of their field.

    Raise `InvalidField`, which names the place, the fault and a right example. `field` is the name
    to show.
    """
    read, example = (
        (read_window, WINDOW_EXAMPLE) if name == WINDOWS else (read_blackout, BLACKOUT_EXAMPLE)
    )
    field = field or name
    usual: list[str] = []
    for n, text in enumerate(texts):
        try:
            usual.append(str(read(text)))
        except Unreadable as error:
            place = f"{field}[{n}]"
            detail = f"{place} {text[:100]!r} {error}; send such as {example!r}"
            raise InvalidField(place, detail) from None
    if len(usual) > MOST:
        raise InvalidField(field, f"{field} has {len(usual)} items; send at most {MOST}")
    return tuple(dict.fromkeys(usual))


def parts_of(text: str) -> list[str]:
    """Return the texts between semicolons.

    >>> parts_of("Sat 00:00-24:00 UTC; Sun 02:00-03:00 UTC;")
    ['Sat 00:00-24:00 UTC', 'Sun 02:00-03:00 UTC']
    """
    return [part.strip() for part in text.split(SEPARATOR) if part.strip()]


NOT_EVERYWHERE = frozenset({"localtime", "posixrules", "Factory"})
"""Names that mean another zone, or none, on another machine."""


@lru_cache(maxsize=1_000)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone; raise `Unreadable` for a name that no zone has."""
    if name in NOT_EVERYWHERE:
        raise Unreadable(f"names a zone that differs by machine: {name!r}")
    try:
        return ZoneInfo(name)
    except (OSError, ValueError):  # also ZoneInfoNotFoundError, a name of a folder or with "../"
        raise Unreadable(f"names no time zone: {name[:60]!r}") from None
    except KeyError:
        raise Unreadable(f"names no time zone: {name[:60]!r}") from None


def _zone(name: str) -> str:
    return zone_of(name).key


def _minutes(hours: str, minutes: str) -> int:
    time = 60 * int(hours) + int(minutes)
    if int(minutes) >= 60 or time > DAY_MINUTES:  # noqa: PLR2004 - minutes of an hour
        raise Unreadable(f"has the time {hours}:{minutes}, which no day has")
    return time


def _time(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _days(text: str | None) -> tuple[int, ...]:
    """Return the days of such as `Mon-Wed,Sun`; None: all days. `Sat-Mon` passes Sunday."""
    if text is None:
        return tuple(range(WEEK))
    days = set[int]()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin = _day(first)
        end = _day(last) if dash else begin
        days |= {day % WEEK for day in range(begin, end + (WEEK if end < begin else 0) + 1)}
    return tuple(sorted(days))


def _day(text: str) -> int:
    try:
        return DAYS.index(text.capitalize())
    except ValueError:
        raise Unreadable(f"names no day: {text[:20]!r} is none of {', '.join(DAYS)}") from None


def _named(days: tuple[int, ...]) -> str:
    """Return days as a text with a space behind it; "" for all."""
    if len(days) == WEEK:
        return ""
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    words = [DAYS[run[0]] + (f"-{DAYS[run[-1]]}" if len(run) > 1 else "") for run in runs]
    return f"{','.join(words)} "
