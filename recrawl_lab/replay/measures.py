"""What a policy achieved in a world: averages over time and pages, and how sure they are.

Every measure here is a ratio of two sums over pages, so that its value on any resample of the pages
follows from the terms of each page, computed once. Resamples are the same for all policies: what
pages happen to be there moves them together, and their ratios much less.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from recrawl_lab.replay.staleness import Steps, harmonic_numbers
from recrawl_lab.worlds.world import World
from service.model.arrays import Bools, Floats, Ints

RESAMPLES = 1000
MASS = 0.9
"""Of bootstrap intervals."""
BLOCK = 1 << 21
"""Pages drawn at a time."""


class Measures(NamedTuple):
    """Averages over time and pages; each a number, or an array over resamples or policies.

    Where nothing else is said pages weigh by their importance.
    """

    harmonic: Any
    """1 + 1/2 + … + 1/n for n uncrawled changes."""
    binary: Any
    """Share of the time that a page's copy is old."""
    harmonic_plain: Any
    """All pages weigh the same."""
    binary_plain: Any
    age_days: Any
    """Time since the oldest uncrawled change, 0 while there is none."""
    age_days_plain: Any
    never_crawled: Any
    """Share of the pages that were not crawled again after they were found."""


class ConfidenceInterval(NamedTuple):
    """Bounds that hold the middle `MASS` of the resamples."""

    low: float
    high: float


class Terms(NamedTuple):
    """(N, M) terms of each page and measure; a measure is the ratio of the sums over pages."""

    above: Floats
    below: Floats


def terms(world: World, steps: Steps) -> Terms:
    """Integrate each page's penalties over its life."""
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
    """Draw as many pages as there are, with replacement, again and again.

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
    """Cut off the same share of the (B,) resamples at both ends, but for those that say nothing.

    NaN, as of a ratio of nothing to nothing, says nothing; where all do, so does the interval.
    """
    finite = resamples[~np.isnan(resamples)]
    if not finite.size:
        return ConfidenceInterval(np.nan, np.nan)
    low, high = np.quantile(finite, ((1 - mass) / 2, (1 + mass) / 2)).tolist()
    return ConfidenceInterval(low, high)


def _crawled(world: World, steps: Steps) -> Bools:
    """Return which of (N,) pages have a crawl: a step that is no creation and no change."""
    crawled: Bools = np.bincount(steps.page, minlength=len(world)) > 1 + np.diff(world.first)
    return crawled


def _counts(n_pages: int, n_resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield (b, N) how often each page is drawn, `n_resamples` rows in all."""
    at_once = max(1, BLOCK // n_pages)
    for start in range(0, n_resamples, at_once):
        rows = min(at_once, n_resamples - start)
        page: Ints = rng.integers(n_pages, size=(rows, n_pages))
        place = page + n_pages * np.arange(rows)[:, np.newaxis]
        counts = np.bincount(place.ravel(), minlength=rows * n_pages)
        yield counts.reshape(rows, n_pages).astype(np.float64)
