"""LogNormal: a normal posterior of the log change rate."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtri
from typing_extensions import override

from service.core.checks import Floats
from service.core.estimators.base import (
    CheckedCrawl,
    PriorEstimator,
    check_half_life,
    check_mass,
    faded,
)
from service.core.estimators.likelihood import hazard
from service.core.pooling import PagePriors
from service.core.prior import DEFAULT_PRIOR, Prior

MAX_EXPECTED = 50.0
"""Maximum changes expected in one interval at the first Newton step; beyond it steps are tiny."""


class LogNormalState(NamedTuple):
    """Evidence beyond the prior, in natural parameters, which add up."""

    weighted_log: Any
    """Precision times log rate, minus that of the prior."""
    precision: Any
    """Precision of the log rate, minus that of the prior; never negative."""


@dataclass(frozen=True, slots=True)
class LogNormal(PriorEstimator[LogNormalState]):
    """Normal posterior of ln(change rate), moved by two Newton steps per observation.

    The posterior has heavier tails than that of Gamma. It is better when crawls are far rarer than
    changes, and when rates drift. The state is the evidence alone, so a new prior changes no stored
    state. The parabola that replaces the likelihood of an interval depends on the prior in force at
    that crawl.

    Parameters
    ----------
    prior, half_life_days
        As in `Gamma`; the log-normal of the prior's mean and variance is used.

    Examples
    --------
    >>> lognormal = LogNormal(Prior(a=0.5, b=15.0))
    >>> state = lognormal.init()
    >>> for changed in (False, True, True, False):
    ...     state = lognormal.update(state, interval=2.0, changed=changed)
    ...     print(f"{lognormal.change_rate(state):.4f}")
    0.0313
    0.0833
    0.1920
    0.1490

    References
    ----------
    Derived (docs/theory.md, "What is estimated").
    """

    prior: Prior | PagePriors = DEFAULT_PRIOR
    half_life_days: float | None = None

    name: ClassVar[str] = "lognormal"
    State: ClassVar[type[LogNormalState]] = LogNormalState

    def __post_init__(self) -> None:
        check_half_life(self.half_life_days)

    def posterior(self, state: LogNormalState) -> tuple[Floats, Floats]:
        """Return mean and precision of ln(change rate)."""
        prior_precision = 1.0 / np.log1p(1.0 / self.prior.a)
        prior_log = np.log(self.prior.mean) - 0.5 / prior_precision
        precision = prior_precision + state.precision
        return (prior_precision * prior_log + state.weighted_log) / precision, precision

    @override
    def learn(self, state: LogNormalState, crawl: CheckedCrawl) -> LogNormalState:
        """Search the mode of the log posterior and add the curvature there.

        With x = interval e^theta, the log-likelihood of "unchanged" is -x (slope -x, curvature x).
        That of "changed" is ln(1 - e^-x) (slope h = x/(e^x - 1), curvature h (h + x - 1)).
        """
        was_changed, log_days = crawl.changed, np.log(crawl.days)
        state = faded(state, crawl.days, self.half_life_days)
        before, precision = self.posterior(state)

        def likelihood(log_rate: Floats) -> tuple[Floats, Floats]:
            x = np.exp(log_rate + log_days)
            slope, curvature = hazard(x)
            return (
                was_changed * slope - (1.0 - was_changed) * x,
                was_changed * curvature + (1.0 - was_changed) * x,
            )

        log_rate = np.minimum(before, np.log(MAX_EXPECTED) - log_days)
        for _ in range(2):
            slope, curvature = likelihood(log_rate)
            step = (slope - precision * (log_rate - before)) / (precision + curvature)
            log_rate = log_rate + step
        _, curvature = likelihood(log_rate)
        return LogNormalState(
            state.weighted_log + (precision + curvature) * log_rate - precision * before,
            state.precision + curvature,
        )

    @override
    def evidence(self, state: LogNormalState) -> tuple[Floats, Floats]:
        """Return the changes and days of each page to which a fit adapts the prior.

        A page with k counted changes in T days has the log-likelihood k theta - T e^theta. The
        result has the slope and the curvature of the state at the posterior's mode. A fit to the
        state itself, a parabola, would diverge.
        """
        log_rate, _ = self.posterior(state)
        changes = state.weighted_log - state.precision * log_rate + state.precision
        return np.maximum(changes, 0.0), state.precision * np.exp(-log_rate)

    @override
    def change_rate(self, state: LogNormalState) -> Floats:
        log_rate, precision = self.posterior(state)
        return np.exp(log_rate + 0.5 / precision)

    def credible_interval(self, state: LogNormalState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Return the central interval that holds the change rate with probability `mass`, 1/day."""
        log_rate, precision = self.posterior(state)
        half = ndtri(0.5 + check_mass(mass) / 2) / np.sqrt(precision)
        return np.exp(log_rate - half), np.exp(log_rate + half)
