"""Waiting times of requests that a database commits together, and of pages that become ready."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def batched(arrivals: Floats, fixed: float, each: float, most: int) -> Floats:
    """Return the time from each arrival to its answer.

    One server takes all that wait, at most `most`, and needs `fixed` + n · `each` for n of them, as
    a batcher that commits requests together. Arrivals ascend.

    >>> batched(np.array([0.0, 1.0, 2.0]), 2.0, 1.0, 10).tolist()
    [3.0, 6.0, 5.0]
    """
    answered = np.empty(len(arrivals))
    first, free = 0, 0.0
    while first < len(arrivals):
        start = max(free, float(arrivals[first]))
        last = int(np.searchsorted(arrivals, start, side="right"))
        last = min(max(last, first + 1), first + most)
        free = start + fixed + (last - first) * each
        answered[first:last] = free
        first = last
    return answered - arrivals


class Leased(NamedTuple):
    """Pages of a simulation of leases."""

    lateness: list[Floats]
    """Time from ready to leased of each page, by database."""
    n_requests: int
    n_empty: int
    """Number of requests that found no page."""
    busy: Floats
    """Time that each database served, seconds."""


def arriving(rng: np.random.Generator, rate: float, seconds: float) -> Floats:
    """Return the times of arrivals that do not depend on each other, ascending."""
    return np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds)))


def lease(ready: list[Floats], requests: Floats, batch: int, fixed: float, each: float) -> Leased:
    """Return the lateness of pages by the times they become ready and those of requests.

    Both ascend. A request takes up to `batch` pages of the database whose first page has been ready
    longest. It waits until that database is free, which needs `fixed` + n · `each` for n pages.

    >>> one = lease([np.array([0.0, 1.0])], np.array([2.0]), 10, 0.5, 0.25)
    >>> one.lateness[0].tolist()
    [3.0, 2.0]
    """
    n = len(ready)
    next_page, free, busy = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
    oldest = np.array([times[0] if len(times) else np.inf for times in ready])
    at: list[Floats] = [np.full(len(times), np.nan) for times in ready]
    n_empty = 0
    for time in requests.tolist():
        chosen = int(np.argmin(oldest))
        if oldest[chosen] > time:
            n_empty += 1
            continue
        start = max(time, float(free[chosen]))
        first, times = int(next_page[chosen]), ready[chosen]
        last = min(int(np.searchsorted(times, start, side="right")), first + batch)
        took = fixed + (last - first) * each
        free[chosen], busy[chosen] = start + took, busy[chosen] + took
        at[chosen][first:last] = free[chosen]
        next_page[chosen] = last
        oldest[chosen] = times[last] if last < len(times) else np.inf
    taken = [slice(0, int(k)) for k in next_page]
    late = [a[part] - times[part] for a, times, part in zip(at, ready, taken, strict=True)]
    return Leased(late, len(requests), n_empty, busy)
