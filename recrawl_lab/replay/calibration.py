"""Calibration of predictions: P(changed) of each crawl against the result of the crawl."""

from recrawl_lab.replay.replay import Predicted
from service.core import calibration as core
from service.core.calibration import GROUPS, CalibrationSums, PredictionGroups

__all__ = ["PredictionGroups", "calibration", "later"]


def calibration(predicted: Predicted, groups: int = GROUPS) -> PredictionGroups | None:
    """Compare predictions with outcomes as the service does; return None if there are none."""
    return core.calibration(CalibrationSums.of(predicted.probability, predicted.changed), groups)


def later(predicted: Predicted, than: float) -> Predicted:
    """Return the predictions about crawls after a day."""
    late = predicted.at > than
    page, at, probability, changed = predicted
    return Predicted(page[late], at[late], probability[late], changed[late])
