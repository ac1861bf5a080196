"""The age profile: by hand, by a fine sum, learnt from a world where it is known, and flat."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core import age_evidence
from service.core.age_evidence import AgedCrawls, AgeEvidence, fitted_factors, learn, profile
from service.core.ages import ENDS, N_BINS, STARTS, AgeProfile, Aging
from service.core.common_values import alone
from service.core.estimators.bursty import Bursty, BurstyState
from service.core.estimators.gamma import Gamma, GammaState
from service.core.prior import Prior

HOT = AgeProfile(np.where(STARTS < 1, 3.0, 1.0))
FLAT = AgeProfile(np.ones(N_BINS))


def test_evidence_counts_as_long_as_the_profile_says_and_fades_from_the_last_crawl_back():
    two, days = np.array([2.0]), np.array([2.0])
    assert HOT.exposure(two, days, None) == pytest.approx(2.0)  # (3 + 1) / 2
    # of the fading sum 1/2 + 1/4 the younger day is the lesser part: (1/2 + 3/4) / (3/4)
    assert HOT.exposure(two, np.array([0.75 / np.log(2)]), 1.0) == pytest.approx(5 / 3)
    assert HOT.recent(two, days, 1.0) == pytest.approx(5 / 3)
    assert HOT.between(np.array([0.5, 3.0]), np.array([1.5, 3.0])).tolist() == [2.0, 1.0]


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.01, 1e4), min_size=N_BINS, max_size=N_BINS),
    st.floats(0.01, 900.0),
    st.floats(0.01, 900.0),
    st.floats(5.0, 400.0),
)
def test_means_are_those_of_a_fine_sum(factor, age, days, half_life):
    g = AgeProfile(np.array(factor))
    decay = np.log(2.0) / half_life
    longest = -np.expm1(-decay * age) / decay
    length = age if days >= longest else min(age, -np.log1p(-days * decay) / decay)
    for span, found in (
        (length, g.exposure(np.array([age]), np.array([days]), half_life)),
        (min(days, age), g.recent(np.array([age]), np.array([days]), half_life)),
    ):
        # the ends of bins are ends of steps, so that no step has two factors
        edges = np.append(STARTS[(age > STARTS) & (age - STARTS < span)], [age - span, age])
        edges = np.unique(np.append(edges, np.linspace(age - span, age, 2_001)))
        middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        weight = width * np.exp2((middle - age) / half_life)
        mean = (weight * g.at(middle)).sum() / weight.sum()
        assert found == pytest.approx(mean, rel=1e-4)


def states(n=40, seed=1):
    rng = np.random.default_rng(seed)
    days = rng.exponential(60, n) * (rng.random(n) < 0.9)
    return BurstyState(rng.poisson(days / 20).astype(float), days, rng.random(n)), rng


def test_a_flat_profile_reads_every_state_as_without_one():
    state, rng = states()
    row = np.arange(0, 40, 2)
    ages = row, rng.exponential(100, 20), state.days[row], np.ones(20)
    for plain, own in (
        (Bursty(half_life_days=180.0), state),
        (Gamma(half_life_days=180.0), GammaState(state.changes, state.days)),
        (Gamma(), GammaState(state.changes, state.days)),
    ):
        aged = plain.with_profile(FLAT).aged(*ages)
        assert aged.aging is not None
        for name in ("posterior", "evidence", "change_rate", "credible_interval"):
            expected, found = (getattr(each, name)(own) for each in (plain, aged))
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_hot_page_is_expected_to_cool_down():
    """Five changes in its first day say little about a page's later years."""
    bursty = Bursty(Prior(0.5, 500.0), dispersion=50.0)
    state = bursty.init(1)
    for _ in range(5):
        state = bursty.update(state, np.array([0.2]), np.array([True]))
    news = AgeProfile(np.where(STARTS < 8, 1_000.0, 1.0))
    hot, cold = (
        bursty.with_profile(news)
        .aged(np.array([0]), np.ones(1), state.days, np.array([now]))
        .change_rate(state)[0]
        for now in (1_000.0, 1.0)
    )
    flat = bursty.change_rate(state)[0]
    assert hot == pytest.approx(1_000 * cold)
    assert cold < flat / 2 < hot


def test_ages_of_some_pages_are_taken_by_row():
    aging = Aging(
        np.array([1, 4, 6]), *np.array([[2.0, 5.0, 7.0], [3.0, 6.0, 8.0], [4.0, 7.0, 9.0]])
    )
    for some in (aging.take(np.array([3, 4, 5, 6])), aging.within(slice(3, 7))):
        assert some.row.tolist() == [1, 3]
        assert some.exposed(np.ones(4)).tolist() == [1.0, 5.0, 1.0, 7.0]
        assert some.recently(4).tolist() == [1.0, 6.0, 1.0, 8.0]
        assert some.now(4).tolist() == [1.0, 7.0, 1.0, 9.0]
    assert aging.take(np.array([0, 2])).now(2).tolist() == [1.0, 1.0]
    assert aging.take(np.zeros(0, np.int64)).now(0).tolist() == []


@pytest.mark.parametrize("estimator", [Bursty(half_life_days=180.0), Gamma(), Gamma(Prior(1, 9))])
def test_the_state_before_a_crawl_is_found_again(estimator):
    before = estimator.init(5)
    rng = np.random.default_rng(3)
    for _ in range(6):
        before = estimator.update(before, rng.exponential(3, 5), rng.random(5) < 0.5)
    length, changed = np.full(5, 2.0), np.array([False, False, True, True, True])
    after = estimator.update(before, length, changed)
    found = estimator.before(after, length, changed)
    for column, true in zip(found, before, strict=True):
        np.testing.assert_allclose(column[:2], true[:2], rtol=1e-9, atol=1e-12)
    rates = estimator.change_rate(found), estimator.change_rate(before)
    np.testing.assert_allclose(*rates, rtol=0.1)


def crawls_of_a_world(factor, n_pages=4_000, n_days=80, seed=1):
    """Yield a day's crawls of pages with known rates and a known profile, every third day."""
    g, rng = AgeProfile(factor), np.random.default_rng(seed)
    born = rng.uniform(-400.0, n_days, n_pages)
    rate = rng.gamma(0.5, 0.01, n_pages)
    for day in range(n_days):
        there = np.flatnonzero((born < day - 3) & (np.arange(n_pages) % 3 == day % 3))
        start = day - 3 - born[there]
        end = start + 3.0
        expected = rate[there] * (g.passed(end) - g.passed(start))
        changed = rng.random(len(there)) < -np.expm1(-expected)
        yield AgedCrawls(start, end, rate[there], changed)


def learnt(factor, **given):
    evidence = AgeEvidence.none()
    for crawls in crawls_of_a_world(factor, **given):
        evidence = alone(learn(evidence, crawls, 1.0))
    return evidence


def test_a_known_profile_is_learnt_and_the_gate_opens():
    true = np.where(STARTS < 16, 30.0, 1.0)
    evidence = learnt(true)
    found = profile(evidence).factor
    np.testing.assert_allclose(found[9:], 1.0, rtol=0.15)
    # an interval over several bins says little about each; a bin without evidence is as the next
    np.testing.assert_allclose(found[4:9], 30.0, rtol=0.4)
    np.testing.assert_allclose(found[:4], found[4], rtol=0.1)


def test_many_short_epochs_prove_as_much_as_one_a_day():
    """Most of them see no change, and the few that do are proof."""
    whole, parts = AgeEvidence.none(), AgeEvidence.none()
    for crawls in crawls_of_a_world(np.where(STARTS < 16, 30.0, 1.0), n_days=20):
        whole = alone(learn(whole, crawls, 1.0))
        place = np.arange(len(crawls.start)) % 48
        for i in range(48):
            parts = alone(learn(parts, crawls.where(place == i), 1 / 48))
    assert parts.proof == pytest.approx(whole.proof, rel=0.1)
    assert whole.proof > 9


def test_pages_that_do_not_age_have_no_profile():
    for seed in range(3):
        evidence = learnt(np.ones(N_BINS), seed=seed)
        assert profile(evidence) is None
        np.testing.assert_allclose(fitted_factors(evidence), 1.0, atol=0.4)


def test_each_round_of_the_fit_makes_the_crawls_likelier():
    """Maximisation by hand: all crawls again and again, without fading and pseudo-changes."""
    every = [*crawls_of_a_world(np.where(STARTS < 16, 30.0, 1.0), n_days=20)]
    start, end, rate, changed = (np.concatenate(column) for column in zip(*every, strict=True))
    days = np.maximum(np.minimum(end[:, None], ENDS) - np.maximum(start[:, None], STARTS), 0)
    factor, scores = np.ones(N_BINS), []
    for _ in range(6):
        mean = rate * (days @ factor)
        scores.append(np.where(changed, np.log(-np.expm1(-mean)), -mean).sum())
        counted = age_evidence._counted(factor, AgedCrawls(start, end, rate, changed))
        # by hand, crawl by crawl
        shown = (rate * changed / -np.expm1(-mean))[:, None] * days * factor
        np.testing.assert_allclose(counted[0], shown.sum(0))
        np.testing.assert_allclose(counted[1], (rate[:, None] * days).sum(0))
        seen = counted[1] > 0
        factor = np.where(seen, counted[0] / np.where(seen, counted[1], 1.0), 1.0)
        factor[-1] = 1.0
    assert (np.diff(scores) >= -1e-9).all()


def test_one_day_moves_the_proof_by_little_and_evidence_survives_its_numbers():
    n = 5_000
    young = AgedCrawls(np.zeros(n), np.ones(n), np.full(n, 0.001), np.ones(n, np.bool_))
    evidence = alone(learn(AgeEvidence.none(), young, 0.5))
    assert evidence.proof == 0.0
    evidence = alone(learn(evidence, young, 0.5))
    assert abs(evidence.proof) == pytest.approx(2.0)
    again = AgeEvidence.unpacked(evidence.packed())
    for kept, number in zip(again, evidence, strict=True):
        np.testing.assert_array_equal(kept, number)


def test_evidence_of_parts_adds_up():
    whole = next(crawls_of_a_world(np.ones(N_BINS), n_days=1))
    half = np.arange(len(whole.start)) % 2 == 0
    parts = [learn(AgeEvidence.none(), whole.where(mask), 1.0) for mask in (half, ~half)]
    shares = [next(part) for part in parts]
    reply = shares[0].combine([share.value for share in shares])
    results = []
    for part in parts:
        with pytest.raises(StopIteration) as end:
            part.send(reply)
        results.append(end.value.value)
    alone_result = alone(learn(AgeEvidence.none(), whole, 1.0))
    for found in results:
        np.testing.assert_allclose(found.packed(), alone_result.packed(), rtol=1e-12)


def test_an_estimator_keeps_its_profile_among_the_numbers_of_its_corpus():
    numbers = replace(Bursty(), profile=HOT).corpus()
    again = Bursty().with_corpus(numbers)
    np.testing.assert_array_equal(again.profile.factor, HOT.factor)
    assert Bursty().with_corpus(Bursty().corpus()).profile is None
