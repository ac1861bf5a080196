"""Screens of URL groups: eight numbers that show whether the hours in force fit a group.

The whole evidence of a group takes a kilobyte. So a group begins with a screen: the score of two
harmonics at the hours in force, and the information of each. A group that follows the hours in
force has a score of about the root of its information, and needs no evidence of its own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.change_hours.evidence import (
    BINS,
    BULK,
    EXPECTED,
    Intervals,
    days_in_bins,
    exposed,
)
from service.core.change_hours.posterior import BIN_TERMS
from service.core.change_hours.profile import HARMONICS, LEAST_INTENSITY, LEAST_LEVEL, Profiles
from service.core.checks import Bools, Floats
from service.core.estimators.gamma import gamma_unchanged

SCREENED = np.array([1, 2, 1 + HARMONICS, 2 + HARMONICS])
"""Terms of a profile that a screen has: cosines and sines of a day and of half a day."""
NUMBERS = 2 * len(SCREENED)
"""Numbers of a screen."""
DEVIATION = 9.0
"""Sum of squared scores over their variances, less ln(1 + information), above which hours differ;
a group that keeps the hours in force exceeds it with a probability below .06."""
BLOCK = 1 << 14
"""Maximum number of intervals whose terms are in memory at a time."""


class Screens(NamedTuple):
    """(G,) screens of groups; all zeros mean no evidence."""

    score: Floats
    """(G, 4) scores at the hours in force."""
    information: Floats
    """(G, 4) Fisher information of each coefficient."""

    @classmethod
    def of(cls, numbers: Floats) -> "Screens":
        """Return the screens of (G, NUMBERS) numbers."""
        return cls(*np.split(numbers, 2, axis=1))

    def packed(self) -> Floats:
        """Return (G, NUMBERS) numbers, for storage."""
        return np.hstack(self)


def believed(profiles: Profiles) -> Profiles:
    """Return profiles as pages follow them: the harmonics times the weight."""
    level = np.maximum(profiles.coefficients[:, :1], LEAST_LEVEL)
    level = np.where(profiles.weight[:, None] > 0, level, 1.0)
    harmonics = level * profiles.weight[:, None] * profiles.harmonics
    return Profiles(np.hstack((level, harmonics)), profiles.weight)


def screened(
    screens: Screens,
    profiles: Profiles,
    intervals: Intervals,
    changed: ArrayLike,
    exact: Bools,
    changed_at: Floats,
) -> Screens:
    """Return the screens with (N,) intervals added; `profiles` has the (G,) hours in force.

    In the symbols of `evidence.learn`, a crawl adds D v (f if changed else -1) to the score, and
    f D² v² to the information. An `exact` interval adds the terms at the instant of its change,
    `changed_at`, less those expected. More than `BULK` unexpected changes at a time weigh less.
    """
    n_groups = len(profiles.weight)
    news = np.asarray(changed, np.bool_)
    dated = exact & ~np.isnan(changed_at)
    length = intervals.end - intervals.start
    unexpected = np.where(exact, dated, gamma_unchanged(intervals.a, intervals.b, length) * news)
    share = BULK / np.maximum(np.bincount(intervals.host, unexpected, n_groups), BULK)
    score, information = screens.score.copy(), screens.information.copy()
    for start in range(0, len(news), BLOCK):
        where = slice(start, start + BLOCK)
        block = intervals.take(where)
        each = _scored(profiles, block, news[where], exact[where], changed_at[where])
        for total, numbers in zip((score, information), each, strict=True):
            for k, column in enumerate((numbers * share[block.host][:, None]).T):
                total[:, k] += np.bincount(block.host, column, n_groups)
    return Screens(score, information)


def _scored(
    profiles: Profiles, block: Intervals, changed: Bools, exact: Bools, changed_at: Floats
) -> tuple[Floats, Floats]:
    """Return (N, 4) scores and information of intervals."""
    terms, operational, rate = exposed(profiles, block)
    odds = 1.0 / np.expm1(np.clip(block.a * np.log1p(operational / block.b), *EXPECTED))
    terms = terms[:, SCREENED]
    score = terms * (rate * np.where(changed, odds, -1.0))[:, None]
    information = terms**2 * (odds * rate**2)[:, None]
    row = np.flatnonzero(exact)
    if row.size:
        waves = BIN_TERMS[:, SCREENED]
        at = changed_at[row]
        dated = ~np.isnan(at)
        rate = (block.a[row] + dated) / (block.b[row] + operational[row])
        values = profiles.coefficients[block.host[row]] @ BIN_TERMS.T
        expected = days_in_bins(block.start[row], block.end[row]) * rate[:, None]
        expected *= np.maximum(values, LEAST_INTENSITY)
        score[row], information[row] = -expected @ waves, expected @ waves**2
        place = (at[dated] % 1.0 * BINS).astype(np.intp)
        score[row[dated]] += waves[place]
    return score, information


def deviation(screens: Screens) -> Floats:
    """Return (G,) excess of the deviation of groups from the hours in force; above 0: they differ.

    Examples
    --------
    A group with an information of one each, once with its expected score and once with six times:

    >>> screens = Screens(np.array([[1.0] * 4, [6.0] * 4]), np.ones((2, 4)))
    >>> deviation(screens).round(1).tolist()
    [-9.8, 60.2]
    """
    squares = (screens.score**2 / (1.0 + screens.information)).sum(axis=1)
    return np.asarray(squares - DEVIATION - np.log1p(screens.information).sum(axis=1))
