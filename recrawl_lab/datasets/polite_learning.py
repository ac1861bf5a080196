"""States of pages from the histories of PoliteCrawling.

Days of the data set are counted from `began`. A page's history becomes its state as if its
crawls had been reported one by one. A page with complete observations has a number of pings equal
to its change rate times the days since `began`, rounded. Crawls of such a page are no evidence.
"""

from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recrawl_lab.datasets.polite import Histories
from service.core import waits
from service.core.estimators.base import Estimator, from_columns, to_columns
from service.core.pings import recent_days
from service.estimation.estimates import width
from service.model.arrays import (
    DAY,
    INSTANT,
    NO_TIME,
    UNSPECIFIED,
    Bools,
    Floats,
    Instants,
    Ints,
    instant,
)
from service.model.columns import PageStates
from service.model.domain import Timing


class Learning(NamedTuple):
    """Parameters of the step from histories to states."""

    estimator: Estimator[Any]
    timing: Timing
    rng: np.random.Generator
    began: np.datetime64
    now: datetime


class Taught(NamedTuple):
    """(N,) results of each page's crawls; memory holds no more of its history."""

    last_crawl_at: Instants
    n_observations: NDArray[np.int32]
    n_changes: NDArray[np.int32]
    estimate: Floats
    """(N, W) state of the estimator."""

    def take(self, where: Any) -> "Taught":
        """Return some of the pages."""
        return Taught(*(column[where] for column in self))

    @classmethod
    def nothing(cls, learning: Learning) -> "Taught":
        """Return no pages."""
        counts = np.zeros(0, np.int32)
        return cls(np.zeros(0, INSTANT), counts, counts, np.zeros((0, width(learning.estimator))))


def learn_histories(histories: Histories, complete: Bools, learning: Learning) -> Taught:
    """Learn from all crawls of some pages; `complete` pages keep only their last crawl."""
    n = len(histories.url_id)
    page = np.repeat(np.arange(n), histories.n_crawls)
    days = histories.first + np.bincount(page, histories.interval, n)
    evidence = (histories.interval > 0) & ~complete[page]
    page, changed = page[evidence], histories.changed[evidence]
    return Taught(
        last_crawl_at=learning.began + np.rint(days * DAY.astype(np.float64)).astype("m8[us]"),
        n_observations=np.bincount(page, minlength=n).astype(np.int32),
        n_changes=np.bincount(page[changed], minlength=n).astype(np.int32),
        estimate=learnt(learning.estimator, n, page, histories.interval[evidence], changed),
    )


def learnt(
    estimator: Estimator[Any], n: int, page: Ints, interval: Floats, changed: Bools
) -> Floats:
    """Return (n, W) estimates after the intervals of each page, which are ordered by page.

    One update takes the k-th intervals of all pages. An estimator that needs the crawl rate in
    force uses one crawl per mean interval of the page.
    """
    n_intervals = np.bincount(page, minlength=n)
    start = np.cumsum(n_intervals) - n_intervals
    with np.errstate(invalid="ignore", divide="ignore"):
        crawl_rate = n_intervals / np.bincount(page, interval, n)
    longest_first = np.argsort(-n_intervals, kind="stable")
    start, crawl_rate = start[longest_first], crawl_rate[longest_first]
    left = np.searchsorted(-n_intervals[longest_first], -np.arange(n_intervals.max(initial=0)))
    ordered = np.zeros((n, width(estimator)))
    if estimator.needs_history:
        return ordered
    for turn, n_left in enumerate(left.tolist()):
        at = start[:n_left] + turn
        state = from_columns(estimator, ordered[:n_left])
        state = estimator.update(state, interval[at], changed[at], crawl_rate[:n_left])
        ordered[:n_left] = to_columns(state)
    estimate = np.empty_like(ordered)
    estimate[longest_first] = ordered
    return estimate


def states_after(taught: Taught, complete_rate: Floats, learning: Learning) -> PageStates:
    """Return the states of some pages; the rate is NaN for pages that do not announce changes."""
    n = len(taught.last_crawl_at)
    watched = (instant(learning.now) - learning.began) / DAY
    n_pings = np.rint(np.nan_to_num(complete_rate) * watched).astype(np.int64)
    zero, uniform = np.zeros(n), learning.rng.random(n)
    poisson = learning.timing is Timing.poisson
    never = np.full(n, NO_TIME, INSTANT)
    return PageStates(
        page_id=np.zeros(n, np.int64),
        last_crawl_at=taught.last_crawl_at,
        last_observed_at=taught.last_crawl_at,
        digest=np.zeros(n, np.int64),
        gone=np.zeros(n, np.bool_),
        n_failures=np.zeros(n, np.int64),
        outcome=np.zeros(n, np.int16),
        absent_since=never,
        retry_rate=np.zeros(n),
        cost=np.zeros(n),
        redirects_to=np.zeros(n, np.int64),
        hops=np.zeros(n, np.int16),
        n_targets=np.zeros(n, np.int16),
        held=np.zeros(n, np.int64),
        n_observations=taught.n_observations.astype(np.int64),
        n_changes=taught.n_changes.astype(np.int64),
        n_pings=n_pings,
        recent_pings=np.nan_to_num(complete_rate) * recent_days(watched),
        last_ping_at=np.where(n_pings > 0, taught.last_crawl_at, never),
        pings_since=np.full(n, learning.began, INSTANT),
        ping_credit=zero,
        pings_since_crawl=np.zeros(n, np.int64),
        real_pings=zero,
        false_pings=zero,
        trust=zero,
        requested_at=never,
        renewed_at=never,
        interval_factor=waits.exponential(uniform) if poisson else uniform,
        last_interval=zero,
        last_age=np.full(n, np.nan),
        estimate=taught.estimate,
        observability=np.full(n, UNSPECIFIED, np.int16),
        host_id=np.zeros(n, np.int64),
        crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan),
    )
