"""Rates for pages that are crawled on time rather than at random (derived)."""

from math import factorial

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike, NDArray

from service.core.allocation.blocks import Pages, over_blocks
from service.core.allocation.certificate import violation
from service.core.allocation.demand import Taken, demand
from service.core.allocation.multipliers import UNLIMITED, Solution, Values, grow, solve
from service.core.allocation.problem import Allocation, check_bandwidth, check_pages
from service.core.allocation.sweeps import Sweeps
from service.core.checks import Floats
from service.core.common_values import alone

SMALL = 0.1
"""Value of x below which x - 1 + exp(-x) is computed as a series."""

_SERIES = [0.0, 0.0, *((-1) ** k / factorial(k) for k in range(2, 14))]


def allocate_periodic(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,
) -> Allocation:
    r"""Return the least-cost rates of pages without pings that are crawled at regular intervals.

    Minimises :math:`\sum_{inc} \mu [Ein(x) - 1 + (1 - e^{-x})/x]`, :math:`x = \Delta/\rho`
    (`costs.harmonic_cost`, timing periodic). Stationary where
    :math:`x - 1 + e^{-x} = \lambda \Delta/\mu`. Complete pages keep LambdaCrawl's
    :math:`p = \min(1, \mu s/\Delta)`: by ping credit the best p are the steps 1/k next to it,
    which lower the cost by less than 0.03 % on the golden set. Parameters, units and errors as in
    `allocate_harmonic`.

    Examples
    --------
    >>> allocation = allocate_periodic([10, 5, 8], [0.1, 1.0, 0.25], [False, False, True], 0.5)
    >>> allocation.crawl_rate.round(4), allocation.crawl_probability.round(4)
    (array([0.1106, 0.1394, 0.    ]), array([0., 0., 1.]))
    """
    pages = check_pages(importance, change_rate, complete)
    n = pages.importance.size
    levels = grow(check_bandwidth(bandwidth), None)

    def take(s: Floats) -> Values:
        def sums(block: slice) -> Floats:
            at = _demand(pages.cut(block), float(s[0]))
            return np.array([at.rate.sum(), at.slope.sum()])

        value, slope = sum(over_blocks(sums, n), np.zeros(2))
        return Values(np.array([value]), np.array([slope]))

    solution = alone(solve(levels, take, Sweeps(pages).survey(), start))
    return _settled(pages, solution, float(levels[0].bandwidth[0]))


def _settled(pages: Pages, solution: Solution, budget: float) -> Allocation:
    """Return the rates at the root, and their distance from a stationary point."""
    n = pages.importance.size
    s = float(solution.levels[0][0])
    rate, off = np.zeros(n), np.zeros(n)

    def settle(block: slice) -> None:
        rate[block] = _demand(pages.cut(block), s).rate
        off[block] = _violation(pages.cut(block), s, rate[block])

    list(over_blocks(settle, n))
    used = float(rate.sum())
    priced = 0 < s < UNLIMITED
    unspent = abs(budget - used) if priced else max(0.0, used - budget)
    crawled = pages.complete & (pages.change_rate > 0)
    probability = np.divide(rate, pages.change_rate, out=np.zeros(n), where=crawled)
    return Allocation(
        np.where(pages.complete, 0.0, rate),
        probability,
        0.0 if s >= UNLIMITED else float(np.divide(1.0, s)) if s else np.inf,
        budget,
        used,
        kkt_residual=max(float(off.max(initial=0.0)), unspent / budget if budget else 0.0),
        duality_gap=(unspent + float(rate @ off)) / s if priced else 0.0,
        passes=solution.passes,
    )


def _demand(pages: Pages, s: float) -> Taken:
    """Return the rates of both kinds of pages and their derivatives in `s`."""
    taken = demand(pages, s)
    clock = _on_the_clock(pages)
    if s > 0:
        change = pages.change_rate[clock]
        price = change / (pages.importance[clock] * s)
        x = _changes_between_crawls(price)
        taken.rate[clock] = change / x
        taken.slope[clock] = change / x * (price / x) / (-np.expm1(-x) * s)
    return taken


def _violation(pages: Pages, s: float, rate: Floats) -> Floats:
    """Return the relative difference of x - 1 + exp(-x) from its value at the optimum."""
    if s == 0:
        return np.zeros_like(rate)
    off = np.abs(violation(pages, s, rate))
    clock = _on_the_clock(pages)
    change = pages.change_rate[clock]
    off[clock] = np.abs(_waste(change / rate[clock]) * pages.importance[clock] * s / change - 1)
    return off


def _on_the_clock(pages: Pages) -> NDArray[np.intp]:
    return np.flatnonzero(~pages.complete & (pages.importance > 0) & (pages.change_rate > 0))


def _changes_between_crawls(price: Floats) -> Floats:
    r"""Solve :math:`x - 1 + e^{-x} = c` by Newton's method; four steps reach full precision.

    Examples
    --------
    >>> _changes_between_crawls(np.array([1e-20, 0.01, 0.5, 2.0, 1e9]))
    array([1.41421356e-10, 1.44834751e-01, 1.19829044e+00, 2.94753090e+00, 1.00000000e+09])
    """
    root = np.sqrt(2 * price)
    x = np.where(price < 1, root * (1 + root * (1 / 6 + root / 36)), 1 + price)
    for _ in range(4):
        x -= (_waste(x) - price) / -np.expm1(-x)
    return x


def _waste(x: Floats) -> Floats:
    """Return x - 1 + exp(-x), computed without cancellation."""
    return np.where(x < SMALL, polyval(np.minimum(x, SMALL), _SERIES), x + np.expm1(-x))
