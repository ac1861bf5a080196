"""LLN: the law-of-large-numbers estimator of A22."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from service.core.checks import Floats
from service.core.estimators.base import CheckedCrawl, PoissonEstimator
from service.core.prior import DEFAULT_PRIOR, Prior


class LLNState(NamedTuple):
    """Running sums over the crawls that had a crawl rate in force."""

    crawls: Any
    unchanged: Any
    rates_changed: Any
    """Sum of the crawl rates in force over the changed intervals, 1/day."""


@dataclass(frozen=True, slots=True)
class LLN(PoissonEstimator[LLNState]):
    """Sum of the crawl rates in force at changes, over the number of unchanged crawls + 1.

    With Poisson crawls at rate p, P(changed) = D/(D + p), so p changed/unchanged -> D. The sum of
    the rates in force stays consistent when p moves between epochs. With constant p it is A22's.

    Examples
    --------
    >>> lln = LLN()
    >>> state = lln.init()
    >>> for changed in (True, False, True, True):
    ...     state = lln.update(state, interval=0.4, changed=changed, crawl_rate=3.0)
    ...     print(f"{lln.change_rate(state):.2f}")
    3.00
    1.50
    3.00
    4.50

    References
    ----------
    A22, equation 1, with alpha_k = 1.
    """

    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "lln"
    State: ClassVar[type[LLNState]] = LLNState

    @override
    def learn(self, state: LLNState, crawl: CheckedCrawl) -> LLNState:
        return LLNState(
            state.crawls + crawl.in_force,
            state.unchanged + crawl.in_force * (1.0 - crawl.changed),
            state.rates_changed + crawl.rate * crawl.changed,
        )

    @override
    def change_rate(self, state: LLNState) -> Floats:
        estimate = state.rates_changed / (state.unchanged + 1.0)
        return np.where(state.crawls > 0, estimate, self.prior.mean)
