"""Time: the service reads the machine's time of day here and nowhere else.

Replicas follow the database's clock. A process that is alone keeps its own clock steady.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

Clock = Callable[[], datetime]
"""Returns the time of day, UTC."""

DRIFT = 1e-3
"""Largest share by which two running clocks drift apart."""

SMALL_STEP = timedelta(milliseconds=50)
"""Corrections up to this are followed at once: time servers make them all day."""

SET_BACK = timedelta(seconds=1)
"""A clock that is this much earlier than before was set back."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that nobody sets; where there is a choice, one that runs while the machine sleeps."""


def system_clock() -> datetime:
    """Return the machine's time of day, UTC."""
    return datetime.now(UTC)


def elapsed() -> float:
    """Return seconds since some instant, by a clock that nobody sets."""
    return time.clock_gettime(_SOURCE)


class Bounds(NamedTuple):
    """When a clock that nobody sets began to run, by the clock that is followed."""

    least: datetime
    largest: datetime
    at: float
    """Seconds elapsed at the last reading."""


class FollowingClock:
    """A clock that follows another one by readings of it; at first the machine's time of day.

    A reading bounds by how much the two clocks differ; time widens the bounds. A reading outside
    of the bounds shows that the other clock was set, and replaces them.

    >>> seconds = iter([10.0])
    >>> clock = FollowingClock(lambda: next(seconds))
    >>> clock.read(datetime(2026, 5, 1, tzinfo=UTC), sent=4.0, received=6.0)
    >>> clock().isoformat()
    '2026-05-01T00:00:05+00:00'
    """

    def __init__(self, elapsed: Callable[[], float] = elapsed) -> None:
        self.elapsed = elapsed
        self._bounds: Bounds | None = None

    def __call__(self) -> datetime:
        """Return the time of the clock that is followed."""
        if self._bounds is None:
            return system_clock()
        least, largest, _ = self._bounds
        return least + (largest - least) / 2 + timedelta(seconds=self.elapsed())

    def read(self, reading: datetime, *, sent: float, received: float) -> None:
        """Take a reading that was asked for and answered after so many elapsed seconds."""
        least, largest = reading - timedelta(seconds=received), reading - timedelta(seconds=sent)
        new = Bounds(least, largest, received)
        if self._bounds is not None:
            drift = timedelta(seconds=DRIFT * abs(received - self._bounds.at))
            least = max(least, self._bounds.least - drift)
            largest = min(largest, self._bounds.largest + drift)
            new = Bounds(least, largest, received) if least <= largest else new
        self._bounds = new


class SteadyClock:
    """The machine's time of day, but for steps: leases and delays are carried along first."""

    def __init__(self, wall: Clock | None = None, elapsed: Callable[[], float] = elapsed) -> None:
        self.wall = wall or system_clock
        self.elapsed = elapsed
        self.start = self.wall_start()
        """The instant at which no second had elapsed."""

    def __call__(self) -> datetime:
        """Return the time of day."""
        return self.start + timedelta(seconds=self.elapsed())

    def wall_start(self) -> datetime:
        """Return the start by which this clock would agree with the machine's time of day."""
        return self.wall() - timedelta(seconds=self.elapsed())


def boot_id() -> str:
    """Return what names this run of the machine, through which `elapsed` counts; "" if unknown."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
