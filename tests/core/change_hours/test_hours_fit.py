"""Fits of profiles: the likeliest coefficients, the Bayes factor, hosts without change hours."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from support.hours_cases import (
    HOURS,
    Day,
    burst,
    cosine,
    crawled,
    few,
    parts,
    random_evidence,
    two_waves,
)

import service.core.change_hours.fit as module
from service.core.change_hours.best_hours import excess_mass
from service.core.change_hours.evidence import (
    BINS,
    COLUMNS,
    ROWS,
    HourEvidence,
    Intervals,
    learn,
    learn_dates,
)
from service.core.change_hours.fit import (
    LEAST_FACTOR,
    LEAST_WEIGHT,
    ODDS,
    fit,
    log_bayes_factor,
    may_have_clock,
)
from service.core.change_hours.posterior import BIN_TERMS, PRIOR
from service.core.change_hours.profile import LEAST_INTENSITY, TERMS, Profiles, integrals

FLAT = Day(np.ones_like(HOURS))


def square(triangle):
    matrix = np.zeros((TERMS, TERMS))
    matrix[ROWS, COLUMNS] = matrix[COLUMNS, ROWS] = triangle
    return matrix


def deviations(evidence):
    """Standard deviations of the coefficients of each host."""
    precision = np.array([square(row) + np.diag(PRIOR) for row in evidence.information])
    return np.sqrt(np.diagonal(np.linalg.inv(precision), axis1=1, axis2=2))


def filtered(intervals, changed, *, hosts=1, n_parts=100):
    """The evidence of crawls in many parts, each at the last fit, and the last fit."""
    evidence, profiles = HourEvidence.none(hosts), Profiles.flat(hosts)
    for some, results in parts(intervals, changed, n_parts):
        evidence = learn(few(evidence), profiles, some, results)
        profiles = fit(evidence)
    return evidence, profiles


def at_the_fit(intervals, changed, hosts=1, rounds=30):
    """The evidence of crawls at the profiles that it leads to, and these."""
    profiles = Profiles.flat(hosts)
    for _ in range(rounds):
        evidence = learn(few(HourEvidence.none(hosts)), profiles, intervals, changed)
        profiles = fit(evidence)
    return evidence, profiles


def prior_term(theta):
    return -0.5 * PRIOR @ (theta - np.eye(TERMS)[0]) ** 2


def test_the_fit_to_crawls_is_the_likeliest_profile():
    rng = np.random.default_rng(1)
    intervals, changed = crawled(cosine(0.6), 400, rng)
    intervals = intervals._replace(a=np.full(400, 2.0), b=np.full(400, 2.0))
    terms = integrals(intervals.start, intervals.end)
    shortest = LEAST_INTENSITY * (intervals.end - intervals.start)

    def minus_log_posterior(theta):
        operational = np.maximum(terms @ theta, shortest)
        unchanged = (intervals.b / (intervals.b + operational)) ** intervals.a
        results = np.log(np.where(changed, 1.0 - unchanged, unchanged))
        return -results.sum() - prior_term(theta)

    best = minimize(minus_log_posterior, np.eye(TERMS)[0], method="BFGS", options={"gtol": 1e-6})
    evidence, profiles = at_the_fit(intervals, changed)
    assert may_have_clock(evidence)[0]
    np.testing.assert_allclose(profiles.coefficients[0], best.x, atol=1e-4)
    assert np.abs(best.x[1:]).max() > 0.2


def test_the_fit_to_dates_is_the_likeliest_profile():
    """Below the least intensity, both terms go on as parabolas."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(12.0 * np.where(np.arange(BINS) == 7, 9.0, 0.6), (3, BINS)).astype(float)
    evidence = HourEvidence.none(3)._replace(dated=counts, exposure=np.full((3, BINS), 12.0))
    profiles = fit(evidence)
    for host in range(3):

        def minus_log_posterior(theta, host=host):
            values = BIN_TERMS @ theta
            low = np.maximum(values, LEAST_INTENSITY)
            off = (values - low) / low
            logs = np.log(low) + off - 0.5 * off**2
            passed = np.where(values < low, 0.5 * (values**2 / low + low), values)
            return -(counts[host] @ logs - 12.0 * passed.sum()) - prior_term(theta)

        best = minimize(minus_log_posterior, np.eye(TERMS)[0], options={"gtol": 1e-6})
        np.testing.assert_allclose(profiles.coefficients[host], best.x, atol=1e-4)
    assert (profiles.weight > 0.999).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_the_fit_to_any_dates_is_a_maximum(seed):
    """Even of a few changes, or of one hour alone: the last step of the search is none."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(10.0 ** rng.uniform(-1, 3) * (rng.random((4, BINS)) < rng.random()))
    exposure = 10.0 ** rng.uniform(-2, 3, (4, 1)) * np.ones(BINS)
    evidence = random_evidence(rng, 4, 10.0 ** rng.uniform(-2, 1, 4))
    evidence = evidence._replace(dated=counts.astype(float), exposure=exposure)
    profiles = fit(evidence)
    for host in np.flatnonzero(counts.any(axis=1)):
        theta = profiles.coefficients[host]
        values = BIN_TERMS @ theta
        low = np.maximum(values, LEAST_INTENSITY)
        slope = counts[host] / low * (2.0 - values / low)
        slope -= exposure[host] * np.minimum(values / LEAST_INTENSITY, 1.0)
        crawls = evidence.score[host] - square(evidence.information[host]) @ theta
        gradient = BIN_TERMS.T @ slope + crawls - PRIOR * (theta - np.eye(TERMS)[0])
        curvature = counts[host] / low**2 + (values < low) * exposure[host] / LEAST_INTENSITY
        precision = BIN_TERMS.T * curvature @ BIN_TERMS + square(evidence.information[host])
        step = np.linalg.solve(precision + np.diag(PRIOR), gradient)
        assert np.abs(step).max() < 1e-3


def test_the_filter_ends_near_the_fit_to_the_history():
    """In the mean over coefficients, within a third of their standard deviation."""
    intervals, changed = crawled(two_waves(), 4_000, np.random.default_rng(3), hosts=4)
    evidence, profiles = filtered(intervals, changed, hosts=4, n_parts=50)
    _, whole = at_the_fit(intervals, changed, hosts=4, rounds=10)
    off = (profiles.coefficients - whole.coefficients) / deviations(evidence)
    assert np.sqrt(np.mean(off**2)) < 0.33


@pytest.mark.dear
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_the_bayes_factor_is_that_of_two_linear_models(seed):
    """Numbers X theta plus standard normal noise have A = X'X and y = X' numbers."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 40)
    design = rng.normal(0.0, 10.0 ** rng.uniform(-2, 0.5), (n, TERMS))
    numbers = design @ (np.eye(TERMS)[0] + rng.normal(0.0, 1.0, TERMS) * rng.random())
    numbers += rng.normal(size=n)
    evidence = HourEvidence.none(1)._replace(
        information=(design.T @ design)[ROWS, COLUMNS][None], score=(design.T @ numbers)[None]
    )

    def log_density(columns):
        spread = design[:, columns] / PRIOR[columns] @ design[:, columns].T
        return scipy.stats.multivariate_normal(design[:, 0], np.eye(n) + spread).logpdf(numbers)

    expected = log_density(np.arange(TERMS)) - log_density(np.arange(1))
    assert log_bayes_factor(evidence)[0] == pytest.approx(expected, abs=1e-6 * (1 + abs(expected)))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_hosts_that_are_not_fitted_have_certainly_no_change_hours(seed):
    rng = np.random.default_rng(seed)
    evidence = random_evidence(rng, 50, 10.0 ** rng.uniform(-3, 0.5, 50))
    possible = may_have_clock(evidence)
    assert (log_bayes_factor(evidence)[~possible] < LEAST_FACTOR).all()
    profiles = fit(evidence)
    assert not profiles.weight[~possible].any()
    flat = Profiles.flat(np.count_nonzero(~possible))
    np.testing.assert_array_equal(profiles.coefficients[~possible], flat.coefficients)


def test_the_bound_is_exact_for_evidence_of_one_kind():
    """One result about one harmonic: the first bound is off by the precision alone."""
    evidence = HourEvidence.none(1)
    for size in (0.1, 1.0, 2.0, 4.0):
        information, score = np.zeros((TERMS, TERMS)), np.zeros((1, TERMS))
        information[3, 3], score[0, 3] = 1e-6, size
        small = evidence._replace(information=information[ROWS, COLUMNS][None], score=score)
        assert log_bayes_factor(small)[0] == pytest.approx(0.5 * size**2, abs=1e-4)
        assert may_have_clock(small)[0] == (0.5 * size**2 > LEAST_FACTOR)


def test_a_host_without_evidence_has_no_change_hours():
    none = HourEvidence.none(2)
    assert log_bayes_factor(none).tolist() == [0.0, 0.0]
    assert may_have_clock(none).tolist() == [False, False]
    assert fit(none).weight.tolist() == [0.0, 0.0]
    assert 1.0 / (1.0 + np.exp(ODDS)) < 0.5 * LEAST_WEIGHT + 1e-2


@pytest.mark.parametrize(("n", "change_rate", "share"), [(50, 0.1, 0.02), (400, 0.1, 0.5)])
def test_hosts_with_little_evidence_are_not_fitted(n, change_rate, share):
    """Of 400 flat hosts: with 50 crawls hardly any takes a solution, with 400 half of them."""
    rng = np.random.default_rng(4)
    intervals, changed = crawled(FLAT, n, rng, hosts=400, change_rate=change_rate)
    intervals = intervals._replace(a=np.full(400 * n, 2.0), b=np.full(400 * n, 2.0 / change_rate))
    evidence = learn(few(HourEvidence.none(400)), Profiles.flat(400), intervals, changed)
    assert may_have_clock(evidence).mean() < share


@pytest.mark.parametrize(("factor", "weight"), [(ODDS, 0.5), (ODDS + 2.0, 0.8808), (1.5, 0.1824)])
def test_the_weight_is_the_odds_of_the_bayes_factor(factor, weight):
    information, score = np.zeros((TERMS, TERMS)), np.zeros((1, TERMS))
    information[3, 3] = 1.0
    score[0, 3] = np.sqrt(4.0 * (factor + 0.5 * np.log(2.0)))
    evidence = HourEvidence.none(1)._replace(
        information=information[ROWS, COLUMNS][None], score=score
    )
    assert log_bayes_factor(evidence)[0] == pytest.approx(factor)
    assert fit(evidence).weight[0] == pytest.approx(weight, abs=1e-4)


def test_a_weight_too_small_to_matter_is_none():
    information, score = np.zeros((TERMS, TERMS)), np.zeros((1, TERMS))
    information[3, 3] = 9.0
    score[0, 3] = np.sqrt(20.0 * (LEAST_FACTOR - 0.1 + 0.5 * np.log(10.0)))
    evidence = HourEvidence.none(1)._replace(
        information=information[ROWS, COLUMNS][None], score=score
    )
    assert may_have_clock(evidence)[0]
    assert fit(evidence).weight[0] == 0.0
    assert fit(evidence).coefficients[0, 3] > 0.5


def test_four_thousand_crawls_show_a_wave():
    """Known answer: theta = (1, -.247, .761), each +- .11, log Bayes factor about 22."""
    rng = np.random.default_rng(5)
    intervals, changed = crawled(cosine(), 4_000, rng, hosts=12)
    evidence, profiles = filtered(intervals, changed, hosts=12)
    deviation = deviations(evidence)
    np.testing.assert_allclose(deviation[:, [1, 9]], 0.11, atol=0.015)
    off = (profiles.coefficients - cosine().coefficients()) / deviation
    assert 0.75 < np.sqrt(np.mean(off**2)) < 1.05
    means = profiles.coefficients.mean(axis=0)
    np.testing.assert_allclose(means[[0, 1, 9]], [1.0, -0.247, 0.761], atol=0.11)
    assert 15.0 < log_bayes_factor(evidence).mean() < 30.0


def test_whole_days_show_no_wave():
    intervals, changed = crawled(cosine(), 4_000, np.random.default_rng(6), length=1.0)
    evidence, profiles = filtered(intervals, changed, n_parts=5)
    np.testing.assert_allclose(profiles.coefficients[0, 1:], 0.0, atol=1e-9)
    assert log_bayes_factor(evidence)[0] == pytest.approx(0.0, abs=1e-9)


def test_pages_without_change_hours_hardly_ever_seem_to_have_one():
    """Known answer: of 60 hosts none has a log Bayes factor of 3, their mean is about -4.4."""
    intervals, changed = crawled(FLAT, 2_000, np.random.default_rng(7), hosts=60)
    evidence, profiles = filtered(intervals, changed, hosts=60, n_parts=20)
    factors = log_bayes_factor(evidence)
    assert (factors < 3.0).all()
    assert -6.0 < factors.mean() < -4.0
    assert (profiles.weight > 0).mean() < 0.05


def test_a_wrong_change_rate_is_left_to_the_intercept():
    """Change rates that are 1.67 times too high lead to the same excess mass."""
    intervals, changed = crawled(cosine(), 20_000, np.random.default_rng(8))
    _, right = filtered(intervals, changed, n_parts=20)
    _, wrong = filtered(intervals._replace(b=0.6 * intervals.b), changed, n_parts=20)
    assert wrong.coefficients[0, 0] == pytest.approx(0.6, abs=0.03)
    mass = excess_mass(right)
    assert mass.max() > 0.1
    np.testing.assert_allclose(excess_mass(wrong), mass, atol=0.02)


def dated(day, n, rng, *, hosts, rate=0.5, length=2.0):
    """Intervals with the last change of each, by a Poisson process of known rate."""
    host = np.repeat(np.arange(hosts), n)
    start = 100.0 * rng.random(len(host))
    fine = start[:, None] + np.arange(481) / 480 * length
    expected = rate * (day.operational(fine) - day.operational(start)[:, None])
    left = expected[:, -1] - rng.exponential(1.0, len(host))
    rows = zip(left, expected, fine, strict=True)
    at = np.array([np.interp(since, sums, instants) for since, sums, instants in rows])
    at[left < 0] = np.nan
    shape = np.full(len(host), 1e8)
    quiet_from = np.where(np.isnan(at), start, at)
    return Intervals(host, quiet_from, start + length, shape, shape / rate), at


@pytest.mark.sampled(1)
@pytest.mark.parametrize("n", [200, 400])
def test_dates_show_the_hour_with_an_honest_error(n):
    """Also of few changes, when some hours have none; root mean square of z about 1."""
    day, hosts = cosine(), 20
    intervals, at = dated(day, n, np.random.default_rng(9), hosts=hosts)
    evidence, profiles = HourEvidence.none(hosts), Profiles.flat(hosts)
    for some, dates in parts(intervals, at, 20):
        evidence = learn_dates(few(evidence), profiles, some, dates)
        profiles = fit(evidence)
    total = evidence.dated.sum(axis=1).mean()
    assert total == pytest.approx(n * -np.expm1(-1.0), rel=0.1)
    information = BIN_TERMS.T * (evidence.exposure.mean(axis=0) / (BIN_TERMS @ day.coefficients()))
    deviation = np.sqrt(np.linalg.inv(information @ BIN_TERMS + np.diag(PRIOR)).diagonal())
    off = (profiles.coefficients - day.coefficients()) / deviation
    assert 0.85 < np.sqrt(np.mean(off**2)) < 1.1
    assert np.abs(off.mean(axis=0)).max() < 0.6


def test_dates_at_any_hour_hardly_ever_seem_to_have_change_hours():
    """From two to five hundred changes of a host."""
    rng = np.random.default_rng(11)
    exposure = 10.0 ** rng.uniform(-1.0, 1.3, (1_000, 1)) * np.ones(BINS)
    dates = HourEvidence.none(1_000)._replace(
        dated=rng.poisson(exposure).astype(float), exposure=exposure
    )
    factors = log_bayes_factor(dates)
    assert (factors > 3.0).mean() < 0.02
    assert factors.max() < 7.0
    assert factors[exposure[:, 0] > 1.0].max() < 3.0


def test_wherever_a_fit_to_dates_begins_it_ends_at_the_same_profile():
    rng = np.random.default_rng(12)
    busy = np.where(np.arange(BINS) == 20, 8.0, 0.7)
    evidence = HourEvidence.none(30)._replace(
        dated=rng.poisson(busy, (30, BINS)).astype(float), exposure=np.ones((30, BINS))
    )
    cold = fit(evidence)
    for spread in (0.0, 0.1, 3.0):
        start = cold.coefficients + spread * rng.normal(size=cold.coefficients.shape)
        near = fit(evidence, Profiles(start, cold.weight))
        np.testing.assert_allclose(near.coefficients, cold.coefficients, atol=1e-3)
        np.testing.assert_allclose(near.weight, cold.weight, atol=1e-4)


def test_time_without_any_dated_change_is_no_evidence_of_change_hours():
    quiet = HourEvidence.none(1)._replace(exposure=np.linspace(0.0, 3.0, BINS)[None])
    assert log_bayes_factor(quiet).tolist() == [0.0]
    assert not may_have_clock(quiet).any()


def test_a_dozen_dates_at_one_hour_show_change_hours():
    n = 12
    at = np.arange(n) + 6.2 / 24
    intervals = Intervals(np.zeros(n, int), at, at + 1.0, np.full(n, 50.0), np.full(n, 50.0))
    evidence = HourEvidence.none(1)
    for row in range(n):
        one = Intervals(*(column[row : row + 1] for column in intervals))
        evidence = learn_dates(few(evidence), Profiles.flat(1), one, at[row : row + 1])
    assert evidence.dated[0, 6] == n
    profiles = fit(evidence)
    assert profiles.weight[0] > 0.95
    assert np.argmax(profiles.coefficients @ BIN_TERMS.T) == 6


@pytest.mark.parametrize("block", [1, 7])
def test_hosts_are_fitted_at_once_as_one_by_one(monkeypatch, block):
    rng = np.random.default_rng(10)
    evidence = random_evidence(rng, 20, 10.0 ** rng.uniform(-1, 0.5, 20))
    evidence = evidence._replace(
        dated=rng.poisson(1.0, (20, BINS)) * (np.arange(20) % 2)[:, None] * 1.0,
        exposure=np.ones((20, BINS)),
    )
    expected = fit(evidence)
    factors = log_bayes_factor(evidence)
    monkeypatch.setattr(module, "BLOCK", block)
    profiles = fit(evidence)
    np.testing.assert_allclose(profiles.coefficients, expected.coefficients, atol=1e-9)
    np.testing.assert_allclose(profiles.weight, expected.weight, atol=1e-9)
    np.testing.assert_allclose(log_bayes_factor(evidence), factors, atol=1e-9)


def test_no_hosts_are_fitted_to_nothing():
    assert fit(HourEvidence.none(0)).weight.shape == (0,)
    assert log_bayes_factor(HourEvidence.none(0)).shape == (0,)


def test_a_burst_of_all_changes_is_fitted_without_overflow():
    evidence = HourEvidence.none(1)
    evidence.dated[0, 6], evidence.exposure[0] = 1e6, 1e6 / BINS
    profiles = fit(evidence)
    assert np.isfinite(profiles.coefficients).all()
    assert profiles.weight[0] == pytest.approx(1.0)
    assert burst(6.5 / 24).coefficients[0] @ profiles.coefficients[0] > 5.0
