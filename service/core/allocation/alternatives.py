"""Other allocations than LambdaCrawl; parameters, units and errors as in `allocate_harmonic`.

BinaryLambdaCrawl has the least binary cost, exact and with a floor (Az18; K19 supplement 9.3).
All others are simple rules for the harmonic cost, without an optimum of their own. Therefore
their residual and gap are distances from the optimum of `allocate_harmonic`. LambdaCrawlApprox
needs no change rates to rank pages without pings (K19 Proposition 9). The baselines are for
comparison (K19 supplement 9.3).
"""

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.blocks import Pages, over_blocks
from service.core.allocation.certificate import Rates, certify
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.multipliers import UNLIMITED, Roots, Values, grow
from service.core.allocation.problem import Allocation, check_bandwidth, check_pages
from service.core.checks import Bools, Floats, InvalidInput
from service.core.costs import costs

FLOOR_SHARE = 0.4
"""Share of the mean crawl rate that every page gets: epsilon of K19's experiments."""


def allocate_approximate(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,
) -> Allocation:
    r"""Return rates in proportion to importance for pages without pings, others as in LambdaCrawl.

    The crawl rate of incomplete pages is :math:`\rho = \mu t`. K19's Algorithm 3 splits the
    bandwidth between the two kinds of pages. The split is the root t of

    .. math:: t \sum_{inc} \mu + \sum_{com} \min(\Delta, \mu s(t)) = R, \quad
              s(t) = t \sum_{inc} \mu \Big/ \sum_{inc} \frac{\mu}{1 + \mu t / \Delta},

    where 1/s, the multiplier, is the cost that one more crawl a day of the incomplete pages saves.

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
        """Return s and its derivative in t."""
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
    return _compared(pages, Rates(rate, probability), budget, 1 / s, passes)


def _compared(
    pages: Pages, rates: Rates, budget: float, multiplier: float, passes: int = 0
) -> Allocation:
    """Return an allocation with its distance from the least harmonic cost within the bandwidth."""
    optimum = allocate_harmonic(*pages[:3], budget)
    with np.errstate(divide="ignore"):
        s = np.minimum(np.divide(1.0, [optimum.multiplier]), UNLIMITED)
    distance = certify(pages, grow(budget, None), [s], rates)
    least = _harmonic_cost(pages, Rates(optimum.crawl_rate, optimum.crawl_probability))
    above = 0.0
    if least < np.inf:
        above = max(_harmonic_cost(pages, rates) - least, 0.0) + optimum.duality_gap
    distance = distance._replace(duality_gap=above)
    return Allocation(*rates, multiplier, budget, **distance._asdict(), passes=passes)


def _harmonic_cost(pages: Pages, rates: Rates) -> float:
    def cost(block: slice) -> float:
        importance, change_rate, complete, *_ = pages.cut(block)
        on_clock, on_pings = (column[block] for column in rates)
        each = costs(importance, change_rate, on_clock, on_pings, complete)
        return float(each.harmonic.sum())

    return sum(over_blocks(cost, pages.importance.size))


def allocate_binary(
    importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike, bandwidth: float
) -> Allocation:
    r"""Return the allocation of least binary cost, :math:`\sum \mu \Delta / (\Delta + \rho)`.

    The binary cost is the share of time out of date. Pings are ignored. The optimum crawls only
    pages with :math:`\mu/\Delta` above a threshold, so it never crawls many of the pages.
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
    r"""Return the allocation of least binary cost with at least `floor_share` R/N crawls a page.

    This is BLC(eps) as in K19's experiments: the optimum under the floor. K19's text describes
    another method, which solves again without the pages at 0. That method moves other pages to 0.

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
        return Allocation(rate, np.zeros(n), 0.0, budget, float(rate.sum()), 0.0, 0.0)
    spare = max(0.0, budget - n * floor)
    rate[active], t = _fill(pages.change_rate[active], spread[active], floor, spare)
    residual, gap = _binary_distance(
        pages.change_rate[active], spread[active], rate[active], t, floor
    )
    used = float(rate.sum())
    unspent = abs(used - budget)
    return Allocation(
        rate,
        np.zeros(n),
        t**-2,
        budget,
        used,
        kkt_residual=max(residual, unspent / max(used, budget) if budget else 0.0),
        duality_gap=gap + unspent / t**2,
        passes=1,
    )


def _fill(change: Floats, spread: Floats, floor: float, spare: float) -> tuple[Floats, float]:
    r"""Return the rates that use up `spare` above the floor m, and the level :math:`t`.

    The level is :math:`t = 1/\sqrt\lambda`. Above :math:`t_i = (\Delta + m)/\sqrt{\mu\Delta}` a
    page takes :math:`m + \sqrt{\mu\Delta} (t - t_i)`. Pages enter in the order of :math:`t_i`.
    `needed` is the bandwidth that earlier pages take at :math:`t_i`.
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


def _binary_distance(
    change: Floats, spread: Floats, rate: Floats, t: float, floor: float
) -> tuple[float, float]:
    r"""Return the largest violation of a page, and the cost above the least at the level t.

    With :math:`x = \Delta + \rho`, a page at the optimum has the larger of
    :math:`x = t \sqrt{\mu\Delta}` and :math:`\Delta + m`. The violation is the difference of the
    squares, as a share of the larger one. The cost is :math:`\mu\Delta/x + x/t^2` less its
    minimum.
    """
    x, wanted, least = change + rate, spread * t, change + floor
    best = np.maximum(wanted, least)
    off = np.abs(x - best) * (x + best) / np.maximum(x, best) ** 2
    bent = (x - best) * (1 - (wanted / x) * (wanted / best))
    return float(off.max()), float(np.abs(bent).sum()) / t**2


def allocate_uniform(
    importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike, bandwidth: float
) -> Allocation:
    """Return the same rate for every page with importance, pings ignored (UniformCrawl).

    Examples
    --------
    >>> allocate_uniform([10, 1], [0.1, 2.0], [False, True], 0.5).crawl_rate
    array([0.25, 0.25])
    """
    pages = check_pages(importance, change_rate, complete)
    return _in_proportion(pages, (pages.importance > 0).astype(np.float64), bandwidth)


def allocate_change_rate(
    importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike, bandwidth: float
) -> Allocation:
    """Return rates in proportion to change rates, pings ignored (ChangeRateCrawl).

    Pages without importance get nothing. The rates are 0 if no page changes.

    Examples
    --------
    >>> allocate_change_rate([10, 1], [0.5, 1.5], [False, True], 0.5).crawl_rate
    array([0.125, 0.375])
    """
    pages = check_pages(importance, change_rate, complete)
    return _in_proportion(pages, np.where(pages.importance > 0, pages.change_rate, 0.0), bandwidth)


def _in_proportion(pages: Pages, weight: Floats, bandwidth: float) -> Allocation:
    """Return rates in proportion to `weight`, and the cost that more of each would save."""
    budget, total = check_bandwidth(bandwidth), float(weight.sum())
    rate = weight * (budget / total) if total else np.zeros_like(weight)
    changes = rate * pages.change_rate > 0
    share = np.divide(
        pages.change_rate, rate + pages.change_rate, where=changes, out=np.zeros(rate.size)
    )
    multiplier = float(pages.importance @ share) / budget if budget else np.inf
    return _compared(pages, Rates(rate, np.zeros_like(rate)), budget, multiplier)
