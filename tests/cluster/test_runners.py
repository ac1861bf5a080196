"""Epochs over three real databases by each runner: equal bits, and what losses leave."""

import pickle
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from signal import SIGKILL

import numpy as np
import psycopg
import pytest
from structlog.testing import capture_logs
from support.epoch_cases import Clock
from support.runner_stores import (
    LATER,
    PLAN,
    Published,
    assert_equal,
    filled,
    published,
    troubled,
)
from support.shard_cases import joined_store, shard_map_of
from support.store_cases import schedule_columns

from recrawl_cluster.epochs.actors import LOCAL, Actors
from recrawl_cluster.epochs.databases import for_processes
from recrawl_cluster.epochs.databases import in_this_process as in_one_process
from recrawl_cluster.sharded import ShardedStore
from service.epochs.inputs import Task
from service.epochs.part import Run
from service.epochs.parts import EpochParts, in_this_process
from service.epochs.run import run_epoch
from service.epochs.what_if import WhatIf
from service.estimation.rules import InForce, Rules
from service.model.arrays import SHARD_BITS
from service.model.calendars import Calendars, HourRules
from service.model.domain import Timing
from service.model.errors import EpochRunning, LeadershipLost, ShardMoved, StoreUnavailable
from service.storage.epochs.contract import NOTHING

pytestmark = pytest.mark.slow


@pytest.fixture
def runner(request):
    """A runner of actors: one for each database, or two for all."""
    pool = Actors(partial(for_processes, n_processes=request.param), LOCAL, 60.0)
    yield pool.opened
    pool.close()


@pytest.mark.parametrize("runner", [None, 2], indirect=True)
def test_each_runner_publishes_the_same_bits_also_after_a_kill(runner, shard_clones, shard_urls):
    expected = published(shard_urls, in_this_process)
    assert len(expected.tables) > 3
    asked = []

    def again(signals):
        for clone in shard_clones:
            clone.empty()
        second = troubled(runner, signals, asked)
        assert_equal(expected, published(shard_urls, runner, last=second))

    again({})
    n_questions = asked[0]
    for question in (3, n_questions // 2, n_questions):  # the last one writes the schedule
        again({question: [(1, SIGKILL)]})
        assert asked[-1] > n_questions


def test_a_shard_of_an_earlier_attempt_writes_nothing(shard_urls):
    with closing(joined_store(shard_urls, 2)) as store:
        ids = filled(store)
        late, *_ = for_processes(store)
        schedule = schedule_columns(ids, crawl_rate=1.0)
        with store.lead() as lead:
            with lead.begin() as tx:
                epoch = tx.start_epoch(LATER).epoch
            late.prepare(Run(epoch), schedule, NOTHING)
            lead.allow(epoch, 1)
            with pytest.raises(LeadershipLost):
                late.prepare(Run(epoch), schedule, NOTHING)
            for source in for_processes(store):
                source.prepare(Run(epoch, 1), schedule, NOTHING)
                with pytest.raises(LeadershipLost):
                    source.prepare(Run(epoch + 1), schedule, NOTHING)


def test_sources_of_other_processes_take_the_calendars_along(shard_urls):
    with closing(joined_store(shard_urls, 2)) as store:
        ids = filled(store)
        store.calendars = Calendars(HourRules(("Sat 00:00-24:00 UTC",)))
        sources = [pickle.loads(pickle.dumps(each)) for each in for_processes(store)]
        inputs = [one for each in sources for one in each.load(Task(PLAN, None, LATER)).values()]
    assert sum(len(each.pages) for each in inputs) == len(ids)
    assert all(set(each.windows.host_id) == set(each.pages.host_id) for each in inputs)


class Overtaken(EpochParts):
    """EpochParts whose leader loses its lead, and is overtaken, before the schedule is prepared."""

    def __init__(self, parts, overtake):
        self.parts, self.overtake, self.n_parts = parts, overtake, parts.n_parts

    def ask(self, question, arguments):
        if question == "prepare":
            self.overtake()
        return self.parts.ask(question, arguments)

    def renew(self, which):
        self.parts.renew(which)


@pytest.mark.parametrize("runner", [2], indirect=True)
def test_of_two_leaders_one_runs_and_one_that_was_overtaken_publishes_nothing(runner, shard_urls):
    others = []

    def overtake():
        with closing(ShardedStore(shard_map_of(shard_urls), 2)) as store:
            with pytest.raises(EpochRunning):
                run_epoch(store, PLAN, Clock(LATER))
            for url in shard_urls:
                end_sessions(url)
            epoch = run_epoch(store, PLAN, Clock(LATER + timedelta(minutes=1)))
            others.append(Published.by(store, epoch))

    @contextmanager
    def overtaken(store, lead, task):
        with runner(store, lead, task) as parts:
            yield Overtaken(parts, overtake)

    with closing(joined_store(shard_urls, 2)) as store:
        filled(store)
        with capture_logs() as logs, pytest.raises((LeadershipLost, StoreUnavailable)):
            run_epoch(store, PLAN, Clock(LATER), overtaken)
    (failed,) = [entry for entry in logs if entry["event"] == "epoch failed"]
    assert failed["reason"].startswith("LeadershipLost: another process")
    with (
        closing(ShardedStore(shard_map_of(shard_urls), 2)) as store,
        store.begin(write=False) as tx,
    ):
        in_force = tx.epoch_in_force()
        assert in_force.started_at == LATER + timedelta(minutes=1)
        assert_equal(others[0], Published.by(store, in_force))


def end_sessions(url):
    """End all sessions of a database."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("sources", [in_one_process, for_processes])
def test_no_epoch_leaves_out_a_shard_that_is_on_its_way(sources, shard_urls, monkeypatch):
    with closing(joined_store(shard_urls, 2)) as store:
        first, *others = store.shard_map.databases
        fewer = replace(first, shards=first.shards - {min(first.shards)})
        moving = replace(store.shard_map, databases=(fewer, *others))
        assert len(sources(store)) == 3
        monkeypatch.setattr(store, "map_in_force", lambda: moving)
        with pytest.raises(ShardMoved):
            sources(store)


# -- readers


def test_readers_take_the_table_of_each_page_s_logical_shard(shard_urls):
    with closing(joined_store(shard_urls, 2)) as store:
        ids = filled(store)
        epoch = run_epoch(store, PLAN, Clock(LATER))
        rules = InForce(Rules(PLAN.estimator, Timing.periodic, np.random.default_rng(1)))
        with store.begin(write=False) as tx:
            pages = tx.freshness_columns(np.sort(ids))
            own, renumbered = rules.of(tx).of_pages(tx, pages)
            prior = own.of_url_groups(renumbered.url_group).prior
            parts = np.unique(pages.page_id >> SHARD_BITS)
            assert len(parts) > 3
            assert len(np.unique(prior.mean)) > 3
            for shard in parts.tolist():
                row = np.flatnonzero(pages.page_id >> SHARD_BITS == shard)
                some = pages.take(row)
                rate = tx.url_group_rate(epoch.epoch, shard)
                expected = rate[some.url_group % rate.size].astype(np.float64)
                np.testing.assert_allclose(prior.mean[row], expected, rtol=1e-15)
                alone, same = rules.of(tx).of_pages(tx, some)
                assert same is some
                each = alone.of_url_groups(some.url_group).prior
                np.testing.assert_array_equal(each.b, prior.b[row])
                at = rules.of(tx).of_shard(tx, shard)
                assert at.url_group_rate is not None
                np.testing.assert_array_equal(at.url_group_rate, rate)


def test_a_page_that_is_not_registered_has_the_table_of_its_host_s_shard(shard_urls):
    with closing(joined_store(shard_urls, 2)) as store:
        ids = filled(store)
        run_epoch(store, PLAN, Clock(LATER))
        rules = InForce(Rules(PLAN.estimator, Timing.periodic, np.random.default_rng(1)))
        with store.begin(write=False) as tx:
            pages = tx.freshness_columns(np.sort(ids)[[0, -1]])
            hosts = np.array([tx.page(page_id).host for page_id in pages.page_id.tolist()], object)
            shard = tx.shards_of(hosts)
            np.testing.assert_array_equal(shard, pages.page_id >> SHARD_BITS)
            new = type(pages)(**{**pages.arrays(), "page_id": -(shard << SHARD_BITS)})
            own, known = rules.of(tx).of_pages(tx, pages)
            other, unknown = rules.of(tx).of_pages(tx, new)
            np.testing.assert_array_equal(
                own.of_url_groups(known.url_group).prior.b,
                other.of_url_groups(unknown.url_group).prior.b,
            )


def test_a_plan_is_what_an_epoch_publishes_over_several_databases(shard_urls):
    with closing(joined_store(shard_urls, 2)) as store:
        filled(store)
        clock = Clock(LATER)
        for _ in range(3):  # the means of URL groups take a step in each
            epoch = run_epoch(store, PLAN, clock)
        answer = WhatIf(store, PLAN, clock).ask([], 10)
        certificate = epoch.certificate
        for name in ("bandwidth_used", "multiplier", "harmonic_cost", "binary_cost"):
            expected = getattr(certificate, name)
            assert getattr(answer.in_force, name) == pytest.approx(expected, rel=1e-9), name
