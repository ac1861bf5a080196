"""Whether pings may be trusted: audits of what they miss, a test of recall, feeds that died.

A page of trusted pings counts as complete, one of a silent feed as incomplete, the others as noisy
as `PingQuality` estimates them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import Bools, Floats, InvalidInput, check_amount
from service.core.estimators.base import check_crawl
from service.core.pings import PingEstimate, PingState


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


def audit_due(estimate: PingEstimate, age: ArrayLike, n_pings: ArrayLike) -> Bools:
    """Tell whether a crawl now would be an audit: no ping since the last one, at age >= 1/Delta."""
    old = np.multiply(age, estimate.change_rate) >= 1.0
    return np.asarray((np.asarray(n_pings) == 0) & old & (estimate.ping_rate > 0))


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
        """Tell where the pings may be taken as complete."""
        return np.asarray(state >= self.threshold)

    def distrusted(self, state: Any) -> Bools:
        """Tell where the pings miss too many changes."""
        return np.asarray(state <= -self.threshold)


def silent_feeds(
    host: ArrayLike,
    ping_rate: ArrayLike,
    silent_days: ArrayLike,
    significance: float = 1e-4,
    least_days: float = 2.0,
) -> Bools:
    """Tell for each host whether its feed has stopped: so long a silence is too improbable.

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
