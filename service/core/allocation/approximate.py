"""LambdaCrawlApprox: no change rates needed to rank pages without pings (K19 Proposition 9)."""

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.inputs import check_bandwidth, check_pages
from service.core.allocation.result import Allocation
from service.core.allocation.roots import Values, climb
from service.core.conditions import Floats


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

    s being the reciprocal of what one more crawl a day of the incomplete pages saves.
    Parameters, units and errors as in `allocate_harmonic`; the multiplier is 1/s.

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
        wanted = pinged_weight * s
        rising = float(pinged_weight[wanted < most].sum()) * slope
        spent = t * total + float(np.minimum(wanted, most).sum())
        return Values(np.array([spent]), np.array([total + rising]))

    upper = budget / total
    lower = budget / (total + float(pinged_weight.sum()) * price(upper)[0] / upper)
    t, passes = climb(used, np.array([budget]), np.array([lower]), np.array([upper]))
    s = price(float(t[0]))[0]
    crawl_rate, crawl_probability = np.zeros(clock.size), np.zeros(clock.size)
    crawl_rate[clock] = weight * t
    crawl_probability[pinged] = np.minimum(1.0, pinged_weight * s / most)
    spent = float(used(t).value[0])
    return Allocation(
        crawl_rate,
        crawl_probability,
        1 / s,
        budget,
        spent,
        kkt_residual=abs(spent / budget - 1),
        duality_gap=abs(spent - budget) / s,
        passes=passes,
    )
