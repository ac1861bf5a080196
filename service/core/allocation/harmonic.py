"""Mixed LambdaCrawl (K19 Problems 1-3) with caps of hosts, bounds and noisy pings."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.blocks import LARGE, Pages
from service.core.allocation.certificate import Rates, certified
from service.core.allocation.demand import demand
from service.core.allocation.multipliers import UNLIMITED, TreeLevel, grow, solve
from service.core.allocation.priced import capped_optimum
from service.core.allocation.problem import (
    Allocation,
    Hosts,
    check_bandwidth,
    check_hosts,
    check_pages,
)
from service.core.allocation.spending import spending
from service.core.allocation.sweeps import HostSweeps, Sweeps, split
from service.core.checks import Floats
from service.core.common_values import Joint, alone, anywhere, offset

LEAST_MULTIPLIER = 1e-100
"""Multiplier that stands for 0, at which demand has no maximum."""
SAMPLE, MOST_SAMPLED = 64, 1 << 17
"""Pages per page of the sample that finds the start of the search; maximum size of the sample."""


def allocate_harmonic(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,
    host: ArrayLike | None = None,
    host_bandwidth: ArrayLike | None = None,
    host_group: ArrayLike | None = None,
    group_bandwidth: ArrayLike | None = None,
    min_crawl_rate: ArrayLike | None = None,
    max_crawl_rate: ArrayLike | None = None,
    ping_recall: ArrayLike | None = None,
    ping_precision: ArrayLike | None = None,
    cost: ArrayLike | None = None,
) -> Allocation:
    r"""Return the allocation of least harmonic cost within a bandwidth.

    Minimises :math:`\sum_{inc} \mu \ln(1 + \Delta/\rho) - \sum_{com} \mu \ln p` subject to
    :math:`\sum \rho + \sum p \Delta = R`, :math:`0 < p \le 1` (K19 Problems 1-3). In
    :math:`s = 1/\lambda` every page has a closed form (`demand`). The solver therefore searches one
    root per budget (`multipliers`). O(N) a pass; about 4 passes, a few more over capped hosts.

    Parameters
    ----------
    importance, change_rate : (N,) >= 0, the latter in 1/day
    complete : (N,) bool
        True where pings announce all changes and nothing else.
    bandwidth : float, 1/day
        Pages without importance or without changes get none; a negative bandwidth counts as 0.
    start : float, optional
        The multiplier of an earlier allocation of similar pages.
    host, host_bandwidth : (N,) integers, (H,) 1/day, optional
        The host of each page, and the maximum crawls a day of each host; infinite for no limit.
    host_group, group_bandwidth : (H,) integers, (G,) 1/day, optional
        The group of each host, and the maximum crawls a day of each group.
    min_crawl_rate, max_crawl_rate : (N,) 1/day, optional
        Bounds on the crawls of a page, on the clock and on pings together.
    ping_recall, ping_precision : (N,) in [0, 1], optional
        Share of a page's changes that a ping announces (default 0), and share of its pings that
        announce a change (default 1). Both are 1 for complete pages.
    cost : (N,) > 0, optional
        Amount of the budget that a crawl of each page takes (default 1). The bandwidth is then in
        the unit of the costs, a day; caps and bounds stay crawls (`priced`).

    Raises
    ------
    InvalidInput
        An array or the bandwidth is outside of its domain.
    BandwidthInfeasible
        Minimum crawl rates exceed the bandwidth, or the cap of a host or group.

    Examples
    --------
    >>> pages = [10, 5, 8], [0.1, 1.0, 0.25], [False, False, True]
    >>> allocation = allocate_harmonic(*pages, 0.5)
    >>> allocation.crawl_rate.round(4), allocation.crawl_probability.round(4)
    (array([0.1298, 0.1317, 0.    ]), array([0.    , 0.    , 0.9541]))
    """
    limits: dict[str, Any] = {
        "host": host,
        "host_bandwidth": host_bandwidth,
        "host_group": host_group,
        "group_bandwidth": group_bandwidth,
        "min_crawl_rate": min_crawl_rate,
        "max_crawl_rate": max_crawl_rate,
        "ping_recall": ping_recall,
        "ping_precision": ping_precision,
        "cost": cost,
    }
    columns = importance, change_rate, complete
    return alone(harmonic_optimum(*columns, bandwidth, start=start, **limits))


def harmonic_optimum(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,
    host: ArrayLike | None = None,
    host_bandwidth: ArrayLike | None = None,
    host_group: ArrayLike | None = None,
    group_bandwidth: ArrayLike | None = None,
    min_crawl_rate: ArrayLike | None = None,
    max_crawl_rate: ArrayLike | None = None,
    ping_recall: ArrayLike | None = None,
    ping_precision: ArrayLike | None = None,
    cost: ArrayLike | None = None,
) -> Joint[Allocation]:
    """Return this part's share of the optimum over all parts (`allocate_harmonic`).

    The bandwidth and all numbers of the result are those of all parts. Hosts and groups have all
    of their pages in one part.
    """
    noise, bounds = (ping_recall, ping_precision), (min_crawl_rate, max_crawl_rate)
    pages = check_pages(importance, change_rate, complete, *noise, *bounds, cost)
    n = pages.importance.size
    hosts = check_hosts(n, host, host_bandwidth, host_group, group_bandwidth)
    budget = check_bandwidth(bandwidth)
    if pages.cost is not None and (yield from anywhere((pages.cost != 1).any())):
        if (yield from anywhere(hosts is not None)):
            return (yield from capped_optimum(pages, hosts, budget, start))
        spend = yield from _optimum(spending(pages), None, budget, start)
        return replace(spend, crawl_rate=spend.crawl_rate / pages.cost)
    return (yield from _optimum(pages._replace(cost=None), hosts, budget, start))


def _optimum(
    pages: Pages, hosts: Hosts | None, bandwidth: float, start: float | None
) -> Joint[Allocation]:
    """Return the optimum of pages at equal costs."""
    n = pages.importance.size
    levels = grow(bandwidth, hosts)
    if start is None:
        start = yield from _start(pages, levels[0])
    crawl_rate, crawl_probability = np.zeros(n), np.zeros(n)
    if hosts is None:
        sweeps, limit = Sweeps(pages), None
    else:
        scratch = crawl_rate, crawl_probability
        sweeps = HostSweeps(pages, hosts.of_page, hosts.bandwidth.size, scratch)
        limit = sweeps.limit
    solution = yield from solve(levels, sweeps.take, sweeps.survey(), start, limit)
    sweeps.settle(solution.levels[-1], crawl_rate, crawl_probability)
    del sweeps, limit  # copies of pages in order of hosts
    rates = Rates(crawl_rate, crawl_probability)
    of_page = None if hosts is None else hosts.of_page
    distance, own_passes = yield from certified(pages, levels, solution, rates, of_page)
    multiplier, *nested = (_multiplier(s) for s in solution.levels)
    return Allocation(
        *rates,
        multiplier=float(multiplier[0]),
        bandwidth=float(levels[0].bandwidth[0]),
        **distance._asdict(),
        passes=solution.passes + own_passes,
        host_multiplier=nested[-1] if nested else None,
        group_multiplier=nested[0] if len(nested) > 1 else None,
    )


def harmonic_rates(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    multiplier: ArrayLike,
    *,
    most: ArrayLike = np.inf,
    min_crawl_rate: ArrayLike | None = None,
    max_crawl_rate: ArrayLike | None = None,
    ping_recall: ArrayLike | None = None,
    ping_precision: ArrayLike | None = None,
) -> Rates:
    """Return crawl rates and crawl probabilities of pages at multipliers that others have set.

    Parameters
    ----------
    multiplier : number or (N,), cost per crawl/day
    most : number or (N,), 1/day
        Maximum of a page above its minimum; at a multiplier of 0 nothing else limits the rate.

    The other parameters are those of `allocate_harmonic`.

    Examples
    --------
    >>> pages = [10, 5, 8], [0.1, 1.0, 0.25], [False, False, True]
    >>> rates = harmonic_rates(*pages, allocate_harmonic(*pages, 0.5).multiplier)
    >>> rates.crawl_rate.round(4), rates.crawl_probability.round(4)
    (array([0.1298, 0.1317, 0.    ]), array([0.    , 0.    , 0.9541]))
    """
    noise, bounds = (ping_recall, ping_precision), (min_crawl_rate, max_crawl_rate)
    pages = check_pages(importance, change_rate, complete, *noise, *bounds)
    s = 1.0 / np.maximum(np.asarray(multiplier, np.float64), LEAST_MULTIPLIER)
    least = 0.0 if pages.min_crawl_rate is None else pages.min_crawl_rate
    rate = demand(pages, np.broadcast_to(s, pages.importance.shape)).rate
    rate = np.minimum(rate, np.maximum(least, most))
    crawl_probability = np.zeros(rate.size)
    split(pages, rate, crawl_probability)
    return Rates(rate, crawl_probability)


def _start(pages: Pages, root: TreeLevel) -> Joint[float | None]:
    """Return the multiplier of a sample of all pages, without hosts and bounds.

    None: there are so few pages that the sample saves no time.
    """
    before, n = yield from offset(pages.importance.size)
    if n < LARGE:
        return None
    step = max(SAMPLE, n // MOST_SAMPLED)
    importance, change_rate, complete, *noise = pages.cut(slice(-before % step, None, step))[:5]
    recall, precision = (None if column is None else column.copy() for column in noise)
    sample = Pages(importance.copy(), change_rate.copy(), complete.copy(), recall, precision)
    levels = grow(float(root.bandwidth[0]) / step, None)
    sweeps = Sweeps(sample)
    solution = yield from solve(levels, sweeps.take, sweeps.survey(), None)
    return float(_multiplier(solution.levels[0])[0])


def _multiplier(s: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.where(s >= UNLIMITED, 0.0, 1 / s)
