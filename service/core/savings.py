"""Staleness of copies under the crawls that were made, and under uniform crawls of equal number.

A log shows whether a page changed between two crawls, but neither when nor how often. So the
changes are drawn: in a stretch between crawls that found a change, the number is Poisson with at
least one, and the instants are uniform. A stretch that still runs has changes by a probability.
With n changes since the last crawl a copy costs 1 + 1/2 + … + 1/n (harmonic), or 1 (stale). Change
number j after a crawl therefore costs 1/j until the next crawl. Both policies face the same draws.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats
from service.core.shared_times import SharedTimes

Ints = NDArray[np.int64]

MOST_CHANGES = 200.0
"""Maximum expected number of changes of a stretch; 1/j hardly grows beyond."""
LEAST_CHANGES = 1e-9
"""Least expected number of changes of a stretch that has some."""
NORMAL_90 = 1.6449
"""Quantile of the normal distribution at 95 %, for an interval of 90 %."""


class Stretches(NamedTuple):
    """(K,) stretches between crawls, by page and time; instants are days since any start."""

    page: Ints
    """Row of the page."""
    begin: Floats
    end: Floats
    probability: Floats
    """Probability that the page changed in the stretch: 1 or 0 where a crawl ended it."""
    expected: Floats
    """Expected number of changes by the page's change rate."""


class Announced(NamedTuple):
    """(G,) pings within stretches that have a change, by stretch and time."""

    stretch: Ints
    at: Floats
    precision: Floats
    """Probability that the ping announced a change."""


class Watched(NamedTuple):
    """(N,) times in which a page had a copy and was watched, days since the same start."""

    since: Floats
    until: Floats


class StaleDays(NamedTuple):
    """(N,) integrals over each page's time, days."""

    harmonic: Floats
    stale: Floats


class Change(NamedTuple):
    """(M,) changes, by page and time."""

    stretch: Ints
    at: Floats


NO_PINGS = Announced(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def drawn_changes(
    stretches: Stretches,
    rng: np.random.Generator,
    pings: Announced = NO_PINGS,
    times: SharedTimes | None = None,
) -> Change:
    """Return changes of stretches, drawn once.

    The first of n ≥ 1 Poisson changes has a truncated exponential instant; the others are a Poisson
    number of uniform instants after it. Pings that announced changes are the instants.
    `times` has the times in which pages change steadily; None: the days themselves.
    """
    by_pings = np.zeros(len(stretches.page), np.bool_)
    by_pings[pings.stretch] = True
    hit = np.flatnonzero((rng.random(len(by_pings)) < stretches.probability) & ~by_pings)
    mean = np.clip(stretches.expected[hit], LEAST_CHANGES, MOST_CHANGES)
    first = -np.log1p(rng.random(len(hit)) * np.expm1(-mean)) / mean
    more = rng.poisson(mean * (1.0 - first))
    later = np.repeat(np.arange(len(hit)), more)
    part = first[later] + (1.0 - first[later]) * rng.random(len(later))
    kept = _kept_pings(pings, rng)
    owner = np.concatenate([hit, hit[later]])
    part = np.concatenate([first, part])
    page, begin, end = (column[owner] for column in stretches[:3])
    if times is None:
        drawn = begin + part * (end - begin)
    else:
        low, high = times.of(page, begin), times.of(page, end)
        drawn = np.clip(times.back(page, low + part * (high - low)), begin, end)
    stretch = np.concatenate([owner, pings.stretch[kept]])
    at = np.concatenate([drawn, pings.at[kept]])
    order = np.lexsort((at, stretch))
    return Change(stretch[order], at[order])


def _kept_pings(pings: Announced, rng: np.random.Generator) -> Bools:
    """Return which pings announced a change: at least the last one of each stretch."""
    last = np.diff(pings.stretch, append=-1) != 0
    kept: Bools = last | (rng.random(len(pings.at)) < pings.precision)
    return kept


def as_crawled(stretches: Stretches, changes: Change, watched: Watched) -> StaleDays:
    """Return the staleness of copies under the crawls that ended the stretches."""
    page = stretches.page[changes.stretch]
    return _stale_days(page, changes.at, stretches.end[changes.stretch], watched)


LEAST_RATE = 1e-9
"""Minimum rate of uniform crawling, 1/day."""


def equal_rates(weight: Floats, limit: Floats, total: float) -> Floats:
    """Return (N,) rates that are equal but for their limits, whose weighted sum is a total.

    All rates are at their limits if these allow no such sum.

    >>> equal_rates(np.array([1.0, 1.0, 2.0]), np.array([1.0, np.inf, np.inf]), 10.0).tolist()
    [1.0, 3.0, 3.0]
    """
    order = np.argsort(limit, kind="stable")
    size, most = weight[order], limit[order]
    rest = np.cumsum(size[::-1])[::-1]
    before = np.concatenate([[0.0], np.cumsum((size * most)[:-1])])
    reached = np.flatnonzero(before + rest * most >= total)
    rate = np.inf
    if reached.size and rest[reached[0]] > 0:
        rate = (total - before[reached[0]]) / rest[reached[0]]
    rates: Floats = np.maximum(np.minimum(limit, rate), LEAST_RATE)
    return rates


def as_uniform(
    stretches: Stretches, changes: Change, watched: Watched, interval: Floats, phase: Floats
) -> StaleDays:
    """Return the staleness under uniform crawling.

    Parameters
    ----------
    interval
        (N,) days between two crawls of each page, or one for all.
    phase
        (N,) parts of the interval at which the crawls of each page come, 0 to 1.
    """
    page = stretches.page[changes.stretch]
    every = np.broadcast_to(interval, phase.shape)[page]
    turn = np.ceil(changes.at / every - phase[page])
    return _stale_days(page, changes.at, (turn + phase[page]) * every, watched)


def _stale_days(page: Ints, at: Floats, next_crawl: Floats, watched: Watched) -> StaleDays:
    """Return the integrals of (M,) changes, by page and time, until the next crawl of each."""
    new = np.ones(len(page), np.bool_)
    new[1:] = (page[1:] != page[:-1]) | (next_crawl[1:] != next_crawl[:-1])
    place = np.arange(len(page))
    rank = 1 + place - np.maximum.accumulate(np.where(new, place, 0))
    end = np.minimum(next_crawl, watched.until[page])
    lasted = np.maximum(end - np.maximum(at, watched.since[page]), 0.0)
    n_pages = len(watched.since)
    sums: tuple[Any, Any] = (
        np.bincount(page, lasted / rank, n_pages),
        np.bincount(page, lasted * new, n_pages),
    )
    return StaleDays(*sums)


class Ratio(NamedTuple):
    """Ratio of two sums over pages, with an interval of 90 %."""

    value: float
    low: float
    high: float


def ratio(above: Floats, below: Floats) -> Ratio:
    """Return the ratio of two sums, and its interval over the draw of (N,) independent pages.

    The standard error is that of the linearised ratio.

    >>> ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    Ratio(value=0.5, low=0.5, high=0.5)
    """
    value = float(above.sum() / below.sum())
    n = len(above)
    residual = above - value * below
    error = NORMAL_90 * float(np.sqrt(n / max(n - 1, 1) * (residual @ residual)) / below.sum())
    return Ratio(value, max(value - error, 0.0), value + error)
