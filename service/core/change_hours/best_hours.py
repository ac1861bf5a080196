"""Best hours: where in its window a crawl costs least, and how crawls share the best hours.

The nominal instant of a crawl follows from the crawl rate alone. A crawl is shifted from there to a
better hour, at most by half of its interval. The next nominal instant counts from this nominal
instant, not from the crawl. Therefore crawls keep their rate.
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from service.core.change_hours.evidence import Indices
from service.core.change_hours.profile import HARMONICS, ORDERS, SLOT_STARTS, SLOTS, Profiles, waves
from service.core.checks import Bools, Floats, InvalidInput, check_amount, check_array, check_share

CONCENTRATION = 6.0
"""Crawls of a host in its best hours, of its mean: the crawls of a day take 24/6 hours."""
MOST_INTERVAL = 14.0
"""Longest interval of pages whose crawls are shifted, days."""
FAST_INTERVAL = 0.12
"""Interval below which crawls follow the busy hours (`core.change_hours.busy_hours`), days."""
MAX_SHIFT = 0.5
"""Maximum time by which a crawl is shifted, days."""
PROBE_SHARE = 0.02
"""Share of the crawls, of pages that nearly always change, that an extra crawl follows."""
PROBE_DELAY = 0.02, 0.92
"""Range of the time from a crawl to its extra crawl, days; shorter than a day."""
PROBE_EXPECTED = 1.5
"""Changes expected per interval above which a page nearly always changes."""
CERTAIN = 0.9
"""Weight of change hours above which extra crawls are not needed."""
DAY_MINUTES = 1440.0
"""Length of a day, minutes."""
BLOCK = 2048
"""Maximum number of crawls whose candidates are in memory at a time."""
ROWS = 512
"""Maximum number of hosts whose excess masses are computed at a time; more leave the cache."""

Masses = NDArray[np.float32]
Ids = NDArray[np.integer]


class Planned(NamedTuple):
    """(N,) crawls by their rates."""

    host: Indices
    """Row of the host."""
    nominal: Floats
    """Instant by the crawl rate, days."""
    interval: Floats
    """Time between crawls by the crawl rate, days; infinite: never."""
    change_rate: Floats
    """Changes a day."""
    turn: Floats
    """Place within the best hours, [0, 1), as of `turns`."""

    def take(self, rows: Indices) -> "Planned":
        """Return the crawls that an index selects."""
        host, nominal, interval, change_rate, turn = self
        return Planned(host[rows], nominal[rows], interval[rows], change_rate[rows], turn[rows])


def excess_mass(profiles: Profiles, spread: ArrayLike = 0.0) -> Masses:
    """Return (H, SLOTS) excess masses at half-hours, times the weight of change hours, days.

    phi(t) = Re sum_k z_k/(2 pi i k) e^(2 pi i k t), averaged over a stretch of `spread` days about
    t: a factor sinc(k spread) on each harmonic. `spread` is a number or (H,); 1/c for crawls that
    share the best hours up to c times their mean rate.

    Raise `InvalidInput` for a spread outside of [0, 1].

    Examples
    --------
    All changes come at noon. The excess mass is largest just after noon:

    >>> profiles = Profiles(np.eye(17)[:1], np.ones(1))
    >>> profiles.coefficients[0, 1:9] = 2.0 * (-1.0) ** np.arange(1, 9)
    >>> mass = excess_mass(profiles)[0]
    >>> int(mass.argmax()) / 2, round(float(mass.max()), 2)
    (13.5, 0.53)
    """
    hosts = len(profiles.weight)
    width = check_share("spread", spread, np.shape(spread))
    width = np.broadcast_to(width, hosts)
    mass = np.empty((hosts, SLOTS), np.float32)
    for start in range(0, hosts, ROWS):
        some = slice(start, start + ROWS)
        scale = np.sinc(width[some, None] * ORDERS) * profiles.weight[some, None]
        harmonics = profiles.take(some).harmonics
        harmonics[:, :HARMONICS] *= scale
        harmonics[:, HARMONICS:] *= scale
        mass[some] = harmonics @ _SUMMED
    return mass


_SUMMED = np.vstack((waves(SLOT_STARTS).imag.T, -waves(SLOT_STARTS).real.T))
_SUMMED /= (2.0 * np.pi * np.tile(ORDERS, 2))[:, None]
"""(TERMS - 1, SLOTS) excess masses of the cosines and sines of a profile at half-hours, days."""


def resistance(expected: ArrayLike) -> Floats:
    """Return kappa, the curvature of a crawl's cost in its shift, at x expected changes.

    A shift by d days costs kappa d²/T more, with kappa = (1 - e^-x)/Ein(x). The value 1/(1 + x/4)
    differs by at most 0.03 up to x = 4.

    Examples
    --------
    >>> resistance([0.0, 1.0, 4.0])
    array([1. , 0.8, 0.5])
    """
    x = check_amount("expected", expected, np.shape(expected))
    return np.asarray(1.0 / (1.0 + 0.25 * x))


def moves(
    mass: Masses,
    planned: Planned,
    spread: ArrayLike,
    now: float = -np.inf,
    is_open: Bools | None = None,
) -> Floats:
    """Return (N,) days by which crawls are shifted towards the best hours; O(SLOTS N).

    The shift d maximises phi(t + d) - kappa d²/T over half-hours t + d of the window
    |d| <= min(1/2, T/2). The crawls of one half-hour are spread over `spread` days about it, or
    over half of their own interval if that is less. If the best instant has passed, the crawl
    takes place now, or later if a later half-hour of the window is better.

    A crawl is not shifted if its host has no change hours, or if all of its window has passed.
    Intervals longer than `MOST_INTERVAL` or shorter than `FAST_INTERVAL` are not shifted either.

    Parameters
    ----------
    mass : (H, SLOTS) float32
        As of `excess_mass` with the same spread. A row of zeros: no change hours.
    spread : array_like, () or (H,), days
    now : float, days
        Earliest instant of a crawl.
    is_open : (N, SLOTS + 1) bool
        Half-hours that may be chosen, the nominal one in the middle; None: all.

    Raises
    ------
    InvalidInput
        A nominal instant or a change rate is not finite, an interval is not positive, a turn or a
        spread is out of range, or a host is.

    References
    ----------
    Derived (docs/theory.md, "Sites with change hours").

    Examples
    --------
    Pages of a host that changes at noon are crawled once a day, nominally at six. Their crawls take
    four hours, from half past twelve on:

    >>> profiles = Profiles(np.eye(17)[:1], np.ones(1))
    >>> profiles.coefficients[0, 1:9] = 2.0 * (-1.0) ** np.arange(1, 9)
    >>> six = Planned(np.zeros(3, int), np.full(3, 0.25), np.ones(3), np.ones(3), [0.0, 0.5, 0.99])
    >>> 24 * moves(excess_mass(profiles, 1 / 6), six, 1 / 6) + 6
    array([12.5 , 14.5 , 16.46])
    """
    width = np.broadcast_to(check_share("spread", spread, np.shape(spread)), len(mass))
    planned = _checked(planned, len(mass))
    moved = np.zeros(len(planned.host))
    windows = sliding_window_view(
        np.concatenate((mass[:, SLOTS // 2 :], mass, mass[:, : SLOTS // 2 + 1]), axis=1),
        SLOTS + 1,
        axis=1,
    )
    interval = planned.interval
    regular = (interval >= FAST_INTERVAL) & (interval <= MOST_INTERVAL)
    has_hours = np.asarray(mass.any(axis=1))
    rows = np.flatnonzero(regular & has_hours[planned.host])
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        block = planned.take(some)
        moved[some] = _moves(
            windows, block, width[block.host], now, None if is_open is None else is_open[some]
        )
    return moved


def _moves(
    windows: Masses, planned: Planned, spread: Floats, now: float, is_open: Bools | None
) -> Floats:
    """Return the shifts of a block; windows[h, i] are the masses of a day about slot i."""
    slot = planned.nominal % 1.0 * SLOTS
    first = slot.astype(np.intp)
    half = np.minimum(MAX_SHIFT, 0.5 * planned.interval)
    early = (slot - first) / SLOTS
    move = _STEPS - early.astype(np.float32)[:, None]
    penalty = resistance(planned.change_rate * planned.interval) / planned.interval
    score = windows[planned.host, first]
    score -= penalty.astype(np.float32)[:, None] * move * move
    short = np.flatnonzero(half < MAX_SHIFT)
    score[short] = np.where(np.abs(move[short]) > half[short, None], -np.inf, score[short])
    if is_open is not None:
        # without an open half-hour in its window a crawl keeps its instant
        is_open = is_open | ~(is_open & np.isfinite(score)).any(axis=1, keepdims=True)
        score = np.where(is_open, score, np.float32(-np.inf))
    within = (planned.turn - 0.5) * np.minimum(spread, half)
    best = np.clip((np.argmax(score, axis=1) - SLOTS // 2) / SLOTS - early + within, -half, half)
    late = np.flatnonzero(planned.nominal + best < now)
    if late.size:
        rest = now - planned.nominal[late]
        score = score[late]
        score[move[late] + within[late, None] < rest[:, None]] = -np.inf
        value = score.max(axis=1)
        at_once = windows[planned.host[late], int(now % 1.0 * SLOTS), SLOTS // 2]
        at_once = at_once - penalty[late] * rest**2
        later = (np.argmax(score, axis=1) - SLOTS // 2) / SLOTS - early[late] + within[late]
        chosen = np.where(value > at_once, np.minimum(later, half[late]), rest)
        best[late] = np.where(rest > half[late], 0.0, chosen)
    return np.asarray(best)


_STEPS = (np.arange(SLOTS + 1, dtype=np.float32) - SLOTS // 2) / np.float32(SLOTS)
"""Times from the nominal half-hour to the candidates, days."""


def turns(page: Ids, at: ArrayLike) -> Floats:
    """Return (N,) places of crawls within the best hours, [0, 1): a hash of page and day.

    The places of the pages of one day are even. Because a page has another place each day, no page
    is always last, and its intervals differ enough to show the hour of the changes.
    """
    return _uniform(_hashed(page, at))


def probe_delay(page: Ids, at: ArrayLike, weight: ArrayLike, expected: ArrayLike) -> Floats:
    """Return (N,) days from crawls to their extra crawls; NaN for crawls without one.

    A page that changes once a day at one hour, crawled once a day or less, has changed at each
    crawl. Its crawls do not show the hour. Extra crawls after less than a day show it, at
    the cost of `PROBE_SHARE` of the crawls until the host's change hours are certain.

    Parameters
    ----------
    page, at : (N,)
        Ids of the pages; instants of the crawls, days. Each crawl has one draw, by its minute.
    weight, expected : (N,)
        Weights of the hosts' change hours; changes expected per interval.
    """
    draw = _uniform(_mixed(_hashed(page, np.asarray(at, np.float64) * DAY_MINUTES)))
    chosen = (
        (draw < PROBE_SHARE)
        & (np.asarray(weight) < CERTAIN)
        & (np.asarray(expected) > PROBE_EXPECTED)
    )
    low, high = PROBE_DELAY
    return np.where(chosen, low + (high - low) * draw / PROBE_SHARE, np.nan)


def _hashed(page: Ids, at: ArrayLike) -> NDArray[np.uint64]:
    """Return hashes of pages and whole numbers of units of time."""
    whole = np.floor(np.asarray(at, np.float64)).astype(np.int64)
    return np.asarray(_mixed(page) ^ whole.view(np.uint64))


def _uniform(number: Ids) -> Floats:
    """Return hashes of numbers, in [0, 1)."""
    return np.asarray((_mixed(number) >> np.uint64(11)) * 2.0**-53)


def _mixed(number: Ids) -> NDArray[np.uint64]:
    """Return hashes of 64 bits (SplitMix64: Steele, Lea, Flood 2014)."""
    z = np.asarray(number).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _checked(planned: Planned, n_hosts: int) -> Planned:
    """Return the crawls as arrays."""
    host = np.asarray(planned.host, np.intp)
    if host.size and not (host.min() >= 0 and host.max() < n_hosts):
        raise InvalidInput("host", f"must lie in [0, {n_hosts})")
    shape = host.shape
    return Planned(
        host,
        check_array("nominal", planned.nominal, shape, test=np.isfinite, must="finite"),
        check_array("interval", planned.interval, shape, test=lambda t: t > 0, must="positive"),
        check_amount("change_rate", planned.change_rate, shape),
        check_array("turn", planned.turn, shape, test=_in_unit, must="at least 0 and below 1"),
    )


def _in_unit(values: Floats) -> Bools:
    return np.asarray((values >= 0) & (values < 1))
