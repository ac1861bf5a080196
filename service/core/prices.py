"""Costs of crawls, learnt page by page. Pure.

The cost of a crawl is what it takes of the budget: bytes, seconds, or money. A page's cost is an
exponential mean of what its crawls took. Cost 0 stands for none.
"""

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats
from service.core.common_values import Joint, total

WEIGHT = 0.25
"""Weight of the newest crawl in the mean of its page."""
LEAST = 1e-12
"""Cost of a crawl that took nothing, in any unit; 0 would mean that none is known."""
FREE = 2.0 * LEAST
"""Maximum cost of a page whose crawls take nothing."""
LEAST_SHARE = 1e-3
"""Smallest cost in an allocation, as a share of the mean of all pages."""


def learnt(mean: Floats, cost: Floats) -> Floats:
    """Return (N,) mean costs after one more crawl each; NaN in `cost`: the crawl has none.

    >>> learnt(np.array([0.0, 4.0, 4.0]), np.array([8.0, 8.0, np.nan])).tolist()
    [8.0, 5.0, 4.0]
    """
    positive = np.maximum(cost, LEAST)
    after = np.where(mean > 0, mean + WEIGHT * (positive - mean), positive)
    return np.where(np.isnan(cost), mean, after)


def is_free(cost: Floats) -> Bools:
    """Return which pages have had crawls that all took nothing.

    >>> is_free(np.array([0.0, LEAST, 0.002])).tolist()
    [False, True, False]
    """
    free: Bools = (cost > 0) & (cost <= FREE)
    return free


def n_assumed(cost: Floats) -> int:
    """Return the number of pages whose crawls have reported no cost.

    >>> n_assumed(np.array([0.0, LEAST, 0.002]))
    1
    """
    return int(np.count_nonzero(cost == 0))


def payable(cost: Floats, most: float) -> Floats:
    """Return (N,) costs as means count them: 0 where a crawl costs more than a day's budget.

    Such a page is not crawled. One absurd report or price would otherwise make all pages of unknown
    cost too dear, and raise the least cost of all others.

    >>> payable(np.array([2.0, 1e15]), most=100.0).tolist()
    [2.0, 0.0]
    """
    return np.where(cost <= most, cost, 0.0)


def means_of_hosts(cost: Floats, host: NDArray[np.integer], n_hosts: int) -> Floats:
    """Return (H,) mean costs of the pages of each host; 0 for a host without any.

    >>> means_of_hosts(np.array([2.0, 4.0, 0.0]), np.array([0, 0, 1]), 2).tolist()
    [3.0, 0.0]
    """
    n = np.bincount(host, cost > 0, n_hosts)
    return np.asarray(np.bincount(host, cost, n_hosts) / np.maximum(n, 1))


def expected(cost: Floats, of_host: Floats, mean: float) -> Floats:
    """Return (N,) costs of the next crawls: of the page, else of its host, else the mean.

    `of_host` has the mean of each page's host, 0 for none.

    >>> expected(np.array([5.0, 0.0, 0.0]), np.array([3.0, 3.0, 0.0]), 2.0).tolist()
    [5.0, 3.0, 2.0]
    """
    return np.where(cost > 0, cost, np.where(of_host > 0, of_host, mean))


def allocated(
    cost: Floats, host_id: NDArray[np.integer], typical: float, most: float
) -> Joint[Floats]:
    """Return (N,) positive costs of this part's pages for an allocation.

    Parameters
    ----------
    cost : (N,) mean cost of each page, 0 where none is known
    host_id : (N,)
    typical : cost of a crawl while no page has any
    most : maximum cost that means count (`payable`)

    Notes
    -----
    Costs are at least `LEAST_SHARE` of the mean of all pages that a day can pay. Otherwise a page
    that is never answered with content would take a crawl whenever there is time.
    """
    counted = payable(cost, most)
    n, of_all = yield from total((float(np.count_nonzero(counted)), float(counted.sum())))
    mean = of_all / n if n else typical
    _, host = np.unique(host_id, return_inverse=True)
    hosts = means_of_hosts(counted, host, int(host.max(initial=-1)) + 1)
    return np.maximum(expected(cost, hosts[host], mean), LEAST_SHARE * mean)
