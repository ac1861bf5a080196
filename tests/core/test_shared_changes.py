"""Shares of URL groups: scores by hand, sites that change together and sites that do not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import shared_changes as joint_shares
from service.core.checks import InvalidInput
from service.core.common_values import alone
from service.core.shared_changes import PRIOR, SHARES, ShareEvidence
from service.core.siblings import siblings


def learn(*arguments, **values):
    return alone(joint_shares.learn(*arguments, **values))


def shares(evidence):
    return alone(joint_shares.shares(evidence))


def test_half_of_the_groups_are_expected_to_have_nothing_in_common():
    assert PRIOR.sum() == pytest.approx(1.0)
    assert PRIOR[0] == 0.5
    assert shares(ShareEvidence.none(3)).tolist() == pytest.approx([PRIOR @ SHARES] * 3)
    assert shares(ShareEvidence.none(0)).shape == (0,)


def test_the_score_of_one_crawl_by_hand():
    """Page 0 had not changed in 10 days in which both of its siblings had."""
    url_group, rate = np.zeros(3, int), 0.02
    shown = siblings(url_group, [0.0, 1.0, 1.0], [-10.0, 6.0, 6.0], rate)
    before = ShareEvidence.none(1)
    after = learn(
        before, url_group, shown.within_last_intervals(np.array([True, False, False])), days=1.0
    )
    own, expected = 15 * 0.2, 2 * -np.expm1(-0.12)
    ratio = (own + 2) / (own + expected)
    np.testing.assert_allclose(after.score[0], -0.2 * SHARES * (ratio - 1), rtol=1e-9)
    np.testing.assert_allclose(
        after.n_expected, -np.expm1(-0.2 * (1 + SHARES * (ratio - 1))), rtol=1e-9
    )
    assert after.n_changed == 0


def made_up(n_groups, size, together, days=300, rate=0.1, seed=1):
    """Learn from pages that are crawled every four days and change together or alone."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), size)
    n, age = len(group), rng.integers(0, 4, n_groups * size) + 0.0
    evidence = ShareEvidence.none(n_groups)
    seen = np.zeros(n, bool)
    interval = np.zeros(n)
    for _ in range(days):
        revised = rng.random(n_groups) < rate
        alone = rng.random(n) < rate * (1 - together)
        seen |= alone | (revised[group] & (rng.random(n) < together))
        age += 1
        crawled = age >= 4
        interval[crawled] = np.where(seen[crawled], 4.0, -4.0)
        age[crawled], seen[crawled] = 0.0, False
        shown = siblings(group, age, interval, rate, float(evidence.calibration[0]))
        evidence = learn(evidence, group, shown.within_last_intervals(crawled), days=1.0)
    return evidence


def test_pages_that_change_alone_are_seen_to():
    learnt = shares(made_up(30, 20, together=0.0))
    assert learnt.mean() < 0.6 * PRIOR @ SHARES


def test_pages_that_change_together_are_seen_to():
    assert shares(made_up(30, 20, together=0.8)).min() > 0.4


def test_rates_that_are_all_too_low_are_no_sign_of_a_share():
    """The same pages, whose rates are believed to be a third of what they are."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(20), 20)
    evidence = ShareEvidence.none(20)
    for _ in range(120):
        age, length = rng.uniform(0, 1, 400), rng.uniform(2, 6, 400)
        changed = rng.random(400) < -np.expm1(-0.09 * length)
        interval = np.where(changed, length, -length)
        shown = siblings(group, age, interval, 0.03, float(evidence.calibration[0]))
        evidence = learn(evidence, group, shown.within_last_intervals(np.ones(400, bool)), days=1.0)
    assert evidence.calibration[0] == pytest.approx(3.0, rel=0.2)
    assert shares(evidence).mean() < 0.1


def test_groups_without_evidence_take_after_the_others():
    alone, common = made_up(30, 20, together=0.0), made_up(30, 20, together=0.8)
    low, high = (shares(each._replace(n_groups=each.n_groups + 1))[-1] for each in (alone, common))
    assert low < 0.6 * PRIOR @ SHARES
    assert high > 0.4


@given(st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 6))
def test_buckets_that_split_and_join_keep_their_evidence(seed, log_n, log_m):
    rng = np.random.default_rng(seed)
    n, m = 1 << log_n, 1 << log_m
    group = np.flatnonzero(rng.random(n) < 0.7)
    score = rng.normal(0, 10, (group.size, 7))
    evidence = ShareEvidence(n, group, score - score[:, :1], rng.random(7), 3.0)
    moved = evidence.resized(m)
    assert (moved.n_groups, moved.n_changed) == (m, 3.0)
    np.testing.assert_array_equal(moved.n_expected, evidence.n_expected)
    table, expected = np.zeros((m, 7)), np.zeros((m, 7))
    table[moved.group] = moved.score
    for old, row in zip(group, evidence.score, strict=True):
        new = np.arange(old % m, m, n) if m > n else np.array([old % m])
        expected[new] += row / new.size
    np.testing.assert_allclose(table, expected, atol=1e-9)
    assert (np.diff(moved.group) > 0).all()


def test_buckets_without_evidence_take_no_room():
    group = np.array([0, 0, (1 << 20) - 1, 5])
    shown = siblings(group, [0.0, 1.0, 1.0, 0.0], [-10.0, 6.0, 6.0, 4.0], 0.02)
    last = shown.within_last_intervals(np.ones(4, bool))
    evidence = learn(ShareEvidence.none(1 << 20), group, last, days=1.0)
    assert evidence.group.tolist() == [0], "the others have no siblings"
    assert shares(evidence).shape == (1 << 20,)
    assert shares(evidence)[0] != shares(evidence)[1] == shares(evidence)[-1]


def test_the_last_bucket_is_packed_exactly():
    score = np.arange(7.0)[np.newaxis]
    evidence = ShareEvidence(1 << 20, np.array([(1 << 20) - 1]), score, np.ones(7), 2.0)
    again = ShareEvidence.unpacked(evidence.packed())
    assert (again.n_groups, again.group.tolist()) == (1 << 20, [(1 << 20) - 1])


def test_evidence_is_packed_in_single_precision():
    evidence = made_up(4, 5, together=0.5, days=20)
    again = ShareEvidence.unpacked(evidence.packed())
    assert evidence.packed().dtype == np.float32
    assert evidence.packed().size == 4 * 7 + 9
    for ours, theirs in zip(evidence, again, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [0, 8, 10])
def test_numbers_that_are_no_evidence_are_refused(n):
    with pytest.raises(InvalidInput):
        ShareEvidence.unpacked(np.zeros(n, np.float32))


def test_scores_fade_by_half_in_a_year():
    nothing = siblings(np.zeros(1, int), [np.nan], [0.0], 0.1)
    evidence = ShareEvidence(1, np.zeros(1, int), np.ones((1, 7)), np.ones(7), 8.0)
    after = learn(
        evidence, np.zeros(1, int), nothing.within_last_intervals(np.zeros(1, bool)), days=365.0
    )
    np.testing.assert_allclose(after.score, 0.5)
    assert after.n_changed == pytest.approx(8 * 2 ** (-365 / 60))
