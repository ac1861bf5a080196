"""Calibration of predicted probabilities: sums by bins, and the error that follows from them.

Sums of several commits, processes or steps add up. A page's change is often improbable, so the bins
are narrow near 0: the upper edge of bin i is (i / `N_BINS`)².
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.checks import Floats

N_BINS = 100
"""Number of bins of predicted probability."""
EDGES = (np.arange(1, N_BINS + 1) / N_BINS) ** 2
"""(N_BINS,) upper edges of the bins."""
GROUPS = 15
"""Groups of equally many predictions from which the calibration error follows."""
CERTAIN = 1e-12
"""Minimum distance of a prediction from 0 and 1 in the log loss."""

Counts = NDArray[np.int64]


class CalibrationSums(NamedTuple):
    """Sums of predictions and outcomes by bin."""

    n: Counts
    """(N_BINS,) predictions."""
    sum_predicted: Floats
    """(N_BINS,) sums of predicted probabilities."""
    n_changed: Counts
    """(N_BINS,) outcomes that were changes."""
    sum_log_loss: float
    """Sum of -ln of the predicted probability of the actual outcome."""

    @classmethod
    def none(cls) -> "CalibrationSums":
        """Return the sums of no prediction."""
        zeros = np.zeros(N_BINS, np.int64)
        return cls(zeros, np.zeros(N_BINS), zeros, 0.0)

    @classmethod
    def of(cls, probability: Floats, changed: ArrayLike) -> "CalibrationSums":
        """Return the sums of (K,) predictions and outcomes.

        >>> sums = CalibrationSums.of(np.array([0.5, 0.9]), [True, False])
        >>> int(sums.n.sum()), int(sums.n_changed.sum()), round(sums.sum_log_loss / 2, 4)
        (2, 1, 1.4979)
        """
        outcome = np.asarray(changed, np.bool_)
        at = np.minimum(np.searchsorted(EDGES, probability), N_BINS - 1)
        return cls(
            np.bincount(at, minlength=N_BINS),
            np.bincount(at, probability, N_BINS).astype(np.float64),
            np.bincount(at[outcome], minlength=N_BINS),
            float(losses(probability, outcome).sum()),
        )

    def plus(self, other: "CalibrationSums") -> "CalibrationSums":
        """Return the sums of both."""
        return CalibrationSums(
            self.n + other.n,
            self.sum_predicted + other.sum_predicted,
            self.n_changed + other.n_changed,
            self.sum_log_loss + other.sum_log_loss,
        )


@dataclass(frozen=True, slots=True)
class PredictionGroups:
    """(G,) groups of equally many predictions, in ascending order, and their scores."""

    expected: Floats
    """Mean prediction of each group."""
    observed: Floats
    """Share of changes in each group."""
    n_predictions: Counts
    expected_error: float
    """Mean of |observed - expected| over predictions: 0 is perfect, 1 the worst."""
    log_loss: float
    """Mean of -ln of the predicted probability of the actual outcome."""
    log_loss_constant: float
    """Log loss of the best constant prediction, which is the overall share of changes."""

    @property
    def skill(self) -> float:
        """Relative saving over the constant's log loss; 0 if that is 0."""
        base = self.log_loss_constant
        return 1.0 - self.log_loss / base if base > 0 else 0.0


def calibration(sums: CalibrationSums, groups: int = GROUPS) -> PredictionGroups | None:
    """Return the calibration of predictions; None without any.

    Groups have equally many predictions as far as bins allow, so that they are fine where
    predictions are many. On slow sites most predictions are below a tenth, where groups of equal
    width would hide errors.
    """
    n = int(sums.n.sum())
    if n == 0:
        return None
    before = np.cumsum(sums.n) - sums.n
    targets = np.linspace(0, n, min(groups, n) + 1).astype(np.int64)[:-1]
    first = np.unique(np.searchsorted(before, targets))
    first = first[: np.count_nonzero(np.append(before, n)[first] < n)]  # none of empty cells only
    counts, predicted, changed = (
        np.add.reduceat(column, first) for column in (sums.n, sums.sum_predicted, sums.n_changed)
    )
    share = float(sums.n_changed.sum() / n)
    return PredictionGroups(
        expected=predicted / counts,
        observed=changed / counts,
        n_predictions=counts,
        expected_error=float(np.abs(changed - predicted).sum()) / n,
        log_loss=sums.sum_log_loss / n,
        log_loss_constant=entropy(share),
    )


def losses(probability: Floats, changed: ArrayLike) -> Floats:
    """Return -ln of the predicted probability of each outcome.

    >>> losses(np.array([0.5, 0.9]), [True, False]).round(4)
    array([0.6931, 2.3026])
    """
    likelihood = np.where(changed, probability, 1.0 - probability)
    return np.asarray(-np.log(np.maximum(likelihood, CERTAIN)))


def entropy(share: float) -> float:
    """Return the log loss of a constant prediction that equals the share of changes.

    >>> round(entropy(0.5), 4), entropy(0.0)
    (0.6931, 0.0)
    """
    shares = np.array([share, 1.0 - share])
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum() + 0.0)
