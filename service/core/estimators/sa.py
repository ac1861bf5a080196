"""SA: the stochastic approximation of A22."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import Floats, InvalidInput
from service.core.estimators.base import (
    POISSON_ONLY,
    Estimator,
    check_crawl,
    rate_in_force,
    unchanged_at,
    zeros,
)
from service.core.prior import DEFAULT_PRIOR, Prior


class SAState(NamedTuple):
    """The iterate y_k and its index, over the crawls that had a crawl rate in force."""

    crawls: Any
    estimate: Any
    """y_k, 1/day; without meaning while `crawls` is 0."""


@dataclass(frozen=True, slots=True)
class SA(Estimator[SAState]):
    """Steps of (k+1)^-eta towards the root of E[changed] (y + p) = y, which is the change rate.

    Parameters
    ----------
    eta : float
        Step exponent in (0, 1]: above 1/2 the iterate converges almost surely, below in mean.
    prior : Prior
        Its mean is the initial value y_0.

    Examples
    --------
    >>> sa = SA()
    >>> state = sa.init()
    >>> for changed in (True, False, True, True):
    ...     state = sa.update(state, interval=0.4, changed=changed, crawl_rate=3.0)
    ...     print(f"{sa.change_rate(state):.2f}")
    3.03
    1.23
    2.55
    3.61

    References
    ----------
    A22, equation 2 and Theorem 2.
    """

    eta: float = 0.75
    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "sa"
    State: ClassVar[type[SAState]] = SAState
    needs_crawl_rate: ClassVar[bool] = True
    needs_history: ClassVar[bool] = False
    periodic_timing_ok: ClassVar[bool] = False
    refusal: ClassVar[str] = POISSON_ONLY

    def __post_init__(self) -> None:
        if not 0 < self.eta <= 1:
            raise InvalidInput("eta", f"must lie in (0, 1], not {self.eta} (A22, Theorem 2)")

    def init(self, n: int | None = None) -> SAState:
        """No crawls."""
        return SAState(zeros(n), zeros(n))

    def update(
        self,
        state: SAState,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,
    ) -> SAState:
        """Take one step, y += eta_k (I (y + p) - y); see `Estimator.update`."""
        shape = np.shape(state.crawls)
        _, was_changed = check_crawl(shape, interval, changed)
        rate, in_force = rate_in_force(shape, crawl_rate)
        y = self.change_rate(state)
        step = in_force * (state.crawls + 1.0) ** -self.eta
        return SAState(state.crawls + in_force, y + step * (was_changed * (y + rate) - y))

    def change_rate(self, state: SAState) -> Floats:
        """Estimate, 1/day; the prior mean before the first crawl."""
        return np.where(state.crawls > 0, state.estimate, self.prior.mean)

    def probability_unchanged(self, state: SAState, t: ArrayLike) -> Floats:
        """P(no change in the next `t` days), the estimate plugged in; see `unchanged_at`."""
        return unchanged_at(self.change_rate(state), t)
