"""Measures of a policy in a world: averages over time and pages, with confidence intervals.

Every measure is a ratio of two sums over pages. The terms of each page are computed once, and
determine the value on any resample of the pages. Resamples are the same for all policies: the
choice of pages affects all policies alike, and affects their ratios much less.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from recrawl_lab.replay.staleness import Steps, harmonic_numbers
from recrawl_lab.worlds.world import World
from service.model.arrays import Bools, Floats, Ints

RESAMPLES = 1000
MASS = 0.9
"""Probability mass of bootstrap intervals."""
BLOCK = 1 << 21
"""Number of pages drawn at a time."""


class Measures(NamedTuple):
    """Averages over time and pages; each is a number, or an array over resamples or policies.

    Pages have their importance as weight unless a field's description differs.
    """

    harmonic: Any
    """Mean of 1 + 1/2 + … + 1/n for n uncrawled changes."""
    binary: Any
    """Share of the time in which a page's copy is old."""
    harmonic_plain: Any
    """Harmonic staleness with equal weights."""
    binary_plain: Any
    age_days: Any
    """Time since the oldest uncrawled change, days; 0 without one."""
    age_days_plain: Any
    never_crawled: Any
    """Share of the pages without a crawl after the first one."""


class ConfidenceInterval(NamedTuple):
    """Bounds of the middle `MASS` of the resamples."""

    low: float
    high: float


class Terms(NamedTuple):
    """(N, M) terms of each page and measure; a measure is the ratio of the sums over pages."""

    above: Floats
    below: Floats


def terms(world: World, steps: Steps) -> Terms:
    """Return the integrals of each page's penalties over its life."""
    n_pages = len(world)
    age = steps.days * (steps.at - steps.oldest_at + steps.days / 2)
    stale = steps.n_uncrawled > 0
    harmonic, binary, aged = (
        np.bincount(steps.page, penalty, n_pages)
        for penalty in (
            harmonic_numbers(steps.n_uncrawled) * steps.days,
            stale * steps.days,
            stale * age,
        )
    )
    weight, life, one = world.importance, world.life, np.ones(n_pages)
    weighted = weight * life
    return Terms(
        np.column_stack(
            Measures(
                harmonic=weight * harmonic,
                binary=weight * binary,
                harmonic_plain=harmonic,
                binary_plain=binary,
                age_days=weight * aged,
                age_days_plain=aged,
                never_crawled=~_crawled(world, steps),
            )
        ),
        np.column_stack(
            Measures(
                harmonic=weighted,
                binary=weighted,
                harmonic_plain=life,
                binary_plain=life,
                age_days=weighted,
                age_days_plain=life,
                never_crawled=one,
            )
        ),
    )


def measured(sums: Terms) -> Measures:
    """Return the measures of all pages."""
    return Measures(*(sums.above.sum(axis=0) / sums.below.sum(axis=0)).tolist())


def resampled(
    policies: list[Terms], *, rng: np.random.Generator, n_resamples: int = RESAMPLES
) -> Measures:
    """Return measures of `n_resamples` samples of N pages, drawn with replacement.

    Parameters
    ----------
    policies
        (P,) terms of policies in one world.

    Returns
    -------
    (n_resamples, P) of each measure; column p of every row is of the same pages.
    """
    n_pages, n_measures = policies[0].above.shape
    above = np.hstack([sums.above for sums in policies])
    drawn, shares = [], []
    for counts in _counts(n_pages, n_resamples, rng):
        drawn.append((counts @ above).reshape(-1, len(policies), n_measures))
        shares.append(counts @ policies[0].below)
    ratio = np.concatenate(drawn) / np.concatenate(shares)[:, np.newaxis]
    return Measures(*np.moveaxis(ratio, -1, 0))


def interval(resamples: Floats, mass: float = MASS) -> ConfidenceInterval:
    """Return the interval without the same share of the (B,) resamples at both ends.

    NaN resamples, such as 0/0, do not count; if all are NaN, so are both bounds.
    """
    finite = resamples[~np.isnan(resamples)]
    if not finite.size:
        return ConfidenceInterval(np.nan, np.nan)
    low, high = np.quantile(finite, ((1 - mass) / 2, (1 + mass) / 2)).tolist()
    return ConfidenceInterval(low, high)


def _crawled(world: World, steps: Steps) -> Bools:
    """Return a mask of (N,) pages with a crawl: a step other than a creation or a change."""
    crawled: Bools = np.bincount(steps.page, minlength=len(world)) > 1 + np.diff(world.first)
    return crawled


def _counts(n_pages: int, n_resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield (b, N) counts of draws of each page, `n_resamples` rows in all."""
    at_once = max(1, BLOCK // n_pages)
    for start in range(0, n_resamples, at_once):
        rows = min(at_once, n_resamples - start)
        page: Ints = rng.integers(n_pages, size=(rows, n_pages))
        place = page + n_pages * np.arange(rows)[:, np.newaxis]
        counts = np.bincount(place.ravel(), minlength=rows * n_pages)
        yield counts.reshape(rows, n_pages).astype(np.float64)
