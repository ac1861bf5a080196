r"""The value of a crawl now, and what a page has earned of its next crawl. Pure.

A page is due when the value of a crawl reaches a bar. With the quality of its pings (`core.pings`),
:math:`m = \alpha \tau + q n` changes are expected :math:`\tau` days and n pings after a crawl. The
value is (derived; docs/theory.md, "When rates become crawls")

.. math:: V = \frac{\mu}{\Delta} \left[m - k (1 - e^{-m})\right], \quad k = 1 - q^2 g / \Delta.

Without pings, V is :math:`\mu (\tau - (1 - e^{-\Delta \tau})/\Delta)`. With pings that announce
every change and nothing else, V is :math:`\mu n / \Delta`.

**The plan has the bar.** The plan crawls the page c times a day, on the clock and on pings. So a
crawl comes after :math:`\Delta / c` expected changes on average. V rises with m. Therefore V
reaches its value in the plan exactly when m reaches :math:`\Delta / c`. Neither the multiplier nor
the importance is needed. Without pings this is the interval 1/c, with complete pings it is every
1/p-th ping.
"""

from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike

from service.core.checks import Floats
from service.core.pings import PingEstimate

SMALL = 0.1
"""Number of expected changes below which m - 1 + exp(-m) is a series."""
LEAST = np.finfo(float).tiny
_SERIES = [0.0, 0.0, *((-1) ** k / factorial(k) for k in range(2, 12))]
STEPS = 8
"""Newton steps to the changes of a value, which are enough for all digits."""


def expected_changes(pings: PingEstimate, days: ArrayLike, n_pings: ArrayLike) -> Floats:
    """Return the changes expected some days and pings after a crawl."""
    unannounced = np.multiply(pings.unannounced_rate, days)
    return np.asarray(unannounced + np.multiply(pings.precision, n_pings))


def crawl_value(
    importance: ArrayLike, pings: PingEstimate, days: ArrayLike, n_pings: ArrayLike
) -> Floats:
    """Return the value of a crawl now, in importance times days; 0 for a page without changes.

    `days` and `n_pings` count from the last crawl; all arguments are numbers or (N,).

    Examples
    --------
    A page without pings, one with noisy and one with complete pings, each after 2 days and a ping:

    >>> pings = PingEstimate(np.array([0.5, 0.2, 0.0]), np.array([0.0, 0.6, 0.5]),
    ...                      np.array([1.0, 0.5, 1.0]))
    >>> crawl_value(1.0, pings, days=2.0, n_pings=[0, 1, 1]).round(3)
    array([0.736, 0.969, 2.   ])
    """
    rate = np.asarray(pings.change_rate)
    gain = _gain(expected_changes(pings, days, n_pings), _sure_share(pings))
    return np.asarray(
        np.where(rate > 0, np.multiply(importance, gain) / np.maximum(rate, LEAST), 0.0)
    )


def days_to_value(
    value: ArrayLike, importance: ArrayLike, pings: PingEstimate, n_pings: ArrayLike
) -> Floats:
    """Return the days after a crawl at which a crawl has a value; infinite if only pings add value.

    0: the pings alone are worth it. The other arguments are those of `crawl_value`.

    Examples
    --------
    >>> pings = PingEstimate(np.array(0.2), np.array(0.6), np.array(0.5))
    >>> days_to_value(0.969, 1.0, pings, n_pings=[0, 1, 3]).round(2)
    array([4.5, 2. , 0. ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.multiply(value, pings.change_rate) / np.asarray(importance, np.float64)
        changes = _changes_of(np.nan_to_num(gain, nan=np.inf, posinf=np.inf), _sure_share(pings))
        missing = changes - np.multiply(pings.precision, n_pings)
        return np.asarray(np.where(missing > 0, missing / pings.unannounced_rate, 0.0))


class Earnings(NamedTuple):
    """Shares of a planned crawl that pages earn."""

    by_ping: Floats
    """For each ping."""
    by_day: Floats
    """For each day, because of changes without a ping."""


def earnings(pings: PingEstimate, crawls: ArrayLike) -> Earnings:
    r"""Return what pages earn of a crawl, of `crawls` that the plan has a day for each.

    The page has earned a crawl when :math:`m = \alpha \tau + q n` is :math:`\Delta / c`.

    Examples
    --------
    The plan crawls a third of complete pings, and half of pings that miss half of the changes:

    >>> pings = PingEstimate(np.array([0.0, 0.5]), np.array([0.6, 1.0]), np.array([1.0, 0.5]))
    >>> earned = earnings(pings, crawls=[0.2, 0.5])
    >>> earned.by_ping.round(3), earned.by_day
    (array([0.333, 0.25 ]), array([0.  , 0.25]))
    """
    for_each_change = np.divide(crawls, np.maximum(pings.change_rate, LEAST))
    return Earnings(
        np.asarray(pings.precision * for_each_change),
        np.asarray(pings.unannounced_rate * for_each_change),
    )


def _sure_share(pings: PingEstimate) -> Floats:
    """Return 1 - k: the share of the changes that pings announce, times the precision."""
    return np.asarray(pings.recall * pings.precision)


def _gain(m: Floats, sure: Floats) -> Floats:
    """Return m - k (1 - exp(-m)) without cancellation."""
    unsure = np.where(m < SMALL, polyval(np.minimum(m, SMALL), _SERIES), m + np.expm1(-m))
    return np.asarray(sure * m + (1.0 - sure) * unsure)


def _changes_of(gain: Floats, sure: Floats) -> Floats:
    """Return the m of a gain, by Newton's method from above, where it only falls: convex in m."""
    # lower bounds of the gain: m - k, (1 - k) m and k m^2 / (2 + m)
    with np.errstate(over="ignore"):
        y = gain / np.maximum(1.0 - sure, LEAST)
        m = np.minimum(gain + 1.0 - sure, (y + np.sqrt(y) * np.sqrt(y + 8.0)) / 2.0)
        m = np.minimum(m, gain / np.maximum(sure, LEAST))
    for _ in range(STEPS):
        slope = sure - (1.0 - sure) * np.expm1(-m)
        step = np.where(slope > 0, (_gain(m, sure) - gain) / np.maximum(slope, LEAST), 0.0)
        m = np.where(np.isfinite(step), np.maximum(m - step, 0.0), m)
    return np.asarray(m)
