"""Crawls of policies that know no windows, kept within those of a site."""

from datetime import timedelta

import numpy as np

from recrawl_lab.replay.replay import instants_of, since_start
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.simulated_time import instant_of
from service.model.calendars import HourRules, hours_of
from service.model.open_time import AHEAD

REACH = (AHEAD - timedelta(days=100)) / timedelta(days=1)
"""Time for which one calendar is used, days; windows beyond its end follow closures before it."""


def within(crawls: Crawls, rules: HourRules, days: float) -> Crawls:
    """Return crawls, those of a closure in their order over the window that follows it.

    A crawl for which no window is left within `days` is left out.
    """
    if rules.is_open:
        return crawls
    at = crawls.at.copy()
    for begin in np.arange(0.0, days, REACH).tolist():
        some = (crawls.at >= begin) & (crawls.at < begin + REACH)
        hours = hours_of(rules, instant_of(begin))
        at[some] = since_start(hours.spread(instants_of(crawls.at[some])))
    kept = at < days
    return Crawls(crawls.page[kept], at[kept])
