"""Shards in processes: the same bits, also after a process is killed or stopped at any question."""

import os
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from support.spread_cases import (
    Filed,
    Result,
    assert_same_bits,
    corpus,
    epoch_before,
    grouped,
    ran,
    task,
)

from service.core.conditions import BandwidthInfeasible
from service.epochs.processes import Database, Processes
from service.epochs.run import computed
from service.epochs.shard import divided
from service.epochs.shards import RESTARTS, Shards, recovered
from service.model.errors import ShardLost, StoreUnavailable

PLACES = {0: 1, 2: 0, 3: 1, 5: 2}
WORK = task(epoch_before())


class Haunted(Shards):
    """Shards whose processes get signals before some questions."""

    def __init__(self, shards, signals):
        self.shards, self.signals, self.n_shards = shards, signals, shards.n_shards
        self.n_asked = 0

    def ask(self, question, arguments):
        self.n_asked += 1
        for victim, number in self.signals.get(self.n_asked, ()):
            os.kill(self.shards.pool.workers[victim].process.pid, number)
        return self.shards.ask(question, arguments)

    def renew(self, which):
        self.shards.renew(which)


@pytest.fixture(scope="module")
def inputs():
    return divided(corpus(11, {0: 60, 2: 90, 3: 20, 5: 70}))


@pytest.fixture(scope="module")
def expected(inputs):
    return ran(inputs, dict.fromkeys(inputs, 0), WORK)


@pytest.fixture(scope="module")
def pool(inputs, tmp_path_factory):
    path = tmp_path_factory.mktemp("shards")
    groups = grouped(inputs, PLACES)
    pool = Processes([Filed(group, path / str(n)) for n, group in enumerate(groups)], 30.0)
    yield pool
    pool.close()


@contextmanager
def haunted(pool, signals):
    with pool.opened(None, WORK) as shards:
        yield Haunted(shards, signals)


def result(pool, signals):
    with haunted(pool, signals) as shards:
        certificate = recovered(shards, lambda: computed(shards, 1))
        return Result(pool.sources, certificate), shards.n_asked


def test_processes_compute_the_same_bits_epoch_after_epoch(pool, expected):
    for _ in range(2):
        own, _ = result(pool, {})
        assert_same_bits(expected, own)


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


def test_an_error_of_a_shard_is_raised_by_the_leader(inputs, tmp_path):
    sources = [Filed(inputs, tmp_path / "0"), Database("postgresql://postgres@127.0.0.1:1/no", 3)]
    pool = Processes(sources, 60.0)
    try:
        with pool.opened(None, WORK) as shards, pytest.raises(StoreUnavailable):
            shards.ask_all("load")
        with pool.opened(None, WORK) as shards, pytest.raises(AttributeError):
            shards.ask_all("no_question")
    finally:
        pool.close()


def test_bandwidth_that_minima_exceed_fails_by_name_in_processes_too(pool):
    work = task(None, replace(WORK.plan, bandwidth=1e-9))
    with pool.opened(None, work) as shards, pytest.raises(BandwidthInfeasible):
        computed(shards, 1)
