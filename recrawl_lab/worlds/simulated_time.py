"""Simulated time: a server's clock, which a simulation advances."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Day 0 of every world."""


class Clock:
    """Clock that returns the simulated instant when called, and only moves forward.

    >>> clock = Clock()
    >>> clock.advance(1.5)
    >>> clock().isoformat()
    '2026-01-02T12:00:00+00:00'
    """

    def __init__(self) -> None:
        self._now = START

    def __call__(self) -> datetime:
        """Return the simulated instant."""
        return self._now

    def advance(self, day: float) -> None:
        """Move to a day since the start; an earlier day has no effect."""
        self._now = max(self._now, instant_of(day))


def instant_of(day: float) -> datetime:
    """Return the instant of a day since the start, to the microsecond."""
    return START + timedelta(days=day)


def day_of(instant: datetime) -> float:
    """Return the days since the start."""
    return (instant - START) / timedelta(days=1)
