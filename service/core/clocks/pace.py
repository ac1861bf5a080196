"""Pace of pages that are crawled many times a day: more crawls in the busy hours.

For intervals far below a day the cost of a day is the integral of s/(2 rho), rho the crawl rate at
an hour. At a given number of crawls it is least for rho in proportion to sqrt(s). So crawls are
evenly spaced in Q(t), the integral of sqrt(s) over its mean. Q has mean speed 1: crawls keep their
rate. The cost falls by the factor (mean sqrt(s))².
"""

import numpy as np
from numpy.typing import ArrayLike

from service.core.clocks.evidence import Indices
from service.core.clocks.profile import SLOTS, Profiles, intensity
from service.core.conditions import Floats, InvalidInput, check_amount, check_array


def pace(profiles: Profiles) -> Floats:
    """Return (H, SLOTS + 1) shares of a day's crawls from midnight up to each half-hour.

    The profile is weighted by the probability of a clock: 1 + w (s - 1).
    """
    weighted = 1.0 + profiles.weight[:, None] * (intensity(profiles) - 1.0)
    table = np.zeros((len(weighted), SLOTS + 1))
    np.cumsum(np.sqrt(weighted), axis=1, out=table[:, 1:])
    table /= table[:, -1:]
    return table


def paced(table: Floats, host: Indices, last: ArrayLike, interval: ArrayLike) -> Floats:
    """Return (N,) instants t with Q(t) = Q(last) + interval; O(N log H).

    Parameters
    ----------
    table : (H, SLOTS + 1)
        Q over a day, as of `pace`.
    host : (N,) int
        Row of each page's host.
    last, interval : (N,), days
        Nominal instant of the last crawl; time between crawls by the crawl rate, finite.

    Raise `InvalidInput` for an instant that is not finite, an interval that is negative or not
    finite, or a host out of range.

    Examples
    --------
    A page of a host that is busy about midnight is crawled every three hours on average:

    >>> profiles = Profiles(np.eye(17)[:1], np.ones(1))
    >>> profiles.coefficients[0, 1] = 0.8
    >>> t, table = np.zeros(1), pace(profiles)
    >>> for _ in range(8):
    ...     t = paced(table, np.zeros(1, int), t, [1 / 8])
    ...     print(f"{24 * t[0]:.1f}", end=" ")
    2.2 4.5 7.3 12.0 16.7 19.5 21.8 24.0
    """
    shape = np.shape(host)
    rows = np.asarray(host, np.intp)
    if rows.size and not (rows.min() >= 0 and rows.max() < len(table)):
        raise InvalidInput("host", f"must lie in [0, {len(table)})")
    start = check_array("last", last, shape, test=np.isfinite, must="finite")
    days = check_amount("interval", interval, shape)
    day = np.floor(start)
    slot = (start - day) * SLOTS
    left = slot.astype(np.intp)
    share = _between(table, rows, left, slot - left) + days
    whole = np.floor(share)
    share -= whole
    flat = (table[:, :-1] + np.arange(len(table))[:, None]).ravel()
    slots = np.searchsorted(flat, rows + share, side="right") - 1 - rows * SLOTS
    left = np.clip(slots, 0, SLOTS - 1)
    low, high = table[rows, left], table[rows, left + 1]
    part = np.clip((share - low) / (high - low), 0.0, 1.0)
    return np.asarray(day + whole + (left + part) / SLOTS)


def _between(table: Floats, rows: Indices, left: Indices, part: Floats) -> Floats:
    low = table[rows, left]
    return np.asarray(low + part * (table[rows, left + 1] - low))
