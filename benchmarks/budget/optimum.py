"""The least staleness of pages whose change rates are known, crawled periodically."""

import numpy as np

from recrawl_lab.reference.periodic import allocate_periodic
from service.core.costs import costs
from service.model.arrays import Floats


def least_staleness(change_rate: Floats, budget: float) -> Floats:
    """Return the (N,) harmonic staleness of pages of equal importance at their optimal rates.

    >>> least_staleness(np.array([0.1, 0.1]), 0.2).round(4)
    array([0.4287, 0.4287])
    """
    n = len(change_rate)
    equal, incomplete, none = np.ones(n), np.zeros(n, np.bool_), np.zeros(n)
    rate = allocate_periodic(equal, change_rate, incomplete, budget).crawl_rate
    return costs(equal, change_rate, rate, none, incomplete, timing="periodic")[0]
