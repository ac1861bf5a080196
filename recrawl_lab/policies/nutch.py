"""Apache Nutch's AdaptiveFetchSchedule, bit for bit.

Nutch has an interval per page. It shrinks the interval when a crawl finds a change and stretches it
otherwise. With `sync_delta`, as shipped, it also moves the next crawl towards the time of the last
change. Instants are integers, milliseconds since 1970. Intervals are whole seconds, computed in
single precision and rounded as in Java. Everything is elementwise: one call serves all pages.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Floats, Ints

UNKNOWN, MODIFIED, NOT_MODIFIED = 0, 1, 2
"""Outcomes of a crawl: unknown (the first one), a change, no change."""

MS = 1000
REFETCH_SHARE = np.float32(0.9)
"""Share of `refetch_after_s` that becomes the interval of a page crawled before its time."""


class NutchState(NamedTuple):
    """(N,) columns of the crawl database."""

    interval_s: Ints
    """Interval, seconds; 0 before the first one is set."""
    modified_ms: Ints
    """Instant of the last crawl with a change, ms since 1970; not positive if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nutch:
    """Parameters with the values of nutch-default.xml; intervals in seconds.

    Examples
    --------
    A page crawled when due and always found unchanged: interval and next crawl, in days.

    >>> nutch, day = Nutch(), 86_400_000
    >>> state, due = nutch.update(Nutch.init(1), np.array([day]), UNKNOWN)
    >>> for _ in range(3):
    ...     state, due = nutch.update(state, due, NOT_MODIFIED)
    ...     print((state.interval_s / 86_400).round(2), (due / day).round(2))
    [42.] [64.]
    [63.] [108.1]
    [107.1] [183.07]

    References
    ----------
    org.apache.nutch.crawl.AdaptiveFetchSchedule and AbstractFetchSchedule, Nutch 1.x.
    """

    increase: float = 0.4
    decrease: float = 0.2
    sync_rate: float = 0.3
    """Share of the time since the last change by which the next crawl is moved forward."""
    default_interval_s: int = 2_592_000
    min_interval_s: int = 60
    max_interval_s: int = 31_536_000
    refetch_after_s: int = 7_776_000
    """Maximum time to the next crawl (db.fetch.interval.max); pages due later are crawled now."""

    @staticmethod
    def init(n: int) -> NutchState:
        """Return the state of n pages without crawls."""
        return NutchState(np.zeros(n, np.int64), np.zeros(n, np.int64))

    def update(
        self, state: NutchState, fetched_ms: Ints, outcome: Ints | int
    ) -> tuple[NutchState, Ints]:
        """Return the state after (N,) crawls, and the instants at which the pages are due, ms.

        Parameters
        ----------
        outcome
            UNKNOWN, MODIFIED or NOT_MODIFIED.
        """
        one = np.float32(1.0)
        changed, same = np.equal(outcome, MODIFIED), np.equal(outcome, NOT_MODIFIED)
        before = np.where(state.interval_s == 0, self.default_interval_s, state.interval_s)
        factor = np.where(changed, one - np.float32(self.decrease), one)
        factor = np.where(same, one + np.float32(self.increase), factor)
        interval = before.astype(np.float32) * factor
        modified = np.where(changed | (state.modified_ms <= 0), fetched_ms, state.modified_ms)
        delta = fetched_ms - modified
        longer = delta.astype(np.float32) > interval * np.float32(MS)
        interval = np.where(longer, (delta // MS).astype(np.float32), interval)
        interval = np.clip(
            interval, np.float32(self.min_interval_s), np.float32(self.max_interval_s)
        )
        due = fetched_ms - self._sync(delta) + java_round(interval.astype(np.float64) * MS)
        return NutchState(java_round(interval), modified), due

    def refetch(self, state: NutchState, due_ms: Ints, now_ms: int) -> tuple[NutchState, Ints]:
        """Return the state with pages due now if due too far ahead, as in each generate run."""
        early = due_ms - now_ms > self.refetch_after_s * MS
        shorter = int(java_round(np.float32(self.refetch_after_s) * REFETCH_SHARE))
        reset = early & (state.interval_s > self.refetch_after_s)
        interval = np.where(reset, shorter, state.interval_s)
        return state._replace(interval_s=interval), np.where(early, now_ms, due_ms)

    def scaled(self, factor: float) -> Self:
        """Return the schedule whose every interval is `factor` times as long."""

        def times(interval_s: int) -> int:
            return max(1, round(factor * interval_s))

        return replace(
            self,
            default_interval_s=times(self.default_interval_s),
            min_interval_s=times(self.min_interval_s),
            max_interval_s=times(self.max_interval_s),
            refetch_after_s=times(self.refetch_after_s),
        )

    def _sync(self, delta: Ints) -> Ints:
        """Return how much earlier the next crawl comes, ms.

        Nutch's bound has no effect: in integers offset / delta is 0, and so is the bounded value.
        """
        offset = java_round(delta * np.float64(np.float32(self.sync_rate)))
        limit = self.max_interval_s * MS
        bounded = offset // np.maximum(delta, 1) * limit
        return np.where((delta > 0) & (offset > limit), bounded, offset)


def java_round(x: Floats | NDArray[np.float32] | np.float32) -> Ints:
    """Return values rounded half up, as by Math.round.

    >>> java_round(np.array([0.5, 1.5, -0.5, -1.5, 0.49999999999999994]))
    array([ 1,  2,  0, -1,  0])
    """
    whole = np.floor(x)
    return np.asarray(whole + (x - whole >= 0.5)).astype(np.int64)  # noqa: PLR2004
