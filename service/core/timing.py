"""When rates become crawls: due times, ping credit, Poisson draws and the order of the overdue.

Crawling on time at a given rate is cheaper than on a Poisson clock of that rate (docs/theory.md,
"When rates become crawls"), so periodic due times and ping credits are the default; the Poisson
draws are K19's policy and the only timing under which LLN, SA and SAM are consistent. All functions
are elementwise; random numbers are parameters. Input outside of its domain raises `InvalidInput`.
"""

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import (
    Bools,
    Floats,
    InvalidInput,
    check_amount,
    check_array,
    check_share,
)

CREDIT_TOLERANCE = 1e-9
"""Credit this close to a whole crawl counts as one: ten pings at 0.1 add up to one crawl."""


def first_due_in(crawl_rate: ArrayLike, phase: ArrayLike) -> Floats:
    """Days until the first crawl: phase/crawl_rate; inf where the rate is 0.

    Examples
    --------
    >>> first_due_in([0.5, 0.0], phase=[0.25, 0.25])
    array([0.5, inf])
    """
    return _days(_uniform("phase", phase), crawl_rate)


def next_due_in(crawl_rate: ArrayLike, jitter: float = 0.0, phase: ArrayLike = 0.5) -> Floats:
    """Days from one crawl to the next: 1/crawl_rate, moved by at most `jitter` of itself.

    Parameters
    ----------
    crawl_rate : array_like, 1/day
        Not negative; inf days where 0.
    jitter : float in [0, 1]
        Largest relative displacement.
    phase : array_like in [0, 1)
        Position within the jitter; uniform phases keep the mean interval at 1/crawl_rate.

    Examples
    --------
    >>> next_due_in([0.5, 4.0, 0.0])
    array([2.  , 0.25,  inf])
    >>> next_due_in([0.5, 0.5], jitter=0.1, phase=[0.0, 0.75])
    array([1.8, 2.1])
    """
    if not 0 <= jitter <= 1:
        raise InvalidInput("jitter", f"must lie between 0 and 1, not {jitter}")
    return _days(1.0 + jitter * (2.0 * _uniform("phase", phase) - 1.0), crawl_rate)


def ping_credit(
    credit: ArrayLike, crawl_probability: ArrayLike, n_pings: ArrayLike = 1
) -> tuple[Bools, Floats]:
    """Decide by accumulated credit whether pings lead to a crawl now.

    Each ping adds crawl_probability to the credit; a whole credit buys a crawl. At 1/k every k-th
    ping is crawled, at cost mu (H_k - 1) instead of the mu ln k of independent draws. Pings that
    come together share one crawl: what is left is the fraction.

    Parameters
    ----------
    credit : array_like, shape (N,)
        In [0, 1), left by the last call; 0 for a new page.
    crawl_probability : array_like, shape (N,)
        In [0, 1].
    n_pings : array_like of int
        Pings since the last call.

    Returns
    -------
    crawl_now : (N,) bool
    credit : (N,) in [0, 1)

    Examples
    --------
    >>> credit = 0.0
    >>> for _ in range(4):
    ...     crawl_now, credit = ping_credit(credit, 1 / 3)
    ...     print(bool(crawl_now), f"{credit:.3f}")
    False 0.333
    False 0.667
    True 0.000
    False 0.333
    """
    earned = _share("crawl_probability", crawl_probability) * _amount("n_pings", n_pings)
    total = _amount("credit", credit) + earned
    whole = np.floor(total + CREDIT_TOLERANCE)
    return whole >= 1, np.maximum(total - whole, 0.0)


def poisson_gap(crawl_rate: ArrayLike, uniform: ArrayLike) -> Floats:
    """Exponential days to the next crawl, from uniform draws in [0, 1); inf where the rate is 0.

    Examples
    --------
    >>> poisson_gap([0.5, 0.0], uniform=[0.5, 0.5]).round(4)
    array([1.3863,    inf])
    """
    return _days(-np.log1p(-_uniform("uniform", uniform)), crawl_rate)


def poisson_ping(crawl_probability: ArrayLike, uniform: ArrayLike) -> Bools:
    """Crawl on this ping? An independent draw per ping (K19), from uniforms in [0, 1).

    Examples
    --------
    >>> poisson_ping([0.0, 0.3, 1.0], uniform=[0.0, 0.5, 0.999])
    array([False, False,  True])
    """
    return np.asarray(_uniform("uniform", uniform) < _share("crawl_probability", crawl_probability))


def backoff(n_failures: ArrayLike, first_s: float, longest_s: float, uniform: ArrayLike) -> Floats:
    """Seconds to wait after so many failures in a row: doubling, spread over +-50 %, bounded.

    Examples
    --------
    >>> backoff([1, 2, 3, 99], first_s=60, longest_s=3600, uniform=0.5)
    array([  60.,  120.,  240., 3600.])
    """
    doublings = np.minimum(_amount("n_failures", n_failures) - 1.0, 64.0)
    spread = 0.5 + _uniform("uniform", uniform)
    return np.asarray(np.minimum(first_s * np.exp2(doublings) * spread, longest_s))


def overdue(now_minus_last: ArrayLike, crawl_rate: ArrayLike) -> Floats:
    """Crawls since the last one that were due: time since times rate; due at 1, largest first.

    Examples
    --------
    >>> overdue([3.0, 3.0], crawl_rate=[0.5, 0.1]).round(2)
    array([1.5, 0.3])
    """
    return np.asarray(np.multiply(now_minus_last, _amount("crawl_rate", crawl_rate)))


def _days(crawls: Floats, crawl_rate: ArrayLike) -> Floats:
    """Days in which `crawls` crawls fall due at a rate; inf where the rate is 0."""
    rate = _amount("crawl_rate", crawl_rate)
    with np.errstate(over="ignore"):
        never: Floats = np.full(np.broadcast_shapes(crawls.shape, rate.shape), np.inf)
        return np.asarray(np.divide(crawls, rate, out=never, where=rate > 0))


def _amount(name: str, values: ArrayLike) -> Floats:
    return check_amount(name, values, np.shape(values))


def _share(name: str, values: ArrayLike) -> Floats:
    return check_share(name, values, np.shape(values))


def _uniform(name: str, values: ArrayLike) -> Floats:
    must = "at least 0 and below 1"
    return check_array(name, values, np.shape(values), test=lambda x: (x >= 0) & (x < 1), must=must)
