"""Common parts of GF08's figures: a corpus of change rates, and pages crawled by estimates.

Rates are per hour and intervals in hours, as in the paper; estimators accept any unit. The
paper's corpus, 10,000 pages of a PageRank-directed crawl, was never published. Log-normal rates
with a median of one change in ten days replace it, or the pages of a recording.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.experiments.base import Setup
from recrawl_lab.experiments.plain import ALWAYS, NEITHER, Estimate, plain_likelihood
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from service.core.estimators.likelihood import Likelihood, Terms, likeliest_rate
from service.model.arrays import Bools, Floats

DAY = 24.0
MEDIAN_PERIOD, LOG_DEVIATION = 10.0 * DAY, 0.8
"""Parameters of the substitute corpus: median hours between two changes, and log deviation.

The deviation is about the largest that two imaginary intervals fit. They fitted the paper's corpus
(figure 6).
"""
CHANGES_SEEN = 25
"""Number of crawls with a change after which a page of the corpus is complete."""
WATCH_INTERVAL = DAY
"""Time between crawls of a page of the corpus, hours; the paper does not specify it."""
LEAST_CHANGES = 5
"""Minimum number of changes of a recorded page whose rate counts as the true rate."""
STAND_IN = (
    "the paper's corpus is not published; log-normal change rates with a median of one in "
    f"{MEDIAN_PERIOD / DAY:g} days stand in, or with --trace DIR/SITE those of a recording's "
    f"pages with at least {LEAST_CHANGES} changes"
)

Estimated = Callable[[Floats, Bools], Estimate]
"""Function from the (K, N) intervals and changes so far to an estimate."""


class Paths(NamedTuple):
    """(K, N) results of K crawls of N pages."""

    interval: Floats
    changed: Bools
    period: Floats
    """Estimated time between changes after each crawl, hours."""
    edge: Floats


def corpus(setup: Setup, rng: np.random.Generator, n_pages: int) -> Floats:
    """Return (N,) true change rates, 1/hour.

    Raises
    ------
    InvalidTrace
        The recording has no page with enough changes.
    """
    if setup.trace is None:
        return rng.lognormal(-np.log(MEDIAN_PERIOD), LOG_DEVIATION, n_pages)
    world = recorded_world(read_trace(setup.trace), rng=rng)
    frequent = np.diff(world.first) >= LEAST_CHANGES
    if not frequent.any():
        raise InvalidTrace(
            f"{setup.trace}: no page has {LEAST_CHANGES} changes; use a recording with more changes"
        )
    return rng.choice(world.change_rate[frequent], n_pages) / DAY


def watched(rng: np.random.Generator, change_rate: Floats) -> Estimate:
    """Return the estimates after daily crawls until 25 crawls found a change (section 4.2)."""
    n_changes = np.full(len(change_rate), float(CHANGES_SEEN))
    chance = -np.expm1(-change_rate * WATCH_INTERVAL)
    quiet = np.asarray(rng.negative_binomial(CHANGES_SEEN, chance) * WATCH_INTERVAL, np.float64)

    def sum_changed(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
        return tuple(CHANGES_SEEN * term for term in terms(rate * WATCH_INTERVAL))

    likelihood = Likelihood(n_changes, n_changes * WATCH_INTERVAL, quiet, sum_changed)
    rate = likeliest_rate(likelihood, quiet > 0)
    return Estimate(
        np.where(quiet > 0, rate, 1.0 / WATCH_INTERVAL), np.where(quiet > 0, NEITHER, ALWAYS)
    )


def follow(
    rng: np.random.Generator,
    change_rate: Floats,
    first: Floats,
    n_crawls: int,
    *,
    share: float = 1.0,
    estimated: Estimated = plain_likelihood,
) -> Paths:
    """Crawl N pages K times, each time after `share` of the estimated time between changes.

    Parameters
    ----------
    change_rate, first : (N,)
        True rates, 1/hour, and the time to the first crawl, hours.
    """
    shape = (n_crawls, len(change_rate))
    interval, changed = np.empty(shape), np.empty(shape, np.bool_)
    period, edge = np.empty(shape), np.empty(shape)
    hours = first
    for k in range(n_crawls):
        interval[k] = hours
        changed[k] = rng.random(len(hours)) < -np.expm1(-change_rate * hours)
        likeliest = estimated(interval[: k + 1], changed[: k + 1])
        period[k], edge[k] = 1.0 / likeliest.change_rate, likeliest.edge
        hours = share * period[k]
    return Paths(interval, changed, period, edge)


def absolute_deviation(period: Floats, change_rate: Floats) -> float:
    """Return the median error of estimated times between changes, hours (the paper's MAD)."""
    return float(np.median(np.abs(period - 1.0 / change_rate)))
