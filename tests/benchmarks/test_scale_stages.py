"""The epochs of `benchmarks.scale.stages`, each with what the last one learnt."""

from itertools import islice

import numpy as np

from benchmarks.scale.stages import EVERY, START, World, epochs


def test_hosts_learn_from_the_crawls_since_the_last_epoch():
    world, at = World(600, 3, born=0.3), START
    for number in (1, 2):
        before = world.pages
        world.crawl(at, 1.0)
        assert (world.pages.last_observed_at >= before.last_observed_at).all()
        seconds = world.epoch(number, at, at + EVERY["day"])
        at += EVERY["day"]
    assert min(seconds) >= 0.0
    assert set(world.learnt.host_id) == {1, 2, 3}
    assert len(world.screens) + len(world.records) > 0
    assert world.last.certificate.n_pages == 600
    assert np.isfinite(world.last.certificate.bandwidth_used)


def test_epochs_go_on():
    assert len(list(islice(epochs(60, 1, EVERY["hour"], 0.0), 2))) == 2
