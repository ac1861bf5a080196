"""Columns of logical shards that a benchmark makes instead of reading them."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from service.core.estimators import make_estimator
from service.epochs.inputs import Input, Task, divided
from service.epochs.plan import Plan
from service.model.arrays import INSTANT, NO_TIME, SHARD_BITS, instant
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability
from service.model.urls import URL_GROUPS

NOW = instant(datetime(2026, 5, 31, 12, tzinfo=UTC))
PLAN = Plan(make_estimator("bursty", half_life_days=180.0), change_hours=False)
A_HOST = 100
"""Pages of a host."""


@dataclass(frozen=True)
class Made:
    """Columns of logical shards, as the database of a shard."""

    shards: tuple[int, ...]
    n_pages: int
    """Pages of each logical shard."""

    def load(self, task: Task) -> dict[int, Input]:
        """Return the input of each logical shard."""
        pages = EpochColumns.concatenate([made(shard, self.n_pages) for shard in self.shards])
        hosts = np.unique(pages.host_id)
        hosts = hosts[hosts % 100 == 0]
        caps = CapColumns(
            host_id=hosts,
            host=np.full(len(hosts), "", object),
            max_crawl_rate=np.full(len(hosts), 2.0),
            group_id=np.zeros(len(hosts), np.int64),
            group=np.full(len(hosts), "", object),
            group_max_crawl_rate=np.full(len(hosts), np.nan),
        )
        return divided(Input(pages, caps, task.plan.estimator, None, None, None))

    def prepare(self, *_: object) -> None:
        """Write nothing."""


def made(shard: int, n: int) -> EpochColumns:
    """Return the pages of a logical shard: hosts, URL groups, bounds and pings."""
    rng = np.random.default_rng(shard)
    first = shard << SHARD_BITS
    host = np.arange(n) // A_HOST + 1
    days = rng.exponential(60, n)
    changes = rng.poisson(rng.gamma(0.5, 0.3, n) * days).astype(np.float64)
    pinged = rng.random(n) < 0.05
    low = np.where(rng.random(n) < 0.01, 0.01, np.nan)
    age = (rng.exponential(3, n) * 86_400e6).astype("m8[us]")
    return EpochColumns(
        page_id=first + 1 + np.arange(n),
        importance=rng.pareto(1.5, n) + 0.1,
        observability=np.full(n, Observability.auto, np.int16),
        host_id=first + host,
        url_group=(shard * URL_GROUPS + host * 7 + rng.integers(0, 3, n)).astype(np.int32),
        last_observed_at=(NOW - age).astype(INSTANT),
        last_interval=rng.exponential(3, n) * rng.choice([-1, 1], n),
        n_observations=rng.poisson(20, n),
        interval_factor=rng.uniform(0.95, 1.05, n),
        estimate=np.column_stack((changes, days, np.zeros(n))),
        min_crawl_rate=low,
        max_crawl_rate=np.full(n, np.nan),
        n_pings=np.where(pinged, 5, 0),
        recent_pings=np.where(pinged, 5.0, 0.0),
        pings_since=np.full(n, NOW - np.timedelta64(30, "D")),
        last_ping_at=np.where(pinged, NOW - np.timedelta64(5, "h"), NO_TIME).astype(INSTANT),
        real_pings=np.where(pinged, 3.0, 0.0),
        false_pings=np.where(pinged, 1.0, 0.0),
        trust=np.zeros(n),
        last_age=np.full(n, np.nan),
        last_failure_at=np.full(n, NO_TIME),
        cost=np.zeros(n),
        born_at=np.full(n, NO_TIME),
    )


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
