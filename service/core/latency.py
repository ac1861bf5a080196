"""Latency of a host: the present one, the usual one, and what a host gets that has become slow.

| symbol | name | unit |
| --- | --- | --- |
| x | `seconds` of a crawl, between `LEAST_S` and `MOST_S` | s |
| L | `present`: exponential mean of ln x, as a time | s |
| B | `usual`: mean of ln x over the last `MEMORY` crawls, as a time | s |

Each crawl moves ln L by `GAIN` clip(ln x - ln L, `STEP`). It moves ln B by
clip(ln x - ln B, `STEP`)/k. Here k counts the crawls up to `MEMORY`. From the crawl after `FIRST`
on, slow crawls (x ≥ `ONE_AT_A_TIME` B) have k ≥ `PATIENCE`: a host that becomes slow soon after its
first crawls is not usual at once. So one slow page moves L by a factor of 1.45 at most. Ten crawls
that take ten times as long move L by a factor of 8.6, and B hardly at all.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats

GAIN = 0.25
"""Weight of a crawl in the present latency."""
STEP = 1.5
"""Maximum difference of a crawl from a mean that counts, in ln(seconds)."""
MEMORY = 1_000
"""Crawls over which the usual latency is a mean."""
FIRST = 5
"""Crawls of a host that its usual latency follows as a plain mean."""
PATIENCE = 100
"""Minimum number of crawls over which slow crawls after the first ones become usual."""
LEAST_S, MOST_S = 1e-3, 3_600.0
"""Range of latencies, seconds."""
ONE_AT_A_TIME = 2.0
"""Ratio of the present to the usual latency from which one crawl runs at a time."""
DELAYED = 3.0
"""Ratio of the present to the usual latency from which the delay follows the latency."""
LAST = 16
"""Crawls of a batch that count for each host: the weight of all earlier ones is 1 %."""


class Latency(NamedTuple):
    """(N,) latencies of hosts; NaN before the first crawl."""

    present: Floats
    """Present latency L, seconds."""
    usual: Floats
    """Usual latency B, seconds."""
    n: NDArray[np.int64]
    """Crawls that were learnt, at most `MEMORY`."""


def learn(latency: Latency, seconds: Floats, failed: Bools) -> Latency:
    """Return latencies after one crawl of each host; `seconds` that are not positive do not count.

    A crawl that failed counts only if it took longer than the present latency: a connection that
    is refused at once does not show a fast host.

    Examples
    --------
    >>> import numpy as np
    >>> latency = Latency(np.array([0.2]), np.array([0.2]), np.array([1_000]))
    >>> for _ in range(10):
    ...     latency = learn(latency, np.array([2.0]), np.array([False]))
    >>> print(f"{latency.present[0]:.2f} {latency.usual[0]:.2f}")
    1.71 0.20
    """
    present, usual, n = latency
    counts = (seconds > 0) & ~(failed & ~(seconds > present))
    x = np.log(np.clip(np.where(counts, seconds, 1.0), LEAST_S, MOST_S))
    first = counts & (n == 0)
    near, far = np.log(np.where(n > 0, present, 1.0)), np.log(np.where(n > 0, usual, 1.0))
    near = near + GAIN * np.clip(x - near, -STEP, STEP)
    slow = (n >= FIRST) & (x >= far + np.log(ONE_AT_A_TIME))
    k = np.minimum(np.where(slow, np.maximum(n, PATIENCE), n) + 1, MEMORY)
    far = far + np.clip(x - far, -STEP, STEP) / k
    return Latency(
        np.where(counts, np.exp(np.where(first, x, near)), present),
        np.where(counts, np.exp(np.where(first, x, far)), usual),
        np.where(counts, np.minimum(n + 1, MEMORY), n),
    )


def one_at_a_time(latency: Latency) -> Bools:
    """Return which hosts are crawled once at a time, because they are slower than usual."""
    slow: Bools = latency.present >= ONE_AT_A_TIME * latency.usual
    return slow


def delay_s(latency: Latency, factor: Floats, most_s: Floats) -> Floats:
    """Return the (N,) delays that latencies cause, seconds; 0: none.

    Parameters
    ----------
    factor : (N,)
        Delay over the present latency; 0: the latency causes none.
    most_s : (N,)
        Maximum of these delays, seconds.

    Examples
    --------
    >>> import numpy as np
    >>> latency = Latency(np.array([0.2, 0.5, 2.0]), np.full(3, 0.2), np.full(3, 99))
    >>> one_at_a_time(latency).tolist()
    [False, True, True]
    >>> delay_s(latency, factor=np.full(3, 5.0), most_s=np.full(3, 30.0)).tolist()
    [0.0, 0.0, 10.0]
    """
    slow = latency.present >= DELAYED * latency.usual
    return np.where(slow, np.minimum(factor * latency.present, most_s), 0.0)
