"""The crawls a day that pages take at a price, whatever their pings and bounds."""

import numpy as np

from service.core.allocation import noisy, plain
from service.core.allocation.blocks import Pages
from service.core.allocation.plain import Taken, Violation
from service.core.conditions import Floats


def demand(pages: Pages, s: Floats | float) -> Taken:
    """Answer a 1/multiplier `s`, one for all pages or one a page, within the bounds of each."""
    taken = plain.demand(pages, s) if pages.ping_recall is None else noisy.demand(pages, s)
    if pages.min_crawl_rate is None or pages.max_crawl_rate is None:
        return taken
    inside = (taken.rate > pages.min_crawl_rate) & (taken.rate < pages.max_crawl_rate)
    rate = np.clip(taken.rate, pages.min_crawl_rate, pages.max_crawl_rate)
    return Taken(rate, np.where(inside, taken.slope, 0.0))


def violation(pages: Pages, s: Floats | float, rate: Floats) -> Violation:
    """Check rates against the price; a page at a bound may want to go beyond it."""
    form = plain.violation if pages.ping_recall is None else noisy.violation
    broken = form(pages, s, rate)
    if pages.min_crawl_rate is not None and pages.max_crawl_rate is not None:
        broken.over[rate <= pages.min_crawl_rate] = 0.0
        broken.under[rate >= pages.max_crawl_rate] = 0.0
    return broken
