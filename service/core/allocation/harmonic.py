"""Mixed LambdaCrawl (K19 Problems 1-3) by one multiplier."""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.inputs import Pages, check_bandwidth, check_pages
from service.core.allocation.result import Allocation
from service.core.conditions import Floats

CLOSE = 1e-15
"""Relative distance from the bandwidth at which the multiplier is found."""

MOST_PASSES = 100
"""Several times what any input has needed."""


def allocate_harmonic(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,
) -> Allocation:
    r"""Least harmonic cost within a bandwidth.

    Minimises :math:`\sum_{inc} \mu \ln(1 + \Delta/\rho) - \sum_{com} \mu \ln p` subject to
    :math:`\sum \rho + \sum p \Delta = R`, :math:`0 < p \le 1` (K19 Problems 1-3). In
    :math:`s = 1/\lambda` both kinds of pages have a closed form, and the bandwidth they take is
    increasing and concave, so Newton's method climbs to the one root from below it. O(N) a pass,
    about 5 passes.

    Parameters
    ----------
    importance : (N,) >= 0
    change_rate : (N,) >= 0, 1/day
    complete : (N,) bool
        Changes are announced by pings; the others are seen only by crawling.
    bandwidth : float, 1/day
        Pages of no importance or that never change are given none; a negative bandwidth is 0.
    start : float, optional
        The multiplier of an earlier allocation of similar pages.

    Returns
    -------
    Allocation
        Complete pages have a crawl probability and no crawl rate, the others the reverse.

    Raises
    ------
    InvalidInput
        An array or the bandwidth is outside of its domain.

    Examples
    --------
    >>> allocation = allocate_harmonic([10, 5, 8], [0.1, 1.0, 0.25], [False, False, True], 0.5)
    >>> allocation.crawl_rate.round(4), allocation.crawl_probability.round(4)
    (array([0.1298, 0.1317, 0.    ]), array([0.    , 0.    , 0.9541]))
    >>> round(allocation.bandwidth_used, 12)
    0.5
    """
    pages = check_pages(importance, change_rate, complete)
    bandwidth = check_bandwidth(bandwidth)
    active = (pages.importance > 0) & (pages.change_rate > 0)
    n = pages.importance.size
    if bandwidth == 0 or not active.any():
        return Allocation(np.zeros(n), np.zeros(n), inf if active.any() else 0.0, bandwidth, 0.0)
    chosen = Pages(pages.importance[active], pages.change_rate[active], pages.complete[active])
    s, passes = _find(chosen, bandwidth, start)
    rate = _rate(chosen, s)[0]
    return _read_off(active, chosen, rate, s, bandwidth, passes)


def _rate(pages: Pages, s: float) -> tuple[Floats, Floats]:
    """Crawls a day that each page takes at 1/multiplier `s`, and the derivatives in `s`."""
    wanted = pages.importance * s
    if s == inf:
        return pages.change_rate, np.zeros_like(wanted)
    root = np.sqrt(1 + 4 * wanted / pages.change_rate)
    rate = np.where(pages.complete, np.minimum(pages.change_rate, wanted), 2 * wanted / (1 + root))
    open_ = np.where(wanted < pages.change_rate, pages.importance, 0.0)
    return rate, np.where(pages.complete, open_, pages.importance / root)


def _find(pages: Pages, bandwidth: float, start: float | None) -> tuple[float, int]:
    """Newton in s from below the root, where steps can only climb (THEORY: B is concave)."""
    importance, change_rate, complete = pages
    reachable = float(change_rate[complete].sum())
    incomplete = np.sqrt(importance[~complete] * change_rate[~complete])
    if not incomplete.size and bandwidth >= reachable:
        return inf, 0
    s = bandwidth / float(importance.sum())
    if incomplete.size:
        s = max(s, (max(0.0, bandwidth - reachable) / float(incomplete.sum())) ** 2)
    lowest, s = s, 1 / start if start and np.isfinite(start) else s
    climbing = False
    passes = 0
    while passes < MOST_PASSES:
        passes += 1
        rate, slope = _rate(pages, s)
        missing = bandwidth - float(rate.sum())
        if abs(missing) <= CLOSE * bandwidth or (climbing and missing < 0):
            break
        climbing = missing > 0
        s = max(lowest, s + missing / float(slope.sum())) if slope.any() else lowest
    return s, passes


def _read_off(
    active: np.ndarray, pages: Pages, rate: Floats, s: float, bandwidth: float, passes: int
) -> Allocation:
    n = active.size
    crawl_rate, crawl_probability = np.zeros(n), np.zeros(n)
    crawl_rate[active] = np.where(pages.complete, 0.0, rate)
    crawl_probability[active] = np.where(pages.complete, rate / pages.change_rate, 0.0)
    used = float(rate.sum())
    price = np.where(pages.complete, rate, rate * (rate / pages.change_rate + 1)) / pages.importance
    full = pages.complete & (rate >= pages.change_rate)
    off = np.where(full, np.maximum(price / s - 1, 0), np.abs(price / s - 1))
    slack = max(0.0, used / bandwidth - 1) if s == inf else abs(used / bandwidth - 1)
    gap = (float(rate @ off) + abs(bandwidth - used)) / s
    worst = max(slack, float(off.max()))
    return Allocation(crawl_rate, crawl_probability, 1 / s, bandwidth, used, worst, gap, passes)
