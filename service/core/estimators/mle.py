"""MLE and BinnedMLE: maximum likelihood over the whole history, and in fixed memory."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from service.core.checks import Floats, InvalidInput
from service.core.estimators.base import CheckedCrawl, Estimator, zeros
from service.core.estimators.history import History, HistoryEstimator
from service.core.estimators.likelihood import (
    Likelihood,
    Terms,
    likeliest_rate,
    ratio_interval,
    with_imaginary,
)
from service.core.prior import DEFAULT_PRIOR, Prior


@dataclass(frozen=True, slots=True)
class MLE(HistoryEstimator):
    """The change rate that makes the crawls likeliest, with two imaginary crawls added.

    One changed and one unchanged imaginary interval keep the estimate finite and positive when
    every crawl, or none, found a change. Each interval is half of the page's mean interval. Unlike
    K19's half a day, that length does not depend on the unit.

    Examples
    --------
    >>> mle = MLE()
    >>> history = mle.init()
    >>> for changed in (False, True, True, False):
    ...     history = mle.update(history, interval=2.0, changed=changed)
    ...     print(mle.change_rate(history).round(4))
    [0.2877]
    [0.4642]
    [0.5923]
    [0.4172]
    >>> low, high = mle.confidence_interval(history, mass=0.9)
    >>> low.round(2), high.round(2)
    (array([0.08]), array([0.95]))

    References
    ----------
    CG03 section 5; K19, equation 10; GF08 section 4.4.
    """

    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "mle"

    @override
    def change_rate(self, state: History) -> Floats:
        crawled = state.crawls > 0
        half = 0.5 * state.sum_by_page(state.interval) / np.maximum(state.crawls, 1)
        half = np.where(crawled, half, 1.0)
        rate = likeliest_rate(with_imaginary(self.likelihood(state), half, half))
        return np.where(crawled, rate, self.prior.mean)

    def confidence_interval(self, state: History, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Return the likelihood-ratio interval of each page from its crawls alone, 1/day.

        `mass` is the share of repetitions in the limit of many crawls (Wilks's theorem), not a
        posterior probability. With ten crawls or more and 0.03 to ten changes per crawl, 90 %
        intervals hold the rate in 86 to 100 % of repetitions. The exception is a series of regular
        crawls that nearly all find a change (72 %).
        """
        return ratio_interval(self.likelihood(state), self.change_rate(state), mass)

    def likelihood(self, state: History) -> Likelihood:
        """Return the likelihood of the crawls, without imaginary ones."""
        n, changed = len(state.crawls), state.changed > 0
        page, tau, part = state.page[changed], state.interval[changed], state.changed[changed]

        def sum_by_page(values: Floats) -> Floats:
            return np.bincount(page, part * values, n).astype(np.float64, copy=False)

        def sum_changed(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
            return tuple(sum_by_page(term) for term in terms(rate[page] * tau))

        days_quiet = state.sum_by_page((1.0 - state.changed) * state.interval)
        return Likelihood(
            sum_by_page(np.ones(page.size)), sum_by_page(tau), days_quiet, sum_changed
        )


BINS = 32
"""Number of bins of half an octave: the last bin begins at 2^15.5 times the shortest interval."""


class BinnedState(NamedTuple):
    """Changed intervals by length, and the sum of the unchanged intervals."""

    bin_changes: Any
    """Number of changed intervals in each bin; (N, BINS), or (BINS,) for one page."""
    bin_days: Any
    """Sum of the changed intervals in each bin, days; same shape."""
    unchanged: Any
    """Number of unchanged intervals."""
    unchanged_days: Any
    """Sum of the unchanged intervals, days."""


@dataclass(frozen=True, slots=True)
class BinnedMLE(Estimator[BinnedState]):
    """MLE with each changed interval replaced by the mean of its bin.

    The estimate agrees with MLE within 0.2 % for up to one change per interval on average, and
    within 1 % for ten. The state takes 528 bytes a page, whatever the length of the history.

    Parameters
    ----------
    shortest : float, days
        Lower end of the bins. Shorter intervals are in the first bin, intervals beyond 2^16 times
        `shortest` in the last. The default spans a quarter of an hour to two years.

    Examples
    --------
    >>> binned = BinnedMLE()
    >>> state = binned.init()
    >>> for changed in (False, True, True, False):
    ...     state = binned.update(state, interval=2.0, changed=changed)
    ...     print(f"{binned.change_rate(state):.4f}")
    0.2877
    0.4642
    0.5923
    0.4172

    References
    ----------
    Derived (docs/theory.md, "What is estimated") from K19, equation 10.
    """

    shortest: float = 0.01
    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "binned_mle"
    State: ClassVar[type[BinnedState]] = BinnedState

    def __post_init__(self) -> None:
        if not 0 < self.shortest < np.inf:
            raise InvalidInput("shortest", f"must be positive and finite, not {self.shortest}")

    @override
    def init(self, n: int | None = None) -> BinnedState:
        shape = (BINS,) if n is None else (n, BINS)
        return BinnedState(np.zeros(shape), np.zeros(shape), zeros(n), zeros(n))

    @override
    def learn(self, state: BinnedState, crawl: CheckedCrawl) -> BinnedState:
        half_octave = np.floor(2.0 * np.log2(crawl.days / self.shortest))
        into = np.clip(half_octave, 0, BINS - 1)[..., np.newaxis] == np.arange(BINS)
        added = into * crawl.changed[..., np.newaxis]
        return BinnedState(
            state.bin_changes + added,
            state.bin_days + added * crawl.days[..., np.newaxis],
            state.unchanged + (1.0 - crawl.changed),
            state.unchanged_days + (1.0 - crawl.changed) * crawl.days,
        )

    @override
    def change_rate(self, state: BinnedState) -> Floats:
        crawls = self._likelihood(state)
        n = crawls.changes + state.unchanged
        mean_interval = (crawls.days_changed + crawls.days_quiet) / np.maximum(n, 1.0)
        imaginary = np.where(n > 0, 0.5 * mean_interval, 1.0)
        rate = likeliest_rate(with_imaginary(crawls, imaginary, imaginary))
        return np.where(n > 0, rate, self.prior.mean)

    def confidence_interval(self, state: BinnedState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Return the likelihood-ratio interval, 1/day; coverage as of `MLE.confidence_interval`."""
        return ratio_interval(self._likelihood(state), self.change_rate(state), mass)

    def _likelihood(self, state: BinnedState) -> Likelihood:
        bin_interval = np.where(
            state.bin_changes > 0, state.bin_days / np.maximum(state.bin_changes, 1.0), 1.0
        )

        def sum_changed(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
            of_bins = terms(rate[..., np.newaxis] * bin_interval)
            return tuple(np.sum(state.bin_changes * term, axis=-1) for term in of_bins)

        changes = np.asarray(np.sum(state.bin_changes, axis=-1))
        days = np.sum(state.bin_days, axis=-1)
        return Likelihood(changes, days, np.asarray(state.unchanged_days), sum_changed)
