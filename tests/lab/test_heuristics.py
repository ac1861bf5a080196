"""Interval heuristics: their queue against an event loop, and what it must never do."""

import heapq
from dataclasses import replace

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.policies import tuning
from recrawl_lab.policies.heuristics import play
from recrawl_lab.policies.nutch import MODIFIED, NOT_MODIFIED, UNKNOWN, Nutch, NutchState
from recrawl_lab.policies.peers import (
    NUTCH,
    PEERS,
    START_MS,
    STORMCRAWLER,
    ByNutch,
    ByStormCrawler,
    Fixed,
)
from recrawl_lab.policies.plain import uniform
from recrawl_lab.policies.stormcrawler import StormCrawler
from recrawl_lab.policies.tuning import USED, tuned
from recrawl_lab.replay.staleness import staleness
from recrawl_lab.worlds.phases import phase
from recrawl_lab.worlds.versions import Versions
from recrawl_lab.worlds.world import synthetic_world

DAY_MS = 86_400_000


def mortal_world(n_pages=60, days=30.0, seed=3):
    """Pages that come and go, of different importance."""
    rng = np.random.default_rng(seed)
    world = synthetic_world(n_pages, days, rng=rng)
    created = np.where(rng.random(n_pages) < 0.5, 0.0, days / 2 * rng.random(n_pages))
    ended = np.where(rng.random(n_pages) < 0.7, days, days * (0.5 + rng.random(n_pages) / 2))
    changes = [
        [t for t in world.changes_of(i) if created[i] < t <= ended[i]] for i in range(n_pages)
    ]
    return world_of(changes, days, world.importance, created, ended)


def first_due(world, page, interval):
    share = 1 - float(phase(np.array([page]))[0]) if world.created[page] == 0 else 1.0
    return world.created[page] + share * interval


def storm_by_event_loop(world, bandwidth, storm):
    """One crawler, a heap of due instants."""
    minutes = storm.default_interval_min / 1440
    heap = [(first_due(world, page, minutes), page) for page in range(len(world))]
    heapq.heapify(heap)
    interval = dict.fromkeys(range(len(world)), storm.default_interval_min)
    seen = dict.fromkeys(range(len(world)), 0)
    free, done = 0.0, []
    while heap:
        due, page = heapq.heappop(heap)
        at = max(due, free)
        if at >= world.days:
            break
        free = at + 1 / bandwidth
        done.append((page, at))
        changed = world.version(page, at) > seen[page]
        seen[page] = world.version(page, at)
        interval[page] = storm.update(np.array([interval[page]]), np.array([changed])).item()
        if not world.gone(page, at):
            heapq.heappush(heap, (at + interval[page] / 1440, page))
    return done


@pytest.mark.parametrize("per_page", [0.0531, 0.4127, 3.0193, 60.07])
def test_the_most_overdue_page_is_always_next_as_in_an_event_loop(per_page):
    world, storm = mortal_world(), StormCrawler(min_interval_min=30)
    crawls = play(ByStormCrawler(storm), world, per_page * len(world))
    page, at = zip(*storm_by_event_loop(world, per_page * len(world), storm), strict=True)
    assert crawls.page.tolist() == list(page)
    assert crawls.at == pytest.approx(at, abs=1e-9)


def nutch_by_event_loop(world, bandwidth, nutch):
    """A segment a day: the pages due within it, the most important ones; one crawler."""

    def day(ms):
        return (ms - START_MS) / DAY_MS

    def crawl(page, at, outcome):
        row = NutchState(*(np.array([v]) for v in state[page]))
        (interval, modified), due = nutch.update(
            row, np.array([round(at * DAY_MS) + START_MS]), outcome
        )
        state[page] = interval.item(), modified.item()
        return day(due.item())

    state = dict.fromkeys(range(len(world)), (0, 0))
    due = {p: crawl(p, world.created[p], UNKNOWN) for p in range(len(world))}
    due = {p: first_due(world, p, d - world.created[p]) for p, d in due.items()}
    seen, start, done = dict.fromkeys(due, 0), 0.0, []
    while due:
        for page in [
            p
            for p, d in due.items()
            if world.created[p] <= start and d > start + nutch.refetch_after_s / 86_400
        ]:
            due[page] = day(round(start * DAY_MS) + START_MS)
            interval = min(state[page][0], round(0.9 * nutch.refetch_after_s))
            if state[page][0] > nutch.refetch_after_s:
                state[page] = interval, state[page][1]
        start = max(start, min(due.values()))
        if start >= world.days:
            break
        chosen = [p for p, d in due.items() if d < start + 1]
        chosen.sort(key=lambda p: (-world.importance[p], due[p]))
        chosen = sorted(chosen[: int(np.ceil(bandwidth))], key=due.get)
        free = start
        for page in chosen:
            at = max(free, due[page])
            free = at + 1 / bandwidth
            done.append((page, at))
            changed = world.version(page, at) > seen[page]
            seen[page] = world.version(page, at)
            due[page] = crawl(page, at, MODIFIED if changed else NOT_MODIFIED)
            if world.gone(page, at):
                del due[page]
        start = max(start + 1, free)
    return [(page, at) for page, at in done if at < world.days]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("per_page", [0.02, 0.3, 2.0])
def test_nutch_crawls_the_most_important_due_pages_of_each_day_as_in_an_event_loop(per_page):
    world = mortal_world(days=400.0)
    quick = Nutch(default_interval_s=200_000, refetch_after_s=2_000_000)
    crawls = play(ByNutch(quick), world, per_page * len(world))
    page, at = zip(*nutch_by_event_loop(world, per_page * len(world), quick), strict=True)
    assert crawls.page.tolist() == list(page)
    assert crawls.at == pytest.approx(at, abs=1e-7)


def test_nutch_as_shipped_crawls_a_page_that_never_changes_every_day_in_the_end():
    at = np.sort(play(NUTCH, world_of([[]], days=400.0), bandwidth=1.0).at)
    assert (np.diff(at)[:3] > 20).all()
    assert np.diff(at)[-50:] == pytest.approx(np.ones(50))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PEERS)
def test_no_peer_exceeds_the_bandwidth_at_any_time_or_crawls_what_it_cannot_know(name):
    world, bandwidth = mortal_world(days=90.0), 12.0
    crawls = PEERS[name].policy(world, bandwidth)
    at = np.sort(crawls.at)
    assert len(at) > 50
    assert (np.diff(at) >= 1 / bandwidth - 1e-9).all()
    assert (crawls.at > world.created[crawls.page]).all()
    assert at[-1] < world.days
    in_vain = crawls.page[world.gone(crawls.page, crawls.at)]
    assert len(in_vain) == len(set(in_vain))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name in PEERS if name.endswith("tuned")])
def test_tuned_peers_use_the_bandwidth_up(name):
    world, bandwidth = mortal_world(300, 200.0), 60.0
    used = len(PEERS[name].policy(world, bandwidth).at) / (bandwidth * world.days)
    assert USED[0] <= used <= USED[1]


def test_a_pilot_with_few_of_the_pages_finds_the_scale_of_a_large_world(monkeypatch):
    world, bandwidth = mortal_world(600, 100.0), 120.0
    plays = []

    def counted(heuristic, part, budget):
        plays.append(len(part))
        return play(heuristic, part, budget)

    monkeypatch.setattr(tuning, "play", counted)
    monkeypatch.setattr(tuning, "PILOT_PAGES", 100)
    used = len(tuned(STORMCRAWLER, world, bandwidth).at) / (bandwidth * world.days)
    assert USED[0] <= used <= USED[1]
    assert set(plays) == {100, 600}
    assert plays == sorted(plays)
    assert plays.count(600) < 8


def test_a_tuned_fixed_interval_is_uniform_crawling():
    world = synthetic_world(300, 60.0, rng=np.random.default_rng(4))
    measured = staleness(world, tuned(Fixed(1.0), world, 60.0)).harmonic
    assert measured == pytest.approx(staleness(world, uniform(world, 60.0)).harmonic, rel=0.02)


def test_a_fixed_interval_is_kept_where_the_bandwidth_allows():
    world = world_of([[]] * 5, days=50.0, created=[0, 0, 0, 7.3, 0], ended=[50, 50, 50, 50, 9.1])
    crawls = play(Fixed(2.0), world, bandwidth=1_000.0)
    for page in range(5):
        at = np.sort(crawls.at[crawls.page == page])
        assert np.diff(at) == pytest.approx(np.full(len(at) - 1, 2.0), abs=0.01)
    assert crawls.at[crawls.page == 3].min() == pytest.approx(9.3)
    assert 9.1 <= crawls.at[crawls.page == 4].max() < 11.1


def test_too_short_an_interval_becomes_a_round_robin():
    crawls = play(Fixed(0.01), world_of([[]] * 4, days=40.0), bandwidth=1.0)
    assert len(crawls.at) == 40
    assert all((crawls.page[i : i + 4] != crawls.page[i + 4 : i + 8]).sum() == 0 for i in range(32))


def test_an_idle_world_and_no_bandwidth_are_no_crawls():
    world = mortal_world()
    for peer in PEERS.values():
        assert len(peer.policy(world, 0.0).at) == 0
    assert len(play(STORMCRAWLER, world_of([], days=5.0), 3.0).at) == 0


def test_a_plan_leaves_the_world_as_it_was():
    world = mortal_world()
    copy = replace(world, created=world.created.copy(), changed_at=world.changed_at.copy())
    play(STORMCRAWLER, world, 30.0)
    assert np.array_equal(world.created, copy.created)
    assert np.array_equal(world.changed_at, copy.changed_at)


def test_versions_are_those_of_the_world_also_at_the_instants_of_changes():
    world = mortal_world()
    rng = np.random.default_rng(5)
    page = np.concatenate((world.changed_page, rng.integers(0, len(world), 500)))
    at = np.concatenate((world.changed_at, 30 * rng.random(500)))
    expected = [world.version(p, t) for p, t in zip(page.tolist(), at.tolist(), strict=True)]
    assert Versions(world).at(page, at).tolist() == expected
