"""Gamma: a posterior of the change rate in two numbers; of counted changes it is exact."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv

from service.core.conditions import Floats, InvalidInput, check_amount
from service.core.estimators.base import Estimator, PriorEstimator, check_crawl, check_mass
from service.core.pooling import PagePriors
from service.core.prior import DEFAULT_PRIOR, Prior


class GammaState(NamedTuple):
    """Evidence beyond the prior, in the units of a Poisson process that was watched exactly."""

    changes: Any
    """As many changes' worth of evidence; never negative."""
    days: Any
    """As many days' worth of watching; never negative."""


@dataclass(frozen=True, slots=True)
class Gamma(PriorEstimator[GammaState]):
    """Posterior Gamma(prior.a + changes, prior.b + days) of the change rate, by moments.

    An unchanged interval is exact evidence. A changed one ("at least one change in `interval`")
    leaves a posterior that is no Gamma; it is replaced by the Gamma of the same mean and
    variance. RMSE is that of maximum likelihood over the full history.

    The state is the evidence alone, so a new prior touches no stored state:
    ``dataclasses.replace(gamma, prior=new)``.

    Parameters
    ----------
    prior : Prior or PagePriors
        Belief before the first crawl, of any page or of each of the (N,) pages of the state.
    half_life_days : float or None
        Drift: evidence loses half of its weight in so many days, f = 2^(-interval/half_life).
        None: it never fades.

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
    >>> print(f"{low:.3f} {high:.3f} {gamma.probability_unchanged(state, 7.0):.3f}")
    0.027 0.265 0.486

    References
    ----------
    Derived (docs/theory.md, "What is estimated"); `tests/core` has the moments of the paper form.
    """

    prior: Prior | PagePriors = DEFAULT_PRIOR
    half_life_days: float | None = None

    name: ClassVar[str] = "gamma"
    State: ClassVar[type[GammaState]] = GammaState

    def __post_init__(self) -> None:
        if self.half_life_days is not None and not self.half_life_days > 0:
            raise InvalidInput("half_life_days", f"must be positive, not {self.half_life_days}")

    @property
    def steady(self) -> "Gamma":
        """The estimator itself."""
        return self

    def posterior(self, state: GammaState) -> tuple[Floats, Floats]:
        """Shape a and rate b (days) of the posterior."""
        return self.prior.a + state.changes, self.prior.b + state.days

    def update(
        self,
        state: GammaState,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,  # noqa: ARG002 - every estimator has it
    ) -> GammaState:
        """Add "changed" or "unchanged" over `interval` days; see `Estimator.update`.

        With w = b/(b + interval) the moments m1, m2 of the exact posterior give a' = m1²/v,
        b' = m1/v. Written as gains over (a, b), with e = 1 - w^(a+1), s = (a+1)(1-w)/e >= 1 and
        r = (1-w) w^a/e, r s <= 1/(a+1), nothing cancels and no gain is negative:

            a' - a = a r s/(1 - r s),  b' - b = b r (s - 1)/(1 - r s)
        """
        days, was_changed = check_crawl(np.shape(state.days), interval, changed)
        state = self._fade(state, days)
        a, b = self.posterior(state)
        ratio = days / b
        e = -np.expm1(-(a + 1.0) * np.log1p(ratio))
        s = np.maximum((a + 1.0) * days / ((b + days) * e), 1.0)
        r = (1.0 - e) * ratio / e
        scale = was_changed * r / (1.0 - r * s)
        return GammaState(
            state.changes + a * s * scale,
            state.days + b * (s - 1.0) * scale + (1.0 - was_changed) * days,
        )

    def update_counted(
        self, state: GammaState, interval: ArrayLike, n_changes: ArrayLike
    ) -> GammaState:
        """Add exactly `n_changes` changes in `interval` days (a trusted feed, an edit history).

        Raises
        ------
        InvalidInput
            An interval is not positive, or a count negative or not finite.
        """
        shape = np.shape(state.days)
        days, _ = check_crawl(shape, interval, changed=True)
        counts = check_amount("n_changes", n_changes, np.shape(n_changes) and shape)
        state = self._fade(state, days)
        return GammaState(state.changes + counts, state.days + days)

    def update_dated(
        self,
        state: GammaState,
        interval: ArrayLike,
        changed: ArrayLike,
        age: ArrayLike,
        crawl_rate: ArrayLike = np.nan,  # noqa: ARG002 - every estimator has it
    ) -> GammaState:
        """Add a crawl that also reports how long ago the page was last modified.

        A changed page last modified `age` days ago is one change and then `age` quiet days; of
        the time before, the date says nothing. Where the age is unknown (NaN) or contradicts
        `changed` (older than the interval), and where the page is unchanged, this is `update`.
        """
        plain = self.update(state, interval, changed)
        if np.isnan(age).all():
            return plain
        days, since = np.asarray(interval, np.float64), np.asarray(age, np.float64)
        dated = np.asarray(changed, np.bool_) & (since >= 0) & (since <= days)
        faded = self._fade(state, days)
        return GammaState(
            np.where(dated, faded.changes + 1.0, plain.changes),
            np.where(dated, faded.days + since, plain.days),
        )

    def evidence(self, state: GammaState) -> tuple[Floats, Floats]:
        """Return changes and days to fit a prior to (`fit_gamma_prior`): the state."""
        return np.asarray(state.changes), np.asarray(state.days)

    def change_rate(self, state: GammaState) -> Floats:
        """Posterior mean, the plug-in for the allocation (the median doubles its excess cost)."""
        a, b = self.posterior(state)
        return a / b

    def credible_interval(self, state: GammaState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval that holds the change rate with probability `mass`, 1/day."""
        return gamma_interval(*self.posterior(state), mass)

    def probability_unchanged(self, state: GammaState, t: ArrayLike) -> Floats:
        """P(no change in the next `t` days) = (b/(b + t))^a."""
        return gamma_unchanged(*self.posterior(state), t)

    def _fade(self, state: GammaState, days: Floats) -> GammaState:
        if self.half_life_days is None:
            return state
        fraction = np.exp2(-days / self.half_life_days)
        return GammaState(state.changes * fraction, state.days * fraction)


def gamma_interval(a: Floats, b: Floats, mass: float) -> tuple[Floats, Floats]:
    """Central interval of Gamma(a, b) that holds the change rate with probability `mass`."""
    tail = 0.5 - check_mass(mass) / 2
    return gammaincinv(a, tail) / b, gammaincinv(a, 1.0 - tail) / b


def gamma_unchanged(a: Floats, b: Floats, t: ArrayLike) -> Floats:
    """P(no change in `t` days) = (b/(b + t))^a, where the change rate is Gamma(a, b)."""
    return np.asarray(np.exp(-a * np.log1p(check_amount("t", t, np.shape(t)) / b)))


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
        return CompleteState(*COUNTED.update_counted(GammaState(*state), interval, changed))

    def change_rate(self, state: CompleteState) -> Floats:
        """Estimate, 1/day."""
        return np.asarray((state.changes + 0.5) / (state.days + 0.5))

    def credible_interval(self, state: CompleteState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval that holds the change rate with probability `mass`, 1/day."""
        return COUNTED.credible_interval(GammaState(*state), mass)

    def probability_unchanged(self, state: CompleteState, t: ArrayLike) -> Floats:
        """P(no change in the next `t` days), averaged over the posterior."""
        return COUNTED.probability_unchanged(GammaState(*state), t)
