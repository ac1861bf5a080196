"""Complete observations: every change is announced by a trusted ping."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import Floats, check_amount
from service.core.estimators.base import Estimator, check_crawl, zeros
from service.core.estimators.gamma import Gamma, GammaState
from service.core.prior import Prior

COUNTED = Gamma(Prior(0.5, 0.5))
"""Counted changes need no approximation: this posterior is exact."""


class CompleteState(NamedTuple):
    """Announced changes and the time they were announced in."""

    changes: Any
    days: Any


@dataclass(frozen=True, slots=True)
class CompleteObservations(Estimator[CompleteState]):
    """Announced changes per day of watching, half a change in half a day added.

    For pages whose pings are trusted: every change is seen, so counts are exact. The estimate is
    the mean of the posterior Gamma(changes + 0.5, days + 0.5).

    Examples
    --------
    >>> complete = CompleteObservations()
    >>> state = complete.init()
    >>> for changed in (True, True, False):
    ...     state = complete.update(state, interval=2.0, changed=changed)
    ...     print(f"{complete.change_rate(state):.3f}")
    0.600
    0.556
    0.385

    References
    ----------
    K19, equation 11.
    """

    name: ClassVar[str] = "complete"
    State: ClassVar[type[CompleteState]] = CompleteState
    needs_crawl_rate: ClassVar[bool] = False
    needs_history: ClassVar[bool] = False
    periodic_timing_ok: ClassVar[bool] = True
    refusal: ClassVar[str] = ""

    def init(self, n: int | None = None) -> CompleteState:
        """Nothing watched."""
        return CompleteState(zeros(n), zeros(n))

    def update(
        self,
        state: CompleteState,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,  # noqa: ARG002 - every estimator has it
    ) -> CompleteState:
        """Add `interval` days that ended with one announced change, or without any.

        `changed` may also be the number of changes announced in the interval.
        """
        shape = np.shape(state.days)
        days, _ = check_crawl(shape, interval, changed=True)
        counts = check_amount("changed", changed, np.shape(changed) and shape)
        return CompleteState(state.changes + counts, state.days + days)

    def change_rate(self, state: CompleteState) -> Floats:
        """Estimate, 1/day."""
        return np.asarray((state.changes + 0.5) / (state.days + 0.5))

    def credible_interval(self, state: CompleteState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval that holds the change rate with probability `mass`, 1/day."""
        return COUNTED.credible_interval(GammaState(*state), mass)

    def probability_unchanged(self, state: CompleteState, t: ArrayLike) -> Floats:
        """P(no change in the next `t` days), averaged over the posterior."""
        return COUNTED.probability_unchanged(GammaState(*state), t)
