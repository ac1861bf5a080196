"""BinnedMLE: maximum likelihood in fixed memory, the changed intervals kept in bins."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import Floats, InvalidInput
from service.core.estimators.base import Estimator, check_crawl, unchanged_at, zeros
from service.core.estimators.likelihood import (
    Likelihood,
    Terms,
    likeliest_rate,
    ratio_interval,
    with_imaginary,
)
from service.core.prior import DEFAULT_PRIOR, Prior

BINS = 32
"""Half octaves: the longest bin begins at 2^15.5 times the shortest interval."""


class BinnedState(NamedTuple):
    """Changed intervals by length, and the sum of the unchanged ones."""

    bin_changes: Any
    """Shape (N, BINS), or (BINS,) for one page: changed intervals in each bin."""
    bin_days: Any
    """Same shape: their sum, days."""
    unchanged: Any
    """Unchanged intervals."""
    unchanged_days: Any
    """Their sum, days."""


@dataclass(frozen=True, slots=True)
class BinnedMLE(Estimator[BinnedState]):
    """MLE with changed intervals of about equal length replaced by so many of their mean.

    Agrees with MLE within 0.2 % where an interval sees up to one change on average, within 1 %
    where it sees ten; 528 bytes a page however long the history.

    Parameters
    ----------
    shortest : float, days
        Lower end of the bins: shorter intervals share the first one, those beyond 2^16 times it
        the last. The default spans a quarter of an hour to two years.
    prior : Prior
        Its mean stands in before the first crawl.

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
    Derived (docs/theory.md, "What is estimated"); the equation is K19's 10.
    """

    shortest: float = 0.01
    prior: Prior = DEFAULT_PRIOR

    name: ClassVar[str] = "binned_mle"
    State: ClassVar[type[BinnedState]] = BinnedState
    needs_crawl_rate: ClassVar[bool] = False
    needs_history: ClassVar[bool] = False
    periodic_timing_ok: ClassVar[bool] = True
    refusal: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not 0 < self.shortest < np.inf:
            raise InvalidInput("shortest", f"must be positive and finite, not {self.shortest}")

    def init(self, n: int | None = None) -> BinnedState:
        """No crawls."""
        shape = (BINS,) if n is None else (n, BINS)
        return BinnedState(np.zeros(shape), np.zeros(shape), zeros(n), zeros(n))

    def update(
        self,
        state: BinnedState,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,  # noqa: ARG002 - every estimator has it
    ) -> BinnedState:
        """Sort one crawl into its bin; see `Estimator.update`."""
        days, was_changed = check_crawl(np.shape(state.unchanged), interval, changed)
        half_octave = np.floor(2.0 * np.log2(days / self.shortest))
        into = np.clip(half_octave, 0, BINS - 1)[..., np.newaxis] == np.arange(BINS)
        added = into * was_changed[..., np.newaxis]
        return BinnedState(
            state.bin_changes + added,
            state.bin_days + added * days[..., np.newaxis],
            state.unchanged + (1.0 - was_changed),
            state.unchanged_days + (1.0 - was_changed) * days,
        )

    def change_rate(self, state: BinnedState) -> Floats:
        """Estimate, 1/day; the prior mean before the first crawl."""
        crawls = self._crawls(state)
        n = crawls.undated + state.unchanged
        mean_interval = (crawls.days_undated + crawls.days_quiet) / np.maximum(n, 1.0)
        imaginary = np.where(n > 0, 0.5 * mean_interval, 1.0)
        rate = likeliest_rate(with_imaginary(crawls, imaginary, imaginary))
        return np.where(n > 0, rate, self.prior.mean)

    def confidence_interval(self, state: BinnedState, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Likelihood-ratio interval from the crawls alone, 1/day; its limits are MLE's."""
        return ratio_interval(self._crawls(state), self.change_rate(state), mass)

    def probability_unchanged(self, state: BinnedState, t: ArrayLike) -> Floats:
        """P(no change in the next `t` days), the estimate plugged in; see `unchanged_at`."""
        return unchanged_at(self.change_rate(state), t)

    def _crawls(self, state: BinnedState) -> Likelihood:
        """Likelihood of what the crawls saw."""
        bin_interval = np.where(
            state.bin_changes > 0, state.bin_days / np.maximum(state.bin_changes, 1.0), 1.0
        )

        def sum_undated(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
            of_bins = terms(rate[..., np.newaxis] * bin_interval)
            return tuple(np.sum(state.bin_changes * term, axis=-1) for term in of_bins)

        changes = np.asarray(np.sum(state.bin_changes, axis=-1))
        days = np.sum(state.bin_days, axis=-1)
        return Likelihood(
            np.zeros_like(changes), changes, days, np.asarray(state.unchanged_days), sum_undated
        )
