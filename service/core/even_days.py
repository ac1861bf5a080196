"""Even days: what a day keeps of its budget for hosts that are closed now, or close later. Pure.

A UTC day has one budget for all hosts. Without a rule, the hosts that open first spend it while
pages wait, and those that open later have nothing. An opening after a closure would spend what the
closure has saved, at once. So each set of windows has a share of the day's budget. It is that of
the crawls planned for the day's open time. The share is released evenly over this
time, but for the last hour. By then all of it is free for all hosts, so that fleets that ask once
an hour lose nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.core.open_hours import DAY, OpenHours

FREE = np.timedelta64(65, "m") / DAY
"""Open time at the end of a day in which nothing is kept, days: above an hour between requests."""


class Demand(NamedTuple):
    """Planned crawls of the pages of hosts with the same windows."""

    hours: OpenHours | None
    """Open hours; None: always open."""
    a_day: float
    """Amount a day, in any unit."""


class Kept(NamedTuple):
    """Shares of a day's budget that crawls leave over at an instant."""

    due: float = 0.0
    """Left over by crawls that are due, for hosts with windows."""
    early: float = 0.0
    """Left over by early crawls of hosts with windows, for all hosts."""
    in_windows: float = 0.0
    """Share of the day's demand that is of hosts with windows."""


NOTHING_KEPT = Kept()
"""Nothing: no host has windows."""


def kept(demands: Sequence[Demand], at: np.datetime64) -> Kept:
    """Return what a day keeps at an instant.

    Examples
    --------
    Half of the demand is of hosts that are open from 12 to 18 o'clock:

    >>> day = np.datetime64("2026-05-01", "us") + np.arange(10) * DAY
    >>> hour = np.timedelta64(1, "h")
    >>> hours = OpenHours.of(day + 12 * hour, day + 18 * hour, day[0], day[-1])
    >>> demands = [Demand(None, 10.0), Demand(hours, 10.0)]
    >>> [round(kept(demands, day[3] + h * hour).due, 2) for h in (0, 12, 15, 17, 18)]
    [0.5, 0.5, 0.19, 0.0, 0.0]
    >>> round(kept(demands, day[3] + 12 * hour).early, 2)
    0.74
    """
    begin = at.astype("M8[D]").astype("M8[us]")
    end = begin + DAY
    of_day, left = (
        np.array([_of_day(*demand, begin, at, end) for demand in demands]).reshape(-1, 2).T
    )
    closes = np.array([demand.hours is not None for demand in demands], np.bool_)
    if not of_day[closes].sum() > 0:
        return NOTHING_KEPT
    share = of_day / of_day.sum()
    waits = share * left
    return Kept(float(waits[closes].sum()), float(waits.sum()), float(share[closes].sum()))


def _of_day(
    hours: OpenHours | None,
    a_day: float,
    begin: np.datetime64,
    at: np.datetime64,
    end: np.datetime64,
) -> tuple[float, float]:
    """Return the demand of a day, and the share of it that is not released yet."""
    if hours is None:
        span, left, wanted = 1.0, float((end - at) / DAY), a_day
    else:
        span, left = hours.open_days_between(begin, end), hours.open_days_between(at, end)
        wanted = a_day * span / hours.share if span > 0 else 0.0
    return wanted, (left - FREE) / (span - FREE) if left > FREE else 0.0
