"""LLN: the law-of-large-numbers estimator of A22."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import Floats, InvalidInput
from service.core.estimators.base import (
    POISSON_ONLY,
    Estimator,
    check_crawl,
    rate_in_force,
)
from service.core.prior import DEFAULT_PRIOR, Prior

ALPHA: dict[str, Callable[[Any], Any]] = {
    "one": np.ones_like,
    "log": lambda crawls: np.log(np.maximum(crawls, 2.0)),
    "sqrt": lambda crawls: np.sqrt(np.maximum(crawls, 1.0)),
}
"""The sequences alpha_k of A22 that keep the denominator positive (log 1 = 0 read as log 2)."""


class LLNState(NamedTuple):
    """Running sums over the crawls that had a crawl rate in force."""

    crawls: Any
    unchanged: Any
    rates_changed: Any
    """Sum of the crawl rates in force over the changed intervals, 1/day."""


@dataclass(frozen=True, slots=True)
class LLN(Estimator[LLNState]):
    """Sum of the crawl rates in force at changes, over the number of unchanged crawls + alpha_k.

    On Poisson crawls at rate p, P(changed) = D/(D + p), so p changed/unchanged -> D. Summing the
    rates in force keeps it consistent when p moves between epochs, and equals A22 when it does not.

    Parameters
    ----------
    alpha : "one" | "log" | "sqrt"
        alpha_k after k crawls: 1, log k or sqrt k.
    prior : Prior
        Its mean stands in before the first crawl.

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
    A22, equation 1.
    """

    alpha: Literal["one", "log", "sqrt"] = "one"
    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "lln"
    State: ClassVar[type[LLNState]] = LLNState
    needs_crawl_rate: ClassVar[bool] = True
    periodic_timing_ok: ClassVar[bool] = False
    refusal: ClassVar[str] = POISSON_ONLY

    def __post_init__(self) -> None:
        if self.alpha not in ALPHA:
            raise InvalidInput("alpha", f"must be one of {', '.join(ALPHA)}, not {self.alpha!r}")

    def update(
        self,
        state: LLNState,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,
    ) -> LLNState:
        """Count one crawl; see `Estimator.update`."""
        shape = np.shape(state.crawls)
        _, was_changed = check_crawl(shape, interval, changed)
        rate, in_force = rate_in_force(shape, crawl_rate)
        return LLNState(
            state.crawls + in_force,
            state.unchanged + in_force * (1.0 - was_changed),
            state.rates_changed + rate * was_changed,
        )

    def change_rate(self, state: LLNState) -> Floats:
        """Estimate, 1/day; the prior mean before the first crawl."""
        estimate = state.rates_changed / (state.unchanged + ALPHA[self.alpha](state.crawls))
        return np.where(state.crawls > 0, estimate, self.prior.mean)
