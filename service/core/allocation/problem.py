"""The pages, hosts and bandwidth of an allocation, checked once, and the allocation itself."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.blocks import Indices, Pages, over_blocks
from service.core.checks import Bools, Floats, InvalidInput, check_array, check_share

SMALLEST, LARGEST = 1e-40, 1e40
"""Bounds of positive inputs, with which no product in a pass leaves float64."""
GLANCE = 1 << 17
"""Pages whose least and largest entry are compared at a time. Because this avoids columns of
booleans, checking 20 million pages takes 0.1 s instead of 0.3 s."""


class Hosts(NamedTuple):
    """Caps on the crawls a day of hosts, and of groups of hosts."""

    of_page: Indices
    bandwidth: Floats
    group: Indices
    group_bandwidth: Floats


def check_pages(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    ping_recall: ArrayLike | None = None,
    ping_precision: ArrayLike | None = None,
    min_crawl_rate: ArrayLike | None = None,
    max_crawl_rate: ArrayLike | None = None,
    cost: ArrayLike | None = None,
) -> Pages:
    """Return the columns of a set of pages, converted and checked; missing ones stay None.

    Raise `InvalidInput` for an entry that is negative, infinite or outside of `SMALLEST` to
    `LARGEST`. Raise it also for a share outside of [0, 1], a minimum above its maximum, a cost of
    0, or shapes that differ.
    """
    n = np.shape(importance)[:1] or (0,)
    observed = np.asarray(complete)
    if observed.shape != n or observed.dtype != np.bool_:
        raise InvalidInput(
            "complete", f"is {observed.dtype} of shape {observed.shape}, expected bool of {n}"
        )
    weight = check_magnitude("importance", importance, n)
    change = check_magnitude("change_rate", change_rate, n)
    recall = precision = least = most = None
    if ping_recall is not None or ping_precision is not None:
        recall = _check_share("ping_recall", 0.0 if ping_recall is None else ping_recall, observed)
        precision = _check_share(
            "ping_precision", 1.0 if ping_precision is None else ping_precision, observed
        )
        _refuse("ping_precision", "must be positive where pings arrive", precision < SMALLEST)
    if min_crawl_rate is not None or max_crawl_rate is not None:
        least = check_magnitude("min_crawl_rate", _filled(min_crawl_rate, 0.0, n), n)
        most = check_cap("max_crawl_rate", _filled(max_crawl_rate, np.inf, n), n)
        _refuse("min_crawl_rate", "must not be above max_crawl_rate", least > most)
    price = None if cost is None else check_magnitude("cost", cost, n)
    if price is not None:
        _refuse("cost", "must be positive", price == 0)
    return Pages(weight, change, observed, recall, precision, least, most, price)


def check_hosts(
    n_pages: int,
    host: ArrayLike | None,
    host_bandwidth: ArrayLike | None,
    host_group: ArrayLike | None,
    group_bandwidth: ArrayLike | None,
) -> Hosts | None:
    """Return the tree of pages, hosts and groups, converted and checked; None without hosts.

    Raise `InvalidInput` for an index out of range, a cap that is negative or NaN, or a missing
    array of a pair.
    """
    if (host is None) != (host_bandwidth is None):
        raise InvalidInput("host", "and host_bandwidth go together")
    if (host_group is None) != (group_bandwidth is None):
        raise InvalidInput("host_group", "and group_bandwidth go together")
    if host is None or host_bandwidth is None:
        if host_group is not None:
            raise InvalidInput("host_group", "needs host")
        return None
    cap = check_cap("host_bandwidth", host_bandwidth, np.shape(host_bandwidth)[:1])
    of_page = check_index("host", host, n_pages, cap.size)
    if host_group is None or group_bandwidth is None:
        nothing = np.zeros(0, np.intp)
        return Hosts(of_page, cap, nothing, np.zeros(0))
    group_cap = check_cap("group_bandwidth", group_bandwidth, np.shape(group_bandwidth)[:1])
    return Hosts(
        of_page, cap, check_index("host_group", host_group, cap.size, group_cap.size), group_cap
    )


def check_magnitude(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return float64 entries, each 0 or in `SMALLEST` to `LARGEST`; else raise `InvalidInput`."""
    array = np.asarray(values, np.float64)

    def in_range(block: Floats) -> Bools:
        return np.asarray((block == 0) | ((block >= SMALLEST) & (block <= LARGEST)))

    def sane(block: slice) -> bool:
        values = array[block]
        return bool(values.min() >= SMALLEST and values.max() <= LARGEST) or bool(
            in_range(values).all()
        )

    if array.ndim and array.shape == shape and all(over_blocks(sane, array.size, GLANCE)):
        return array
    must = f"0 or between {SMALLEST:g} and {LARGEST:g}"
    return check_array(name, array, shape, test=in_range, must=must)


def check_cap(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return upper limits, checked as by `check_magnitude`; infinite means no limit."""
    capped = np.asarray(values, np.float64)
    check_magnitude(name, np.where(np.isposinf(capped), 0.0, capped), shape)
    return capped


def check_index(name: str, values: ArrayLike, size: int, limit: int) -> Indices:
    """Return a (size,) array of positions; raise `InvalidInput` unless in [0, limit)."""
    index = np.asarray(values)
    if index.shape != (size,) or (index.size and not np.issubdtype(index.dtype, np.integer)):
        raise InvalidInput(
            name, f"is {index.dtype} of shape {index.shape}, expected integers of ({size},)"
        )

    def sane(block: slice) -> bool:
        return bool(index[block].min() >= 0 and index[block].max() < limit)

    if not all(over_blocks(sane, size, GLANCE)):
        _refuse(name, f"must be in 0..{limit - 1}", (index < 0) | (index >= limit))
    return index


def check_bandwidth(bandwidth: float) -> float:
    """Return the bandwidth, 0 for a negative one; raise `InvalidInput` for NaN or infinity."""
    value = float(bandwidth)
    return float(check_magnitude("bandwidth", 0.0 if value < 0 else value, ()))


def _check_share(name: str, values: ArrayLike, complete: Bools) -> Floats:
    """Return probabilities, checked; recall and precision of complete pages are 1."""
    shape = complete.shape
    each = np.broadcast_to(values, shape) if np.ndim(values) == 0 else values
    return np.where(complete, 1.0, check_share(name, each, shape))


def _filled(values: ArrayLike | None, default: float, shape: tuple[int, ...]) -> ArrayLike:
    return np.broadcast_to(default, shape) if values is None else values


def _refuse(name: str, problem: str, bad: Bools) -> None:
    if bad.any():
        raise InvalidInput(name, problem, np.flatnonzero(bad))


@dataclass(frozen=True, slots=True)
class Allocation:
    """Crawl rates and probabilities, and their distance from the optimum of their cost.

    A page is crawled `crawl_rate` times a day on the clock. In addition, each ping of the page
    causes a crawl with `crawl_probability`.

    The cost is the one that the solver names, with crawls at random times. The residual and the
    gap are computed from the rates. So an allocation that only approaches the least cost shows by
    how much it fails.

    Attributes
    ----------
    crawl_rate : (N,) float64, 1/day
    crawl_probability : (N,) float64, in [0, 1]
    multiplier : float, cost per crawl/day
        Cost that one more crawl a day, or one more unit of the budget, would save. The multiplier
        is 0 if the bandwidth exceeds the crawls that the pages can use, and infinite if no page can
        use any.
    bandwidth : float, 1/day
        The bandwidth requested, in the unit of the costs.
    bandwidth_used : float, 1/day
        The sum of crawl_rate + crawl_probability * ping rate, times the cost of a crawl.
    kkt_residual : float, in [0, 1]
        Largest relative violation of stationarity, complementary slackness and feasibility.
    duality_gap : float, cost
        Upper bound on the cost of this allocation less the least cost possible.
    passes : int
        Sweeps over the pages that evaluated the bandwidth at a multiplier.
    host_multiplier : (H,) float64 or None
        The multiplier of each host: larger than `multiplier` where the cap of the host or of its
        group is used up. A crawl of a page at a cost c is worth multiplier * c, and the difference.
    group_multiplier : (G,) float64 or None
        The multiplier of each group.
    """

    crawl_rate: Floats
    crawl_probability: Floats
    multiplier: float
    bandwidth: float
    bandwidth_used: float
    kkt_residual: float
    duality_gap: float
    passes: int = 0
    host_multiplier: Floats | None = None
    group_multiplier: Floats | None = None
