"""Costs of pages after crawls. Pure; (N,) for crawls by page and time, (P,) for their pages."""

import numpy as np

from service.core.prices import LEAST, learnt
from service.model.arrays import Codes, Floats, Groups, rounds
from service.model.columns import CrawlColumns, PageStates
from service.model.outcomes import OFFER


def costs_after(states: PageStates, groups: Groups, crawls: CrawlColumns, outcome: Codes) -> Floats:
    """Return (P,) mean costs of pages; a price that a site asks replaces the mean."""
    if crawls.cost is None:
        return states.cost
    mean = states.cost.copy()
    for row in rounds(groups.page):
        page, cost = groups.page[row], crawls.cost[row]
        asked = (outcome[row] == OFFER) & ~np.isnan(cost)
        mean[page] = np.where(asked, np.maximum(cost, LEAST), learnt(mean[page], cost))
    return mean
