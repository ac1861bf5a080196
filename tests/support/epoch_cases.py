"""A clock that tests move, and corpora with evidence."""

import numpy as np

from service.core.prior import Prior
from service.model.domain import Observability
from support.store_cases import (
    T0,
    register,
    save,
)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, at=T0):
        self.at = at

    def __call__(self):
        return self.at


def watched(store, n=60, seed=1):
    """Register pages with evidence; the last ten are complete."""
    rng = np.random.default_rng(seed)
    ids = np.sort(register(store, n, importance=rng.pareto(1.5, n) + 0.1))
    days = rng.uniform(5, 50, n)
    changes = rng.poisson(rng.gamma(0.5, 0.4, n) * days)
    save(store, ids, estimate=np.column_stack([changes, days]), n_observations=changes)
    register(store, 10, observability=Observability.complete)
    save(store, ids[:10], n_pings=rng.integers(0, 50, 10))
    return ids


def corpus_prior(certificate):
    return Prior(certificate.prior["a"], certificate.prior["b"])
