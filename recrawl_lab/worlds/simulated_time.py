"""Simulated time: the clock a server is given, moved by whoever plays the world."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Day 0 of every world."""


class Clock:
    """Gives the simulated instant when called; only moves forward.

    >>> clock = Clock()
    >>> clock.advance(1.5)
    >>> clock().isoformat()
    '2026-01-02T12:00:00+00:00'
    """

    def __init__(self) -> None:
        self._now = START

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    def advance(self, day: float) -> None:
        """Move to a day since the start; one that has passed already changes nothing."""
        self._now = max(self._now, instant_of(day))


def instant_of(day: float) -> datetime:
    """Return the instant of a day since the start, to the microsecond."""
    return START + timedelta(days=day)


def day_of(instant: datetime) -> float:
    """Return the days since the start."""
    return (instant - START) / timedelta(days=1)
