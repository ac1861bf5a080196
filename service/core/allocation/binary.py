"""Least binary cost: BinaryLambdaCrawl, exact and with a floor (Az18; K19 supplement 9.3)."""

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.inputs import check_bandwidth, check_pages
from service.core.allocation.result import Allocation
from service.core.conditions import Floats, InvalidInput

FLOOR_SHARE = 0.4
"""The epsilon that K19 found best and used in all of its experiments."""


def allocate_binary(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,  # noqa: ARG001
) -> Allocation:
    r"""Least share of time out of date, :math:`\sum \mu \Delta / (\Delta + \rho)`; pings ignored.

    The optimum crawls only pages with :math:`\mu/\Delta` above a threshold, so many starve.
    Parameters, units and errors as in `allocate_harmonic`. O(N log N), no iteration.

    Examples
    --------
    >>> allocate_binary([10, 5, 8], [0.1, 1.0, 0.25], [False] * 3, 0.5).crawl_rate.round(4)
    array([0.2521, 0.    , 0.2479])
    """
    return _allocate(importance, change_rate, complete, check_bandwidth(bandwidth), 0.0)


def allocate_binary_floor(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,  # noqa: ARG001
    floor_share: float = FLOOR_SHARE,
) -> Allocation:
    r"""Least binary cost with every page crawled at least `floor_share` R/N times a day; BLC(eps).

    The optimum under the floor, which K19's experiments ran; re-solving without the starved pages,
    as its text says, starves others. Parameters, units and errors as in `allocate_harmonic`.

    Examples
    --------
    >>> pages = [10, 5, 8], [0.1, 1.0, 0.25], [False] * 3
    >>> allocate_binary_floor(*pages, 0.5).crawl_rate.round(4)
    array([0.2245, 0.0667, 0.2089])
    """
    if not 0 <= floor_share <= 1:
        raise InvalidInput("floor_share", f"is {floor_share}, expected a share in [0, 1]")
    budget = check_bandwidth(bandwidth)
    floor = floor_share * budget / max(1, np.size(importance))
    return _allocate(importance, change_rate, complete, budget, floor)


def _allocate(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    budget: float,
    floor: float,
) -> Allocation:
    r"""Fill pages above the floor m like water: in the order of the level t at which each rises.

    At :math:`t = 1/\sqrt\lambda` beyond :math:`t_i = (\Delta + m)/\sqrt{\mu\Delta}` a page takes
    :math:`m + \sqrt{\mu\Delta} (t - t_i)`; `needed` is what the pages before take at :math:`t_i`.
    """
    pages = check_pages(importance, change_rate, complete)
    n = pages.importance.size
    spread = np.sqrt(pages.importance * pages.change_rate)
    rate = np.full(n, floor)
    active = np.flatnonzero(spread > 0)
    if not active.size:
        return Allocation(rate, np.zeros(n), 0.0, budget, float(rate.sum()))
    enters = (pages.change_rate[active] + floor) / spread[active]
    order = np.argsort(enters, kind="stable")
    enters, cost = enters[order], np.cumsum(spread[active][order])
    needed = np.cumsum(np.append(0.0, cost[:-1] * np.diff(enters)))
    spare = max(0.0, budget - n * floor)
    last = max(0, int(np.searchsorted(needed, spare)) - 1)
    beyond = (spare - needed[last]) / cost[last]
    risen = order[: last + 1]
    rate[active[risen]] += spread[active[risen]] * (beyond + (enters[last] - enters[: last + 1]))
    used = float(rate.sum())
    t = float(enters[last] + beyond)
    off = _violation(pages.change_rate[active], spread[active], rate[active], t, floor)
    unspent = abs(used - budget)
    return Allocation(
        rate,
        np.zeros(n),
        t**-2,
        budget,
        used,
        kkt_residual=max(float(off.max()), unspent / budget if budget else 0.0),
        duality_gap=(float(rate[active] @ off) + unspent) / t**2,
        passes=1,
    )


def _violation(change: Floats, spread: Floats, rate: Floats, t: float, floor: float) -> Floats:
    r"""Compare the marginal saving :math:`\mu\Delta/(\Delta+\rho)^2` with the multiplier."""
    gain = (spread * t / (change + rate)) ** 2 - 1
    return np.where(rate > floor, np.abs(gain), np.maximum(gain, 0.0))
