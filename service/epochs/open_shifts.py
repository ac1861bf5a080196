"""Shifts to better hours of pages whose hosts have windows: in open time, to open half-hours. Pure.

The instant by the crawl rate of a page is one interval of open time after that of its last crawl.
Shifts are minutes of open time.
"""

import numpy as np

from service.core.change_hours.best_hours import Masses, Planned, moves
from service.core.change_hours.profile import SLOTS
from service.core.open_hours import DAY_US, OpenHours
from service.model.arrays import Bools, Floats, Instants, Ints

MINUTE_US = 60_000_000
"""Length of a minute, microseconds."""


def nominal_in_open_time(
    hours: OpenHours, last: Instants, carried: Floats, step: Floats
) -> tuple[Ints, Instants]:
    """Return the open time and the instants of the next crawls by their rates.

    `carried` has the shifts of the last crawls, minutes, and `step` the intervals, days.
    """
    open_us = hours.elapsed(last) - (carried * MINUTE_US).astype(np.int64)
    open_us = open_us + (hours.step(step) * DAY_US).astype(np.int64)
    return open_us, hours.instant(open_us)


def open_slots(hours: OpenHours, nominal: Floats) -> Bools:
    """Return (N, SLOTS + 1) whether the half-hours around instants are open in their middle."""
    first = np.floor(nominal * SLOTS).astype(np.int64)[:, None] - SLOTS // 2
    half_hours = first + np.arange(SLOTS + 1)
    slot_us = DAY_US // SLOTS
    middle = (half_hours * slot_us + slot_us // 2).astype("M8[us]")
    opening = hours.opening(middle.ravel()).reshape(middle.shape)
    return np.asarray(opening == middle)


def shifts_in_open_time(
    hours: OpenHours,
    mass: Masses,
    planned: Planned,
    open_us: Ints,
    spread: Floats,
    today: float,
) -> Floats:
    """Return (N,) shifts to better half-hours, minutes of open time."""
    moved = moves(mass, planned, spread, today, open_slots(hours, planned.nominal))
    at = ((planned.nominal + moved) * DAY_US).astype(np.int64).astype("M8[us]")
    return np.asarray(np.rint((hours.elapsed(at) - open_us) / MINUTE_US))
