"""Time the updates of the estimators and the fits of the prior.

A time is a median: of an update, for an observation in batches; of a fit, of the whole fit.
"""

import statistics
import timeit
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from service.core.estimators.base import Estimator
from service.core.estimators.gamma import CompleteObservations, Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.lognormal import LogNormal
from service.core.estimators.mle import BinnedMLE
from service.core.estimators.mm import MM
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.core.pooling import fit_url_groups
from service.core.prior import Prior, fit_gamma_prior

SEED = 20220901
PAGES_A_URL_GROUP = 30
TARGETS = {"update gamma": 60.0, "update sa": 15.0, "prior fit": 0.3}
CRAWL_RATE = 3.0
PRIOR = Prior(0.5, 0.5 / CRAWL_RATE)
ESTIMATORS: tuple[Estimator[Any], ...] = (
    Naive(PRIOR),
    LLN(prior=PRIOR),
    SA(0.75, PRIOR),
    SAM(0.75, 0.6, prior=PRIOR),
    MM(prior=PRIOR),
    BinnedMLE(shortest=1e-3 / CRAWL_RATE, prior=PRIOR),
    Gamma(PRIOR),
    LogNormal(PRIOR),
    CompleteObservations(),
    Gamma(half_life_days=365.0),
)
"""Estimators whose memory is constant."""


def seconds(call: Any, repeats: int) -> float:
    call()
    return statistics.median(timeit.repeat(call, number=1, repeat=repeats))


def update_times(batch: int, repeats: int) -> dict[str, float]:
    """Return nanoseconds per observation of each estimator whose memory is constant."""
    rng = np.random.default_rng(SEED)
    interval, changed = rng.exponential(3.0, batch), rng.random(batch) < 0.4
    crawl_rate = np.full(batch, 0.3)
    times = {}
    for estimator in ESTIMATORS:
        state = estimator.init(batch)
        for _ in range(3):
            state = estimator.update(state, interval, changed, crawl_rate)
        per_call = seconds(
            lambda e=estimator, s=state: e.update(s, interval, changed, crawl_rate), repeats
        )
        fading = getattr(estimator, "half_life_days", None) is not None
        times[estimator.name + (" with drift" if fading else "")] = per_call / batch * 1e9
    return times


def url_groups_fit_time(pages: int, n_url_groups: int, repeats: int) -> float:
    """Return the seconds of `fit_url_groups` with groups that differ as much as pages within."""
    rng = np.random.default_rng(SEED)
    url_group = rng.integers(0, n_url_groups, pages)
    days = rng.exponential(200.0, pages)
    mean = rng.gamma(1.0, 0.01, n_url_groups)[url_group]
    changes = rng.poisson(rng.gamma(1.0, mean) * days).astype(np.float64)
    corpus = fit_gamma_prior(changes, days)
    return seconds(lambda: fit_url_groups(changes, days, url_group, corpus, n_url_groups), repeats)


def prior_fit_time(pages: int, repeats: int) -> float:
    rng = np.random.default_rng(SEED)
    days = rng.exponential(60.0, pages)
    changes = rng.poisson(rng.gamma(0.5, 1 / 15.0, pages) * days).astype(float)
    return seconds(lambda: fit_gamma_prior(changes, days), repeats)


def timings(batch: int = 10_000, pages: int = 1_000_000, repeats: int = 51) -> list[dict[str, Any]]:
    """Return the rows of the second table of `benchmarks.core`: name, figure, unit, target."""
    rows = [
        (f"update {name}", ns, f"ns, batch of {batch:,}")
        for name, ns in update_times(batch, repeats).items()
    ]
    rows.append(("prior fit", prior_fit_time(pages, 5), f"s, {pages:,} pages"))
    n_url_groups = pages // PAGES_A_URL_GROUP
    fit_unit = f"s, {pages:,} pages in {n_url_groups:,} url_groups"
    rows.append(("url_groups fit", url_groups_fit_time(pages, n_url_groups, 5), fit_unit))
    return [
        {"what": what, "figure": figure, "unit": unit, "target": TARGETS.get(what)}
        for what, figure, unit in rows
    ]


def show_timings(console: Console, rows: list[dict[str, Any]]) -> None:
    view = Table("", "median", "target", "unit", title="Estimators")
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:g}"
        view.add_row(row["what"], f"{row['figure']:.3g}", target, row["unit"])
    console.print(view)
