r"""The crawls a day that pages take at a price: closed forms in :math:`s = 1/\lambda`.

A page with pings at rate :math:`g`, of which a share :math:`q` (precision) announces one of its
:math:`\Delta` changes a day and a share 1 - recall of the changes, :math:`\alpha`, has no ping, is
crawled :math:`c = \rho + p g` times a day, on pings first: :math:`p = \min(1, c/g)`,
:math:`\rho = \max(0, c - g)`. Its harmonic cost :math:`\mu \ln(1 + (\alpha + (1-p) q g)/c)` is
convex in c, and :math:`c(s)` increases (THEORY 1, noisy pings). Without pings g = 0, and with pings
that are all trusted :math:`\alpha = 0`, q = 1: K19 Propositions 2 and 5.

Numbers are written so that nothing cancels and nothing is divided by 0: a page without importance
or without changes takes nothing.
"""

from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import Pages
from service.core.conditions import Floats

NEVER_ZERO = 1e-300
"""Far below any product of inputs: keeps 0/0 of a page without changes at 0."""


class Taken(NamedTuple):
    """Crawls a day of each page of a block, and the derivatives in s."""

    rate: Floats
    slope: Floats


def demand(pages: Pages, s: Floats | float) -> Taken:
    """Answer a 1/multiplier `s`, one for all pages or one a page, within the bounds of each."""
    taken = _plain(pages, s) if pages.ping_recall is None else _noisy(pages, s)
    if pages.min_crawl_rate is None or pages.max_crawl_rate is None:
        return taken
    inside = (taken.rate > pages.min_crawl_rate) & (taken.rate < pages.max_crawl_rate)
    rate = np.clip(taken.rate, pages.min_crawl_rate, pages.max_crawl_rate)
    return Taken(rate, np.where(inside, taken.slope, 0.0))


def _plain(pages: Pages, s: Floats | float) -> Taken:
    """Pages whose pings are all trusted or all ignored."""
    taken = _by_clock(pages.importance, pages.change_rate, s)
    pinged = np.flatnonzero(pages.complete)
    importance, change = pages.importance[pinged], pages.change_rate[pinged]
    wanted = importance * (s[pinged] if isinstance(s, np.ndarray) else s)
    taken.rate[pinged] = np.minimum(change, wanted)
    taken.slope[pinged] = np.where(wanted < change, importance, 0.0)
    return taken


def _by_clock(importance: Floats, change_rate: Floats, s: Floats | float) -> Taken:
    r""":math:`2 \mu s \Delta / (\Delta + r)`, :math:`r = \sqrt{\Delta^2 + 4 \mu s \Delta}`."""
    slope = importance * change_rate
    taken = slope * s
    root = change_rate + 4 * (importance * s)
    root *= change_rate
    np.sqrt(root, out=root)
    np.maximum(root, NEVER_ZERO, out=root)
    slope /= root
    root += change_rate
    taken /= root
    taken *= 2
    return Taken(taken, slope)


def _noisy(pages: Pages, s: Floats | float) -> Taken:
    """Spend on pings until all are followed; on the clock only what is worth more than that."""
    unannounced, ping_rate, _ = pings(pages)
    changes = pages.change_rate > 0
    importance = np.where(changes, pages.importance, 0.0)
    false = (1 - precision(pages)) / np.where(changes, pages.change_rate, 1.0)
    wanted = importance * s
    root = np.sqrt(1 + 4 * wanted * false)
    by_ping = 2 * wanted / (1 + root)
    clock = _by_clock(importance, unannounced, s)
    some = by_ping <= ping_rate
    beyond = np.where(clock.rate > ping_rate, clock.slope, 0.0)
    return Taken(
        np.where(some, by_ping, np.maximum(ping_rate, clock.rate)),
        np.where(some, importance / root, beyond),
    )


def pings(pages: Pages) -> tuple[Floats, Floats, Floats]:
    """Rates of changes without a ping, of pings, and of pings that announce a change."""
    if pages.ping_recall is None:
        announced = np.where(pages.complete, pages.change_rate, 0.0)
        return pages.change_rate - announced, announced, announced
    announced = pages.ping_recall * pages.change_rate
    unannounced = (1 - pages.ping_recall) * pages.change_rate
    return unannounced, announced / precision(pages), announced


def precision(pages: Pages) -> Floats | float:
    """Share of the pings that announce a change; 1 where pings are not noisy."""
    return 1.0 if pages.ping_precision is None else pages.ping_precision


def price(pages: Pages, rate: Floats) -> tuple[Floats, Floats]:
    """Find the s at which each page takes `rate`: from below and from above, where it has a kink.

    The reciprocals of the one-sided derivatives of the harmonic cost: infinite from above where
    crawling more gains nothing (all changes already followed, the upper bound), 0 from below at
    the lower bound. Stationarity is `below <= s <= above`.
    """
    unannounced, ping_rate, _ = pings(pages)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ping = rate * ((1 - precision(pages)) * rate / pages.change_rate + 1) / pages.importance
        clock = rate * (rate / unannounced + 1) / pages.importance
    below = np.where(rate <= ping_rate, ping, clock)
    above = np.where(rate < ping_rate, ping, clock)
    least = 0.0 if pages.min_crawl_rate is None else pages.min_crawl_rate
    below[rate <= least] = 0.0
    idle = (pages.importance == 0) | (pages.change_rate == 0) | (ping_rate + unannounced == 0)
    above[idle] = np.inf
    if pages.max_crawl_rate is not None:
        above[rate >= pages.max_crawl_rate] = np.inf
    return below, above
