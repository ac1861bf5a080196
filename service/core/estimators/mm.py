"""MM: the method of moments over the whole history."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from service.core.checks import Floats
from service.core.estimators.history import History, HistoryEstimator
from service.core.prior import DEFAULT_PRIOR, Prior

TOLERANCE = 1e-13
"""Maximum relative length of the last step."""

MAX_STEPS = 100
"""Maximum Newton steps; a search takes 2 to 6."""


@dataclass(frozen=True, slots=True)
class MM(HistoryEstimator):
    """The change rate at which the expected number of unchanged crawls is the observed number.

    The estimate solves sum (1 - I_j) = sum exp(-D tau_j). The root is 0 without a change. If every
    crawl found a change, there is no root. The estimator then assumes half an unchanged crawl, the
    correction of CG03 for regular intervals. Because the estimate is unstable near both ends,
    prefer MLE. The estimator has no interval: its sources state no variance, and where the variance
    is finite, the likelihood's interval is narrower.

    Examples
    --------
    >>> mm = MM()
    >>> history = mm.init()
    >>> for changed in (False, True, True, False):
    ...     history = mm.update(history, interval=2.0, changed=changed)
    ...     print(mm.change_rate(history).round(4))
    [0.]
    [0.3466]
    [0.5493]
    [0.3466]

    References
    ----------
    A22 section 3.4, after Matloff 2005.
    """

    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "mm"

    def change_rate(self, state: History) -> Floats:
        """Return the estimates, 1/day, by Newton's method on a concave increasing sum.

        The search begins at the root for regular intervals, which is never above the root.
        """
        rate = np.where(state.crawls > 0, 0.0, self.prior.mean)
        changes = np.minimum(state.sum_by_page(state.changed), state.crawls - 0.5)
        left = np.flatnonzero(changes > 0)
        history, changes = state.take(left), changes[left]
        crawls, days = history.crawls, history.sum_by_page(history.interval)
        now = -np.log1p(-changes / crawls) * crawls / days
        for _ in range(MAX_STEPS):
            probability_changed = -np.expm1(-np.repeat(now, history.crawls) * history.interval)
            slope = history.sum_by_page(history.interval * (1.0 - probability_changed))
            step = (changes - history.sum_by_page(probability_changed)) / slope
            rate[left] = now = now + step
            climbs = np.flatnonzero(step > TOLERANCE * now)  # only rounding makes a step negative
            if not climbs.size:
                break
            history, left = history.take(climbs), left[climbs]
            now, changes = now[climbs], changes[climbs]
        return rate
