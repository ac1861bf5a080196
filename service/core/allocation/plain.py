r"""Pages whose pings announce all changes or none: closed forms in :math:`s = 1/\lambda`.

A page without pings takes the crawl rate (K19 Proposition 2, rationalised)

.. math:: \rho(s) = 2 \mu s \Delta / (\Delta + r), \quad r = \sqrt{\Delta^2 + 4 \mu s \Delta},

and a page whose changes are all announced the crawl probability
:math:`p(s) = \min(1, \mu s/\Delta)` (Proposition 5). Nothing cancels, and a page without
importance or without changes takes nothing.
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


def by_clock(importance: Floats, change_rate: Floats, s: Floats | float) -> Taken:
    """Evaluate the crawl rate of pages without pings."""
    slope = importance * change_rate
    rate = slope * s
    rate *= 4
    root = change_rate * change_rate
    root += NEVER_ZERO
    root += rate
    np.sqrt(root, out=root)
    slope /= root
    root += change_rate
    rate /= root
    rate *= 0.5
    return Taken(rate, slope)


def demand(pages: Pages, s: Floats | float) -> Taken:
    """Answer a 1/multiplier `s`, one for all pages or one a page."""
    taken = by_clock(pages.importance, pages.change_rate, s)
    pinged, importance, change, wanted = _pinged(pages, s)
    taken.rate[pinged] = np.minimum(change, wanted)
    taken.slope[pinged] = np.where(wanted < change, importance, 0.0)
    return taken


def violation(pages: Pages, s: Floats | float, rate: Floats) -> Violation:
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
    """Gather the complete pages: positions, importance, change rate and the rate they want."""
    pinged = np.flatnonzero(pages.complete)
    importance = pages.importance[pinged]
    at = s[pinged] if isinstance(s, np.ndarray) else s
    return pinged, importance, pages.change_rate[pinged], importance * at
