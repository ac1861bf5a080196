"""Bursty, the default: Gamma with a short memory, because changes come in bursts."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.ages import AgeProfile, Aging
from service.core.checks import Bools, Floats, InvalidInput
from service.core.common_values import Joint, sampled
from service.core.estimators.base import CheckedCrawl, PriorEstimator, Rows
from service.core.estimators.gamma import Gamma, GammaState, gamma_interval
from service.core.pooling import PagePriors
from service.core.prior import DEFAULT_PRIOR, SAMPLE, START_DISPERSION, Prior, dispersion

LN_2 = float(np.log(2.0))


class BurstyState(NamedTuple):
    """Evidence of the long run, as in `GammaState`, and the recent part of it."""

    changes: Any
    days: Any
    recent: Any
    """Recent evidence, changes: faded by the short memory, never negative."""


@dataclass(frozen=True, slots=True)
class Bursty(PriorEstimator[BurstyState]):
    r"""A change rate that varies about its long-run value, in three numbers.

    The present rate is :math:`\lambda \phi`. The posterior of the long-run rate :math:`\lambda` is
    that of `Gamma`. The factor :math:`\phi` has mean 1. Without evidence it is Gamma(s, s), where s
    is the `dispersion` of the corpus. In T days of evidence, with a memory of half-life m, the
    expected number of recent changes is :math:`x = \hat\lambda (m / \ln 2) (1 - 2^{-T/m})`. With
    the `recent` changes,

    .. math:: \phi \sim \mathrm{Gamma}(s + \mathit{recent}, s + x).

    The posterior of the product is approximated by the Gamma of its mean and variance. If pages
    are steady, s is large and the estimate is that of `Gamma`. If changes come in bursts, a page
    that has just changed is crawled more often, and less often again when it stays unchanged.

    Parameters
    ----------
    prior, half_life_days, profile, aging
        As in `Gamma`.
    memory_days : float
        Half-life m of recent evidence. Positive.
    dispersion : float
        Shape s of the factor; an epoch fits it to the corpus (`fit_dispersion`). Positive.

    Examples
    --------
    >>> bursty = Bursty(Prior(a=0.5, b=15.0), dispersion=0.5)
    >>> state = bursty.init()
    >>> for changed in (False, False, True, False, False, False):
    ...     state = bursty.update(state, interval=10.0, changed=changed)
    ...     print(f"{bursty.change_rate(state):.4f}")
    0.0149
    0.0101
    0.0503
    0.0327
    0.0233
    0.0178

    References
    ----------
    Derived (docs/theory.md, "What is estimated"): the mixture of the prior, within each page.
    """

    prior: Prior | PagePriors = DEFAULT_PRIOR
    half_life_days: float | None = None
    memory_days: float = 20.0
    dispersion: float = START_DISPERSION
    profile: AgeProfile | None = field(default=None, compare=False, repr=False)
    aging: Aging | None = field(default=None, compare=False, repr=False)

    name: ClassVar[str] = "bursty"
    State: ClassVar[type[BurstyState]] = BurstyState
    fitted_parameters: ClassVar[tuple[str, ...]] = ("dispersion",)

    def __post_init__(self) -> None:
        for name in ("half_life_days", "memory_days", "dispersion"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InvalidInput(name, f"must be positive, not {value}")

    @property
    @override
    def steady(self) -> Gamma:
        return Gamma(self.prior, self.half_life_days, aging=self.aging)

    @override
    def with_profile(self, profile: AgeProfile | None) -> "Bursty":
        return replace(self, profile=profile)

    @override
    def aged(self, row: Rows, age: Floats, days: Floats, present: Floats) -> "Bursty":
        if self.profile is None:
            return self
        exposure = self.profile.exposure(age, days, self.half_life_days)
        recent = self.profile.recent(age, days, self.memory_days)
        return replace(self, aging=Aging(row, exposure, recent, present))

    @override
    def of_ages(self, aging: Aging | None) -> "Bursty":
        return replace(self, aging=aging)

    def posterior(self, state: BurstyState) -> tuple[Floats, Floats]:
        """Return shape a and rate b (days) of the posterior of the present rate."""
        a, b = self.steady.posterior(_long_run(state))
        doubt = 1.0 / (self.dispersion + state.recent)
        variance = (1.0 + 1.0 / a) * (1.0 + doubt) - 1.0  # over the square of the mean
        return 1.0 / variance, b / (a * self._factor(state, a / b) * variance)

    def factor(self, state: BurstyState) -> Floats:
        """Return the ratio of the present rate to the long-run rate, by its posterior mean."""
        return self._factor(state, self.steady.change_rate(_long_run(state)))

    def expected(self, state: BurstyState) -> Floats:
        """Return the recent changes expected at the long-run rate."""
        return self._expected(state, self.steady.change_rate(_long_run(state)))

    def _factor(self, state: BurstyState, rate: Floats) -> Floats:
        changes = self.dispersion + np.asarray(state.recent)
        return np.asarray(changes / (self.dispersion + self._expected(state, rate)))

    def _expected(self, state: BurstyState, rate: Floats) -> Floats:
        """Return the recent changes expected at a `rate` that includes the age of each page."""
        decay = LN_2 / self.memory_days
        watched = -np.expm1(-decay * np.asarray(state.days)) / decay
        if self.aging is not None:
            then = self.aging.recently(len(watched)) / self.aging.now(len(watched))
            watched = watched * then
        return np.asarray(rate * watched)

    @override
    def learn(self, state: BurstyState, crawl: CheckedCrawl) -> BurstyState:
        """Add a crawl to the evidence of the long run, and the changes gained to the recent ones.

        A change of known age fades for that age.
        """
        days, age = crawl.days, crawl.age
        after = self.steady.learn(_long_run(state), crawl)
        fraction = 1.0 if self.half_life_days is None else np.exp2(-days / self.half_life_days)
        gained = np.maximum(after.changes - state.changes * fraction, 0.0)
        since = 0.0 if age is None else np.where((age >= 0) & (age <= days), age, 0.0)
        faded, fresh = (np.exp2(-np.asarray(t) / self.memory_days) for t in (days, since))
        return BurstyState(*after, state.recent * faded + gained * fresh)

    def before(self, state: BurstyState, interval: Floats, changed: Bools) -> BurstyState:
        """Return the evidence before the last crawl, nearly (`Gamma.before`)."""
        kept = np.exp2(-interval / self.memory_days)
        recent = np.maximum(state.recent - changed, 0.0) / kept
        return BurstyState(*self.steady.before(_long_run(state), interval, changed), recent)

    @override
    def evidence(self, state: BurstyState) -> tuple[Floats, Floats]:
        return self.steady.evidence(_long_run(state))

    @override
    def fit_parameters(
        self, state: BurstyState, url_group: NDArray[np.integer] | None, last: "Bursty"
    ) -> Joint["Bursty"]:
        some = yield from sampled(np.flatnonzero(state.days), SAMPLE)
        sample = BurstyState(*(np.asarray(column)[some] for column in state))
        own = self if url_group is None else self.of_url_groups(url_group[some])
        if self.aging is not None:
            own = own.of_ages(self.aging.take(some))
        expected = own.expected(sample)
        near = last.dispersion
        return replace(self, dispersion=(yield from dispersion(sample.recent, expected, near)))

    @override
    def change_rate(self, state: BurstyState) -> Floats:
        rate = self.steady.change_rate(_long_run(state))
        return np.asarray(rate * self._factor(state, rate))

    def credible_interval(self, state: BurstyState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Return the central interval of the present rate with probability `mass`, 1/day."""
        return gamma_interval(*self.posterior(state), mass)


def _long_run(state: BurstyState) -> GammaState:
    return GammaState(state.changes, state.days)
