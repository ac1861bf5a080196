"""Durations and instants as people write them: 2h, 1d, 2026-05-01."""

import re
from datetime import UTC, datetime, timedelta

import typer

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
"""Units of durations, seconds."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
DURATION_HINT = "a number with s, min, h, d or w, such as 30min, 2h or 1d"
LONGEST = timedelta(days=36_500)


def read_duration(text: str) -> timedelta:
    """Return a duration; raise `BadParameter`.

    >>> read_duration("90min"), read_duration("1.5h"), read_duration("1w")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    """
    match = DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * UNITS.get(match[2], 0.0) if match else 0.0
    if not 0 < seconds <= LONGEST.total_seconds():
        raise typer.BadParameter(f"{text!r} is no duration; write {DURATION_HINT}")
    return timedelta(seconds=seconds)


def read_moment(text: str) -> datetime:
    """Return an instant: an instant with a zone, a day UTC, or a duration before now.

    >>> read_moment("2026-05-01").isoformat(), read_moment("2026-05-01T12:00:00Z").hour
    ('2026-05-01T00:00:00+00:00', 12)
    """
    if DURATION.fullmatch(text.strip().lower()):
        return datetime.now(UTC) - read_duration(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write how long ago it is ({DURATION_HINT}), a day such as "
            "2026-05-01, or an instant such as 2026-05-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None and len(text) == len("2026-05-01"):
        return moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no zone; write {text}Z for UTC")
    return moment


def read_end(text: str) -> float | datetime:
    """Return the span of a pause: its duration, seconds, or the instant of its end."""
    is_duration = DURATION.fullmatch(text.strip().lower())
    return read_duration(text).total_seconds() if is_duration else read_moment(text)
