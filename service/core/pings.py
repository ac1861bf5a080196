"""Quality of a page's pings: share of real ones, share of changes announced, trust in them.

A page changes at `unannounced_rate` without a ping. Pings arrive at `ping_rate`. A ping is real,
which means that it announces a change, with probability `precision`. A crawl after `interval` days
with n pings finds the page unchanged with probability
exp(-unannounced_rate interval) (1 - precision)^n.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from service.core.checks import Bools, Floats, InvalidInput, check_amount
from service.core.estimators.base import check_crawl, faded, zeros
from service.core.estimators.gamma import Gamma, GammaState, gamma_unchanged

REAL, FALSE = 1.5, 0.5
"""Beta prior of the precision: numbers of real and of false pings that it weighs as much as."""
PING_DAYS = 1.0
"""Days added to the days of counting, so that one early ping does not cause a high ping rate."""
RATE_HALF_LIFE_DAYS = 7.0
"""Half-life of the weight of a ping in the ping rate, days."""
AUDIT_SHARE = 0.03
"""Audits per crawl that pings cause; 0.02 to 0.05 are enough."""
GOOD, BAD, ERROR = 0.95, 0.7, 0.01
"""Recall of trusted and of untrusted pings in the trust test; probability of a wrong verdict."""
VERDICT = float(np.log((1.0 - ERROR) / ERROR))
"""Log-likelihood ratio at which the trust test decides, either way."""
DOUBT = 1.0
"""Weight of the doubt about announcements: changes expected in time without a change."""
LEAST_BETA = 0.01
"""Minimum of both parameters of a precision's Beta posterior."""


class PingState(NamedTuple):
    """Evidence beyond the priors; all zeros mean no evidence."""

    changes: Any
    """Gamma evidence of the unannounced rate: changes, from crawls without pings."""
    days: Any
    """Gamma evidence of the unannounced rate: days, from crawls without pings."""
    real: Any
    """Beta evidence of the precision: real pings, from crawls with pings; may be negative."""
    false: Any
    """Beta evidence of the precision: false pings, from crawls with pings; may be negative."""
    pings: Any
    """Number of pings."""
    watched: Any
    """Days in which pings were counted."""


class PingEstimate(NamedTuple):
    """Estimates of each page for an allocation with noisy pings."""

    unannounced_rate: Floats
    """Changes without a ping, 1/day."""
    ping_rate: Floats
    """Pings, real and false, 1/day."""
    precision: Floats
    """Probability that a ping announces a change."""

    @property
    def change_rate(self) -> Floats:
        """All changes, 1/day."""
        return self.unannounced_rate + self.precision * self.ping_rate

    @property
    def recall(self) -> Floats:
        """Probability that a ping announces a change of the page; 0 for a page without changes."""
        announced = self.precision * self.ping_rate
        return np.asarray(announced / np.maximum(self.change_rate, np.finfo(float).tiny))


@dataclass(frozen=True, slots=True)
class PingQuality:
    """Unannounced rate, ping rate and precision of each page, in six numbers.

    Intervals without pings update the unannounced rate (a `Gamma`). Intervals with pings update
    the precision (a Beta by moments). Updating both from one interval would be biased.

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
    """Estimator of the unannounced rate; its half-life fades all evidence."""

    def init(self, n: int | None = None) -> PingState:
        """Return the state without evidence."""
        return PingState(*(zeros(n) for _ in PingState._fields))

    def estimate(self, state: PingState) -> PingEstimate:
        """Return posterior means; the ping rate of a page without pings is 0."""
        c, d = _beta(state)
        return PingEstimate(
            self.unannounced.change_rate(GammaState(state.changes, state.days)),
            np.asarray(state.pings / (state.watched + PING_DAYS)),
            np.asarray(c / (c + d)),
        )

    def update(
        self, state: PingState, interval: ArrayLike, n_pings: ArrayLike, changed: ArrayLike
    ) -> PingState:
        """Return the evidence after one crawl of every page.

        `interval`, `n_pings` and `changed` count from the previous crawl. Raise `InvalidInput` for
        an interval that is not positive, or a negative number of pings.
        """
        shape = np.shape(state.days)
        days, was_changed = check_crawl(shape, interval, changed)
        n = check_amount("n_pings", n_pings, np.shape(n_pings) and shape)
        state = faded(state, days, self.unannounced.half_life_days)
        gamma = Gamma(self.unannounced.prior)
        before = GammaState(state.changes, state.days)
        after = gamma.update(before, days, changed)
        c, d = _beta(state)
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


def recent_pings(counted: ArrayLike, days: ArrayLike) -> Floats:
    """Return counts of recent pings some days later; a ping weighs half as much after a week.

    A flood of pings is forgotten in this way, and so is the silence before it.

    Examples
    --------
    >>> recent_pings(8.0, days=[0.0, 7.0, 21.0]).tolist()
    [8.0, 4.0, 1.0]
    """
    return np.asarray(np.multiply(counted, np.exp2(np.maximum(days, 0.0) / -RATE_HALF_LIFE_DAYS)))


def recent_days(days: ArrayLike) -> Floats:
    """Return the days of counting as they weigh in a ping rate, at most 10.1.

    At a steady rate, `recent_pings` are the rate times these days.

    Examples
    --------
    >>> recent_days([0.0, 1.0, 7.0, 700.0]).round(2)
    array([ 0.  ,  0.95,  5.05, 10.1 ])
    """
    mean_life = RATE_HALF_LIFE_DAYS / np.log(2.0)
    return np.asarray(-mean_life * np.expm1(np.maximum(days, 0.0) / -mean_life))


def recent_rate(counted: ArrayLike, days: ArrayLike, watched: ArrayLike) -> Floats:
    """Return ping rates of the last days, 1/day, by counts of recent pings some `days` ago.

    `watched` are the days in which pings were counted. `PING_DAYS` are forgotten like them.
    Otherwise all rates would be a tenth too low for ever, and pings would cause more crawls than
    the plan has.

    Examples
    --------
    >>> recent_rate(5.0, days=[0.0, 7.0], watched=30.0).round(2)
    array([0.52, 0.26])
    """
    return np.asarray(recent_pings(counted, days) / recent_days(np.add(watched, PING_DAYS)))


def _beta(state: PingState) -> tuple[Floats, Floats]:
    return np.maximum(REAL + state.real, LEAST_BETA), np.maximum(FALSE + state.false, LEAST_BETA)


def precision_after_change(c: Floats, d: Floats, n: Floats, quiet: Floats) -> tuple[Floats, Floats]:
    """Return the Beta posterior of a Beta(c, d) precision after n pings and a change.

    The likelihood is 1 - quiet (1 - q)^n, with quiet = P(no unannounced change). The Beta has the
    mean and the variance of the exact posterior.
    """
    s = c + d
    unchanged = quiet * np.exp(gammaln(d + n) - gammaln(d) - gammaln(s + n) + gammaln(s))
    changed = 1.0 - unchanged
    mean = c / s * (1.0 - unchanged * s / (s + n)) / changed
    tilted = unchanged * s * (s + 1.0) / ((s + n) * (s + n + 1.0))
    square = c * (c + 1.0) / (s * (s + 1.0)) * (1.0 - tilted) / changed
    size = mean * (1.0 - mean) / (square - mean**2) - 1.0
    return np.maximum(mean * size, LEAST_BETA), np.maximum((1.0 - mean) * size, LEAST_BETA)


def audit_rate(estimate: PingEstimate, crawl_probability: ArrayLike) -> Floats:
    """Return audits of pages with pings, 1/day: crawls without a ping that show what pings miss.

    The audits are a share of the crawls that pings cause, at most one per mean time between
    changes. An earlier audit would hardly find a change.
    """
    by_pings = AUDIT_SHARE * np.multiply(crawl_probability, estimate.ping_rate)
    return np.asarray(np.minimum(by_pings, estimate.change_rate))


def audited(
    trust: ArrayLike, interval: ArrayLike, changed: ArrayLike, change_rate: ArrayLike
) -> Floats:
    """Return the trust after an audit of every page: a crawl without a ping since the last crawl.

    The test is a sequential probability ratio test of whether pings announce nearly all changes.
    The trust is the log-likelihood ratio of recall `GOOD` against recall `BAD`, a number or (N,), 0
    at the start. The trust stays between the two verdicts, so that reversing a verdict takes as
    much evidence as the verdict took.

    Examples
    --------
    Audits of a page that changes twice a day find no unannounced change:

    >>> trust = 0.0
    >>> for _ in range(5):
    ...     trust = audited(trust, interval=2.0, changed=False, change_rate=2.0)
    ...     print(f"{trust:.1f}", bool(trusted(trust)))
    1.0 False
    2.0 False
    3.0 False
    4.0 False
    4.6 True

    References
    ----------
    Wald 1945. The likelihood is in docs/theory.md, "What is estimated", with the unannounced rate
    (1 - recall) Delta.
    """
    shape = np.shape(trust)
    days, was_changed = check_crawl(shape, interval, changed)
    rate = check_amount("change_rate", change_rate, np.shape(change_rate) and shape)
    expected = np.maximum(days * rate, np.finfo(float).tiny)
    if_good, if_bad = (1.0 - GOOD) * expected, (1.0 - BAD) * expected
    evidence_of_change = np.log(np.expm1(-if_good) / np.expm1(-if_bad))
    step = was_changed * evidence_of_change + (1.0 - was_changed) * (if_bad - if_good)
    return np.asarray(np.clip(np.add(trust, step), -VERDICT, VERDICT))


def trusted(trust: ArrayLike) -> Bools:
    """Return where the pings may be taken as complete."""
    return np.asarray(np.asarray(trust) >= VERDICT)


def silent_feeds(
    host: ArrayLike,
    ping_rate: ArrayLike,
    silent_days: ArrayLike,
    significance: float = 1e-4,
    least_days: float = 2.0,
) -> Bools:
    """Return for each host whether its feed has stopped, because its silence is too improbable.

    The condition is P(no ping) = exp(-sum of the host's ping rates times the silence) <
    `significance`. The silence must also exceed `least_days`: pings from a sitemap that is fetched
    once a day arrive together.

    Parameters
    ----------
    host : array_like of int, shape (N,)
        Host of each page, 0 … H-1.
    ping_rate : array_like, shape (N,), 1/day
    silent_days : array_like, shape (H,)
        Days since the last ping of any page of the host.

    Examples
    --------
    >>> silent_feeds([0, 0, 1], ping_rate=[1.0, 2.0, 0.5], silent_days=[3.1, 4.0])
    array([ True, False])
    """
    if not 0 < significance < 1:
        raise InvalidInput("significance", f"must lie in (0, 1), not {significance}")
    silence = check_amount("silent_days", silent_days, (np.size(silent_days),))
    rates = check_amount("ping_rate", ping_rate, np.shape(host))
    per_host = np.bincount(np.asarray(host, np.intp), weights=rates, minlength=silence.size)
    return np.asarray((per_host * silence > -np.log(significance)) & (silence > least_days))


def discounted(estimate: PingEstimate, state: PingState) -> PingEstimate:
    """Return the estimate, with changes counted as unannounced until audits show otherwise.

    A site that announces a change every day, true or not, is never crawled without a ping. Each of
    its changes then seems announced, although a crawl on the clock would have found it too. The
    unannounced rate is moved towards the rate of all changes, which stays the same.

    Examples
    --------
    No change was seen in days in which 0, 1 and 10 changes were expected:

    >>> estimate = PingEstimate(0.0, ping_rate=1.0, precision=0.5)
    >>> for days in (0.0, 2.0, 20.0):
    ...     state = PingState(0.0, days, real=5.0, false=5.0, pings=10.0, watched=10.0)
    ...     print(discounted(estimate, state).recall.round(2))
    0.0
    0.5
    0.91
    """
    rate = estimate.change_rate
    unannounced = (state.changes + DOUBT) * rate / (state.days * rate + DOUBT)
    unannounced = np.clip(unannounced, 0.0, rate)
    announced = (rate - unannounced) / np.maximum(estimate.ping_rate, np.finfo(float).tiny)
    return PingEstimate(unannounced, estimate.ping_rate, np.minimum(announced, 1.0))


def accepted(
    estimate: PingEstimate, state: PingState, trusted: ArrayLike, silent: ArrayLike
) -> PingEstimate:
    """Return the estimate: trusted pings miss nothing, silent feeds miss all, others `discounted`.

    Trusted pings announce every change. Pages of silent feeds count as pages without pings.
    """
    silent = np.asarray(silent, np.bool_)
    others = discounted(estimate, state)
    unannounced = np.where(trusted, 0.0, others.unannounced_rate)
    return PingEstimate(
        np.where(silent, estimate.change_rate, unannounced),
        np.where(silent, 0.0, estimate.ping_rate),
        np.where(trusted, estimate.precision, others.precision),
    )
