"""Corpora in logical shards with hosts, caps, bounds, pings, change hours; and runs over them."""

import pickle
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from service.core.change_hours.profile import TERMS
from service.core.estimators import make_estimator
from service.core.shared_changes import SHARES, ShareEvidence
from service.epochs.change_hours import Hours, lesson
from service.epochs.inputs import Input, Task, divided
from service.epochs.part import Run
from service.epochs.parts import InProcess
from service.epochs.plan import Plan
from service.epochs.run import computed
from service.epochs.urgency import LastEpoch, since
from service.model.arrays import INSTANT, NO_TIME, SHARD_BITS, instant
from service.model.columns import (
    CapColumns,
    ChangeHours,
    EpochColumns,
    GroupProfiles,
    HostHours,
    ScheduleColumns,
    ShiftColumns,
)
from service.model.domain import Epoch, EpochStatus, Observability
from service.model.urls import URL_GROUPS
from support.store_cases import CERTIFICATE

AT = datetime(2026, 5, 31, 12, tzinfo=UTC)
NOW = instant(AT)
PLAN = Plan(make_estimator("bursty", half_life_days=180.0))


def task(last=None, plan=PLAN):
    return Task(plan, last, AT)


def epoch_before(**numbers):
    """Return a published epoch six hours before `AT`."""
    certificate = replace(CERTIFICATE, budget_factor=1.07, **numbers)
    started_at = AT - timedelta(hours=6)
    return Epoch(1, EpochStatus.published, *[started_at] * 3, certificate=certificate)


def corpus(seed, sizes, *, caps=True, groups=True, bounds=True, pings=True, change_hours=True):
    """Return the input of all logical shards, which have `sizes` pages: number by shard."""
    rng = np.random.default_rng(seed)
    parts = [_pages(rng, shard, n, bounds, pings) for shard, n in sorted(sizes.items())]
    pages = EpochColumns.concatenate(parts or [_pages(rng, 0, 0, bounds, pings)])
    hosts = np.unique(pages.host_id)
    return Input(
        pages,
        _caps(rng, hosts, groups) if caps else CapColumns.empty(),
        PLAN.estimator,
        None,
        _change_hours(rng, hosts, pages) if change_hours else None,
        None,
    )


def _pages(rng, shard, n, bounds, pings):
    first = shard << SHARD_BITS
    ids = first + 1 + np.cumsum(rng.integers(1, 4, n))
    host = rng.integers(1, 2 + n // 20, n)
    age = np.where(rng.random(n) < 0.9, rng.exponential(2.0, n), np.nan)
    never = np.isnan(age)
    crawled = NOW - (np.nan_to_num(age) * 86_400e6).astype("m8[us]")
    pinged = (rng.random(n) < 0.2) & pings
    n_pings = np.where(pinged, rng.poisson(5, n) + 1, 0)
    asked = (rng.random(n) < 0.1) & bounds
    low = np.where(asked, rng.uniform(0.001, 0.01, n), np.nan)
    complete = (rng.random(n) < 0.05) & pings
    days = np.where(never, 0.0, rng.exponential(30, n))
    changes = rng.poisson(rng.gamma(0.5, 0.3, n) * days)
    return EpochColumns(
        page_id=ids,
        importance=np.where(rng.random(n) < 0.03, 0.0, rng.pareto(1.5, n) + 0.1),
        observability=np.where(complete, Observability.complete, Observability.auto).astype("i2"),
        host_id=first + host,
        url_group=(shard * URL_GROUPS + host * 7 + rng.integers(0, 3, n)).astype("i4"),
        last_observed_at=np.where(never, NO_TIME, crawled).astype(INSTANT),
        last_interval=np.where(never, 0.0, rng.exponential(3, n) * rng.choice([-1, 1], n)),
        n_observations=rng.poisson(6, n),
        interval_factor=rng.uniform(0.9, 1.1, n),
        estimate=np.column_stack((changes, days, changes * rng.random(n))),
        min_crawl_rate=low,
        max_crawl_rate=np.where(asked & (rng.random(n) < 0.5), low * 30, np.nan),
        n_pings=n_pings,
        recent_pings=n_pings.astype(np.float64),
        pings_since=np.full(n, NOW - np.timedelta64(30, "D")),
        last_ping_at=np.where(n_pings > 0, NOW - np.timedelta64(5, "h"), NO_TIME).astype(INSTANT),
        real_pings=np.where(pinged, rng.uniform(0, 4, n), 0.0),
        false_pings=np.where(pinged, rng.uniform(0, 2, n), 0.0),
        trust=np.zeros(n),
        last_age=np.where(rng.random(n) < 0.3, rng.exponential(1.0, n), np.nan),
        last_failure_at=np.where(ids % 10 == 3, NOW - np.timedelta64(2, "h"), NO_TIME),
        cost=np.zeros(len(ids)),
        born_at=np.where(ids % 3 == 0, NOW - np.timedelta64(40, "D"), NO_TIME),
    )


def _caps(rng, hosts, groups):
    some = hosts[rng.random(len(hosts)) < 0.3]
    grouped = (rng.random(len(some)) < 0.4) & groups
    group = np.where(grouped, (some >> SHARD_BITS << SHARD_BITS) + 1, 0)
    return CapColumns(
        host_id=some,
        host=np.array([f"h{i}" for i in some], object),
        max_crawl_rate=np.where(
            rng.random(len(some)) < 0.8, rng.uniform(0.1, 2, len(some)), np.nan
        ),
        group_id=group,
        group=np.array([f"g{i}" for i in group], object),
        group_max_crawl_rate=np.where(grouped, 1.5, np.nan),
    )


def _change_hours(rng, hosts, pages):
    some = hosts[rng.random(len(hosts)) < 0.2]
    profile = np.zeros((len(some), 1 + TERMS))
    profile[:, :2] = 0.9, 1.0
    profile[:, 2:10] = 2.0 * (-1.0) ** np.arange(1, 9)
    learning = lesson(pages, since(LastEpoch.of(epoch_before()), NOW), NOW)
    known = HostHours(host_id=some, profile=profile, delay_s=np.full(len(some), np.nan))
    none = ChangeHours.empty(evidence=(223,), profile=(1 + TERMS,))
    groups = _groups(some[::2], profile[::2], pages)
    return Hours(known, ShiftColumns.empty(), learning, none, 1.0, groups)


def _groups(host_id, profile, pages):
    """Return one URL group of some hosts, six hours away from their hours."""
    first = dict(zip(pages.host_id.tolist(), pages.url_group.tolist(), strict=True))
    kept = np.array([int(h) in first for h in host_id], np.bool_)
    profile = profile[kept].copy()
    profile[:, 2::2] *= -1.0
    return GroupProfiles(
        host_id=host_id[kept],
        url_group=np.array([first[h] for h in host_id[kept].tolist()], np.int32),
        certain=np.full(len(profile), 0.5),
        profile=profile,
        delay_s=np.full(len(profile), np.nan),
    )


class Columns:
    """Logical shards in memory, as the database of a shard; it keeps what is prepared."""

    prepared = learnt = None

    def __init__(self, inputs):
        self.inputs = inputs

    def load(self, work):
        return self.inputs or divided(corpus(0, {}, change_hours=work.plan.with_change_hours))

    def prepare(self, _, schedule, learnt):
        self.prepared, self.learnt = schedule, learnt


class Filed(Columns):
    """Logical shards that a file keeps what is prepared of, for other processes."""

    def __init__(self, inputs, path):
        self.inputs, self.path = inputs, path

    def prepare(self, epoch, schedule, learnt):
        part = self.path.with_suffix(".part")
        part.write_bytes(pickle.dumps((schedule, learnt._replace(of_shards={**learnt.of_shards}))))
        part.replace(self.path)

    @property
    def prepared(self):
        return pickle.loads(self.path.read_bytes())[0]

    @property
    def learnt(self):
        return pickle.loads(self.path.read_bytes())[1]


class Result:
    """The whole schedule of a run, its certificate and what it learnt."""

    def __init__(self, sources, certificate):
        schedule = ScheduleColumns.concatenate([source.prepared for source in sources])
        self.schedule = schedule.take(np.argsort(schedule.page_id))
        self.certificate = replace(certificate, seconds={})
        full = [source.learnt.of_shards for source in sources]
        self.tables = {shard: tables for each in full for shard, tables in each.items()}
        learnt = [
            source.learnt.change_hours
            for source in sources
            if source.learnt.change_hours is not None
        ]
        change_hours = ChangeHours.concatenate(learnt) if learnt else None
        self.change_hours = change_hours and change_hours.take(np.argsort(change_hours.host_id))


def grouped(inputs, databases):
    """Return the logical shards of each database."""
    n = max(databases.values(), default=0) + 1
    return [{s: part for s, part in inputs.items() if databases[s] == k} for k in range(n)]


def ran(inputs, databases, work):
    """Return the result of logical shards over databases: the database of each shard."""
    groups = grouped(inputs, databases)
    sources = [Columns(group) for group in groups]
    shards = InProcess(sources, work)
    return Result(sources, computed(shards, Run(1)))


def followed(inputs, result, seed):
    """Return the input of the next epoch: tables and evidence of the last one, with scores."""
    rng = np.random.default_rng(seed)
    corpus_numbers = result.certificate.prior
    after = {}
    for shard, part in inputs.items():
        rate, evidence, revisions, _ = result.tables[shard]
        group = np.flatnonzero(rng.random(evidence.n_groups) < 0.2)
        score = rng.normal(0, 1, (len(group), SHARES.size))
        score[:, 0] = 0.0
        expected = np.linspace(20, 25, SHARES.size)
        evidence = ShareEvidence(evidence.n_groups, group, score, expected, 23.0)
        fitted = PLAN.estimator.with_corpus(corpus_numbers, rate)
        after[shard] = part._replace(fitted=fitted, evidence=evidence, revisions=revisions)
    return after


def assert_same_bits(one, other):
    assert asdict(one.certificate) == asdict(other.certificate)
    for name, column in one.schedule.arrays().items():
        np.testing.assert_array_equal(column, getattr(other.schedule, name), err_msg=name)
    assert one.tables.keys() == other.tables.keys()
    for shard, tables in one.tables.items():
        np.testing.assert_array_equal(tables.url_group_rate, other.tables[shard].url_group_rate)
        for name in ("share_evidence", "ping_feeds"):
            pair = (getattr(each, name) or () for each in (tables, other.tables[shard]))
            for ours, theirs in zip(*pair, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    if one.change_hours is not None:
        np.testing.assert_array_equal(one.change_hours.host_id, other.change_hours.host_id)
        np.testing.assert_array_equal(one.change_hours.evidence, other.change_hours.evidence)
        np.testing.assert_array_equal(one.change_hours.profile, other.change_hours.profile)
