"""Epochs over three databases by a Dask cluster of its own processes, through TLS."""

from contextlib import closing, contextmanager

import pytest
from support.dask_cluster import cluster
from support.epoch_cases import Clock
from support.runner_cases import Haunted
from support.runner_stores import LATER, PLAN, Published, assert_equal, filled
from support.shard_cases import joined_store
from support.store_cases import read_schedule

from recrawl_cluster.epochs import actors
from recrawl_cluster.epochs.actors import Actors
from recrawl_cluster.epochs.databases import for_processes
from service.epochs.parts import in_this_process
from service.epochs.run import run_epoch
from service.model.domain import EpochStatus

pytestmark = pytest.mark.slow


@pytest.fixture
def dask(tmp_path):
    with cluster(tmp_path) as own:
        yield own


@pytest.fixture
def pool(dask):
    own = Actors(for_processes, dask.address, 60.0, dask.certificates)
    yield own
    own.close()


class Beheaded(Haunted):
    """Actors whose scheduler and workers are killed before a question."""

    def __init__(self, parts, at, kill):
        super().__init__(parts, {})
        self.at, self.kill = at, kill

    def ask(self, question, arguments):
        if self.n_asked == self.at:
            self.kill()
        return super().ask(question, arguments)


def test_a_scheduler_that_is_killed_fails_the_epoch_and_a_new_one_serves_the_next(
    dask, pool, shard_urls, shard_clones, monkeypatch
):
    monkeypatch.setattr(actors, "CONNECTS_WITHIN_S", 3.0)

    @contextmanager
    def beheaded(store, lead, task):
        with pool.opened(store, lead, task) as parts:
            yield Beheaded(parts, 12, dask.end)

    with closing(joined_store(shard_urls, 2)) as store:
        filled(store)
        clock = Clock(LATER)
        monkeypatch.setattr(actors, "CONNECTS_WITHIN_S", 30.0)
        first = run_epoch(store, PLAN, clock, pool.opened)
        assert first.status is EpochStatus.published, first.reason
        rows = read_schedule(store, first.epoch)
        monkeypatch.setattr(actors, "CONNECTS_WITHIN_S", 3.0)
        failed = run_epoch(store, PLAN, clock, beheaded)
        assert failed.status is EpochStatus.failed
        assert f"no Dask scheduler answers at {dask.address}" in failed.reason
        with store.begin(write=False) as tx:
            assert tx.number_in_force() == first.epoch
        assert read_schedule(store, first.epoch) == rows
        monkeypatch.setattr(actors, "CONNECTS_WITHIN_S", 30.0)
        dask.start(2)
        second = Published.by(store, run_epoch(store, PLAN, clock, pool.opened))
    for clone in shard_clones:
        clone.empty()
    with closing(joined_store(shard_urls, 2)) as store:
        filled(store)
        run_epoch(store, PLAN, clock, in_this_process)
        assert_equal(second, Published.by(store, run_epoch(store, PLAN, clock, in_this_process)))


def test_strangers_without_a_certificate_are_refused(dask, shard_urls, monkeypatch):
    monkeypatch.setattr(actors, "CONNECTS_WITHIN_S", 3.0)
    plain = Actors(for_processes, dask.address.replace("tls", "tcp"), 10.0)
    with closing(joined_store(shard_urls, 2)) as store:
        filled(store)
        epoch = run_epoch(store, PLAN, Clock(LATER), plain.opened)
    assert epoch.status is EpochStatus.failed
    assert "no Dask scheduler answers at tcp://" in epoch.reason
