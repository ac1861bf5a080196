"""The posterior of one page's change rate beside that of its URL group, for a picture. Pure."""

from typing import Any, NamedTuple

import numpy as np

from service.core.estimators.base import Estimator, from_columns
from service.core.estimators.gamma import CompleteObservations, GammaState
from service.core.forecast import rate_density
from service.estimation.ages import at_ages
from service.estimation.estimates import width
from service.model.arrays import Floats, days
from service.model.domain import Observability
from service.model.freshness import FreshnessColumns

N_POINTS = 160
LOWEST, HIGHEST = 1e-5, 1e3
"""Bounds of the picture, 1/day."""
NEGLIGIBLE = 0.003
"""Share of the highest density below which the picture ends."""


class RateDensities(NamedTuple):
    """Densities of the logarithm of the change rate at (N,) rates."""

    rate: Floats
    """1/day, ascending."""
    page: Floats
    url_group: Floats | None
    """Density before the page's own evidence; None: the estimate uses no other pages."""


def rate_densities(
    page: FreshnessColumns, estimator: Estimator[Any], now: np.datetime64
) -> RateDensities | None:
    """Return the densities of one page; None for an estimate without a posterior."""
    rate = np.geomspace(LOWEST, HIGHEST, 4 * N_POINTS)
    if page.observability[0] == Observability.complete:
        watched = np.maximum(days(now - page.pings_since), 0.0)
        counts = GammaState(page.n_pings.astype(np.float64), watched)
        return _visible(rate, rate_density(CompleteObservations(), counts, rate), None)
    pinged = page.observability[0] == Observability.auto and page.n_pings[0] > 0
    if estimator.needs_history or pinged:
        return None
    own = at_ages(estimator.of_url_groups(page.url_group), page, now)
    before = from_columns(own, np.zeros((1, width(estimator))))
    group = None if estimator.url_group_rate is None else rate_density(own, before, rate)
    return _visible(rate, rate_density(own, from_columns(own, page.estimate), rate), group)


def _visible(rate: Floats, page: Floats | None, url_group: Floats | None) -> RateDensities | None:
    """Return the rates at which a density is visible, `N_POINTS` at most."""
    if page is None:
        return None
    highest = page if url_group is None else np.maximum(page, url_group)
    there = np.flatnonzero(highest > NEGLIGIBLE * highest.max())
    part = np.unique(np.linspace(there[0], there[-1], N_POINTS).astype(np.int64))
    return RateDensities(rate[part], page[part], None if url_group is None else url_group[part])
