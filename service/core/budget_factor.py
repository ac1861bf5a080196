"""The feedback by which readers without leases keep the budget. Pure.

Leases keep the budget by themselves (`core.pace`). Crawlers that only read the schedule crawl all
that is due. Urgency, pings, new pages and failures change how much that is. Therefore each epoch
counts the requests since the last epoch and corrects one factor on the crawls that it wants until
the next one. The factor on the crawl rates of all pages follows from the crawls that are due by
then (`core.due_counts`).
"""

from typing import NamedTuple

import numpy as np

from service.core.checks import InvalidInput

SETTLES_IN_DAYS = 10.0
"""Minimum time in which the factor corrects a difference by 1/e, days."""
SETTLES_IN_CRAWLS = 100.0
"""Minimum number of crawls of the budget in that time; smaller numbers vary by chance."""
SETTLES_IN_INTERVALS = 2.0
"""Minimum length of that time in mean intervals between the crawls of a page."""
LOWEST, HIGHEST = 1 / 4, 4.0
"""Bounds of the factor."""
SOON_DAYS, MOST_SOON = 3.0, 0.1
"""Time in which few crawls that are left over are made up, days, and the maximum share of the
budget for that."""
MOST_OVERSPENT = 30.0
"""Crawls beyond the budget that one correction counts, in multiples of the budget."""


class Window(NamedTuple):
    """A stretch of time, as ages in days: from `start` ago to `end` ago."""

    start: float
    end: float

    @property
    def days(self) -> float:
        """The length, at least 0."""
        return max(self.start - self.end, 0.0)


class Spent(NamedTuple):
    """Requests within a window."""

    n_crawled: float
    """Requests that took place but first crawls, whatever their outcomes."""
    n_planned: float
    """Crawls of the budget that first crawls leave."""
    n_pages: int
    """Pages that share the budget."""


def budget_factor(last: float, crawls: Spent, days: float) -> float:
    r"""Return the factor on the crawls wanted, after a window in which requests were counted.

    With n pages, c requests, a budget of R crawls a day, and a window of w days, the factor f
    becomes

    .. math:: f \exp\left(\frac{w}{\tau} \Big(1 - \frac{c}{R w}\Big)\right), \quad
              \tau = \max(10, 100 / R, 2 n / R)

    within 1/4 and 4. Its logarithm is therefore the number of crawls left over, in units of
    tau R: what a burst of crawls has spent is saved later.

    Parameters
    ----------
    last
        Factor in the window.
    crawls
        Requests of the window.
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
    settles = settling_days(crawls.n_planned / days, crawls.n_pages)
    missing = max(1.0 - crawls.n_crawled / crawls.n_planned, -MOST_OVERSPENT)
    corrected = last * np.exp(min(days / settles, 1.0) * missing)
    return float(np.clip(corrected, LOWEST, HIGHEST))


def settling_days(a_day: float, n_pages: int) -> float:
    """Return the time in which the factor corrects a difference by 1/e, days.

    The budget has `a_day` crawls a day, above 0, which `n_pages` pages share.

    >>> settling_days(1_000.0, 20_000), settling_days(5.0, 10)
    (40.0, 20.0)
    """
    intervals = SETTLES_IN_INTERVALS * n_pages
    return max(SETTLES_IN_DAYS, SETTLES_IN_CRAWLS / a_day, intervals / a_day)


def share_wanted(feedback: float, settles: float) -> float:
    r"""Return the crawls that are wanted, as a share of the budget.

    The logarithm of the feedback :math:`g` is the number of crawls left over, in units of
    :math:`\tau R`. Beside g itself, a few of them are made up soon:

    .. math:: g + \min(\max(\tau \ln g / 3, -.1), .1)

    Parameters
    ----------
    feedback
        Feedback g, above 0 (`budget_factor`).
    settles
        Time tau, days (`settling_days`).

    Examples
    --------
    >>> share_wanted(1.0, settles=10.0)
    1.0
    >>> round(share_wanted(np.exp(-0.01), settles=10.0), 3)  # a tenth of a day was overspent
    0.957
    >>> round(share_wanted(np.exp(-0.1), settles=10.0), 3)
    0.805
    """
    soon = np.clip(settles * np.log(feedback) / SOON_DAYS, -MOST_SOON, MOST_SOON)
    return float(feedback + soon)
