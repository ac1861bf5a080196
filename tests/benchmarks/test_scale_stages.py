"""The epochs of `benchmarks.scale.stages`, each with what the last one learnt."""

from itertools import islice

import numpy as np

from benchmarks.scale.stages import EVERY, START, World, epochs


def test_the_next_epoch_knows_what_the_last_one_learnt():
    world = World(600, 3, born=0.3)
    world.crawl(START, 1.0)
    world.epoch(1, START, START + EVERY["day"])
    assert world.last.certificate.n_pages == 600
    assert set(world.learnt.host_id) == {1, 2, 3}
    assert len(world.screens) + len(world.records) > 0
    before = world.pages
    world.crawl(START + EVERY["day"], 1.0)
    assert (world.pages.last_observed_at >= before.last_observed_at).all()
    seconds = world.epoch(2, START + EVERY["day"], START + 2 * EVERY["day"])
    assert min(seconds) >= 0.0
    assert np.isfinite(world.last.certificate.bandwidth_used)


def test_epochs_go_on():
    assert len(list(islice(epochs(60, 1, EVERY["hour"], 0.0), 2))) == 2
