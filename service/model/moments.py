"""Durations and instants as people write them: 2h, 1d, 2026-05-01."""

import re
from datetime import UTC, datetime, timedelta

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
"""Units of durations, seconds."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
DURATION_HINT = "a number with s, min, h, d or w, such as 30min, 2h or 1d"
LONGEST = timedelta(days=36_500)
DAYS = {"today": 0, "yesterday": 1}
"""Days by name, as days before now."""


def is_duration(text: str) -> bool:
    """Return whether a text has the form of a duration."""
    return DURATION.fullmatch(text.strip().lower()) is not None


def duration_of(text: str, *, zero: bool = False) -> timedelta:
    """Return a duration; raise `ValueError` with a remedy. `zero`: none at all is one, too.

    >>> duration_of("90min"), duration_of("1.5h"), duration_of("1w")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    """
    match = DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * UNITS.get(match[2], -1.0) if match else -1.0
    if not 0 <= seconds <= LONGEST.total_seconds() or not (seconds or zero):
        raise ValueError(f"{text!r} is no duration; write {DURATION_HINT}")
    return timedelta(seconds=seconds)


def moment_of(text: str, now: datetime, span: str = "how long ago it is") -> datetime:
    """Return an instant: an instant with a zone, a day UTC, or a duration before now.

    `today` and `yesterday` are days too.

    `span` is what a duration would mean, for the remedy.

    Raises
    ------
    ValueError
        The text is none of these; the message has a remedy.

    >>> now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> moment_of("2026-05-01", now).isoformat(), moment_of("90min", now).isoformat()
    ('2026-05-01T00:00:00+00:00', '2026-05-01T10:30:00+00:00')
    >>> moment_of("yesterday", now).isoformat()
    '2026-04-30T00:00:00+00:00'
    """
    if is_duration(text):
        return now - duration_of(text)
    if (days_ago := DAYS.get(text.strip().lower())) is not None:
        day = now.astimezone(UTC) - timedelta(days=days_ago)
        return day.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; write {span} ({DURATION_HINT}), a day such as "
            "2026-05-01, or an instant such as 2026-05-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None and len(text) == len("2026-05-01"):
        return moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone; write {text}Z for UTC")
    return moment
