"""Gamma: a posterior of the change rate in two numbers; exact if changes are counted."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaincinv
from typing_extensions import override

from service.core.ages import AgeProfile, Aging
from service.core.checks import Bools, Floats
from service.core.estimators.base import (
    CheckedCrawl,
    Estimator,
    PriorEstimator,
    Rows,
    check_half_life,
    check_mass,
    faded,
)
from service.core.pooling import PagePriors
from service.core.prior import DEFAULT_PRIOR, Prior


class GammaState(NamedTuple):
    """Evidence beyond the prior, equal to that of counting changes for some days."""

    changes: Any
    """Evidence, changes; never negative."""
    days: Any
    """Evidence, days; never negative."""


@dataclass(frozen=True, slots=True)
class Gamma(PriorEstimator[GammaState]):
    """Posterior Gamma(prior.a + changes, prior.b + days) of the change rate, by moments.

    An unchanged interval is exact evidence. The posterior after a changed interval ("at least one
    change in `interval`") is not a Gamma. The estimator replaces it by the Gamma of the same mean
    and variance. The RMSE is that of maximum likelihood over the full history.

    The state is the evidence alone, so a new prior changes no stored state:
    ``dataclasses.replace(gamma, prior=new)``.

    Parameters
    ----------
    prior : Prior or PagePriors
        Distribution before the first crawl, of all pages or of each of the (N,) pages.
    half_life_days : float or None
        Days in which evidence loses half of its weight, f = 2^(-interval/half_life), because
        rates drift. None: evidence never fades.
    profile, aging
        Age profile of the corpus, and the ages of pages whose states are read (`core.ages`).

    Examples
    --------
    >>> gamma = Gamma(Prior(a=0.5, b=15.0))
    >>> state = gamma.init()
    >>> for changed in (False, True, True, False):
    ...     state = gamma.update(state, interval=2.0, changed=changed, crawl_rate=0.5)
    ...     print(f"{gamma.change_rate(state):.4f}")
    0.0294
    0.0835
    0.1324
    0.1197
    >>> low, high = gamma.credible_interval(state)
    >>> print(f"{low:.3f} {high:.3f}")
    0.027 0.265

    References
    ----------
    Derived (docs/theory.md, "What is estimated"); `tests/core` checks the moments.
    """

    prior: Prior | PagePriors = DEFAULT_PRIOR
    half_life_days: float | None = None
    profile: AgeProfile | None = field(default=None, compare=False, repr=False)
    aging: Aging | None = field(default=None, compare=False, repr=False)

    name: ClassVar[str] = "gamma"
    State: ClassVar[type[GammaState]] = GammaState

    def __post_init__(self) -> None:
        check_half_life(self.half_life_days)

    @property
    @override
    def steady(self) -> "Gamma":
        return self

    def posterior(self, state: GammaState) -> tuple[Floats, Floats]:
        """Return shape a and rate b (days) of the posterior of the present rate."""
        if self.aging is None:
            return self.prior.a + state.changes, self.prior.b + state.days
        days = self.aging.exposed(state.days)
        return self.prior.a + state.changes, (self.prior.b + days) / self.aging.now(len(days))

    @override
    def with_profile(self, profile: AgeProfile | None) -> "Gamma":
        return replace(self, profile=profile)

    @override
    def aged(self, row: Rows, age: Floats, days: Floats, present: Floats) -> "Gamma":
        if self.profile is None:
            return self
        exposure = self.profile.exposure(age, days, self.half_life_days)
        return replace(self, aging=Aging(row, exposure, np.ones(len(row)), present))

    @override
    def of_ages(self, aging: Aging | None) -> "Gamma":
        return replace(self, aging=aging)

    @override
    def learn(self, state: GammaState, crawl: CheckedCrawl) -> GammaState:
        """Add "changed" or "unchanged" over an interval.

        The exact posterior has mean m and variance v, hence a' = m²/v and b' = m/v. The gains over
        (a, b) lose no digits and are not negative in this form:

            w = b/(b + interval),  e = 1 - w^(a+1),  s = (a+1)(1-w)/e >= 1,  r = (1-w) w^a/e
            a' - a = a r s/(1 - r s),  b' - b = b r (s - 1)/(1 - r s),  r s <= 1/(a+1)

        A changed page that was last modified `age` days ago counts as one change and then `age`
        days without a change. The date is no evidence about the time before. An age that exceeds
        the interval is ignored.
        """
        days = crawl.days
        state = faded(state, days, self.half_life_days)
        a, b = self.posterior(state)
        ratio = days / b
        e = -np.expm1(-(a + 1.0) * np.log1p(ratio))
        s = np.maximum((a + 1.0) * days / ((b + days) * e), 1.0)
        r = (1.0 - e) * ratio / e
        scale = crawl.changed * r / (1.0 - r * s)
        after = GammaState(
            state.changes + a * s * scale,
            state.days + b * (s - 1.0) * scale + (1.0 - crawl.changed) * days,
        )
        if crawl.age is None:
            return after
        dated = (crawl.changed > 0) & (crawl.age >= 0) & (crawl.age <= days)
        return GammaState(
            np.where(dated, state.changes + crawl.changed, after.changes),
            np.where(dated, state.days + crawl.age, after.days),
        )

    def before(self, state: GammaState, interval: Floats, changed: Bools) -> GammaState:
        """Return the evidence before the last crawl, nearly: it added a change, and half its time.

        A crawl without a change is undone exactly.
        """
        kept = 1.0 if self.half_life_days is None else np.exp2(-interval / self.half_life_days)
        return GammaState(
            np.maximum(state.changes - changed, 0.0) / kept,
            np.maximum(state.days - interval * np.where(changed, 0.5, 1.0), 0.0) / kept,
        )

    @override
    def evidence(self, state: GammaState) -> tuple[Floats, Floats]:
        days = np.asarray(state.days)
        if self.aging is not None:
            days = self.aging.exposed(days)
        return np.asarray(state.changes), days

    @override
    def change_rate(self, state: GammaState) -> Floats:
        """Return the posterior mean, 1/day; the median doubles the allocation's excess cost."""
        a, b = self.posterior(state)
        return a / b

    def credible_interval(self, state: GammaState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Return the central interval of the posterior with probability `mass`, 1/day."""
        return gamma_interval(*self.posterior(state), mass)


def gamma_interval(a: Floats, b: Floats, mass: float) -> tuple[Floats, Floats]:
    """Return the central interval of Gamma(a, b) with probability `mass`."""
    tail = 0.5 - check_mass(mass) / 2
    return gammaincinv(a, tail) / b, gammaincinv(a, 1.0 - tail) / b


def gamma_unchanged(a: Floats, b: Floats, days: Floats) -> Floats:
    """Return P(no change in `days`) = (b/(b + days))^a at a Gamma(a, b) change rate."""
    return np.asarray(np.exp(-a * np.log1p(days / b)))


@dataclass(frozen=True, slots=True)
class CompleteObservations(Estimator[GammaState]):
    """Announced changes per day of counting, with half a change in half a day added.

    The estimator is for pages whose pings announce every change. The estimate is the mean of the
    posterior Gamma(changes + 0.5, days + 0.5), which is exact.

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
    State: ClassVar[type[GammaState]] = GammaState

    def posterior(self, state: GammaState) -> tuple[Floats, Floats]:
        """Return shape a and rate b (days) of the posterior."""
        return state.changes + 0.5, state.days + 0.5

    @override
    def learn(self, state: GammaState, crawl: CheckedCrawl) -> GammaState:
        return GammaState(state.changes + crawl.changed, state.days + crawl.days)

    @override
    def change_rate(self, state: GammaState) -> Floats:
        a, b = self.posterior(state)
        return np.asarray(a / b)

    def credible_interval(self, state: GammaState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Return the central interval of the posterior with probability `mass`, 1/day."""
        return gamma_interval(*self.posterior(state), mass)
