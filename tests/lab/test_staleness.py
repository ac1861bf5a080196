"""Exact staleness, against an event loop, closed forms and conservation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sim_cases import crawls_of, world_of

from recrawl_lab.replay.staleness import Crawls, harmonic_numbers, merged, staleness, uncrawled
from recrawl_lab.worlds.world import synthetic_world
from service.core.costs import costs


def by_event_loop(world, crawls):
    """Walk through the events one by one; weighted harmonic and binary integrals."""
    harmonic = binary = lived = 0.0
    for page in range(len(world)):
        weight, now, n = world.importance[page], world.created[page], 0
        events = [(t, 0) for t in world.changes_of(page)]
        events += [(t, 1) for p, t in zip(*crawls, strict=True) if p == page]
        for t, is_crawl in [*sorted(events), (world.ended[page], 2)]:
            if world.created[page] < t <= world.ended[page]:
                harmonic += weight * (t - now) * sum(1 / k for k in range(1, n + 1))
                binary += weight * (t - now) * (n > 0)
                now, n = t, 0 if is_crawl else n + 1
        lived += weight * (world.ended[page] - world.created[page])
    return harmonic / lived, binary / lived


instants = st.lists(st.integers(1, 40).map(lambda k: k / 4), max_size=6)


@given(
    st.lists(st.tuples(instants, instants, st.integers(0, 20), st.integers(21, 40)), min_size=1),
    st.integers(1, 5),
)
def test_staleness_is_what_an_event_loop_counts(pages, heaviest):
    created = [a / 4 for _, _, a, _ in pages]
    ended = [b / 4 for _, _, _, b in pages]
    lives = zip(pages, created, ended, strict=True)
    changes = [[t for t in c if a < t <= b] for (c, _, _, _), a, b in lives]
    importance = [1 + i % heaviest for i in range(len(pages))]
    world = world_of(changes, importance=importance, created=created, ended=ended)
    crawls = crawls_of(*((i, t) for i, (_, times, _, _) in enumerate(pages) for t in times))
    measured = staleness(world, crawls, bins=7)
    assert (measured.harmonic, measured.binary) == pytest.approx(by_event_loop(world, crawls))


def test_by_hand_three_changes_and_a_crawl():
    world = world_of([[1.0, 2.0, 6.0]])
    measured = staleness(world, crawls_of((0, 4.0)))
    assert measured.harmonic == pytest.approx((1 * 1 + 2 * 1.5 + 4 * 1) / 10)
    assert measured.binary == pytest.approx((3 + 4) / 10)


def test_a_crawl_at_the_instant_of_a_change_sees_it():
    assert staleness(world_of([[3.0]]), crawls_of((0, 3.0))).binary == 0.0


def test_crawls_outside_of_a_life_and_worlds_without_changes_count_nothing():
    world = world_of([[3.0]], created=[2.0], ended=[5.0])
    early_and_late = crawls_of((0, 1.0), (0, 2.0), (0, 5.0), (0, 7.0))
    assert staleness(world, early_and_late).harmonic == pytest.approx(2 / 3)
    assert staleness(world_of([[], []]), Crawls.none()).harmonic == 0.0


def test_the_curve_averages_to_the_mean_where_all_pages_exist():
    world = synthetic_world(200, 20.0, rng=np.random.default_rng(3))
    measured = staleness(world, crawls_of((3, 4.0), (7, 11.5)), bins=13)
    assert measured.harmonic_curve.mean() == pytest.approx(measured.harmonic)
    assert len(measured.edges) == 14


def test_the_curve_weighs_only_the_pages_that_exist():
    world = world_of([[1.0], []], created=[0, 5.0], ended=[5.0, 10.0])
    measured = staleness(world, Crawls.none(), bins=2)
    assert measured.harmonic_curve == pytest.approx([0.8, 0.0])
    assert measured.harmonic == pytest.approx(0.4)


def test_steps_cover_every_life_once_whatever_the_order_of_crawls():
    world = synthetic_world(100, 10.0, rng=np.random.default_rng(4))
    pages = np.random.default_rng(5).integers(0, 100, 500)
    crawls = Crawls(pages, 10 * np.random.default_rng(6).random(500))
    steps = uncrawled(world, crawls)
    assert np.bincount(steps.page, steps.days) == pytest.approx(np.full(100, 10.0))
    shuffled = Crawls(crawls.page[::-1], crawls.at[::-1])
    assert staleness(world, crawls).harmonic == staleness(world, shuffled).harmonic
    halves = merged(Crawls(pages[:200], crawls.at[:200]), Crawls(pages[200:], crawls.at[200:]))
    assert staleness(world, halves).harmonic == staleness(world, crawls).harmonic


def test_harmonic_numbers():
    assert harmonic_numbers(np.array([], np.int64)).shape == (0,)
    assert harmonic_numbers(np.array([3, 0, 1])) == pytest.approx([11 / 6, 0, 1])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("timing", ["periodic", "poisson"])
@pytest.mark.parametrize("crawl_rate", [0.1, 1.0])
def test_poisson_pages_cost_what_the_closed_forms_say(timing, crawl_rate):
    draw = np.random.default_rng(11)
    n_pages, days, change_rate = 400, 400.0, 0.5
    counts = draw.poisson(change_rate * days, n_pages)
    world = world_of([days * (1 - draw.random(n)) for n in counts], days=days)
    if timing == "periodic":
        n_each = np.full(n_pages, int(crawl_rate * days) + 1)
        turn = np.concatenate([np.arange(n) for n in n_each])
        at = (turn + np.repeat(draw.random(n_pages), n_each)) / crawl_rate
    else:
        n_each = draw.poisson(crawl_rate * days, n_pages)
        at = days * draw.random(n_each.sum())
    measured = staleness(world, Crawls(np.repeat(np.arange(n_pages), n_each), at))
    page = ([1.0], [change_rate], [crawl_rate], [0.0], [False])
    expected = costs(*page, timing=timing)
    assert measured.harmonic == pytest.approx(expected.harmonic[0], rel=0.03)
    assert measured.binary == pytest.approx(expected.binary[0], rel=0.03)
