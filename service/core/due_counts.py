"""The number of crawls that readers of the schedule will make until the next epoch. Pure.

Readers without leases crawl all that is due. Between two epochs, a factor on all crawl rates makes
each page due sooner or later. The factor that a crawl needs has a closed form. So the crawls by the
factor are a count of these factors (`needed_rates`, `counts`). The epoch then takes the factor at
which as many crawls are due as it wants (`moved`).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.budget_factor import HIGHEST, LOWEST
from service.core.checks import Floats, InvalidInput

Ints = NDArray[np.int64]

STEPS = 1 << 14
"""Steps of the factor between its bounds. One step moves a crawl by .00017 of its interval."""
MOST_MOVED = 0.05
"""Maximum move of the logarithm of the factor in an epoch. The rest of a burst of due crawls is
made beyond the budget, and paid back later (`core.budget_factor`)."""

_STEPS_IN_LOG = STEPS / np.log(HIGHEST / LOWEST)


def needed_rates(nth: ArrayLike, waited: ArrayLike, interval: ArrayLike, days: float) -> Floats:
    r"""Return the rate of a page at which its n-th next crawl is due within some days, 1/day.

    With the rate :math:`\rho`, the next crawl is due :math:`z / \rho` days after the last one, or
    now if that has passed. Each further crawl is due :math:`1 / \rho` days later. With :math:`a`
    days since the last crawl, the n-th crawl is due within :math:`h` days from

    .. math:: \rho = \max\left(\frac{n - 1}{h}, \frac{z + n - 1}{a + h}\right)

    Parameters
    ----------
    nth
        (N,) numbers n of crawls, from 1.
    waited
        (N,) days a since the last crawl.
    interval
        (N,) time z from the last crawl to the next, in mean intervals.
    days
        Time h, above 0.

    Examples
    --------
    >>> needed_rates([1, 2], waited=[3.0, 3.0], interval=[1.0, 1.0], days=1.0)
    array([0.25, 1.  ])
    """
    if not 0 < days < np.inf:
        raise InvalidInput("days", f"is {days}, expected a finite time above 0")
    further = np.asarray(nth, np.float64) - 1.0
    return np.maximum(
        further / days, (np.asarray(interval) + further) / (np.asarray(waited) + days)
    )


def counts(factor: Floats) -> Ints:
    """Return the crawls by the factor that they need: (STEPS + 1,), those of each step.

    The first number has the crawls that are due at any factor. Those that are due at none do not
    count. Counts of parts add up.

    Examples
    --------
    >>> of_steps = counts(np.array([0.0, 1.0, 1.0, 9.0]))
    >>> np.flatnonzero(of_steps).tolist(), of_steps.sum().item()
    ([0, 8192], 3)
    """
    due = np.maximum(factor[factor <= HIGHEST], LOWEST)
    step = np.ceil(np.log(due / LOWEST) * _STEPS_IN_LOG - 1e-9).astype(np.int64)
    return np.bincount(np.clip(step, 0, STEPS), minlength=STEPS + 1)


def factor_for(of_steps: Ints, n_crawls: float) -> float:
    """Return the largest factor at which no more than some crawls are due, within its bounds.

    Within a step, crawls need factors at equal distances.

    Examples
    --------
    >>> of_steps = counts(np.array([0.0, 1.0, 1.0, 2.0]))
    >>> [round(factor_for(of_steps, n), 3) for n in (0, 1, 3, 4)]
    [0.25, 1.0, 2.0, 4.0]
    """
    n_due = np.cumsum(of_steps)
    step = int(n_due.searchsorted(n_crawls, side="right"))
    if step == 0:
        return LOWEST
    if step > STEPS:
        return HIGHEST
    part = (n_crawls - n_due[step - 1]) / of_steps[step]
    return float(LOWEST * np.exp((step - 1 + part) / _STEPS_IN_LOG))


def n_due(of_steps: Ints, factor: float) -> float:
    """Return the crawls that are due at a factor, the inverse of `factor_for`.

    Examples
    --------
    >>> of_steps = counts(np.array([0.0, 1.0, 1.0, 2.0]))
    >>> [n_due(of_steps, factor) for factor in (0.25, 1.0, 1.5, 2.0)]
    [1.0, 3.0, 3.0, 4.0]
    """
    place = np.log(factor / LOWEST) * _STEPS_IN_LOG
    place = float(np.clip(round(place, 6), 0, STEPS))
    return float(np.interp(place, np.arange(STEPS + 1), np.cumsum(of_steps)))


def moved(of_steps: Ints, n_crawls: float, last: float) -> tuple[float, float]:
    """Return the factor at which some crawls are due, and those due beyond that number.

    The factor is at most `MOST_MOVED` from the last one. If that or a bound keeps it too high, more
    crawls are due than wanted. If it is too low, fewer are. A negative number counts as 0.

    Examples
    --------
    >>> of_steps = counts(np.array([0.98, 1.0, 1.02, 2.0]))
    >>> [round(each, 2) for each in moved(of_steps, 2.0, last=1.0)]
    [1.02, 0.0]
    >>> [round(each, 2) for each in moved(of_steps, 4.0, last=1.0)]
    [1.05, -1.0]
    """
    n_crawls = max(n_crawls, 0.0)
    ends = last * np.exp(-MOST_MOVED), last * np.exp(MOST_MOVED)
    factor = np.clip(factor_for(of_steps, n_crawls), *ends)
    factor = float(np.clip(factor, LOWEST, HIGHEST))
    return factor, n_due(of_steps, factor) - n_crawls
