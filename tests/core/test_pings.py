"""Ping quality: integrated posteriors, recovery by simulation, the tests' error rates, feeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln

from service.core.allocation.harmonic import allocate_harmonic
from service.core.checks import InvalidInput
from service.core.estimators.gamma import Gamma
from service.core.pings import (
    ERROR,
    VERDICT,
    PingEstimate,
    PingQuality,
    PingState,
    accepted,
    audit_rate,
    audited,
    discounted,
    precision_after_change,
    recent_pings,
    recent_rate,
    silent_feeds,
    trusted,
)
from service.core.prior import Prior


def arrays(*values):
    return [np.asarray(value, float) for value in values]


def simulate(quality, unannounced, ping_rate, precision, crawls, n, rng):
    """Crawl n pages at random times; pings are real with probability `precision`."""
    state = quality.init(n)
    for _ in range(crawls):
        interval = rng.exponential(1.5, n)
        n_pings = rng.poisson(ping_rate * interval)
        changed = (rng.poisson(unannounced * interval) + rng.binomial(n_pings, precision)) > 0
        state = quality.update(state, interval, n_pings, changed)
    return state


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("quiet", [0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize(("c", "d"), [(1.5, 0.5), (0.7, 3.0), (40.0, 10.0)])
def test_the_precision_has_mean_and_variance_of_the_integrated_posterior(c, d, n, quiet):
    logit = np.linspace(-60, 60, 400_001)
    q = 1 / (1 + np.exp(-logit))
    log_density = -c * np.log1p(np.exp(-logit)) - d * np.log1p(np.exp(logit)) - betaln(c, d)
    weight = np.exp(log_density) * (1.0 - quiet * (1.0 - q) ** n)
    weight /= weight.sum()
    mean = weight @ q
    new_c, new_d = precision_after_change(*arrays(c, d, n, quiet))
    np.testing.assert_allclose(new_c / (new_c + new_d), mean, rtol=1e-9)
    variance = new_c * new_d / ((new_c + new_d) ** 2 * (new_c + new_d + 1))
    np.testing.assert_allclose(variance, weight @ (q - mean) ** 2, rtol=1e-7)


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6), st.integers(1, 10_000), st.floats(0, 1))
def test_a_change_after_pings_never_lowers_the_precision(c, d, n, quiet):
    new_c, new_d = precision_after_change(*arrays(c, d, n, quiet))
    assert np.isfinite([new_c, new_d]).all()
    assert new_c / (new_c + new_d) >= c / (c + d) * (1 - 1e-6)


def test_one_ping_that_must_have_been_real_counts_as_one():
    np.testing.assert_allclose(precision_after_change(*arrays(1.5, 0.5, 1, 1.0)), (2.5, 0.5))


def test_unchanged_after_pings_counts_them_as_false_and_leaves_the_rest_alone():
    quality = PingQuality()
    state = quality.update(quality.init(), 2.0, 3, changed=False)
    np.testing.assert_allclose(state, PingState(0, 0, 0, 3, 3, 2))


def test_a_crawl_without_pings_is_evidence_of_unannounced_changes_only():
    quality = PingQuality()
    state = quality.update(quality.init(2), [2.0, 2.0], 0, [True, False])
    gamma = Gamma()
    expected = gamma.update(gamma.init(2), [2.0, 2.0], [True, False])
    np.testing.assert_array_equal([state.changes, state.days], expected)
    np.testing.assert_array_equal([state.real, state.false, state.pings], np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("unannounced", "ping_rate", "precision"), [(0.1, 0.5, 0.7), (0.5, 0.2, 0.95), (0.02, 1.0, 0.2)]
)
def test_rates_and_precision_are_found(unannounced, ping_rate, precision):
    quality = PingQuality(Gamma(Prior(0.5, 1.0)))
    rng = np.random.default_rng(1)
    state = simulate(quality, unannounced, ping_rate, precision, crawls=400, n=300, rng=rng)
    found = [float(column.mean()) for column in quality.estimate(state)]
    np.testing.assert_allclose(found, [unannounced, ping_rate, precision], rtol=0.05, atol=0.01)


def test_pages_move_from_incomplete_over_noisy_to_complete():
    quality = PingQuality(Gamma(Prior(0.5, 1.0)))
    rng = np.random.default_rng(2)
    recalls = []
    for unannounced, ping_rate, precision in ((0.5, 0.0, 0.5), (0.25, 0.25, 1.0), (0.0, 0.5, 1.0)):
        state = simulate(quality, unannounced, ping_rate, precision, crawls=300, n=100, rng=rng)
        recalls.append(quality.estimate(state).recall.mean())
    assert recalls[0] == 0.0
    assert abs(recalls[1] - 0.5) < 0.08
    assert recalls[2] > 0.97


def test_evidence_fades_with_the_half_life():
    quality = PingQuality(Gamma(half_life_days=10.0))
    state = quality.update(PingState(4.0, 8.0, 2.0, 2.0, 6.0, 20.0), 10.0, 1, changed=False)
    np.testing.assert_allclose(state, (2.0, 4.0, 1.0, 2.0, 4.0, 20.0))


@given(st.floats(1e-9, 1e5), st.integers(0, 10**6), st.booleans(), st.floats(0, 1e6))
def test_whatever_is_observed_the_estimate_is_finite(interval, n_pings, changed, evidence):
    quality = PingQuality(Gamma(half_life_days=365.0))
    state = PingState(evidence, evidence, evidence, evidence, evidence, evidence)
    for _ in range(3):
        state = quality.update(state, interval, n_pings, changed)
    estimate = quality.estimate(state)
    assert np.isfinite([*estimate, estimate.change_rate, estimate.recall]).all()
    assert 0 <= estimate.precision <= 1


def test_audits_take_their_share_of_ping_crawls_but_never_outpace_changes():
    estimate = PingEstimate(*arrays([0.1, 0.001], [2.0, 2.0], [0.5, 0.0]))
    np.testing.assert_allclose(audit_rate(estimate, [0.5, 1.0]), [0.03, 0.001])


@pytest.mark.parametrize(("recall", "should_trust"), [(0.95, True), (0.7, False)])
def test_the_trust_test_errs_in_no_more_than_its_share(recall, should_trust):
    rng = np.random.default_rng(3)
    n = 4000
    state, verdict = np.zeros(n), np.zeros(n)
    for _ in range(400):
        interval = 1.0 + rng.exponential(0.5, n)
        changed = rng.random(n) < -np.expm1(-(1 - recall) * interval)
        state = audited(state, interval, changed, change_rate=1.0)
        verdict = np.where(verdict != 0, verdict, trusted(state) * 1 - (state <= -VERDICT))
    assert (verdict != 0).mean() > 0.99
    assert (verdict == (-1 if should_trust else 1)).mean() <= ERROR


def test_a_verdict_is_reversed_by_as_much_evidence_as_it_took():
    state = np.zeros(1)
    for _ in range(1000):
        state = audited(state, [1.0], [False], 1.0)
    assert trusted(state)
    for _ in range(20):
        state = audited(state, [1.0], [True], 1.0)
    assert state <= -VERDICT


def test_an_audit_of_a_page_that_never_changes_says_nothing():
    assert abs(audited(0.0, 1.0, changed=False, change_rate=0.0)) < 1e-12


def test_a_feed_is_dead_past_nine_point_two_expected_pings():
    silent = [9.2 / 1.5, 9.22 / 1.5, 1e9, 0.0]
    silent_hosts = silent_feeds([0, 0, 1, 1, 2], [1.0, 0.5, 1.0, 0.5, 0.0], silent)
    assert silent_hosts.tolist() == [False, True, False, False]


def test_living_feeds_are_declared_dead_at_their_significance():
    gaps = np.random.default_rng(4).exponential(1 / 3.0, 200_000)  # silences between pings
    silent_hosts = silent_feeds(
        np.arange(gaps.size), np.full(gaps.size, 3.0), gaps, significance=0.01, least_days=0.0
    )
    assert abs(silent_hosts.mean() - 0.01) < 0.001


def test_pings_that_come_together_once_a_day_are_no_silence_between():
    host, ping_rate = np.zeros(1000, int), np.full(1000, 0.5)
    assert not silent_feeds(host, ping_rate, silent_days=[1.9]).any()
    assert silent_feeds(host, ping_rate, silent_days=[2.1]).all()


def seen(changes, quiet_days):
    """The evidence of three pages that decides on doubt."""
    return PingState(*arrays(changes, quiet_days, *[[0.0] * 3] * 4))


def test_trust_makes_pages_complete_and_death_incomplete():
    estimate = PingEstimate(*arrays([0.2] * 3, [1.0] * 3, [0.8] * 3))
    state = seen([200.0] * 3, [1000.0] * 3)
    taken = accepted(estimate, state, trusted=[True, False, True], silent=[False, False, True])
    np.testing.assert_allclose(taken.recall, [1.0, 0.8, 0.0], atol=1e-3)
    np.testing.assert_allclose(taken.change_rate, [0.8, 1.0, 1.0])


def test_without_quiet_time_no_change_counts_as_announced():
    estimate = PingEstimate(*arrays([0.0, 0.1, 0.0], [1.0, 1.0, 24.0], [0.3, 0.5, 1.0]))
    none = discounted(estimate, seen([0.0] * 3, [0.0] * 3))
    np.testing.assert_allclose(none.recall, 0.0, atol=1e-12)
    np.testing.assert_allclose(none.precision, 0.0, atol=1e-12)
    np.testing.assert_allclose(none.change_rate, estimate.change_rate)


def test_doubt_ends_with_evidence_either_way():
    estimate = PingEstimate(*arrays([0.3] * 3, [1.0] * 3, [0.7] * 3))
    much = discounted(estimate, seen([3e5, 0.0, 1e6], [1e6] * 3))
    np.testing.assert_allclose(much.recall, [0.7, 1.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(much.change_rate, 1.0)


def test_senseless_pings_are_refused_by_entry():
    quality = PingQuality()
    with pytest.raises(InvalidInput, match=r"n_pings .* \(entries 1\)"):
        quality.update(quality.init(2), [1.0, 1.0], [0, -1], [True, True])
    with pytest.raises(InvalidInput, match="interval"):
        quality.update(quality.init(2), [1.0, 0.0], [0, 1], [True, True])


def allocated(unannounced, ping_rate, precision):
    """Crawls of four pages, the last with these pings."""
    estimate = PingEstimate(*arrays([0.3] * 3 + [unannounced], [0.0] * 3 + [ping_rate], precision))
    return allocate_harmonic(
        [1.0, 2.0, 3.0, 4.0],
        estimate.change_rate,
        [False] * 4,
        0.8,
        ping_recall=estimate.recall,
        ping_precision=np.broadcast_to(estimate.precision, 4),
    )


@pytest.mark.dear
def test_the_optimum_moves_continuously_from_incomplete_over_noisy_to_complete():
    plain = [1.0, 2.0, 3.0, 4.0], [0.3, 0.3, 0.3, 0.5]
    incomplete = allocate_harmonic(*plain, [False] * 4, 0.8)
    complete = allocate_harmonic(*plain, [False] * 3 + [True], 0.8)
    np.testing.assert_allclose(allocated(0.5, 0.0, 1.0).crawl_rate, incomplete.crawl_rate)
    np.testing.assert_allclose(allocated(0.0, 0.5, 1.0).crawl_rate, complete.crawl_rate)
    path = [allocated(0.5 * (1 - share), 0.5 * share, 1.0) for share in np.linspace(0, 1, 401)]
    crawls = [
        page.crawl_rate[3] + page.crawl_probability[3] * 0.5 * share
        for page, share in zip(path, np.linspace(0, 1, 401), strict=True)
    ]
    assert np.abs(np.diff(crawls)).max() < 0.02


@pytest.mark.parametrize("every", [0.25, 1.0, 6.0])
def test_pings_at_a_steady_rate_have_that_rate_at_any_time(every):
    """Else pings cause more crawls than the plan has."""
    at = np.arange(0.0, 200.0, every)
    now = np.linspace(150.0, 150.0 + every, 200, endpoint=False)
    since = now[:, None] - at
    counted = np.where(since >= 0, recent_pings(1.0, since), 0.0).sum(1)
    assert recent_rate(counted, 0.0, now).mean() == pytest.approx(1 / every, rel=0.01)


def test_one_early_ping_does_not_cause_a_high_ping_rate():
    assert recent_rate(1.0, 0.0, watched=0.0) < 1.1
