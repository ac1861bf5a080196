"""Naive: the share of crawls that found a change, times the crawl rate."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from service.core.checks import Floats
from service.core.estimators.base import CheckedCrawl, Estimator
from service.core.prior import DEFAULT_PRIOR, Prior


class NaiveState(NamedTuple):
    """Running sums over the crawls that had a crawl rate in force."""

    crawls: Any
    rates_changed: Any
    """Sum of the crawl rates in force over the changed intervals, 1/day."""


@dataclass(frozen=True, slots=True)
class Naive(Estimator[NaiveState]):
    """Crawls that found a change, per day: a baseline.

    The estimate is biased, because it counts at most one change per crawl. It converges to
    p D/(D + p) with Poisson crawls at rate p, and never exceeds p.

    Examples
    --------
    >>> naive = Naive()
    >>> state = naive.init()
    >>> for changed in (True, False, True, True):
    ...     state = naive.update(state, interval=0.4, changed=changed, crawl_rate=3.0)
    ...     print(f"{naive.change_rate(state):.2f}")
    3.00
    1.50
    2.00
    2.25

    References
    ----------
    CG03 section 4.1; A22 section 3.4.
    """

    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "naive"
    State: ClassVar[type[NaiveState]] = NaiveState
    needs_crawl_rate: ClassVar[bool] = True

    @override
    def learn(self, state: NaiveState, crawl: CheckedCrawl) -> NaiveState:
        rates_changed = state.rates_changed + crawl.rate * crawl.changed
        return NaiveState(state.crawls + crawl.in_force, rates_changed)

    @override
    def change_rate(self, state: NaiveState) -> Floats:
        estimate = state.rates_changed / np.maximum(state.crawls, 1.0)
        return np.where(state.crawls > 0, estimate, self.prior.mean)
