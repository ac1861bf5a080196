"""Waits for crawls: intervals by rates, ping credit, delays of hosts, pauses after failures.

Regular intervals cost less than a Poisson clock of the same rate (docs/theory.md, "When rates
become crawls"). Poisson intervals are K19's policy. LLN, SA and SAM are consistent only under
Poisson intervals. Input outside of its domain raises `InvalidInput`.
"""

import numpy as np
from numpy.typing import ArrayLike

from service.core.checks import Bools, Floats, InvalidInput, check_amount, check_array

LONGEST_DELAY_S = 86_400.0
"""Maximum delay between two crawls of a host, seconds."""
CREDIT_TOLERANCE = 1e-9
"""Credit that may be missing from a whole crawl: ten pings at 0.1 add up to one crawl."""


SPREAD = 0.25
"""Relative variation of waits after failures, so that hosts that failed together drift apart."""

JITTER = 0.05
"""Relative variation of periodic intervals, so that pages crawled together drift apart."""


def jittered(jitter: float, uniform: ArrayLike) -> Floats:
    """Return times to the next crawl, in mean intervals: between 1 - `jitter` and 1 + `jitter`.

    Examples
    --------
    >>> jittered(0.1, uniform=[0.0, 0.75])
    array([0.9 , 1.05])
    """
    if not 0 <= jitter <= 1:
        raise InvalidInput("jitter", f"must lie between 0 and 1, not {jitter}")
    return np.asarray(1.0 + jitter * (2.0 * _uniform(uniform) - 1.0))


def exponential(uniform: ArrayLike) -> Floats:
    """Return times to the next crawl of a Poisson clock, in mean intervals."""
    return np.asarray(-np.log1p(-_uniform(uniform)))


def delay_in_force(min_delay_s: ArrayLike, robots_delay_s: ArrayLike, default_s: float) -> Floats:
    """Return delays between two crawls of a host, seconds; NaN: no delay.

    The delay is the host's own or the default one, at least that of robots.txt, at most a day.

    Examples
    --------
    >>> nan = np.nan
    >>> delay_in_force([nan, 5.0, nan], [nan, 2.0, 1e9], default_s=1.0).tolist()
    [1.0, 5.0, 86400.0]
    >>> delay_in_force([nan, nan], [nan, 2.0], default_s=nan).tolist()
    [nan, 2.0]
    """
    own = np.where(np.isnan(min_delay_s), default_s, min_delay_s)
    return np.asarray(np.minimum(np.fmax(own, robots_delay_s), LONGEST_DELAY_S))


def ping_credit(credit: ArrayLike, earned: ArrayLike) -> tuple[Bools, Floats]:
    """Return whether one ping of each page causes a crawl now, and the credit after the ping.

    Each ping adds what it has `earned` to the credit, which is in [0, 1): the crawl probability of
    a page whose pings are complete (`core.crawl_value.earnings`). A credit of 1 pays for a crawl.
    At probability 1/k every k-th ping causes a crawl. The cost of that is mu (H_k - 1), that of
    independent draws mu ln k.

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
    total = check_amount("credit", credit, np.shape(credit))
    total = total + check_amount("earned", earned, np.shape(earned))
    whole = np.floor(total + CREDIT_TOLERANCE)
    return whole >= 1, np.maximum(total - whole, 0.0)


def backoff(n_failures: ArrayLike, first_s: float, longest_s: float, uniform: ArrayLike) -> Floats:
    """Return seconds to wait after failures in a row: doubled each time, varied by up to 25 %.

    The waits are at most `longest_s`. Each is at most `first_s` and a quarter, plus twice the sum
    of the waits before it. So a host is not left alone for much longer than it has failed.

    Examples
    --------
    >>> backoff([1, 2, 3, 99], first_s=60, longest_s=3600, uniform=0.5)
    array([  60.,  120.,  240., 3600.])
    """
    failures = check_amount("n_failures", n_failures, np.shape(n_failures))
    doublings = np.minimum(failures - 1.0, 64.0)
    spread = 1.0 + SPREAD * (2.0 * _uniform(uniform) - 1.0)
    return np.asarray(np.minimum(first_s * np.exp2(doublings) * spread, longest_s))


def _uniform(values: ArrayLike) -> Floats:
    return check_array(
        "uniform",
        values,
        np.shape(values),
        test=lambda x: (x >= 0) & (x < 1),
        must="at least 0 and below 1",
    )
