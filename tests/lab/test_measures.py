"""Measures of a policy: against an event loop, whole resamples, and what must be conserved."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sim_cases import crawls_of, world_of

from recrawl_lab.policies.plain import uniform
from recrawl_lab.replay.measures import ConfidenceInterval, interval, measured, resampled, terms
from recrawl_lab.replay.staleness import Crawls, staleness, uncrawled
from recrawl_lab.worlds.world import synthetic_world


def by_event_loop(world, crawls):
    """Walk through each page; sums of binary, age, weighted binary, weighted age, never crawled."""
    binary = age = weighted_binary = weighted_age = never = 0.0
    for page in range(len(world)):
        weight, low, high = world.importance[page], world.created[page], world.ended[page]
        own = sorted(t for p, t in zip(*crawls, strict=True) if p == page and low < t < high)
        never += not own
        for start, end in zip([low, *own], [*own, high], strict=True):
            unseen = [t for t in world.changes_of(page) if start < t < end]
            if unseen:
                stale = end - min(unseen)
                binary, age = binary + stale, age + stale**2 / 2
                weighted_binary += weight * stale
                weighted_age += weight * stale**2 / 2
    life, heavy = world.life.sum(), world.importance @ world.life
    return (
        binary / life,
        age / life,
        weighted_binary / heavy,
        weighted_age / heavy,
        never / len(world),
    )


instants = st.lists(st.integers(1, 40).map(lambda k: k / 4), max_size=6, unique=True)


@pytest.mark.dear
@given(
    st.lists(st.tuples(instants, instants, st.integers(0, 20), st.integers(21, 40)), min_size=1),
    st.integers(1, 5),
)
def test_the_measures_are_what_an_event_loop_counts(pages, heaviest):
    created = [a / 4 for _, _, a, _ in pages]
    ended = [b / 4 for _, _, _, b in pages]
    lives = zip(pages, created, ended, strict=True)
    changes = [[t for t in c if a < t <= b] for (c, _, _, _), a, b in lives]
    importance = [1 + i % heaviest for i in range(len(pages))]
    world = world_of(changes, importance=importance, created=created, ended=ended)
    crawls = crawls_of(*((i, t) for i, (_, times, _, _) in enumerate(pages) for t in times))
    found = measured(terms(world, uncrawled(world, crawls)))
    assert (
        found.binary_plain,
        found.age_days_plain,
        found.binary,
        found.age_days,
        found.never_crawled,
    ) == pytest.approx(by_event_loop(world, crawls))
    exact = staleness(world, crawls)
    assert (found.harmonic, found.binary) == pytest.approx((exact.harmonic, exact.binary))


def test_by_hand_two_changes_one_crawl():
    world = world_of([[1.0, 2.0], []], importance=[3.0, 1.0])
    found = measured(terms(world, uncrawled(world, crawls_of((0, 4.0)))))
    assert found.harmonic == pytest.approx(3 * (1 + 2 * 1.5) / 40)
    assert found.harmonic_plain == pytest.approx((1 + 2 * 1.5) / 20)
    assert found.age_days_plain == pytest.approx(4.5 / 20)  # 0 to 3 days old for 3 days
    assert found.never_crawled == 0.5


def test_a_crawl_that_finds_the_page_gone_is_none():
    world = world_of([[1.0]], ended=[5.0])
    assert measured(terms(world, uncrawled(world, crawls_of((0, 6.0))))).never_crawled == 1.0


def a_pair_of_policies(n_pages=80):
    world = synthetic_world(n_pages, 20.0, rng=np.random.default_rng(3))
    return [terms(world, uncrawled(world, uniform(world, bandwidth))) for bandwidth in (10.0, 40.0)]


def test_resamples_are_those_of_drawing_pages_one_by_one():
    policies = a_pair_of_policies(7)
    drawn = resampled(policies, rng=np.random.default_rng(5), n_resamples=30)
    page = np.random.default_rng(5).integers(7, size=(30, 7))
    for p, found in enumerate(policies):
        expected = found.above[page].sum(axis=1) / found.below[page].sum(axis=1)
        got = np.column_stack([column[:, p] for column in drawn])
        np.testing.assert_allclose(got, expected)


def test_blocks_draw_what_one_block_would(monkeypatch):
    policies = a_pair_of_policies(9)
    whole = resampled(policies, rng=np.random.default_rng(5), n_resamples=25)
    monkeypatch.setattr("recrawl_lab.replay.measures.BLOCK", 36)
    in_blocks = resampled(policies, rng=np.random.default_rng(5), n_resamples=25)
    np.testing.assert_allclose(np.array(in_blocks), np.array(whole))


def test_intervals_hold_the_value_as_often_as_they_say():
    """Pages of a large world, 60 at a time: 90 % intervals must miss the world's own mean 10 %."""
    world = synthetic_world(12_000, 20.0, rng=np.random.default_rng(9), importance="equal")
    whole = terms(world, uncrawled(world, uniform(world, 3000.0)))
    truth, rng, held = measured(whole).binary_plain, np.random.default_rng(1), 0
    for start in range(0, 12_000, 60):
        part = type(whole)(*(column[start : start + 60] for column in whole))
        low, high = interval(resampled([part], rng=rng, n_resamples=300).binary_plain[:, 0])
        held += low <= truth <= high
    assert held / 200 == pytest.approx(0.9, abs=0.06)


def test_policies_share_their_resamples():
    policies = a_pair_of_policies()
    drawn = resampled(policies, rng=np.random.default_rng(1)).harmonic
    ratio = drawn[:, 1] / drawn[:, 0]
    assert ratio.std() / ratio.mean() < 0.5 * drawn[:, 1].std() / drawn[:, 1].mean()


def test_an_interval_cuts_the_same_share_off_both_ends():
    assert interval(np.arange(101.0)) == pytest.approx(ConfidenceInterval(5.0, 95.0))


def test_nothing_crawled_is_as_stale_as_can_be():
    world = world_of([[2.0]], days=10.0)
    found = measured(terms(world, uncrawled(world, Crawls.none())))
    assert (found.binary, found.age_days) == pytest.approx((0.8, 8**2 / 2 / 10))
