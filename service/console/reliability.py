"""Forecasts of changes against the crawls that followed: a picture, and words for people."""

from typing import NamedTuple

from service.console.charts import Dot, Picture, Shape, Tick, across, line, up
from service.core.calibration import PredictionGroups, calibration
from service.model.history import Calibrations
from service.model.words import counted

MARKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class Reliability(NamedTuple):
    """The forecasts of an estimator, compared with the crawls that followed."""

    estimator: str
    n: int
    scores: PredictionGroups
    picture: Picture


def reliability(calibrations: Calibrations) -> list[Reliability]:
    """Return the reliability of each estimator, with the errors that the API has."""
    scored = []
    for estimator, sums in sorted(calibrations.items()):
        scores = calibration(sums)
        if scores is not None:
            scored.append(Reliability(estimator, int(sums.n.sum()), scores, picture_of(scores)))
    return scored


def picture_of(scores: PredictionGroups) -> Picture:
    """Return the share of changes that crawls found over the predicted probability."""
    picture = Picture(
        title="Forecasts of changes against crawls",
        description=f"crawls found a change as often as forecast to {scores.expected_error:.1%} "
        "on average; points on the diagonal are exact",
        height=240,
        x_label="forecast: probability of a change",
    )
    x, y = across(0.0, 1.0), up(0.0, 1.0)
    picture.shapes = [Shape("line-even", line([(x(0), y(0)), (x(1), y(1))]))]
    most = int(scores.n_predictions.max())
    columns = (scores.expected, scores.observed, scores.n_predictions)
    for expected, observed, n in zip(*(column.tolist() for column in columns), strict=True):
        title = f"forecast {expected:.1%}, found {observed:.1%} of {counted(n, 'crawl')}"
        size = 2.5 + 4.5 * (n / most) ** 0.5
        picture.dots.append(Dot("fill-a", x(expected), y(observed), size, title))
    picture.x_ticks = [Tick(x(share), f"{share:.0%}") for share in MARKS]
    picture.y_ticks = [Tick(y(share), f"{share:.0%}") for share in MARKS]
    return picture
