"""Spans and instants in the words of people."""

from datetime import datetime, timedelta

UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
"""Units of time, seconds; a span is written in the first unit that fits twice."""


def span(length: timedelta) -> str:
    """Return a span in words.

    >>> [span(timedelta(seconds=seconds)) for seconds in (1, 60, 600, 86_400, 400_000)]
    ['1 second', '60 seconds', '10 minutes', '24 hours', '4 days']
    """
    seconds = length.total_seconds()
    name, unit = next((each for each in UNITS if seconds >= 2 * each[1]), UNITS[-1])
    return counted(int(seconds // unit), name.removesuffix("s"))


def counted(n: int, word: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "crawl"), counted(2_000, "crawl")
    ('1 crawl', '2,000 crawls')
    """
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def utc(at: datetime) -> str:
    """Return an instant to the minute.

    >>> from datetime import UTC
    >>> utc(datetime(2026, 5, 1, 12, 30, tzinfo=UTC))
    '2026-05-01 12:30 UTC'
    """
    return f"{at:%Y-%m-%d %H:%M} UTC"
