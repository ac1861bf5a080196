"""The bound: no better than the best there is, close to it, and ahead of what knows only rates."""

from functools import cache

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.policies.clairvoyant import CARRIED_DAYS, clairvoyant
from recrawl_lab.policies.plain import hindsight
from recrawl_lab.replay.staleness import harmonic_numbers, staleness
from recrawl_lab.worlds.world import synthetic_world


def harmonic(world, crawls):
    return staleness(world, crawls).harmonic


def optimum(world, bandwidth, *, may_wait):
    """Try all orders of crawls, and waiting if allowed; credit for one crawl at most."""
    events = sorted(zip(world.changed_at.tolist(), world.changed_page.tolist(), strict=True))

    @cache
    def least(i, now, spent_at, pending):
        ready = max(now, spent_at + 1 / bandwidth)
        at, page = events[i] if i < len(events) else (world.days, None)
        level = world.importance @ harmonic_numbers(np.array(pending))
        if now < ready < at:
            return level * (ready - now) + least(i, ready, spent_at, pending)
        choices = []
        if now == ready:
            for p in np.flatnonzero(pending).tolist():
                left = tuple(0 if q == p else n for q, n in enumerate(pending))
                choices.append(least(i, now, now, left))
        if may_wait or not choices:
            after = tuple(n + (p == page) for p, n in enumerate(pending))
            rest = 0.0 if page is None else least(i + 1, at, spent_at, after)
            choices.append(level * (at - now) + rest)
        return min(choices)

    total = least(0, 0.0, -1 / bandwidth, (0,) * len(world))
    return total / (world.days * world.importance.sum())


def tiny_worlds(n_worlds=60):
    for seed in range(n_worlds):
        rng = np.random.default_rng(seed)
        changes = [10 * rng.random(rng.integers(0, 5)) for _ in range(3)]
        yield world_of(changes, importance=[1.0, 1.0, rng.choice([1.0, 4.0])])


@pytest.mark.parametrize("bandwidth", [0.2, 0.4, 0.8])
def test_it_comes_close_to_the_best_order_of_crawls_that_never_wait(bandwidth):
    worlds = list(tiny_worlds())
    found = np.array([harmonic(w, clairvoyant(w, bandwidth)) for w in worlds])
    best = np.array([optimum(w, bandwidth, may_wait=False) for w in worlds])
    assert (found >= best - 1e-12).all()
    assert found.mean() < 1.03 * best.mean()


@pytest.mark.dear
def test_waiting_would_save_something_too():
    worlds = list(tiny_worlds())
    found = np.array([harmonic(w, clairvoyant(w, 0.4)) for w in worlds])
    best = np.array([optimum(w, 0.4, may_wait=True) for w in worlds])
    assert (found >= best - 1e-12).all()
    assert 1.1 * best.mean() < found.mean() < 1.5 * best.mean()


@pytest.mark.parametrize("importance", ["equal", "lognormal"])
@pytest.mark.parametrize("per_page", [0.02, 0.2, 1.0])
def test_it_is_far_ahead_of_hindsight_which_knows_only_rates(per_page, importance):
    world = synthetic_world(200, 60.0, rng=np.random.default_rng(2), importance=importance)
    bandwidth = per_page * len(world)
    bound = harmonic(world, clairvoyant(world, bandwidth))
    assert bound < 0.9 * harmonic(world, hindsight(world, bandwidth))


@pytest.mark.parametrize("bandwidth", [0.3, 5.0, 100.0])
def test_the_bandwidth_is_kept_but_for_what_is_carried_over(bandwidth):
    world = synthetic_world(200, 60.0, rng=np.random.default_rng(2))
    crawls = clairvoyant(world, bandwidth)
    turn = np.arange(len(crawls.at))
    early = turn - bandwidth * crawls.at
    worst_burst = (early - np.minimum.accumulate(early)).max() + 1
    assert worst_burst <= max(1.0, bandwidth * CARRIED_DAYS) + 1 + 1e-6
    assert len(crawls.at) == pytest.approx(bandwidth * 60, abs=2)
    assert crawls.at.max() < 60


def test_with_bandwidth_to_spare_every_change_is_crawled_at_its_instant():
    world = synthetic_world(50, 20.0, rng=np.random.default_rng(3))
    crawls = clairvoyant(world, 3 * len(world.changed_at) / world.days)
    assert np.array_equal(crawls.at, np.sort(world.changed_at))
    assert harmonic(world, crawls) == 0


def test_a_page_about_to_change_again_waits_its_turn():
    world = world_of([[1.0, 1.5], [1.0]])
    assert clairvoyant(world, 0.5).page.tolist() == [1, 0]
    assert clairvoyant(world, 0.5).at.tolist() == [1.0, 3.0]


def test_the_more_important_of_two_pages_is_first():
    for weights in ([1.0, 3.0], [3.0, 1.0]):
        crawls = clairvoyant(world_of([[1.0], [1.0]], importance=weights), 0.5)
        assert crawls.page[0] == np.argmax(weights)


def test_deleted_pages_are_not_crawled_and_no_bandwidth_is_no_crawls():
    world = world_of([[1.0], [1.0]], importance=[5.0, 1.0], ended=[10.0, 2.0])
    assert clairvoyant(world, 0.5).page.tolist() == [0]
    assert len(clairvoyant(world, 0.0).at) == 0
    assert len(clairvoyant(world_of([[], []]), 1.0).at) == 0
