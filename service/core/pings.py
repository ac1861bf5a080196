"""How good a page's pings are: how many are real, and how many changes they miss.

A page changes at `unannounced_rate` without a ping; pings come at `ping_rate`, each a real change
with probability `precision`. A crawl after `interval` days with n pings finds the page unchanged
with probability exp(-unannounced_rate interval) (1 - precision)^n. The estimate moves a page
continuously between complete (no unannounced changes, precision 1), noisy and incomplete (no
pings). What pings miss shows only in crawls without a ping: the audits of `trust`.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from service.core.conditions import Floats, InvalidInput, check_amount
from service.core.estimators.base import check_crawl, zeros
from service.core.estimators.gamma import Gamma, GammaState

LEAST_BETA = 0.01
"""Neither parameter of a precision's Beta posterior falls below this, whatever is observed."""


class PingState(NamedTuple):
    """Evidence beyond the priors; zeros are the priors."""

    changes: Any
    """Gamma evidence of the unannounced rate: changes (crawls without pings only)."""
    days: Any
    """Gamma evidence of the unannounced rate: days."""
    real: Any
    """Beta evidence of the precision: real pings (crawls with pings only); may be negative."""
    false: Any
    """Beta evidence of the precision: false pings; may be negative."""
    pings: Any
    """Pings counted."""
    watched: Any
    """Days they were counted in."""


class PingEstimate(NamedTuple):
    """What an allocation with noisy pings needs to know of each page."""

    unannounced_rate: Floats
    """Changes without a ping, 1/day."""
    ping_rate: Floats
    """Pings, real and false, 1/day."""
    precision: Floats
    """P(a ping is a real change)."""

    @property
    def change_rate(self) -> Floats:
        """All changes, 1/day."""
        return self.unannounced_rate + self.precision * self.ping_rate

    @property
    def recall(self) -> Floats:
        """P(a change is announced); 0 for a page that never changes."""
        announced = self.precision * self.ping_rate
        return np.asarray(announced / np.maximum(self.change_rate, np.finfo(float).tiny))


@dataclass(frozen=True, slots=True)
class PingQuality:
    """Unannounced rate, ping rate and precision of each page, in six numbers.

    Intervals without pings update the unannounced rate (a `Gamma`), those with pings the
    precision (Beta by moments); updating both from one interval is biased.

    Parameters
    ----------
    unannounced : Gamma
        Estimator of the unannounced rate; its half-life fades all evidence.
    real, false : float
        Beta prior of the precision: pings' worth of belief either way. Positive.
    ping_days : float
        Days without a ping added to what was watched, so that one early ping is no storm.

    Examples
    --------
    >>> quality = PingQuality()
    >>> state = quality.init()
    >>> for n_pings, changed in ((1, True), (2, True), (1, False), (0, False)):
    ...     state = quality.update(state, interval=2.0, n_pings=n_pings, changed=changed)
    ...     print("{:.3f} {:.3f} {:.3f}".format(*quality.estimate(state)))
    0.033 0.333 0.827
    0.033 0.600 0.850
    0.033 0.571 0.659
    0.029 0.444 0.659

    References
    ----------
    Derived (docs/theory.md, "Pings"); the model of pings is BF25's.
    """

    unannounced: Gamma = field(default_factory=Gamma)
    real: float = 1.5
    false: float = 0.5
    ping_days: float = 1.0

    def __post_init__(self) -> None:
        for name in ("real", "false", "ping_days"):
            if not 0 < getattr(self, name) < np.inf:
                raise InvalidInput(name, f"must be positive, not {getattr(self, name)}")

    def init(self, n: int | None = None) -> PingState:
        """No evidence: the priors."""
        return PingState(*(zeros(n) for _ in PingState._fields))

    def estimate(self, state: PingState) -> PingEstimate:
        """Posterior means; the ping rate of a page never pinged is 0."""
        c, d = self._beta(state)
        return PingEstimate(
            self.unannounced.change_rate(GammaState(state.changes, state.days)),
            np.asarray(state.pings / (state.watched + self.ping_days)),
            np.asarray(c / (c + d)),
        )

    def update(
        self, state: PingState, interval: ArrayLike, n_pings: ArrayLike, changed: ArrayLike
    ) -> PingState:
        """Add one crawl of every page.

        Parameters
        ----------
        state : PingState
            Shape (N,) or scalar.
        interval : array_like, days
            Since the previous crawl, positive.
        n_pings : array_like of int
            Pings since the previous crawl.
        changed : array_like of bool
            Did the page change since the previous crawl?

        Raises
        ------
        InvalidInput
            An interval is not positive, a number of pings negative, or a shape differs.
        """
        shape = np.shape(state.days)
        days, was_changed = check_crawl(shape, interval, changed)
        n = check_amount("n_pings", n_pings, np.shape(n_pings) and shape)
        if self.unannounced.half_life_days is not None:
            fraction = np.exp2(-days / self.unannounced.half_life_days)
            state = PingState(*(evidence * fraction for evidence in state))
        gamma = Gamma(self.unannounced.prior)
        before = GammaState(state.changes, state.days)
        after = gamma.update(before, days, changed)
        c, d = self._beta(state)
        quiet = gamma.probability_unchanged(before, days)
        new_c, new_d = precision_after_change(c, d, np.maximum(n, 1.0), quiet)
        pinged = (n > 0).astype(np.float64)
        n_real = pinged * was_changed
        return PingState(
            np.where(n > 0, before.changes, after.changes),
            np.where(n > 0, before.days, after.days),
            state.real + n_real * (new_c - c),
            state.false + n_real * (new_d - d) + pinged * (1.0 - was_changed) * n,
            state.pings + n,
            state.watched + days,
        )

    def _beta(self, state: PingState) -> tuple[Floats, Floats]:
        return (
            np.maximum(self.real + state.real, LEAST_BETA),
            np.maximum(self.false + state.false, LEAST_BETA),
        )


def precision_after_change(c: Floats, d: Floats, n: Floats, quiet: Floats) -> tuple[Floats, Floats]:
    """Beta of the mean and variance of a Beta(c, d) precision after a change and n >= 1 pings.

    The likelihood is 1 - quiet (1 - q)^n, with quiet = P(no unannounced change).
    """
    s = c + d
    unchanged = quiet * np.exp(gammaln(d + n) - gammaln(d) - gammaln(s + n) + gammaln(s))
    changed = 1.0 - unchanged
    mean = c / s * (1.0 - unchanged * s / (s + n)) / changed
    tilted = unchanged * s * (s + 1.0) / ((s + n) * (s + n + 1.0))
    square = c * (c + 1.0) / (s * (s + 1.0)) * (1.0 - tilted) / changed
    size = mean * (1.0 - mean) / (square - mean**2) - 1.0
    return np.maximum(mean * size, LEAST_BETA), np.maximum((1.0 - mean) * size, LEAST_BETA)
