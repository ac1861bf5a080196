"""Apache StormCrawler's AdaptiveScheduler, bit for bit.

The scheduler has an interval per page in whole minutes. It moves the interval towards the shortest
one when a crawl finds a change and stretches it otherwise. Java computes in single precision and
truncates. Everything is elementwise: one call serves all pages.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from service.model.arrays import Bools, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class StormCrawler:
    """Parameters with the shipped values; intervals in minutes.

    Examples
    --------
    >>> storm = StormCrawler()
    >>> storm.update(np.array([1440, 1440, 20_000]), np.array([True, False, False]))
    array([  750,  2160, 20160])

    References
    ----------
    org.apache.stormcrawler.persistence.AdaptiveScheduler.
    """

    increase: float = 0.5
    decrease: float = 0.5
    default_interval_min: int = 1_440
    min_interval_min: int = 60
    max_interval_min: int = 20_160

    def init(self, n: int) -> Ints:
        """Return the default interval of pages crawled once, minutes."""
        return np.full(n, self.default_interval_min, np.int64)

    def update(self, interval_min: Ints, changed: Bools) -> Ints:
        """Return the minutes from (N,) crawls until the pages are due again."""
        one, decrease = np.float32(1.0), np.float32(self.decrease)
        interval = interval_min.astype(np.float32)
        shorter = (one - decrease) * interval + decrease * np.float32(self.min_interval_min)
        longer = interval * (one + np.float32(self.increase))
        return np.where(
            changed,
            shorter.astype(np.int64),
            np.minimum(longer.astype(np.int64), self.max_interval_min),
        )

    def scaled(self, factor: float) -> Self:
        """Return the scheduler whose every interval is `factor` times as long."""

        def times(interval_min: int) -> int:
            return max(1, round(factor * interval_min))

        return replace(
            self,
            default_interval_min=times(self.default_interval_min),
            min_interval_min=times(self.min_interval_min),
            max_interval_min=times(self.max_interval_min),
        )
