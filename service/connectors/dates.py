"""Dates as sites write them: the W3C's forms, those of mail, and common mistakes of both."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

LONGEST = 80
"""Maximum length of a date, characters."""
INSTANT, DAY, WEEK = timedelta(0), timedelta(1), timedelta(7)
SPANS = {4: timedelta(366), 7: timedelta(31), 8: DAY, 10: DAY}
"""Length of a period by that of its text: a year, a month, a day."""
REST = {4: "-01-01", 7: "-01"}
WEST = timedelta(hours=12)
"""Difference between UTC and the westernmost time zone, where a day ends last."""
WHOLE_WEEK = re.compile(r"\d{4}-?W\d\d")
A_DAY = len("2026-05-01")
SECONDS, MILLISECONDS = 10, 13
"""Digits of the time since 1970, by its unit."""
MIDNIGHT, LAST_SECOND = (24, 0, 0), 59
SHORT = 2
"""Number of digits of a short year, and of an offset in hours."""
CENTURY = 50
"""First year of two digits that is one of the 20th century."""

TIME = (
    r"(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,6})\d*)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\b\.?)?"
)
ZONE = (
    r"\s*\(?(?P<zone>[a-z]{1,5})?\)?\s*(?P<offset>[+-]\d\d?(?::?\d\d)?)?(?:\s*[(\[][^)\]]*[)\]])?"
)
WEEKDAY, MONTH = (
    r"(?:[^\W\d]{2,12}\.?,?\s*)?",
    r"(?P<name>(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6})\.?",
)
DAY_OF_MONTH = r"(?P<day>\d\d?)(?:st|nd|rd|th)?"
SHIFT = r"(?P<offset2>[+-]\d\d:?(?:\d\d)?)"
AT_TIME = rf"(?:[,\s]+(?:(?:-|at)\s+)?{TIME})?"
FORMS = [
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?P<year>\d{{4}})([-/.])(?P<month>\d\d?)\2(?P<day>\d\d?)(?:[t\s,]*{TIME}{ZONE}|{SHIFT})?t?z?",
        rf"{WEEKDAY}{DAY_OF_MONTH}[\s-]*{MONTH},?[\s-]*(?P<year>\d{{4}}|\d\d){AT_TIME}{ZONE}",
        rf"{WEEKDAY}{MONTH}\s*{DAY_OF_MONTH},?\s+(?P<year>\d{{4}}){AT_TIME}{ZONE}",
        rf"{WEEKDAY}{MONTH}\s+(?P<day>\d\d?)\s+{TIME}(?:\s+(?P<zone2>[a-z]{{1,5}}))?\s+(?P<year>\d{{4}}){ZONE}",
    )
]
"""Patterns of the W3C's dates with other separators, of mail, of America and of C's asctime."""
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
ZONES = {
    name: timedelta(hours=hours)
    for hours, names in {
        1: "bst cet west",
        2: "cest eet",
        3: "eest msk",
        5.5: "ist",
        8: "hkt sgt awst",
        9: "jst kst",
        9.5: "acst",
        10: "aest",
        11: "aedt",
        12: "nzst",
        13: "nzdt",
        -2.5: "ndt",
        -3: "adt brt",
        -3.5: "nst",
        -4: "edt ast",
        -5: "est cdt",
        -6: "cst mdt",
        -7: "mst pdt",
        -8: "pst akdt",
        -9: "akst",
        -10: "hst",
    }.items()
    for name in names.split()
}
"""Offset of named zones; other names stand for UTC."""


class Date(NamedTuple):
    """A date: the beginning of its period, and the period's length."""

    begins: datetime
    span: timedelta
    """Length; zero for an instant."""

    def latest(self, now: datetime) -> datetime:
        """Return the last instant of the period anywhere on Earth, at most `now`.

        >>> day, noon = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 1, 12, tzinfo=UTC)
        >>> Date(day, DAY).latest(noon) == noon, Date(day, INSTANT).latest(noon) == day
        (True, True)
        """
        if not self.span:
            return self.begins
        # the end of the year 9999 is no date
        return self.begins + max(min(now - self.begins, self.span + WEST), timedelta(0))


def read_date(text: str) -> Date | None:
    """Return a date; None for other text.

    A time without a zone is UTC. A year, a month or a day stands for its beginning, so equal texts
    are equal instants.

    >>> read_date("2004-12")
    Date(begins=datetime.datetime(2004, 12, 1, 0, 0, tzinfo=datetime.timezone.utc),
         span=datetime.timedelta(days=31))
    >>> read_date("Thu, 23 Dec 04 11:00 EST").begins
    datetime.datetime(2004, 12, 23, 16, 0, tzinfo=datetime.timezone.utc)
    >>> read_date("yesterday")
    """
    text = text.strip()
    if len(text) > LONGEST:
        return None
    try:
        moment, span = _standard(text) or _written(text)
        return Date(moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC), span)
    except (ValueError, OverflowError):
        return None


def _standard(text: str) -> tuple[datetime, timedelta] | None:
    """Return a date in a form of ISO 8601, and its period; None for other text."""
    length = len(text)
    if length > A_DAY and text[A_DAY] in "+-":  # Python reads the zone of a day as a time
        return None
    if "W" in text and WHOLE_WEEK.fullmatch(text):
        return datetime.fromisoformat(text), WEEK
    try:
        moment = datetime.fromisoformat(text + REST.get(length, ""))
    except ValueError:
        return None
    return moment, SPANS.get(length, INSTANT)


def _written(text: str) -> tuple[datetime, timedelta]:
    """Return a date in another form, and its period; raise `ValueError` for other text."""
    if text.isdecimal() and text.isascii():
        return _of_digits(text), INSTANT
    text = " ".join(text.split())  # the patterns are slow on many blanks
    match = next(filter(None, (form.fullmatch(text) for form in FORMS)), None)
    if match is None:
        raise ValueError(text)
    groups = match.groupdict()
    day = datetime(_year(groups["year"]), _month(groups), int(groups["day"]), tzinfo=_zone(groups))
    if groups["hour"] is None:
        return day, DAY
    hour, minute, second = (int(groups[name] or 0) for name in ("hour", "minute", "second"))
    if groups["half"]:
        hour = hour % 12 + 12 * (groups["half"].lower() == "p")
    if (hour, minute, second) == MIDNIGHT:
        return day + DAY, INSTANT
    part = int((groups["part"] or "0").ljust(6, "0"))
    second = min(second, LAST_SECOND)
    return day.replace(hour=hour, minute=minute, second=second, microsecond=part), INSTANT


def _of_digits(text: str) -> datetime:
    """Return the instant of a time since 1970, or of digits from the year on."""
    if len(text) in (SECONDS, MILLISECONDS):
        return datetime.fromtimestamp(int(text[:SECONDS]), UTC)
    return datetime.fromisoformat(f"{text[:8]}T{text[8:]}")


def _year(digits: str) -> int:
    year = int(digits)
    return year if len(digits) > SHORT else year + (1900 if year >= CENTURY else 2000)


def _month(groups: dict[str, str | None]) -> int:
    name = groups.get("name")
    return MONTHS.index(name[:3].lower()) + 1 if name else int(groups.get("month") or 0)


def _zone(groups: dict[str, str | None]) -> timezone:
    if offset := groups.get("offset") or groups.get("offset2"):
        digits = offset[1:].replace(":", "")
        hours, minutes = int(digits[:-2] or digits), int(digits[-2:])
        if len(digits) <= SHORT:
            hours, minutes = int(digits), 0
        shift = timedelta(hours=hours, minutes=minutes)
        return timezone(-shift if offset[0] == "-" else shift)
    name = groups.get("zone") or groups.get("zone2") or ""
    return timezone(ZONES.get(name.lower(), timedelta(0)))
