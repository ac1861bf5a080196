r"""The crawls a day that pages take at a price: closed forms in :math:`s = 1/\lambda`.

Nothing cancels, and a page without importance or without changes takes nothing. Noisy pings miss
changes or announce none; their form contains pages with all or no pings (docs/theory.md, "What is
optimised").
"""

from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import Pages
from service.core.conditions import Floats

NEVER_ZERO = 1e-300
"""Far below any product of inputs: keeps the 0/0 of a page without changes at 0."""


class Taken(NamedTuple):
    """Crawls a day of each page of a block, and the derivatives in s."""

    rate: Floats
    slope: Floats


class Violation(NamedTuple):
    """How far each page is from stationary, relatively; positive entries violate optimality.

    `over`: the last crawl costs more than it gains; `under`: one more gains more than it costs.
    """

    over: Floats
    under: Floats


def demand(pages: Pages, s: Floats | float) -> Taken:
    """Return what pages take at a 1/multiplier `s`, one for all or one a page, within bounds."""
    taken = _exact_demand(pages, s) if pages.ping_recall is None else _noisy_demand(pages, s)
    if pages.min_crawl_rate is None or pages.max_crawl_rate is None:
        return taken
    inside = (taken.rate > pages.min_crawl_rate) & (taken.rate < pages.max_crawl_rate)
    rate = np.clip(taken.rate, pages.min_crawl_rate, pages.max_crawl_rate)
    return Taken(rate, np.where(inside, taken.slope, 0.0))


def violation(pages: Pages, s: Floats | float, rate: Floats) -> Violation:
    """Return the violations of rates; a page at a bound may want to go beyond it."""
    form = _exact_violation if pages.ping_recall is None else _noisy_violation
    broken = form(pages, s, rate)
    if pages.min_crawl_rate is not None and pages.max_crawl_rate is not None:
        broken.over[rate <= pages.min_crawl_rate] = 0.0
        broken.under[rate >= pages.max_crawl_rate] = 0.0
    return broken


def by_clock(importance: Floats, change_rate: Floats, s: Floats | float) -> Taken:
    r"""Return the crawl rate of pages without pings (K19 Proposition 2, rationalised).

    .. math:: \rho(s) = 2 \mu s \Delta / (\Delta + r), \quad r = \sqrt{\Delta^2 + 4 \mu s \Delta}
    """
    slope = importance * change_rate
    rate = slope * (4 * s)
    root = change_rate * change_rate
    root += NEVER_ZERO
    root += rate
    np.sqrt(root, out=root)
    slope /= root
    root += change_rate
    rate /= root
    rate *= 0.5
    return Taken(rate, slope)


def _exact_demand(pages: Pages, s: Floats | float) -> Taken:
    r"""Return the rate on the clock, or :math:`\min(\Delta, \mu s)` on pings (Proposition 5)."""
    taken = by_clock(pages.importance, pages.change_rate, s)
    pinged, importance, change, wanted = _pinged(pages, s)
    taken.rate[pinged] = np.minimum(change, wanted)
    taken.slope[pinged] = np.where(wanted < change, importance, 0.0)
    return taken


def _exact_violation(pages: Pages, s: Floats | float, rate: Floats) -> Violation:
    r"""Compare :math:`\rho (\rho + \Delta)` with :math:`\mu s \Delta`; on pings, p with p(s)."""
    ideal = pages.importance * pages.change_rate
    ideal *= s
    over = rate + pages.change_rate
    over *= rate
    over -= ideal
    ideal += NEVER_ZERO
    with np.errstate(over="ignore"):
        over /= ideal
    pinged, _, change, wanted = _pinged(pages, s)
    over[pinged] = (rate[pinged] - wanted) / (wanted + NEVER_ZERO)
    under = -over
    under[pinged[rate[pinged] >= change]] = 0.0
    return Violation(over, under)


def _pinged(pages: Pages, s: Floats | float) -> tuple[np.ndarray, Floats, Floats, Floats]:
    """Return the complete pages: positions, importance, change rate and the rate they want."""
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


def _noisy_demand(pages: Pages, s: Floats | float) -> Taken:
    r"""Return :math:`c = 2 \mu s / (1 + \sqrt{1 + 4 (1-q) \mu s / \Delta})` up to the ping rate g.

    Beyond, return the larger of g and what a page without pings takes that changes alpha times.
    """
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


def _noisy_violation(pages: Pages, s: Floats | float, rate: Floats) -> Violation:
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
    return 0.0 if pages.ping_precision is None else 1 - pages.ping_precision
