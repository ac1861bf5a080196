r"""Demand: the crawls a day that pages take at a multiplier, in closed form.

The formulas are in :math:`s = 1/\lambda` and lose no digits. A page without importance or without
changes takes nothing. Noisy pings miss changes or announce none. Their formula covers pages with
perfect pings and pages without pings too (docs/theory.md, "What is optimised").
"""

from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import Indices, Pages
from service.core.checks import Floats

NEVER_ZERO = 1e-300
"""Number far below any product of inputs, which makes the 0/0 of a page without changes 0."""


class Work(NamedTuple):
    """(N,) arrays for results and steps, which hold until their next use; None: new arrays.

    The memory allocator returns large new arrays to the kernel after each block, so page faults
    would cost a third of a pass.
    """

    rate: Floats | None = None
    slope: Floats | None = None
    root: Floats | None = None


NEW = Work()


class Taken(NamedTuple):
    """(N,) crawls a day of the pages of a block, and their derivatives in s."""

    rate: Floats
    slope: Floats


def demand(pages: Pages, s: Floats | float, work: Work = NEW) -> Taken:
    """Return the demand of pages within their bounds at 1/multiplier `s`, a number or (N,)."""
    taken = _exact_demand(pages, s, work) if pages.ping_recall is None else _noisy_demand(pages, s)
    if pages.min_crawl_rate is None or pages.max_crawl_rate is None:
        return taken
    inside = (taken.rate > pages.min_crawl_rate) & (taken.rate < pages.max_crawl_rate)
    rate = np.clip(taken.rate, pages.min_crawl_rate, pages.max_crawl_rate)
    return Taken(rate, np.where(inside, taken.slope, 0.0))


def own_inverse(cost: Floats, s: Floats | float, multiplier: float) -> Floats:
    r"""Return :math:`1/(\lambda (c - 1) + 1/s)`, the s of pages at costs c of at least 1.

    A host at its cap has an s below :math:`1/\lambda`. The difference of :math:`1/s` is the price
    of one of its crawls, which comes on top of the cost :math:`\lambda c`.
    """
    price = cost - 1
    price *= multiplier
    price *= s
    price += 1
    return np.divide(s, price, out=price)


def by_clock(importance: Floats, change_rate: Floats, s: Floats | float, work: Work = NEW) -> Taken:
    r"""Return the crawl rate of pages without pings (K19 Proposition 2, rationalised).

    .. math:: \rho(s) = 2 \mu s \Delta / (\Delta + r), \quad r = \sqrt{\Delta^2 + 4 \mu s \Delta}
    """
    slope = np.multiply(importance, change_rate, out=work.slope)
    rate = np.multiply(slope, s, out=work.rate)
    rate *= 4
    root = np.multiply(change_rate, change_rate, out=work.root)
    root += NEVER_ZERO
    root += rate
    np.sqrt(root, out=root)
    slope /= root
    root += change_rate
    rate /= root
    rate *= 0.5
    return Taken(rate, slope)


def _exact_demand(pages: Pages, s: Floats | float, work: Work) -> Taken:
    r"""Return the rate on the clock, or :math:`\min(\Delta, \mu s)` on pings (Proposition 5)."""
    taken = by_clock(pages.importance, pages.change_rate, s, work)
    pinged, importance, change, wanted = _pinged(pages, s)
    taken.rate[pinged] = np.minimum(change, wanted)
    taken.slope[pinged] = np.where(wanted < change, importance, 0.0)
    return taken


def _pinged(pages: Pages, s: Floats | float) -> tuple[np.ndarray, Floats, Floats, Floats]:
    """Return the complete pages: positions, importance, change rate and unbounded demand."""
    pinged = np.flatnonzero(pages.complete)
    importance = pages.importance[pinged]
    at = s[pinged] if isinstance(s, np.ndarray) else s
    return pinged, importance, pages.change_rate[pinged], importance * at


def pings(pages: Pages) -> tuple[Floats, Floats]:
    """Return the rates of the changes without a ping and of the pings."""
    if pages.ping_recall is None or pages.ping_precision is None:
        announced = np.where(pages.complete, pages.change_rate, 0.0)
        return pages.change_rate - announced, announced
    unannounced = (1 - pages.ping_recall) * pages.change_rate
    return unannounced, pages.ping_recall * pages.change_rate / pages.ping_precision


def with_pings(pages: Pages) -> tuple[Indices, Floats]:
    """Return the pages with pings, and the rates of their pings."""
    if pages.ping_recall is None:
        pinged = np.flatnonzero(pages.complete)
        return pinged, pages.change_rate[pinged]
    ping_rate = pings(pages)[1]
    pinged = np.flatnonzero(ping_rate)
    return pinged, ping_rate[pinged]


def _noisy_demand(pages: Pages, s: Floats | float) -> Taken:
    r"""Return :math:`c = 2 \mu s / (1 + \sqrt{1 + 4 (1-q) \mu s / \Delta})` up to the ping rate g.

    Above g, return the larger of g and the demand of a page without pings of change rate alpha.
    """
    unannounced, ping_rate = pings(pages)
    changes = pages.change_rate > 0
    importance = np.where(changes, pages.importance, 0.0)
    wanted = importance * s
    root = np.sqrt(1 + 4 * wanted * false_share(pages) / np.where(changes, pages.change_rate, 1.0))
    by_ping = 2 * wanted / (1 + root)
    clock = by_clock(importance, unannounced, s)
    some = by_ping <= ping_rate
    beyond = np.where(clock.rate > ping_rate, clock.slope, 0.0)
    return Taken(
        np.where(some, by_ping, np.maximum(ping_rate, clock.rate)),
        np.where(some, importance / root, beyond),
    )


def false_share(pages: Pages) -> Floats | float:
    """Return the share of the pings that announce no change."""
    return 0.0 if pages.ping_precision is None else 1 - pages.ping_precision
