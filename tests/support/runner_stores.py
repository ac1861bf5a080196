"""Epochs over three real databases: a corpus, the runners, and what they publish."""

from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.model.domain import EpochStatus, Observability, PagePatch
from support.epoch_cases import Clock
from support.runner_cases import Haunted
from support.shard_cases import LOGICAL, host_in, joined_store
from support.store_cases import T0, instants, read_schedule, register, save

PLAN = Plan(Gamma(), bandwidth=60.0)
LATER = T0 + timedelta(days=30)
HOSTS = [host_in(position, n) for position in range(3) for n in range(4)]


def filled(store):
    """Register hosts of all databases, with caps, a group, bounds and pings; return the ids."""
    rng, every = np.random.default_rng(5), []
    for host in HOSTS:
        n = int(rng.integers(10, 30))
        ids = np.sort(register(store, n, host=host, importance=rng.pareto(1.5, n) + 0.1))
        days = rng.uniform(5, 50, n)
        changes = rng.poisson(rng.gamma(0.5, 0.4, n) * days)
        crawled = instants([LATER - timedelta(hours=float(h)) for h in rng.uniform(1, 60, n)])
        save(
            store,
            ids,
            estimate=np.column_stack([changes, days]),
            n_observations=changes + 4,
            last_observed_at=crawled,
            last_interval=rng.exponential(2, n) * rng.choice([-1, 1], n),
        )
        register(store, 2, host=host, observability=Observability.complete)
        save(store, ids[:2], n_pings=rng.integers(1, 50, 2))
        save(
            store,
            ids[4:7],
            n_pings=40,
            recent_pings=15.0,
            real_pings=20.0,
            false_pings=5.0,
            last_ping_at=LATER,
        )
        with store.begin() as tx:
            tx.change_page(int(ids[9]), PagePatch(min_crawl_rate=0.5), T0)
            tx.change_page(int(ids[8]), PagePatch(max_crawl_rate=0.05), T0)
        every.append(ids)
    with store.begin() as tx:
        change_host(tx, HOSTS[0], {"max_crawl_rate": 1.0}, T0, Politeness())
        group = {"max_crawl_rate": 4.0}, [HOSTS[5]], T0, Politeness()
        change_group(tx, "server", *group)
    return np.sort(np.concatenate(every))


class Published(NamedTuple):
    """All that an epoch has published."""

    certificate: dict
    rows: list
    tables: dict

    @classmethod
    def by(cls, store, epoch):
        assert epoch.status is EpochStatus.published, epoch.reason
        with store.begin(write=False) as tx:
            tables = {n: tx.url_group_rate(epoch.epoch, n) for n in range(LOGICAL)}
        certificate = asdict(replace(epoch.certificate, seconds={}))
        rows = read_schedule(store, epoch.epoch)
        return cls(certificate, rows, {n: t for n, t in tables.items() if t is not None})


def assert_equal(one, other):
    """Compare all bits."""
    assert one.certificate == other.certificate
    assert one.rows == other.rows
    assert one.tables.keys() == other.tables.keys()
    for shard, rates in one.tables.items():
        np.testing.assert_array_equal(rates, other.tables[shard])


def published(urls, spread, *, last=None):
    """Return what two epochs of a new store publish; `last` is the runner of the second."""
    with closing(joined_store(urls, 2)) as store:
        filled(store)
        clock = Clock(LATER)
        run_epoch(store, PLAN, clock, spread)
        clock.at += timedelta(hours=6)
        return Published.by(store, run_epoch(store, PLAN, clock, last or spread))


def troubled(spread, signals, asked=None):
    """Return a runner whose processes get signals before some questions, which `asked` counts."""

    @contextmanager
    def opened(store, lead, task):
        with spread(store, lead, task) as parts:
            haunted = Haunted(parts, signals)
            yield haunted
            if asked is not None:
                asked.append(haunted.n_asked)

    return opened
