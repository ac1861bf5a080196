"""The likeliest change rate without a prior, as in A22 and GF08.

The service always adds two imaginary crawls, so that no page is an edge case. The papers show the
edge cases without these crawls.
"""

from typing import NamedTuple

import numpy as np

from service.core.estimators.likelihood import Likelihood, Terms, likeliest_rate
from service.model.arrays import Bools, Floats

NEITHER, NO_TIME, ALWAYS = 0, 1, 2
"""Kinds of histories: some crawls found changes, none did, or all did."""


class Estimate(NamedTuple):
    """(N,) change rates, per unit of the intervals, and marks of substitutes."""

    change_rate: Floats
    edge: Floats
    """(N,) NEITHER, NO_TIME or ALWAYS."""


def plain_likelihood(interval: Floats, changed: Bools) -> Estimate:
    """Return the likeliest rates without a prior (GF08's equation 2), with its two substitutes.

    A page that never changed counts as one change in its whole observed time. A page that changed
    at every crawl counts as one change in its shortest interval (CG03's advice).

    Parameters
    ----------
    interval, changed : (K, N)
    """
    n_changed = changed.sum(axis=0)
    edge = np.where(n_changed == 0, NO_TIME, np.where(n_changed == len(changed), ALWAYS, NEITHER))

    def sum_changed(terms: Terms, rate: Floats) -> tuple[Floats, ...]:
        return tuple((term * changed).sum(axis=0) for term in terms(rate * interval))

    likelihood = Likelihood(
        n_changed.astype(np.float64),
        (interval * changed).sum(axis=0),
        (interval * ~changed).sum(axis=0),
        sum_changed,
    )
    rate = likeliest_rate(likelihood, edge == NEITHER)
    substitute = 1.0 / np.where(edge == NO_TIME, interval.sum(axis=0), interval.min(axis=0))
    return Estimate(np.where(edge == NEITHER, rate, substitute), edge)
