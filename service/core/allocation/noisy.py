r"""Pages whose pings miss changes or announce none (derived; contains pages with all or no pings).

With pings at rate :math:`g` of which a share q (precision) is right, and :math:`\alpha` changes a
day without a ping, a page crawled :math:`c = \rho + p g` times a day costs
:math:`\mu \ln(1 + (\alpha + (1-p) q g)/c)`, least with :math:`p = \min(1, c/g)`,
:math:`\rho = \max(0, c - g)`. That cost is convex in c. At :math:`s = 1/\lambda` the page takes

.. math:: c_1 = 2 \mu s / (1 + \sqrt{1 + 4 (1-q) \mu s / \Delta})

if that is at most g, else the larger of g and the crawl rate of a page without pings that changes
:math:`\alpha` times a day.
"""

import numpy as np

from service.core.allocation.blocks import Pages
from service.core.allocation.plain import NEVER_ZERO, Taken, Violation, by_clock
from service.core.conditions import Floats


def pings(pages: Pages) -> tuple[Floats, Floats]:
    """Rates of the changes without a ping and of the pings."""
    if pages.ping_recall is None or pages.ping_precision is None:
        announced = np.where(pages.complete, pages.change_rate, 0.0)
        return pages.change_rate - announced, announced
    unannounced = (1 - pages.ping_recall) * pages.change_rate
    return unannounced, pages.ping_recall * pages.change_rate / pages.ping_precision


def demand(pages: Pages, s: Floats | float) -> Taken:
    """Evaluate c and its derivative in s."""
    unannounced, ping_rate = pings(pages)
    changes = pages.change_rate > 0
    importance = np.where(changes, pages.importance, 0.0)
    wanted = importance * s
    root = np.sqrt(1 + 4 * wanted * _false(pages) / np.where(changes, pages.change_rate, 1.0))
    by_ping = 2 * wanted / (1 + root)
    clock = by_clock(importance, unannounced, s)
    some = by_ping <= ping_rate
    beyond = np.where(clock.rate > ping_rate, clock.slope, 0.0)
    return Taken(
        np.where(some, by_ping, np.maximum(ping_rate, clock.rate)),
        np.where(some, importance / root, beyond),
    )


def violation(pages: Pages, s: Floats | float, rate: Floats) -> Violation:
    r"""Compare c with the rates at which each side of its kink at g is stationary.

    On pings :math:`c ((1-q) c + \Delta) = \mu s \Delta`, beyond them
    :math:`c (c + \alpha) = \mu s \alpha`.
    """
    unannounced, ping_rate = pings(pages)
    on_pings = _off(rate * (_false(pages) * rate + pages.change_rate), pages.change_rate, pages, s)
    beyond = _off(rate * (rate + unannounced), unannounced, pages, s)
    return Violation(
        np.where(rate <= ping_rate, on_pings, beyond),
        -np.where(rate < ping_rate, on_pings, beyond),
    )


def _off(is_now: Floats, change_rate: Floats, pages: Pages, s: Floats | float) -> Floats:
    ideal = pages.importance * change_rate * s
    with np.errstate(over="ignore"):
        return np.asarray((is_now - ideal) / (ideal + NEVER_ZERO))


def _false(pages: Pages) -> Floats | float:
    """Share of the pings that announce nothing."""
    return 0.0 if pages.ping_precision is None else 1 - pages.ping_precision
