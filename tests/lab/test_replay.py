"""Replays: the use cases on the store in memory, against a web whose every change is known."""

from dataclasses import replace

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.policies import plain
from recrawl_lab.replay.playing import CARRIED_DAYS
from recrawl_lab.replay.replay import LocalFleet, replay
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.versions import Versions
from recrawl_lab.worlds.world import synthetic_world
from service.core.estimators import make_estimator
from service.core.estimators.gamma import Gamma
from service.core.estimators.mle import MLE
from service.core.forecast import probability_unchanged
from service.epochs.plan import Plan

PLAN = Plan(Gamma())


def a_world(n_pages=300, days=40.0, **given):
    return synthetic_world(n_pages, days, rng=np.random.default_rng(5), **given)


@pytest.mark.dear
def test_what_the_store_has_learnt_is_what_the_crawls_could_see():
    world = a_world(60, complete_share=0.0)
    fleet, crawls = played(world, bandwidth=20.0)
    with fleet.store.begin(write=False) as tx:
        states = tx.lock_states(fleet._page_id)
    for page in range(60):
        at = np.sort(crawls.at[crawls.page == page])
        seen = Versions(world).at(np.full(len(at), page), at)
        assert states.n_observations[page] == len(at)
        assert states.n_changes[page] == np.count_nonzero(np.diff(seen, prepend=0))


def played(world, bandwidth):
    """As `replay`, with the fleet to look into."""
    from recrawl_lab.replay.playing import crawl
    from recrawl_lab.replay.staleness import merged

    clock = Clock()
    fleet = LocalFleet(world, clock, Plan(Gamma(), bandwidth=bandwidth), seed=1)
    steps = crawl(fleet, clock, Crawls.none(), bandwidth, 1.0)
    return fleet, merged(*(crawls for _, crawls in steps))


@pytest.mark.dear
def test_bandwidth_is_spent_within_a_week_of_its_day():
    world = a_world()
    at = np.sort(replay(world, 45.0, PLAN).crawls.at)
    spent = np.cumsum(np.histogram(at, 40, (0, 40))[0])
    assert (spent <= 45.0 * (np.arange(1, 41) + CARRIED_DAYS)).all()
    assert len(at) == pytest.approx(45.0 * 40, rel=0.02)


@pytest.mark.dear
def test_learning_comes_close_to_knowing():
    world = a_world(1000, days=60.0)
    outcome = replay(world, 200.0, PLAN)
    ours, blind, best = (
        staleness(world, crawls).harmonic
        for crawls in (
            outcome.crawls,
            plain.uniform(world, 200.0),
            plain.hindsight(world, 200.0),
        )
    )
    assert (blind - ours) / (blind - best) > 0.85


@pytest.mark.dear
def test_the_predictions_are_calibrated_on_pages_that_change_as_the_model_says():
    world = a_world(2000, complete_share=0.0)
    predicted = replay(world, 400.0, PLAN).predicted
    learnt = predicted.at > 10.0
    for low in np.arange(0.1, 1.0, 0.1):
        chosen = (predicted.probability >= low) & (predicted.probability < low + 0.1) & learnt
        n, expected = chosen.sum(), predicted.probability[chosen].mean()
        assert n > 300
        error = np.sqrt(expected * (1 - expected) / n)
        assert predicted.changed[chosen].mean() == pytest.approx(expected, abs=0.03 + 3 * error)


def in_bursts(n_url_groups=40, size=15, days=200.0, seed=3):
    """A world whose pages change together: half of a URL group at an instant, now and then."""
    rng = np.random.default_rng(seed)
    changes = [[] for _ in range(n_url_groups * size)]
    for url_group in range(n_url_groups):
        for at in np.sort(rng.uniform(0, days, rng.poisson(days / 50))):
            for page in url_group * size + np.flatnonzero(rng.random(size) < 0.5):
                changes[page].append(float(at))
    world = world_of(changes, days=days)
    pages = range(len(world))
    return replace(world, url=tuple(f"https://s{i // size}.example/{i}" for i in pages))


@pytest.mark.slow
def test_pages_that_change_with_their_siblings_are_crawled_with_them():
    """The same world with its URL groups taken apart: nothing but siblings can make the odds."""
    world = in_bursts()
    apart = replace(world, url=tuple(f"https://{i}.example/" for i in range(len(world))))
    bandwidth = 0.1 * len(world)
    together, alone = (replay(each, bandwidth, PLAN, step=0.5) for each in (world, apart))
    stale, stale_alone = (staleness(world, each.crawls).harmonic for each in (together, alone))
    best = staleness(world, plain.hindsight(world, bandwidth)).harmonic
    assert stale < 0.8 * stale_alone
    assert stale < best  # which knows how often each page changes, but not when
    assert len(together.crawls.at) == pytest.approx(bandwidth * world.days, rel=0.03)


@pytest.mark.slow
def test_predictions_tell_pages_whose_siblings_have_changed_from_others():
    predicted = replay(in_bursts(80), 120.0, PLAN, step=0.5).predicted
    learnt = predicted.at > 50.0
    probability, changed = predicted.probability[learnt], predicted.changed[learnt]
    likely = probability > np.quantile(probability, 0.9)
    assert changed[likely].mean() > 1.3 * changed[~likely].mean()
    assert changed[likely].mean() == pytest.approx(probability[likely].mean(), rel=0.35)


def test_a_prediction_is_that_of_the_estimator_before_the_crawl():
    world = world_of([[2.5], []], days=9.0)
    plan = Plan(Gamma())
    predicted = replay(world, 2.0, plan).predicted
    first = np.flatnonzero(predicted.page == 1)[0]
    assert not predicted.changed[first]
    unchanged = probability_unchanged(Gamma(), Gamma().init(), predicted.at[first])
    assert predicted.probability[first] == pytest.approx(1.0 - unchanged, rel=0.05)
    seen = predicted.at[(predicted.page == 0) & predicted.changed]
    assert len(seen) == 1
    assert seen[0] >= 2.5


@pytest.mark.dear
def test_the_same_seed_gives_the_same_crawls_and_another_one_others():
    world = a_world(50)
    once, again, other = (replay(world, 10.0, PLAN, seed=seed).crawls for seed in (1, 1, 2))
    assert np.array_equal(once.at, again.at)
    assert not np.array_equal(np.sort(once.at), np.sort(other.at))


def test_pages_come_and_go():
    world = world_of(
        [[1.5], [12.5], [3.5]], days=20.0, created=[0, 4.3, 0], ended=[20.0, 20.0, 8.7]
    )
    crawls = replay(world, 3.0, PLAN).crawls
    assert crawls.at[crawls.page == 1].min() > 4.3
    assert (crawls.at[crawls.page == 2] >= 8.7).sum() == 1


@pytest.mark.dear
def test_notices_are_followed_as_far_as_they_are_worth_it():
    world = a_world(200, complete_share=1.0)
    crawls = replay(world, 2 * world.change_rate.sum(), PLAN).crawls
    after_first_day = world.changed_at > 1.0
    changes = set(world.changed_at[after_first_day].tolist())
    followed = changes & set(crawls.at.tolist())
    assert len(followed) > 0.9 * len(changes)


def test_notices_of_one_s_own_replace_those_of_the_world():
    world = a_world(20, complete_share=1.0)
    silent = replay(world, 10.0, PLAN, notices=Crawls.none()).crawls
    assert not set(world.changed_at.tolist()) & set(silent.at.tolist())


@pytest.mark.parametrize("name", ["lognormal", "binned_mle", "naive", "mle"])
def test_every_kind_of_estimator_plays(name):
    outcome = replay(a_world(40, days=8.0), 10.0, Plan(make_estimator(name)))
    assert len(outcome.crawls.at) > 60
    expected = 0 if name == MLE.name else 40
    assert len(outcome.predicted.at) >= expected


def test_progress_is_told():
    days = []
    replay(a_world(5, days=3.5), 2.0, PLAN, progress=days.append)
    assert days == [1.0, 2.0, 3.0, 3.5]


@pytest.mark.dear
def test_news_are_crawled_while_they_are_hot():
    """An issue a week, edited in its first five days; old pages hardly change."""
    rng = np.random.default_rng(4)
    created = np.append(np.zeros(60), np.arange(3.0, 150.0, 2.0))
    hot = [[] if at == 0 else (at + rng.uniform(0, 5, 12)).tolist() for at in created]
    quiet = [rng.uniform(at, 160.0, rng.poisson(0.3)).tolist() for at in created]
    changes = [a + b for a, b in zip(hot, quiet, strict=True)]
    world = world_of(changes, days=160.0, created=created)
    plan = Plan(make_estimator("bursty", half_life_days=180.0))
    with_ages, without = (
        staleness(world, replay(world, 15.0, replace(plan, ages=ages)).crawls).harmonic
        for ages in (True, False)
    )
    assert with_ages < 0.9 * without
