"""SA and SAM: the stochastic approximation of A22, without and with momentum."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from service.core.checks import Floats, InvalidInput
from service.core.estimators.base import CheckedCrawl, PoissonEstimator
from service.core.prior import DEFAULT_PRIOR, Prior


class SAState(NamedTuple):
    """The iterate y_k and its index, over the crawls that had a crawl rate in force."""

    crawls: Any
    estimate: Any
    """y_k, 1/day; without meaning while `crawls` is 0."""


@dataclass(frozen=True, slots=True)
class SA(PoissonEstimator[SAState]):
    """Steps of (k+1)^-eta towards the root of E[changed] (y + p) = y, which is the change rate.

    Parameters
    ----------
    eta : float
        Step exponent in (0, 1]. Above 1/2 the iterate converges almost surely, below 1/2 in mean.

    Examples
    --------
    >>> sa = SA()
    >>> state = sa.init()
    >>> for changed in (True, False, True, True):
    ...     state = sa.update(state, interval=0.4, changed=changed, crawl_rate=3.0)
    ...     print(f"{sa.change_rate(state):.2f}")
    3.03
    1.23
    2.55
    3.61

    References
    ----------
    A22, equation 2 and Theorem 2.
    """

    eta: float = 0.75
    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "sa"
    State: ClassVar[type[SAState]] = SAState

    def __post_init__(self) -> None:
        if not 0 < self.eta <= 1:
            raise InvalidInput("eta", f"must lie in (0, 1], not {self.eta} (A22, Theorem 2)")

    @override
    def learn(self, state: SAState, crawl: CheckedCrawl) -> SAState:
        """Return the state after one step, y += eta_k (I (y + p) - y)."""
        y = self.change_rate(state)
        step = crawl.in_force * (state.crawls + 1.0) ** -self.eta
        move = step * (crawl.changed * (y + crawl.rate) - y)
        return SAState(state.crawls + crawl.in_force, y + move)

    @override
    def change_rate(self, state: SAState) -> Floats:
        return np.where(state.crawls > 0, state.estimate, self.prior.mean)


class SAMState(NamedTuple):
    """The last two iterates and their index, over the crawls that had a crawl rate in force."""

    crawls: Any
    estimate: Any
    """z_k, 1/day, which may fall below 0; without meaning while `crawls` is 0."""
    previous: Any
    """z_(k-1), 1/day."""


@dataclass(frozen=True, slots=True)
class SAM(PoissonEstimator[SAMState]):
    """SA plus zeta_k = (beta_k - omega eta_k)/beta_(k-1) times the last move.

    Here eta_k = (k+1)^-eta and beta_k = (k+1)^-beta. The first step has no momentum.

    Parameters
    ----------
    eta, beta : float
        Step exponents, 0 < beta <= 1 and beta < eta <= 2 beta. There is one timescale at
        eta = 2 beta, and two below. Theorem 3 proves convergence with one timescale for
        beta > 1/2. With two timescales it requires eta_k/beta_k square summable,
        eta - beta > 1/2. A22's own choice (0.75, 0.6) does not meet this, but converges in
        practice. For eta <= beta no result is known.
    omega : float
        Friction, positive.

    Examples
    --------
    >>> sam = SAM()
    >>> state = sam.init()
    >>> for changed in (True, False, True, True):
    ...     state = sam.update(state, interval=0.4, changed=changed, crawl_rate=3.0)
    ...     print(f"{sam.change_rate(state):.2f}")
    3.03
    1.43
    2.55
    3.79

    References
    ----------
    A22, equations 3 and 10, Theorem 3, Remark 4.
    """

    eta: float = 0.75
    beta: float = 0.6
    omega: float = 1.0
    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "sam"
    State: ClassVar[type[SAMState]] = SAMState

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise InvalidInput("beta", f"must lie in (0, 1], not {self.beta} (A22, Remark 4)")
        if not self.beta < self.eta <= 2 * self.beta:
            allowed = f"({self.beta}, {2 * self.beta}]"
            raise InvalidInput("eta", f"must lie in (beta, 2 beta] = {allowed}, not {self.eta}")
        if not 0 < self.omega < np.inf:
            raise InvalidInput("omega", f"must be positive and finite, not {self.omega}")

    @override
    def learn(self, state: SAMState, crawl: CheckedCrawl) -> SAMState:
        k = state.crawls
        started = k > 0
        z = np.where(started, state.estimate, self.prior.mean)
        eta_k = (k + 1.0) ** -self.eta
        previous_beta = np.maximum(k, 1.0) ** -self.beta
        zeta_k = ((k + 1.0) ** -self.beta - self.omega * eta_k) / previous_beta
        drive = eta_k * (crawl.changed * (z + crawl.rate) - z)
        momentum = started * zeta_k * (z - state.previous)
        return SAMState(
            k + crawl.in_force,
            z + crawl.in_force * (drive + momentum),
            np.where(crawl.in_force > 0, z, state.previous),
        )

    @override
    def change_rate(self, state: SAMState) -> Floats:
        return np.where(state.crawls > 0, np.maximum(state.estimate, 0.0), self.prior.mean)
