"""Actors in this process, which are lost at any question: the same bits, or an epoch that fails."""

from contextlib import closing
from dataclasses import replace
from signal import SIGKILL

import pytest
from structlog.testing import capture_logs
from support.epoch_cases import Clock
from support.runner_cases import WORK, Corpus, Here, haunted, result
from support.runner_stores import LATER, PLAN, filled, troubled
from support.shard_cases import joined_store
from support.spread_cases import assert_same_bits, task
from support.store_cases import read_schedule

from recrawl_cluster.epochs.actors import LOCAL, Actors, Failure
from recrawl_cluster.epochs.databases import RemoteDatabases, for_processes
from recrawl_cluster.store.shard_map import Database, ShardMap
from service.core.checks import BandwidthInfeasible
from service.epochs.part import Run
from service.epochs.parts import RESTARTS
from service.epochs.run import computed, run_epoch
from service.model.domain import EpochStatus
from service.model.errors import PartLost, RecrawlError, ShardUnavailable

ALWAYS = {n: [(2, SIGKILL)] for n in range(1, 500)}
"""The loss of the last shard at each question."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def pool(corpus):
    return Here(lambda _: corpus.sources)


@pytest.mark.dear
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_an_actor_that_is_lost_at_any_question_changes_no_bit(step, corpus, pool):
    own, n_questions = result(pool, {})
    assert_same_bits(corpus.expected, own)
    for question in range(2, n_questions + 1, step):  # the first one places the actors
        own, n_asked = result(pool, {question: [(question % 3, SIGKILL)]})
        assert n_asked > n_questions
        assert_same_bits(corpus.expected, own)


def test_an_epoch_that_loses_its_actors_again_and_again_fails(corpus, pool):
    with capture_logs() as logs, pytest.raises(PartLost) as error:
        result(pool, ALWAYS)
    assert error.value.which == (2,)
    left = [entry["restarts_left"] for entry in logs if entry["event"] == "parts were lost"]
    assert left == [*reversed(range(RESTARTS + 1))]
    own, _ = result(pool, {})
    assert_same_bits(corpus.expected, own)


@pytest.mark.dear
def test_an_epoch_that_lost_its_actors_leaves_the_old_one_in_force(shard_urls):
    with closing(joined_store(shard_urls, 2)) as store:
        filled(store)
        clock, pool = Clock(LATER), Here(for_processes)
        first = run_epoch(store, PLAN, clock, pool.opened)
        rows = read_schedule(store, first.epoch)
        lost = run_epoch(store, PLAN, clock, troubled(pool.opened, ALWAYS))
        assert lost.status is EpochStatus.failed
        assert "PartLost" in lost.reason
        with store.begin(write=False) as tx:
            assert tx.number_in_force() == first.epoch
        assert read_schedule(store, first.epoch) == rows
        again = run_epoch(store, PLAN, clock, pool.opened)
        assert again.status is EpochStatus.published


def test_an_error_of_a_shard_is_raised_by_the_leader(corpus):
    absent = Database("far", "postgresql://postgres@127.0.0.1:1/no", frozenset(range(64)))
    sources = [corpus.sources[0], RemoteDatabases(ShardMap(64, (absent,)), (0,), 3)]
    pool = Here(lambda _: sources)
    with pool.opened(None, None, WORK) as shards, pytest.raises(ShardUnavailable, match="far"):
        shards.ask_all("load")
    with pool.opened(None, None, WORK) as shards, pytest.raises(AttributeError):
        shards.ask_all("no_question")


def test_an_error_that_cannot_be_pickled_keeps_its_name_and_its_sentence():
    class Local(Exception):
        """An error that no other process knows."""

    error = Failure(Local("no room")).error
    assert type(error) is RecrawlError
    assert str(error) == "Local: no room"
    assert type(Failure(PartLost((1,))).error) is PartLost


def test_bandwidth_that_minima_exceed_fails_by_name_in_actors_too(pool):
    work = task(None, replace(WORK.plan, bandwidth=1e-9))
    with haunted(pool, {}, work) as shards, pytest.raises(BandwidthInfeasible):
        computed(shards, Run(1))


def test_no_worker_starts_after_the_end_of_the_service():
    pool = Actors(list, LOCAL)
    pool.close()
    with pytest.raises(PartLost, match="ended with the service") as lost:
        pool.connected(2)
    assert lost.value.which == (0, 1)
