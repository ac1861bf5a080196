"""Objectives beside the harmonic cost; parameters, units and errors as in `allocate_harmonic`.

LambdaCrawlApprox needs no change rates to rank pages without pings (K19 Proposition 9).
BinaryLambdaCrawl has the least binary cost, exact and with a floor (Az18; K19 supplement 9.3).
Baselines are rules without an optimum, to compare with (K19 supplement, section 9.3).
"""

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.blocks import Pages
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.multipliers import Roots, Values
from service.core.allocation.problem import Allocation, check_bandwidth, check_pages
from service.core.conditions import Bools, Floats, InvalidInput

FLOOR_SHARE = 0.4
"""The epsilon that K19 found best and used in all of its experiments."""


def allocate_approximate(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,
) -> Allocation:
    r"""Pages without pings in proportion to importance, complete ones as in LambdaCrawl.

    With :math:`\rho = \mu t` on the incomplete pages, the split between the two kinds that K19's
    Algorithm 3 searches for is the root t of

    .. math:: t \sum_{inc} \mu + \sum_{com} \min(\Delta, \mu s(t)) = R, \quad
              s(t) = t \sum_{inc} \mu \Big/ \sum_{inc} \frac{\mu}{1 + \mu t / \Delta},

    s being the reciprocal of what one more crawl a day of the incomplete pages saves. The
    multiplier is 1/s.

    Examples
    --------
    >>> allocation = allocate_approximate([10, 5, 8], [0.1, 1.0, 0.25], [False, False, True], 0.5)
    >>> allocation.crawl_rate.round(4), allocation.crawl_probability.round(4)
    (array([0.1699, 0.0849, 0.    ]), array([0.    , 0.    , 0.9808]))
    """
    pages = check_pages(importance, change_rate, complete)
    budget = check_bandwidth(bandwidth)
    clock = ~pages.complete & (pages.change_rate > 0) & (pages.importance > 0)
    if budget == 0 or not clock.any():
        return allocate_harmonic(importance, change_rate, complete, bandwidth, start=start)
    return _split_bandwidth(pages, clock, budget)


def _split_bandwidth(pages: Pages, clock: Bools, budget: float) -> Allocation:
    pinged = pages.complete & (pages.change_rate > 0)
    weight, change = pages.importance[clock], pages.change_rate[clock]
    pinged_weight, most = pages.importance[pinged], pages.change_rate[pinged]
    total = float(weight.sum())

    def price(t: float) -> tuple[float, float]:
        """Evaluate s and its derivative in t."""
        share = 1 / (1 + weight * t / change)
        mean = float(weight @ share) / total
        bend = float((weight**2 / change) @ share**2) / total
        return t / mean, (1 + t * bend / mean) / mean

    def used(at: Floats) -> Values:
        s, slope = price(t := float(at[0]))
        uncapped = pinged_weight * s
        rising = float(pinged_weight[uncapped < most].sum()) * slope
        spent = t * total + float(np.minimum(uncapped, most).sum())
        return Values(np.array([spent]), np.array([total + rising]))

    upper = budget / total
    lower = budget / (total + float(pinged_weight.sum()) * price(upper)[0] / upper)
    roots = Roots(np.array([budget]), np.array([lower]), np.array([upper]), evaluated=False)
    passes, t = roots.climb(lambda _, at: used(at)), roots.s
    s = price(float(t[0]))[0]
    rate, probability = np.zeros(clock.size), np.zeros(clock.size)
    rate[clock] = weight * t
    probability[pinged] = np.minimum(1.0, pinged_weight * s / most)
    spent = float(used(t).value[0])
    return Allocation(
        rate,
        probability,
        1 / s,
        budget,
        spent,
        kkt_residual=abs(spent / budget - 1),
        duality_gap=abs(spent - budget) / s,
        passes=passes,
    )


def allocate_binary(
    importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike, bandwidth: float
) -> Allocation:
    r"""Least share of time out of date, :math:`\sum \mu \Delta / (\Delta + \rho)`; pings ignored.

    The optimum crawls only pages with :math:`\mu/\Delta` above a threshold, so many starve.
    O(N log N), no iteration.

    Examples
    --------
    >>> allocate_binary([10, 5, 8], [0.1, 1.0, 0.25], [False] * 3, 0.5).crawl_rate.round(4)
    array([0.2521, 0.    , 0.2479])
    """
    return _allocate(
        check_pages(importance, change_rate, complete), check_bandwidth(bandwidth), 0.0
    )


def allocate_binary_floor(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    floor_share: float = FLOOR_SHARE,
) -> Allocation:
    r"""Least binary cost with every page crawled at least `floor_share` R/N times a day; BLC(eps).

    The optimum under the floor, which K19's experiments ran; re-solving without the starved pages,
    as its text says, starves others.

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
    return _allocate(check_pages(importance, change_rate, complete), budget, floor)


def _allocate(pages: Pages, budget: float, floor: float) -> Allocation:
    n = pages.importance.size
    spread = np.sqrt(pages.importance * pages.change_rate)
    rate = np.full(n, floor)
    active = np.flatnonzero(spread > 0)
    if not active.size:
        return Allocation(rate, np.zeros(n), 0.0, budget, float(rate.sum()))
    spare = max(0.0, budget - n * floor)
    rate[active], t = _fill(pages.change_rate[active], spread[active], floor, spare)
    used = float(rate.sum())
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


def _fill(change: Floats, spread: Floats, floor: float, spare: float) -> tuple[Floats, float]:
    r"""Fill pages above the floor m like water: in the order of the level t at which each rises.

    At :math:`t = 1/\sqrt\lambda` beyond :math:`t_i = (\Delta + m)/\sqrt{\mu\Delta}` a page takes
    :math:`m + \sqrt{\mu\Delta} (t - t_i)`; `needed` is what the pages before take at :math:`t_i`.
    """
    enters = (change + floor) / spread
    order = np.argsort(enters, kind="stable")
    enters, cost = enters[order], np.cumsum(spread[order])
    needed = np.cumsum(np.append(0.0, cost[:-1] * np.diff(enters)))
    last = max(0, int(np.searchsorted(needed, spare)) - 1)
    beyond = (spare - needed[last]) / cost[last]
    risen = order[: last + 1]
    rate = np.full(change.size, floor)
    rate[risen] += spread[risen] * (beyond + (enters[last] - enters[: last + 1]))
    return rate, float(enters[last] + beyond)


def _violation(change: Floats, spread: Floats, rate: Floats, t: float, floor: float) -> Floats:
    r"""Compare the marginal saving :math:`\mu\Delta/(\Delta+\rho)^2` with the multiplier."""
    gain = (spread * t / (change + rate)) ** 2 - 1
    return np.where(rate > floor, np.abs(gain), np.maximum(gain, 0.0))


def allocate_uniform(
    importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike, bandwidth: float
) -> Allocation:
    """Every page of any importance at the same rate, pings ignored (UniformCrawl).

    Examples
    --------
    >>> allocate_uniform([10, 1], [0.1, 2.0], [False, True], 0.5).crawl_rate
    array([0.25, 0.25])
    """
    pages = check_pages(importance, change_rate, complete)
    return _in_proportion((pages.importance > 0).astype(np.float64), bandwidth)


def allocate_change_rate(
    importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike, bandwidth: float
) -> Allocation:
    """Every page in proportion to its change rate, pings ignored (ChangeRateCrawl).

    Pages of no importance get nothing, and nothing is spent where no page changes.

    Examples
    --------
    >>> allocate_change_rate([10, 1], [0.5, 1.5], [False, True], 0.5).crawl_rate
    array([0.125, 0.375])
    """
    pages = check_pages(importance, change_rate, complete)
    return _in_proportion(np.where(pages.importance > 0, pages.change_rate, 0.0), bandwidth)


def _in_proportion(weight: Floats, bandwidth: float) -> Allocation:
    bandwidth = check_bandwidth(bandwidth)
    total = float(weight.sum())
    rate = weight * (bandwidth / total) if total else np.zeros_like(weight)
    return Allocation(rate, np.zeros_like(rate), 0.0, bandwidth, float(rate.sum()))
