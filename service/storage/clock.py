"""Time: the machine's, and clocks that keep to one source of it.

The service reads the machine's time of day here and nowhere else. Several replicas share one
source, the database's clock; a process that is alone keeps its own steady when the machine's time
of day is set.
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

    def widened(self, at: float) -> "Bounds":
        """Return the bounds as drift may have moved them since."""
        drift = timedelta(seconds=DRIFT * abs(at - self.at))
        return Bounds(self.least - drift, self.largest + drift, at)


class FollowingClock:
    """A clock that follows another one, such as a database's, by readings of it.

    A reading was true at some moment between the question and its answer, so it bounds by how much
    the two clocks differ; readings narrow the bounds and time widens them. A reading outside of
    the bounds shows that the other clock was set: it replaces them. Before the first reading this
    is the machine's time of day.

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
        new = Bounds(
            reading - timedelta(seconds=received), reading - timedelta(seconds=sent), received
        )
        if self._bounds is not None:
            old = self._bounds.widened(received)
            both = Bounds(max(old.least, new.least), min(old.largest, new.largest), received)
            new = both if both.least <= both.largest else new
        self._bounds = new


class SteadyClock:
    """The machine's time of day, but for steps: these wait until somebody follows them.

    So what is kept by this clock, such as leases that run, can be carried along first.
    """

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
