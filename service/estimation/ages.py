"""Ages of pages whose birth is known, as estimates read them (`core.ages`). Pure."""

from typing import Any, Protocol

import numpy as np

from service.core.estimators.base import Estimator
from service.model.arrays import Floats, Instants, Ints, days

DAYS = 1
"""Column of the evidence in days, in the states of estimators that use ages."""


class Born(Protocol):
    """Columns of pages with their births and evidence."""

    @property
    def born_at(self) -> Instants:
        """Birth; NaT: not known, so that the page counts as old."""

    @property
    def last_observed_at(self) -> Instants:
        """Last answered crawl; NaT: none."""

    @property
    def estimate(self) -> Floats:
        """(N, width) states of the estimator."""


def at_ages(
    estimator: Estimator[Any], pages: Born, at: Any, *, since_crawl: bool = False
) -> Estimator[Any]:
    """Return the estimator that reads the states of pages at some instants; `at` is one, or (N,).

    The rate is that of the instant, or with `since_crawl` the mean from the last crawl to it.
    """
    if estimator.profile is None:
        return estimator
    row = np.flatnonzero(~np.isnat(pages.born_at))
    age = age_at_crawl(pages, row)
    instants = np.asarray(at)
    now = days((instants[row] if instants.ndim else instants) - pages.born_at[row])
    now = np.maximum(now, age)
    profile = estimator.profile
    present = profile.between(age, now) if since_crawl else profile.at(now)
    return estimator.aged(row, age, pages.estimate[row, DAYS], present)


def age_at_crawl(pages: Born, row: Ints) -> Floats:
    """Return the ages of pages at their last crawl, 0 for pages that were never crawled."""
    return np.fmax(days(pages.last_observed_at[row] - pages.born_at[row]), 0.0)
