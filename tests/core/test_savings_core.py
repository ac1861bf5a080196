"""Staleness under real and under uniform crawls, against a direct count and against integrals."""

import numpy as np
import pytest
from scipy.integrate import quad

from service.core.forecast import expected_harmonic
from service.core.savings import (
    Announced,
    Stretches,
    Watched,
    as_crawled,
    as_uniform,
    drawn_changes,
    equal_rates,
    ratio,
)


def rng(seed=1):
    return np.random.default_rng(seed)


def random_log(n_pages=30, days=50.0, seed=3):
    """Crawls at random instants, each after a change with a probability of a half."""
    drawn = rng(seed)
    parts = []
    for page in range(n_pages):
        ends = np.sort(drawn.uniform(0, days, drawn.integers(1, 9)))
        begin = np.append(drawn.uniform(-9, 0), ends)
        end = np.append(ends, days)
        changed = np.append(drawn.random(len(ends)) < 0.5, 0.7).astype(float)
        parts.append((np.full(len(end), page), begin, end, changed, 0.4 * (end - begin)))
    stretches = Stretches(*map(np.concatenate, zip(*parts, strict=True)))
    since = np.maximum([part[1][0] for part in parts], drawn.uniform(-5, 20, n_pages))
    return stretches, Watched(since, np.full(n_pages, days))


def counted(at, crawls, since, until):
    """Count harmonic and stale days of one page event by event."""
    harmonic = stale = 0.0
    n, last = 0, -np.inf
    for moment, is_crawl in sorted([*((t, 0) for t in at), *((t, 1) for t in crawls), (until, 2)]):
        lasted = max(min(moment, until) - max(last, since), 0.0)
        harmonic += lasted * sum(1 / j for j in range(1, n + 1))
        stale += lasted * (n > 0)
        n, last = (0 if is_crawl else n + 1), moment
    return harmonic, stale


def test_both_policies_are_counted_as_event_by_event():
    stretches, watched = random_log()
    changes = drawn_changes(stretches, rng())
    interval, phase = 3.7, rng(5).random(len(watched.since))
    own = as_crawled(stretches, changes, watched)
    other = as_uniform(stretches, changes, watched, interval, phase)
    page_of_change = stretches.page[changes.stretch]
    for page in range(len(watched.since)):
        at = changes.at[page_of_change == page]
        ends = stretches.end[stretches.page == page]
        uniform = (np.arange(-10, 20) + phase[page]) * interval
        bounds = watched.since[page], watched.until[page]
        for crawls, days in ((ends, own), (uniform, other)):
            expected = counted(at, crawls, *bounds)
            assert (days.harmonic[page], days.stale[page]) == pytest.approx(expected, abs=1e-9)
    assert own.stale.sum() > 0
    assert other.stale.sum() > 0


@pytest.mark.parametrize("mean", [1e-6, 0.5, 6.0])
def test_changes_of_a_stretch_with_one_are_poisson_with_at_least_one(mean):
    n, length = 40_000, 2.0
    one, page = np.ones(n), np.arange(n)
    stretches = Stretches(page, 0 * one, length * one, one, mean * one)
    watched = Watched(0 * one, length * one)
    changes = drawn_changes(stretches, rng())
    n_changes = np.bincount(changes.stretch, minlength=n)
    assert n_changes.min() == 1
    assert n_changes.mean() == pytest.approx(mean / -np.expm1(-mean), rel=0.02)
    own = as_crawled(stretches, changes, watched)
    rate = mean / length
    stale, _ = quad(lambda t: -np.expm1(-rate * t), 0, length)
    harmonic, _ = quad(lambda t: float(expected_harmonic(rate * t)), 0, length)
    assert own.stale.mean() == pytest.approx(stale / -np.expm1(-mean), rel=0.02)
    assert own.harmonic.mean() == pytest.approx(harmonic / -np.expm1(-mean), rel=0.02)


def test_uniform_crawls_of_a_poisson_page_cost_the_integral_of_the_theory():
    n, days, interval, rate = 4_000, 400.0, 10.0, 0.15
    one = np.ones(n)
    stretches = Stretches(np.arange(n), -50 * one, days * one, one, rate * (days + 50) * one)
    changes = drawn_changes(stretches, rng())
    phase = rng(2).random(n)
    other = as_uniform(stretches, changes, Watched(0 * one, days * one), interval, phase)
    harmonic, _ = quad(lambda t: float(expected_harmonic(rate * t)), 0, interval)
    stale, _ = quad(lambda t: -np.expm1(-rate * t), 0, interval)
    assert other.harmonic.mean() / days == pytest.approx(harmonic / interval, rel=0.01)
    assert other.stale.mean() / days == pytest.approx(stale / interval, rel=0.01)


def test_pings_are_the_instants_of_changes_where_they_are_used():
    stretches = Stretches(
        np.array([0, 0]), np.array([0.0, 10.0]), np.array([10.0, 20.0]), np.ones(2), np.ones(2)
    )
    pings = Announced(np.array([0, 0]), np.array([8.0, 9.5]), np.array([1e-12, 1e-12]))
    changes = drawn_changes(stretches, rng(), pings)
    assert changes.at[changes.stretch == 0].tolist() == [9.5]  # at least the last one
    both = pings._replace(precision=np.ones(2))
    assert drawn_changes(stretches, rng(), both).at[:2].tolist() == [8.0, 9.5]
    own = as_crawled(stretches, changes, Watched(np.zeros(1), np.full(1, 10.0)))
    assert own.stale.tolist() == [0.5]


def test_stretches_without_a_change_and_no_stretches_cost_nothing():
    stretches, watched = random_log()
    quiet = stretches._replace(probability=np.zeros(len(stretches.page)))
    own = as_crawled(quiet, drawn_changes(quiet, rng()), watched)
    assert not own.harmonic.any()
    none = Stretches(*(column[:0] for column in stretches))
    days = as_uniform(none, drawn_changes(none, rng()), watched, 1.0, np.zeros(30))
    assert not days.stale.any()


def test_the_interval_of_a_ratio_holds_the_truth_in_nine_of_ten_samples():
    drawn, held = rng(7), 0
    for _ in range(400):
        below = drawn.gamma(0.7, 1.0, 300)
        above = 0.6 * below * drawn.gamma(4.0, 0.25, 300)
        _, low, high = ratio(above, below)
        held += low < 0.6 < high
    assert 0.86 < held / 400 < 0.94


@pytest.mark.parametrize("seed", range(20))
def test_equal_rates_spend_the_total_and_differ_only_at_their_limits(seed):
    drawn = rng(seed)
    weight, limit = drawn.exponential(1.0, 30), drawn.exponential(1.0, 30)
    limit[drawn.random(30) < 0.3] = np.inf if seed % 2 else 5.0
    total = float(drawn.uniform(0.1, 0.9) * (weight @ np.minimum(limit, 5.0)))
    rate = equal_rates(weight, limit, total)
    assert weight @ rate == pytest.approx(total)
    assert (rate <= limit).all()
    assert np.allclose(rate[rate < limit], rate.max())


def test_limits_below_the_total_are_all_reached():
    limit = np.array([1.0, 2.0])
    assert equal_rates(np.ones(2), limit, 9.0).tolist() == limit.tolist()
