r"""Recalibration: what the crawls of the last weeks show of the forecasts themselves.

A forecast assumes that a page changes at random. A page that changes every day at one hour is then
expected to have changed with .85 after two days, and always has. So each epoch compares forecasts
with the crawls that followed, and all later forecasts p become p' with

.. math:: \ln \frac{p'}{1 - p'} = \alpha + \beta \ln \frac{p}{1 - p}.

The level :math:`\alpha` and the slope :math:`\beta` are those of a logistic regression (Platt 1999)
that forgets, with prior precisions at 0 and 1. It goes on by one Newton step a day. Derived in
docs/theory.md, "When rates become crawls". Pure.
"""

from typing import NamedTuple

import numpy as np

from service.core.checks import Bools, Floats, InvalidInput
from service.core.common_values import Joint, total

HALF_LIFE_DAYS = 60.0
"""Time in which crawls lose half of their weight."""
PRIOR_PRECISION = 20.0
"""Precision of level and slope about 0 and 1 before any crawl."""
MOST_A_DAY = 10.0
"""Unexpected changes a day that count in full, because one revision changes many pages."""
SLOPES = 0.2, 5.0
"""Bounds of the slope."""
CERTAIN = 1e-12
"""Minimum distance of a forecast from 0 and 1."""
WHOLE_DAY = 1.0 - 1e-6
"""Time after which the crawls of a day count, days. The hours after a revision have changes, the
others have none, and a bound on each hour would hide that."""
N_NUMBERS = 12
"""Numbers of `Recalibration`."""


class Recalibration(NamedTuple):
    """Evidence of level and slope: information, and information times what the crawls support.

    Examples
    --------
    >>> Recalibration.none().forecast(np.array([0.0, 0.3, 1.0])).tolist()
    [0.0, 0.3, 1.0]
    """

    level_level: float
    level_slope: float
    slope_slope: float
    level: float
    slope: float
    day_level_level: float
    """The same of the running day, whose crawls do not count yet."""
    day_level_slope: float
    day_slope_slope: float
    day_level: float
    day_slope: float
    unexpected: float
    """Changes of the running day above those that were forecast; negative: below."""
    day: float
    """Length of the running day so far, days."""

    @classmethod
    def none(cls) -> "Recalibration":
        """Return the evidence before any crawl."""
        return cls(*(0.0,) * N_NUMBERS)

    @classmethod
    def unpacked(cls, numbers: tuple[float, ...]) -> "Recalibration":
        """Return evidence from all numbers, or none; raise `InvalidInput` for other lengths."""
        if numbers and len(numbers) != N_NUMBERS:
            raise InvalidInput("numbers", f"are {len(numbers)}, expected {N_NUMBERS}")
        return cls(*numbers) if numbers else cls.none()

    @property
    def line(self) -> tuple[float, float]:
        """Level and slope in force."""
        a, b, d = self.level_level + PRIOR_PRECISION, self.level_slope, self.slope_slope
        d, y, z = d + PRIOR_PRECISION, self.level, self.slope + PRIOR_PRECISION
        determinant = a * d - b * b
        slope = (a * z - b * y) / determinant
        return (d * y - b * z) / determinant, min(max(slope, SLOPES[0]), SLOPES[1])

    def forecast(self, probability: Floats) -> Floats:
        """Return (N,) probabilities as the crawls of the last weeks correct them."""
        level, slope = self.line
        if level == 0 and slope == 1:
            return probability
        odds = _log_odds(probability)
        corrected = 1.0 / (1.0 + np.exp(-(level + slope * odds)))
        certain = (probability <= 0) | (probability >= 1)
        return np.asarray(np.where(certain, probability, corrected))


def _log_odds(probability: Floats) -> Floats:
    within = np.clip(probability, CERTAIN, 1.0 - CERTAIN)
    return np.asarray(np.log(within) - np.log1p(-within))


def learn(
    evidence: Recalibration, probability: Floats, changed: Bools, days: float
) -> Joint[Recalibration]:
    """Return the evidence after the crawls of some days; that of all parts is the same.

    `probability` has the (N,) forecasts of their results without recalibration.
    """
    level, slope = evidence.line
    odds = _log_odds(probability)
    believed = 1.0 / (1.0 + np.exp(-(level + slope * odds)))
    weight, rest = believed * (1.0 - believed), changed - believed
    # information times the line that one Newton step from the present line reaches
    target = weight * (level + slope * odds) + rest
    columns = weight, weight * odds, weight * odds * odds, target, target * odds, rest
    sums = yield from total(tuple(float(column.sum()) for column in columns))
    so_far = (getattr(evidence, name) for name in _DAY)
    after = evidence._replace(
        **{name: old + new for name, old, new in zip(_DAY, so_far, sums, strict=True)},
        day=evidence.day + days,
    )
    return _day_ended(after) if after.day >= WHOLE_DAY else after


_OF_ALL = ("level_level", "level_slope", "slope_slope", "level", "slope")
_DAY = (*(f"day_{name}" for name in _OF_ALL), "unexpected")


def _day_ended(evidence: Recalibration) -> Recalibration:
    """Return the evidence after the crawls of the running day have become part of it."""
    kept = np.exp2(-evidence.day / HALF_LIFE_DAYS)
    most = MOST_A_DAY * evidence.day
    share = min(1.0, most / max(abs(evidence.unexpected), CERTAIN))
    whole = {
        name: float(kept * getattr(evidence, name) + share * getattr(evidence, f"day_{name}"))
        for name in _OF_ALL
    }
    return Recalibration.none()._replace(**whole)
