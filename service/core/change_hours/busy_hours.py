"""Pages that are crawled many times a day: more crawls in the busy hours.

For intervals far below a day the cost of a day is the integral of s/(2 rho), rho the crawl rate at
an hour. At a given number of crawls it is least for rho in proportion to sqrt(s). So crawls are
evenly spaced in Q(t), the integral of sqrt(s) over its mean. Q has mean speed 1: crawls keep their
rate. The cost falls by the factor (mean sqrt(s))².
"""

import numpy as np
from numpy.typing import ArrayLike

from service.core.change_hours.evidence import Indices
from service.core.change_hours.profile import SLOTS, Profiles, intensity
from service.core.checks import Floats, InvalidInput, check_amount, check_array


def changes(profiles: Profiles) -> Floats:
    """Return (H, SLOTS + 1) shares of a day's changes from midnight up to each half-hour."""
    return _sums(_weighted(profiles))


def pace(profiles: Profiles) -> Floats:
    """Return (H, SLOTS + 1) shares of a day's crawls from midnight up to each half-hour."""
    return _sums(np.sqrt(_weighted(profiles)))


def _weighted(profiles: Profiles) -> Floats:
    """Return (H, SLOTS) profiles weighted by the probability of change hours: 1 + w (s - 1)."""
    return np.asarray(1.0 + profiles.weight[:, None] * (intensity(profiles) - 1.0))


def _sums(speed: Floats) -> Floats:
    """Return (H, SLOTS + 1) sums from midnight on, over the sum of the day."""
    table = np.zeros((len(speed), SLOTS + 1))
    np.cumsum(speed, axis=1, out=table[:, 1:])
    table /= table[:, -1:]
    return table


def passed(table: Floats, host: Indices, start: Floats, end: Floats) -> Floats:
    """Return (N,) operational lengths of intervals, S(end) - S(start), days; `table` of `changes`.

    Examples
    --------
    Nearly all changes of a host come at noon. An hour about noon holds more than the twelve after:

    >>> profiles = Profiles(np.eye(17)[:1], np.ones(1))
    >>> profiles.coefficients[0, 1:9] = 2.0 * (-1.0) ** np.arange(1, 9)
    >>> hosts, start = np.zeros(2, int), np.array([11.5, 12.5]) / 24
    >>> passed(changes(profiles), hosts, start, start + np.array([1, 12]) / 24).round(2)
    array([0.42, 0.3 ])
    """
    return _at(table, host, end) - _at(table, host, start)


def _at(table: Floats, host: Indices, at: Floats) -> Floats:
    """Return (N,) values of the tables' functions at instants, days."""
    day = np.floor(at)
    slot = (at - day) * SLOTS
    left = np.minimum(slot.astype(np.intp), SLOTS - 1)
    return np.asarray(day + _between(table, host, left, slot - left))


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
