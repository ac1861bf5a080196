"""Shards in processes: the same bits, also after a process is killed or stopped at any question."""

import signal
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from support.runner_cases import WORK, Corpus, haunted, result
from support.spread_cases import assert_same_bits, task

from recrawl_cluster.epochs.databases import RemoteDatabases
from recrawl_cluster.epochs.processes import Processes
from recrawl_cluster.store.shard_map import Database, ShardMap
from service.core.conditions import BandwidthInfeasible
from service.epochs.run import computed
from service.epochs.shard import Run
from service.epochs.shards import RESTARTS
from service.model.errors import ShardLost, ShardUnavailable


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def expected(corpus):
    return corpus.expected


@pytest.fixture(scope="module")
def pool(corpus):
    pool = Processes(lambda _: corpus.sources, 30.0)
    yield pool
    pool.close()


def test_processes_compute_the_same_bits_epoch_after_epoch(pool, expected):
    for _ in range(2):
        own, _ = result(pool, {})
        assert_same_bits(expected, own)


@pytest.mark.slow
def test_a_process_killed_at_the_first_or_last_question_changes_no_bit(pool, expected):
    _, n_questions = result(pool, {})
    for question in (1, 2, n_questions // 2, n_questions):
        killed = {question: [(question % 3, signal.SIGKILL)]}
        own, n_asked = result(pool, killed)
        assert n_asked > n_questions or question == 1
        assert_same_bits(expected, own)


@pytest.mark.slow
def test_a_process_killed_at_questions_all_over_an_epoch_changes_no_bit(pool, expected):
    _, n_questions = result(pool, {})
    for question in range(3, n_questions + 1, 11):
        own, _ = result(pool, {question: [(question % 3, signal.SIGKILL)]})
        assert_same_bits(expected, own)


@pytest.mark.slow
def test_a_stopped_process_is_replaced(pool, expected):
    pool.silence_s = 12.0
    try:
        own, _ = result(pool, {9: [(1, signal.SIGSTOP)]})
    finally:
        pool.silence_s = 30.0
    assert_same_bits(expected, own)


def test_an_epoch_that_loses_processes_again_and_again_fails(pool, expected):
    every = {n: [(2, signal.SIGKILL)] for n in range(1, 500)}
    with capture_logs() as logs, pytest.raises(ShardLost) as error:
        result(pool, every)
    assert error.value.which == (2,)
    left = [entry["restarts_left"] for entry in logs if entry["event"] == "shards were lost"]
    assert left == [*reversed(range(RESTARTS + 1))]
    own, _ = result(pool, {})
    assert_same_bits(expected, own)


def test_an_error_of_a_shard_is_raised_by_the_leader(corpus):
    absent = Database("far", "postgresql://postgres@127.0.0.1:1/no", frozenset(range(64)))
    sources = [corpus.sources[0], RemoteDatabases(ShardMap(64, (absent,)), (0,), 3)]
    pool = Processes(lambda _: sources, 60.0)
    try:
        with pool.opened(None, None, WORK) as shards, pytest.raises(ShardUnavailable, match="far"):
            shards.ask_all("load")
        with pool.opened(None, None, WORK) as shards, pytest.raises(AttributeError):
            shards.ask_all("no_question")
    finally:
        pool.close()


@pytest.mark.slow
def test_fewer_sources_leave_fewer_processes_and_none_starts_after_the_end(corpus):
    sources = list(corpus.sources)
    pool = Processes(lambda _: sources, 30.0)
    try:
        for n in (3, 1, 2):
            sources[:] = corpus.sources[:n]
            with pool.opened(None, None, WORK) as shards:
                assert len(shards.ask_all("load")) == len(pool.workers) == n
    finally:
        pool.close()
    with pytest.raises(ShardLost, match="ended with the service"), haunted(pool, {}):
        pass
    assert not any(worker.process.is_alive() for worker in pool.workers)


def test_bandwidth_that_minima_exceed_fails_by_name_in_processes_too(pool):
    work = task(None, replace(WORK.plan, bandwidth=1e-9))
    with haunted(pool, {}, work) as shards, pytest.raises(BandwidthInfeasible):
        computed(shards, Run(1))
