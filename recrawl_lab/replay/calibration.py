"""Calibration of predictions: P(changed) of each crawl against the result of the crawl."""

from dataclasses import dataclass

import numpy as np

from recrawl_lab.replay.replay import Predicted
from service.model.arrays import Floats, Ints

BINS = 15
CERTAIN = 1e-12
"""Least distance of a prediction from 0 and 1 in the log loss."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """(B,) bins of equally many predictions, in ascending order, and their scores."""

    expected: Floats
    """Mean prediction of each bin."""
    observed: Floats
    """Share of changes in each bin."""
    n_predictions: Ints
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


def calibration(predicted: Predicted, bins: int = BINS) -> Calibration | None:
    """Compare predictions with outcomes; return None if there are none.

    Bins have equally many predictions, so that they are fine where predictions are many. On slow
    sites most predictions are below a tenth, where bins of equal width would hide errors.
    """
    n = len(predicted.probability)
    if n == 0:
        return None
    order = np.argsort(predicted.probability, kind="stable")
    probability = predicted.probability[order]
    changed = predicted.changed[order].astype(np.float64)
    first = np.unique(np.linspace(0, n, min(bins, n) + 1).astype(np.int64))[:-1]
    counts = np.diff(first, append=n)
    expected = np.add.reduceat(probability, first) / counts
    observed = np.add.reduceat(changed, first) / counts
    return Calibration(
        expected=expected,
        observed=observed,
        n_predictions=counts,
        expected_error=float(np.abs(observed - expected) @ counts) / n,
        log_loss=log_loss(probability, changed),
        log_loss_constant=log_loss(np.full(n, changed.mean()), changed),
    )


def later(predicted: Predicted, than: float) -> Predicted:
    """Return the predictions about crawls after a day."""
    late = predicted.at > than
    page, at, probability, changed = predicted
    return Predicted(page[late], at[late], probability[late], changed[late])


def log_loss(probability: Floats, changed: Floats) -> float:
    """Return the mean of -ln of the predicted probability of the actual outcome.

    >>> round(log_loss(np.array([0.5, 0.9]), np.array([1.0, 0.0])), 4)
    1.4979
    """
    likelihood = np.where(changed > 0, probability, 1.0 - probability)
    return float(-np.log(np.maximum(likelihood, CERTAIN)).mean())
