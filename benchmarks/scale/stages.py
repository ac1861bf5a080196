"""CPU seconds of the stages of an epoch, without a database.

    python -m benchmarks.scale.stages [--pages 1000000] [--hosts 1 20000] [--every day]
        [--born 0] [--epochs 3]

Each page is crawled once in five days, at random. Epochs follow each other, each with what the last
one learnt. So the first ones are not counted. A host has five URL groups, and `--born` is the share
of pages with a known birth. The figures are medians.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.core.change_hours.screens import NUMBERS
from service.core.common_values import alone
from service.core.estimators import make_estimator
from service.epochs.change_hours import Hours, lesson
from service.epochs.inputs import Input, Task
from service.epochs.part import Stages
from service.epochs.plan import Plan
from service.epochs.urgency import LastEpoch, since
from service.model.arrays import INSTANT, NO_TIME, element_types, instant
from service.model.columns import (
    CapColumns,
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupProfiles,
    GroupScreens,
    HostHours,
    ShiftColumns,
)
from service.model.domain import Certificate, Epoch, EpochStatus
from service.model.urls import URL_GROUPS

START = datetime(2026, 5, 31, 12, tzinfo=UTC)
EVERY = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
CRAWL_RATE = 0.2
"""Crawls a page and day."""
GROUPS = 5
"""URL groups of a host."""
WARM_UP = 3
"""Epochs that are not counted."""
PLAN = Plan(make_estimator("bursty", half_life_days=180.0), host_delay_s=1.0)
PROFILE = (1 + TERMS,)


class Seconds(NamedTuple):
    """CPU seconds of the stages of an epoch."""

    lesson: float
    """Crawls that teach change hours, which the load looks for."""
    estimate: float
    allocate: float


class World:
    """Pages that are crawled at random, and what epochs have learnt about them."""

    def __init__(self, n: int, n_hosts: int, born: float) -> None:
        self.rng = rng = np.random.default_rng(7)
        self.rate, self.last = rng.gamma(0.5, 0.2, n), None
        self.fitted, self.evidence, self.revisions = PLAN.estimator, None, None
        self.hosts = HostHours.empty(profile=PROFILE)
        self.groups = GroupProfiles.empty(profile=PROFILE)
        self.learnt = ChangeHours.empty(evidence=(WIDTH,), profile=PROFILE)
        self.records = GroupHours.empty(evidence=(WIDTH,), profile=PROFILE)
        self.screens = GroupScreens.empty(numbers=(NUMBERS,))
        group = rng.integers(0, GROUPS * n_hosts, n)
        length = rng.exponential(1 / CRAWL_RATE, n) + 0.01
        ago = self.span(rng.exponential(1 / CRAWL_RATE, n))
        columns: dict[str, Any] = {}
        for name, kind in element_types(EpochColumns).items():
            columns[name] = np.full(n, NO_TIME if kind == INSTANT else np.zeros((), kind))
        is_born = rng.random(n) < born
        birth = instant(START) - self.span(rng.uniform(5, 200, n))
        self.pages = EpochColumns(
            **columns
            | {
                "page_id": np.arange(1, n + 1),
                "host_id": 1 + group // GROUPS,
                "url_group": (group * 7919 % URL_GROUPS).astype(np.int32),
                "importance": np.exp(rng.normal(0, 1.5, n)),
                "n_observations": np.full(n, 10),
                "interval_factor": rng.uniform(0.95, 1.05, n),
                "last_observed_at": instant(START) - ago,
                "last_interval": np.where(self.changes(length, self.rate), length, -length),
                "estimate": np.column_stack(
                    (np.minimum(rng.poisson(self.rate * length * 10), 10), length * 10, np.zeros(n))
                ),
                "born_at": np.where(is_born, birth, NO_TIME),
                **{name: np.full(n, np.nan) for name in ("min_crawl_rate", "max_crawl_rate")},
                "last_age": np.full(n, np.nan),
            }
        )

    def span(self, days: Any) -> Any:
        """Return days as time spans."""
        return (np.asarray(days) * 86_400e6).astype("m8[us]")

    def changes(self, length: Any, rate: Any) -> Any:
        """Return which pages change within some days."""
        return self.rng.random(len(length)) < -np.expm1(-rate * length)

    def crawl(self, began: datetime, days: float) -> None:
        """Crawl pages at random for some days."""
        pages, rng = self.pages, self.rng
        row = np.flatnonzero(rng.random(len(pages)) < -np.expm1(-CRAWL_RATE * days))
        at = instant(began) + self.span(rng.random(row.size) * days)
        length = np.maximum((at - pages.last_observed_at[row]) / np.timedelta64(1, "D"), 1e-3)
        changed = self.changes(length, self.rate[row])
        names = "last_observed_at", "last_interval", "estimate", "n_observations"
        after: dict[str, Any] = {name: getattr(pages, name).copy() for name in names}
        after["last_observed_at"][row] = at
        after["last_interval"][row] = np.where(changed, length, -length)
        after["estimate"][row, :2] += np.column_stack((changed, length))
        after["n_observations"][row] += 1
        self.pages = replace(pages, **after)

    def epoch(self, number: int, began: datetime, at: datetime) -> Seconds:
        """Run an epoch; return its CPU seconds."""
        times = [time.process_time()]
        events = lesson(self.pages, since(LastEpoch.of(self.last), instant(at)), instant(at))
        taught = np.unique(events.host_id)
        hours = Hours(
            self.hosts,
            ShiftColumns.empty(),
            events,
            self.learnt.where(np.isin(self.learnt.host_id, taught)),
            PLAN.host_delay_s,
            self.groups,
            self.records.where(np.isin(self.records.host_id, taught)),
            self.screens.where(np.isin(self.screens.host_id, taught)),
        )
        times.append(time.process_time())
        columns = self.pages, CapColumns.empty(), self.fitted, self.evidence, hours, None
        stages = Stages(Task(PLAN, self.last, at), Input(*columns, revisions=self.revisions))
        alone(stages.estimate())
        times.append(time.process_time())
        certificate: Certificate = alone(stages.allocate())
        times.append(time.process_time())
        self.keep(stages, certificate)
        self.last = Epoch(number, EpochStatus.published, began, at, at, None, certificate)
        return Seconds(*np.diff(times).tolist())

    def keep(self, stages: Stages, certificate: Certificate) -> None:
        """Keep what an epoch has learnt, as a store does."""
        tables = stages.tables()
        self.fitted = PLAN.estimator.with_corpus(certificate.prior, tables.url_group_rate)
        self.evidence, self.revisions = stages.evidence, stages.revisions
        assert stages.change_hours is not None
        new, records, screens = stages.change_hours
        self.learnt = joined(self.learnt, new)
        self.records, self.screens = joined(self.records, records), joined(self.screens, screens)
        in_force = self.learnt.take(self.learnt.profile[:, 0] > 0)
        delay = np.full(len(in_force), np.nan)
        self.hosts = HostHours(host_id=in_force.host_id, profile=in_force.profile, delay_s=delay)
        some = self.records.where(self.records.in_force)
        delay = np.full(len(some), np.nan)
        columns = some.host_id, some.url_group, some.certain, some.profile
        names = "host_id", "url_group", "certain", "profile"
        named = dict(zip(names, columns, strict=True))
        self.groups = GroupProfiles(**named, delay_s=delay)


def joined(old: Any, new: Any) -> Any:
    """Return rows of hosts, or of groups, in place of older ones."""
    key, other = (rows.host_id * URL_GROUPS for rows in (old, new))
    if hasattr(old, "url_group"):
        key, other = key + old.url_group, other + new.url_group
    both = type(old).concatenate([old.where(~np.isin(key, other)), new])
    of_groups = (both.url_group,) if hasattr(both, "url_group") else ()
    return both.take(np.lexsort((*of_groups, both.host_id)))


def epochs(n: int, n_hosts: int, every: timedelta, born: float) -> Iterator[Seconds]:
    """Yield the CPU seconds of epochs, without end."""
    world, at, number = World(n, n_hosts, born), START, 0
    while True:
        world.crawl(at, every / EVERY["day"])
        began, at, number = at, at + every, number + 1
        yield world.epoch(number, began, at)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.stages", description=__doc__.splitlines()[0]
    )
    options.add_argument("--pages", type=lambda text: int(float(text)), default=1_000_000)
    options.add_argument("--hosts", type=int, nargs="+", default=[1, 20_000])
    options.add_argument("--every", choices=EVERY, nargs="+", default=list(EVERY))
    options.add_argument("--born", type=float, default=0.0)
    options.add_argument("--epochs", type=int, default=3)
    asked = options.parse_args()
    for n_hosts in asked.hosts:
        for every in asked.every:
            several = epochs(asked.pages, n_hosts, EVERY[every], asked.born)
            counted = [next(several) for _ in range(WARM_UP + asked.epochs)][WARM_UP:]
            of_each = Seconds(*np.median(counted, axis=0).tolist())
            stages = ", ".join(f"{name} {s:.3f}" for name, s in of_each._asdict().items())
            print(f"{n_hosts} hosts, an epoch a {every}: {stages} s of CPU", flush=True)


if __name__ == "__main__":
    main()
