"""Shards as actors of a real local Dask cluster, whose workers and scheduler are killed."""

import os
import signal

import pytest
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

from service.epochs.actors import LOCAL, Actors
from service.epochs.run import computed
from service.epochs.shard import divided
from service.epochs.shards import Shards, recovered
from service.model.errors import ShardLost

PLACES = {0: 1, 2: 0, 3: 1, 5: 2}
WORK = task(epoch_before())

pytestmark = pytest.mark.slow


class Haunted(Shards):
    """Actors whose workers get signals before some questions."""

    def __init__(self, shards, signals):
        self.shards, self.signals, self.n_shards = shards, signals, shards.n_shards
        self.n_asked = 0

    def ask(self, question, arguments):
        self.n_asked += 1
        for victim, number in self.signals.get(self.n_asked, ()):
            if victim in self.shards.actors:
                os.kill(self.shards.actors[victim].pid, number)
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
    pool = Actors([Filed(group, path / str(n)) for n, group in enumerate(groups)], LOCAL, 60.0)
    yield pool
    pool.close()


def result(pool, signals):
    with pool.opened(None, WORK) as actors:
        shards = Haunted(actors, signals)
        certificate = recovered(shards, lambda: computed(shards, 1))
        return Result(pool.sources, certificate), shards.n_asked


def test_actors_compute_the_same_bits_epoch_after_epoch(pool, expected):
    for _ in range(2):
        own, _ = result(pool, {})
        assert_same_bits(expected, own)


def test_a_worker_killed_at_any_of_some_questions_changes_no_bit(pool, expected):
    _, n_questions = result(pool, {})
    for question in (2, n_questions // 2, n_questions):
        own, n_asked = result(pool, {question: [(question % 3, signal.SIGKILL)]})
        assert n_asked > n_questions
        assert_same_bits(expected, own)


def test_a_stopped_worker_is_replaced(pool, expected):
    pool.silence_s, pids = 5.0, []
    try:
        with pool.opened(None, WORK) as actors:
            actors.ask_all("load")
            pids.append(actors.actors[1].pid)
            os.kill(pids[0], signal.SIGSTOP)
            with pytest.raises(ShardLost) as error:
                actors.ask_all("load")
            assert error.value.which == (1,)
    finally:
        pool.silence_s = 60.0
        os.kill(pids[0], signal.SIGKILL)
    own, _ = result(pool, {})
    assert_same_bits(expected, own)


def test_a_scheduler_that_is_gone_fails_the_epoch_and_the_next_connects_anew(pool, expected):
    pool.connected()
    pool.cluster.close()
    with pytest.raises(ShardLost):
        Actors(pool.sources, "tcp://127.0.0.1:1", 5.0).connected()
    own, _ = result(pool, {})
    assert_same_bits(expected, own)
