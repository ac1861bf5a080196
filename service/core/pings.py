"""How good a page's pings are: how many are real, how many changes they miss, if they are trusted.

A page changes at `unannounced_rate` without a ping; pings come at `ping_rate`, each a real change
with probability `precision`. A crawl after `interval` days with n pings finds the page unchanged
with probability exp(-unannounced_rate interval) (1 - precision)^n. The estimate moves a page
continuously between complete (no unannounced changes, precision 1), noisy and incomplete (no
pings). What pings miss shows only in crawls without a ping: the audits. A page of trusted pings
counts as complete, one of a silent feed as incomplete, the others as noisy as `PingQuality`
estimates them.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from service.core.conditions import Bools, Floats, InvalidInput, check_amount
from service.core.estimators.base import check_crawl, zeros
from service.core.estimators.gamma import Gamma, GammaState, gamma_unchanged

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
        state = self._fade(state, days)
        gamma = Gamma(self.unannounced.prior)
        before = GammaState(state.changes, state.days)
        after = gamma.update(before, days, changed)
        c, d = self._beta(state)
        quiet = gamma_unchanged(*gamma.posterior(before), days)
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

    def _fade(self, state: PingState, days: Floats) -> PingState:
        if self.unannounced.half_life_days is None:
            return state
        fraction = np.exp2(-days / self.unannounced.half_life_days)
        return PingState(*(evidence * fraction for evidence in state))

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


def audit_rate(estimate: PingEstimate, crawl_probability: ArrayLike, share: float = 0.03) -> Floats:
    """Crawls to spend on pinged pages without a ping, 1/day: the only view of what pings miss.

    A `share` of the crawls that pings cause, at most one per mean change interval: an audit
    earlier than that would hardly find a change. 2 to 5 % are enough.

    Raises
    ------
    InvalidInput
        The share does not lie in [0, 1].
    """
    if not 0 <= share <= 1:
        raise InvalidInput("share", f"must lie in [0, 1], not {share}")
    by_pings = share * np.multiply(crawl_probability, estimate.ping_rate)
    return np.asarray(np.minimum(by_pings, estimate.change_rate))


@dataclass(frozen=True, slots=True)
class TrustTest:
    """Sequential probability ratio test of whether pings announce (nearly) all changes.

    The state is the log-likelihood ratio of recall `good` against recall `bad`, a number or
    (N,), 0 at the start. It is kept within the two thresholds, so that a verdict is reversed by
    as much evidence as it took. Audits only: crawls with pings tell nothing of recall.

    Parameters
    ----------
    good, bad : float
        Recalls told apart, 0 <= bad < good < 1.
    error : float
        Probability of either wrong verdict, in (0, 1/2).

    Examples
    --------
    Audits of a page that changes twice a day find no unannounced change:

    >>> trust = TrustTest()
    >>> state = 0.0
    >>> for _ in range(5):
    ...     state = trust.update(state, interval=2.0, changed=False, change_rate=2.0)
    ...     print(f"{state:.1f}", bool(trust.trusted(state)))
    1.0 False
    2.0 False
    3.0 False
    4.0 False
    4.6 True

    References
    ----------
    Wald 1945; the likelihood is that of docs/theory.md, "What is estimated", with
    unannounced rate (1 - recall) Delta.
    """

    good: float = 0.95
    bad: float = 0.7
    error: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.bad < self.good < 1:
            raise InvalidInput("good, bad", f"must be 0 <= bad < good < 1: {self.good}, {self.bad}")
        if not 0 < self.error < 0.5:  # noqa: PLR2004 - a test that errs half of the time
            raise InvalidInput("error", f"must lie in (0, 0.5), not {self.error}")

    @property
    def threshold(self) -> float:
        """Log-likelihood ratio at which a verdict is given, either way."""
        return float(np.log((1.0 - self.error) / self.error))

    def update(
        self, state: Any, interval: ArrayLike, changed: ArrayLike, change_rate: ArrayLike
    ) -> Floats:
        """Add one audit (a crawl without a ping since the last one) of every page."""
        shape = np.shape(state)
        days, was_changed = check_crawl(shape, interval, changed)
        rate = check_amount("change_rate", change_rate, np.shape(change_rate) and shape)
        expected = np.maximum(days * rate, np.finfo(float).tiny)
        if_good, if_bad = (1.0 - self.good) * expected, (1.0 - self.bad) * expected
        evidence_of_change = np.log(np.expm1(-if_good) / np.expm1(-if_bad))
        step = was_changed * evidence_of_change + (1.0 - was_changed) * (if_bad - if_good)
        return np.asarray(np.clip(state + step, -self.threshold, self.threshold))

    def trusted(self, state: Any) -> Bools:
        """Return where the pings may be taken as complete."""
        return np.asarray(state >= self.threshold)

    def distrusted(self, state: Any) -> Bools:
        """Return where the pings miss too many changes."""
        return np.asarray(state <= -self.threshold)


def silent_feeds(
    host: ArrayLike,
    ping_rate: ArrayLike,
    silent_days: ArrayLike,
    significance: float = 1e-4,
    least_days: float = 2.0,
) -> Bools:
    """Return for each host whether its feed has stopped: so long a silence is too improbable.

    P(no ping) = exp(-sum of the host's ping rates times the silence) < `significance`, and the
    silence has lasted `least_days`: pings of a sitemap that is fetched once a day come together.

    Parameters
    ----------
    host : array_like of int, shape (N,)
        Host of each page, 0 … H-1.
    ping_rate : array_like, shape (N,), 1/day
    silent_days : array_like, shape (H,)
        Days since the last ping of any page of the host.

    Examples
    --------
    >>> silent_feeds([0, 0, 1], ping_rate=[1.0, 2.0, 0.5], silent_days=[3.0, 4.0])
    array([False, False])
    >>> silent_feeds([0, 0, 1], ping_rate=[1.0, 2.0, 0.5], silent_days=[3.1, 4.0])
    array([ True, False])
    """
    if not 0 < significance < 1:
        raise InvalidInput("significance", f"must lie in (0, 1), not {significance}")
    silence = check_amount("silent_days", silent_days, (np.size(silent_days),))
    rates = check_amount("ping_rate", ping_rate, np.shape(host))
    per_host = np.bincount(np.asarray(host, np.intp), weights=rates, minlength=silence.size)
    return np.asarray((per_host * silence > -np.log(significance)) & (silence > least_days))


def discounted(estimate: PingEstimate, state: PingState, doubt: float = 1.0) -> PingEstimate:
    """Take changes for unannounced until crawls without a ping have shown that there are fewer.

    A site that announces a change every day whatever happens is never crawled without a ping
    before: each change found then seems announced, though a clock would have found it too. So the
    unannounced rate is drawn to the rate of all changes, with the weight of the quiet time in
    which `doubt` changes are expected; the rate of all changes stays.

    Examples
    --------
    Quiet time in which no, one or ten changes would have been expected passed without any:

    >>> estimate = PingEstimate(0.0, ping_rate=1.0, precision=0.5)
    >>> for days in (0.0, 2.0, 20.0):
    ...     state = PingState(0.0, days, real=5.0, false=5.0, pings=10.0, watched=10.0)
    ...     print(discounted(estimate, state).recall.round(2))
    0.0
    0.5
    0.91
    """
    rate = estimate.change_rate
    unannounced = (state.changes + doubt) * rate / (state.days * rate + doubt)
    unannounced = np.clip(unannounced, 0.0, rate)
    announced = (rate - unannounced) / np.maximum(estimate.ping_rate, np.finfo(float).tiny)
    return PingEstimate(unannounced, estimate.ping_rate, np.minimum(announced, 1.0))


def accepted(
    estimate: PingEstimate, state: PingState, trusted: ArrayLike, silent: ArrayLike
) -> PingEstimate:
    """Take trusted pings as complete and pages of silent feeds as incomplete; doubt the others.

    Parameters
    ----------
    estimate : PingEstimate
    trusted, silent : array_like of bool, shape (N,)
        Verdicts of `TrustTest.trusted` and, per page, of `silent_feeds`, which prevails.
    """
    silent = np.asarray(silent, np.bool_)
    doubtful = discounted(estimate, state)
    unannounced = np.where(trusted, 0.0, doubtful.unannounced_rate)
    return PingEstimate(
        np.where(silent, estimate.change_rate, unannounced),
        np.where(silent, 0.0, estimate.ping_rate),
        np.where(trusted, estimate.precision, doubtful.precision),
    )
