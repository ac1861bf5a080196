"""A corpus whose pages siblings make urgent, as one part."""

from dataclasses import replace

import numpy as np

from service.core.common_values import alone
from service.epochs import urgency as module
from service.estimation.estimates import RateEstimates
from service.model.arrays import INSTANT
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability
from support.store_cases import columns

NOW = np.datetime64("2026-05-01T12:00", "us")
DAY, HOUR = np.timedelta64(1, "D"), np.timedelta64(1, "h")
NO_CAPS = CapColumns.empty()


def urgency(*arguments, **more):
    """Return the result for one part alone."""
    return alone(module.urgency(*arguments, **more))


def corpus(n=1_000, seed=1, **given):
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 20, n)
    values = {
        "page_id": np.arange(1, n + 1),
        "importance": 1.0,
        "observability": Observability.auto,
        "min_crawl_rate": np.nan,
        "max_crawl_rate": np.nan,
        "host_id": 1 + np.arange(n) % 7,
        "n_pings": 0,
        "recent_pings": 0.0,
        "real_pings": 0.0,
        "false_pings": 0.0,
        "trust": 0.0,
        "n_observations": 9,
        "url_group": rng.integers(0, n // 20, n),
        "interval_factor": rng.uniform(0.9, 1.1, n),
        "last_age": np.nan,
        "cost": 0.0,
        "last_interval": rng.exponential(10, n) * rng.choice([-1, -1, -1, 1], n),
    }
    for name in ("pings_since", "last_ping_at", "last_observed_at", "last_failure_at", "born_at"):
        values[name] = np.datetime64("NaT", "us")
    values["estimate"] = 0.0
    pages = columns(EpochColumns, n, **(values | given))
    crawled = (NOW - age * 86_400e6 * np.timedelta64(1, "us")).astype(INSTANT)
    return replace(pages, last_observed_at=crawled), age


def known(n, change_rate=0.02, ping_rate=0.0):
    every = (np.full(n, value) for value in (change_rate, 0.0, 1.0, ping_rate))
    return RateEstimates(*every)
