"""The budget factor, which keeps the number of crawls at the bandwidth. Pure.

Urgency shifts crawls. A page crawled early starts a new interval, and a page put off waits. The
number of crawls that follow has no closed form. Therefore each epoch counts the crawls since the
last epoch and corrects one factor on the crawl rates of all pages.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.checks import Floats, InvalidInput, check_amount

SETTLES_IN_DAYS = 10.0
"""Minimum time in which the factor corrects a difference by 1/e, days."""
SETTLES_IN_CRAWLS = 100.0
"""Minimum number of planned crawls in that time; smaller numbers vary by chance."""
SETTLES_IN_INTERVALS = 2.0
"""Minimum length of that time in mean intervals between the crawls of a page."""
LOWEST, HIGHEST = 2 / 3, 3 / 2
"""Bounds of the factor."""
MOST_OVERSPENT = 30.0
"""Crawls beyond the plan that one correction counts, in multiples of the plan."""


class Window(NamedTuple):
    """A stretch of time, as ages in days: from `start` ago to `end` ago."""

    start: float
    end: float

    @property
    def days(self) -> float:
        """The length, at least 0."""
        return max(self.start - self.end, 0.0)


class Spent(NamedTuple):
    """Crawls of some pages within a window."""

    n_crawled: float
    """Crawls that took place."""
    n_planned: float
    """Crawls by the crawl rates, without urgency and budget factor."""
    n_pages: int
    """Pages that were counted."""


def spent(
    age: ArrayLike,
    interval: ArrayLike,
    n_recrawls: ArrayLike,
    crawl_rate: ArrayLike,
    window: Window,
    factor: float = 1.0,
    failure_age: ArrayLike = (),
) -> Spent:
    """Return the crawls within a window, from the last two crawls with content of each page.

    The first crawl of a page, which no rate asks for, does not count, nor the time before it.
    Crawls before the last two count as spaced by the crawl rate and the budget factor. A crawl
    without content counts beside them, because it is paid and its page is crawled again.

    Parameters
    ----------
    age : (N,) days
        Days since each page's last crawl with content.
    interval : (N,) days
        Interval that this crawl ended; 0 where it is unknown.
    n_recrawls : (N,)
        Number of crawls of each page after its first.
    crawl_rate : (N,) 1/day
    factor
        Budget factor within the window.
    failure_age : (F,) days
        Days since the last crawl of each page that has had no content since.

    Raises
    ------
    InvalidInput
        An array has another shape than it should, or an entry that is negative or not finite.

    Examples
    --------
    >>> spent([0.1, 0.1, 0.5], [9.0, 0.4, 0.0], [5, 5, 0], [0.1, 4.0, 1.0], Window(1.0, 0.0))
    Spent(n_crawled=4.0, n_planned=4.6, n_pages=3)
    """
    shape = np.shape(age)
    last = check_amount("age", age, shape)
    length = check_amount("interval", interval, shape)
    recrawls = check_amount("n_recrawls", n_recrawls, shape)
    rate = check_amount("crawl_rate", crawl_rate, shape)
    failure = check_amount("failure_age", failure_age, np.shape(failure_age))
    start, end = window
    before = last + length
    n_last = np.count_nonzero((recrawls > 0) & (last >= end) & (last < start))
    had_two = (recrawls > 1) & (length > 0)
    n_before = np.count_nonzero(had_two & (before >= end) & (before < start))
    row = np.flatnonzero(had_two & (before < start))
    corrected_rate = factor * rate[row]
    n_spaced = _n_spaced(start - before[row], corrected_rate) - _n_spaced(
        end - before[row], corrected_rate
    )
    n_earlier = float(np.minimum(n_spaced, recrawls[row] - 2).sum())
    since = np.full(shape, start)
    np.minimum(start, last, out=since, where=recrawls == 0)
    np.minimum(start, before, out=since, where=(recrawls == 1) & (length > 0))
    n_planned = float((np.maximum(since - end, 0.0) * rate).sum())  # BLAS threads would spin
    n_failures = np.count_nonzero((failure >= end) & (failure < start))
    return Spent(float(n_last + n_before + n_failures) + n_earlier, n_planned, len(last))


def _n_spaced(days: Floats, rate: Floats) -> Floats:
    """Return the number of multiples of 1/rate below some days, without 0."""
    return np.maximum(np.ceil(np.maximum(days, 0.0) * rate) - 1.0, 0.0)


def budget_factor(last: float, crawls: Spent, days: float) -> float:
    r"""Return the factor on all crawl rates after a window in which crawls were counted.

    With n pages, c crawls where R w were planned, and a window of w days, the factor f becomes

    .. math:: f \exp\left(\frac{w}{\tau} \Big(1 - \frac{c}{R w}\Big)\right), \quad
              \tau = \max(10, 100 / R, 2 n / R)

    within 2/3 and 3/2. Its logarithm is therefore the number of crawls left over, in units of
    tau R: what a burst of crawls has spent is saved later.

    Parameters
    ----------
    last
        Factor in the window.
    crawls
        Crawls of the window.
    days
        Length of the window, days.

    Raises
    ------
    InvalidInput
        A number is negative or not finite, or `last` is 0.

    Examples
    --------
    >>> round(budget_factor(1.0, Spent(n_crawled=90, n_planned=100, n_pages=100), days=0.3), 4)
    1.003
    >>> budget_factor(1.0, Spent(n_crawled=0, n_planned=0, n_pages=0), days=0.0)
    1.0
    """
    values = {"last": last, "n_crawled": crawls.n_crawled, "n_planned": crawls.n_planned}
    for name, value in {**values, "days": days}.items():
        if not 0 <= value < np.inf or (name == "last" and not value):
            raise InvalidInput(name, f"is {value}, expected a finite number that is not negative")
    if not (crawls.n_planned > 0 and days > 0):
        return last
    rate = crawls.n_planned / days
    intervals = SETTLES_IN_INTERVALS * crawls.n_pages
    settles = max(SETTLES_IN_DAYS, SETTLES_IN_CRAWLS / rate, intervals / rate)
    missing = max(1.0 - crawls.n_crawled / crawls.n_planned, -MOST_OVERSPENT)
    corrected = last * np.exp(min(days / settles, 1.0) * missing)
    return float(np.clip(corrected, LOWEST, HIGHEST))
