"""Clocks: this module alone reads the machine's time of day.

Processes that share a Postgres database follow its clock. The one process of a SQLite file keeps a
steady clock.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

Clock = Callable[[], datetime]
"""Function that returns the time of day, UTC."""

DRIFT = 1e-3
"""Maximum relative drift between two running clocks."""

SMALL_STEP = timedelta(milliseconds=50)
"""Maximum step of the clock that moves no leases; time servers make such steps all day."""

SET_BACK = timedelta(seconds=1)
"""Minimum step back of a clock that counts as set back."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock that cannot be set; if the system has one, a clock that runs while the machine sleeps."""


def system_clock() -> datetime:
    """Return the machine's time of day, UTC."""
    return datetime.now(UTC)


def elapsed() -> float:
    """Return seconds since a fixed instant, by a clock that cannot be set."""
    return time.clock_gettime(_SOURCE)


class Bounds(NamedTuple):
    """Bounds of the instant at which `elapsed` was 0, by the clock that is followed."""

    least: datetime
    largest: datetime
    at: float
    """Seconds elapsed at the last reading."""


class FollowingClock:
    """A clock that follows another clock by readings; before the first, the machine's time of day.

    A reading bounds the difference of the two clocks. The bounds widen with time. A reading outside
    of the bounds shows that somebody set the other clock; the reading then replaces the bounds.

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
        """Follow a reading of the other clock.

        `sent` and `received` are the elapsed seconds at the question and at the answer.
        """
        least, largest = reading - timedelta(seconds=received), reading - timedelta(seconds=sent)
        new = Bounds(least, largest, received)
        if self._bounds is not None:
            drift = timedelta(seconds=DRIFT * abs(received - self._bounds.at))
            least = max(least, self._bounds.least - drift)
            largest = min(largest, self._bounds.largest + drift)
            new = Bounds(least, largest, received) if least <= largest else new
        self._bounds = new


class SteadyClock:
    """The machine's time of day without its steps; the store follows a step when it is safe."""

    def __init__(self, wall: Clock | None = None, elapsed: Callable[[], float] = elapsed) -> None:
        self.wall = wall or system_clock
        self.elapsed = elapsed
        self.start = self.wall_start()
        """The instant at which `elapsed` was 0."""

    def __call__(self) -> datetime:
        """Return the time of day."""
        return self.start + timedelta(seconds=self.elapsed())

    def wall_start(self) -> datetime:
        """Return the `start` with which this clock shows the machine's time of day."""
        return self.wall() - timedelta(seconds=self.elapsed())


def boot_id() -> str:
    """Return the id of the machine's last start, since which `elapsed` counts; "" if unknown."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
