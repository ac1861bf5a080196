"""EpochParts as actors of a real local Dask cluster, whose workers and scheduler are killed."""

import os
import signal
import time
from dataclasses import replace

import pytest
from support.runner_cases import WORK, Corpus, result
from support.spread_cases import assert_same_bits, task

from recrawl_cluster.epochs import actors
from recrawl_cluster.epochs.actors import LOCAL, Actors
from service.core.checks import BandwidthInfeasible
from service.epochs.part import Run
from service.epochs.run import computed
from service.model.errors import PartLost

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def expected(corpus):
    return corpus.expected


@pytest.fixture(scope="module")
def pool(corpus):
    pool = Actors(lambda _: corpus.sources, LOCAL, 60.0)
    yield pool
    pool.close()


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
    pids = []
    try:
        with pool.opened(None, None, WORK) as actors:
            asked_at = time.monotonic()
            actors.ask_all("load")
            # on a busy machine the workers that run are silent for longer too
            pool.silence_s = max(5.0, 20.0 * (time.monotonic() - asked_at))
            pids.append(actors.actors[1].pid)
            os.kill(pids[0], signal.SIGSTOP)
            with pytest.raises(PartLost) as error:
                actors.ask_all("load")
            assert error.value.which == (1,)
    finally:
        pool.silence_s = 60.0
        os.kill(pids[0], signal.SIGKILL)
    own, _ = result(pool, {})
    assert_same_bits(expected, own)


def test_fewer_sources_place_fewer_actors(pool, corpus, monkeypatch):
    for n in (3, 1, 2):
        monkeypatch.setattr(pool, "sources", lambda _, n=n: corpus.sources[:n])
        with pool.opened(None, None, WORK) as actors:
            assert len(actors.ask_all("load")) == len(actors.actors) == n


def test_an_error_of_a_shard_is_raised_by_the_leader_under_its_name(pool):
    work = task(None, replace(WORK.plan, bandwidth=1e-9))
    with pool.opened(None, None, work) as parts, pytest.raises(BandwidthInfeasible):
        computed(parts, Run(1))
    with pool.opened(None, None, WORK) as parts, pytest.raises(AttributeError):
        parts.ask_all("no_question")


def test_any_error_of_dask_in_connecting_is_a_loss_of_all_shards(monkeypatch):
    def dies(*_, **__):
        raise UnboundLocalError("cannot access local variable 'result'")  # Dask's loop has ended

    monkeypatch.setattr(actors, "Client", dies)
    with pytest.raises(PartLost) as lost:
        Actors(list, "tcp://127.0.0.1:1").connected(2)
    assert lost.value.which == (0, 1)


def test_a_scheduler_that_is_gone_fails_the_epoch_and_the_next_connects_anew(
    pool, expected, monkeypatch
):
    pool.connected(3)
    pool.cluster.close()
    stranger = Actors(pool.sources, "tcp://127.0.0.1:1", 5.0)
    with monkeypatch.context() as impatient:
        impatient.setattr(actors, "CONNECTS_WITHIN_S", 1.0)
        with pytest.raises(PartLost, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "):
            stranger.connected(3)
    own, _ = result(pool, {})
    assert_same_bits(expected, own)
