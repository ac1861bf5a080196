"""Hours of URL groups, pooled towards the host: brute force, limits, and what is conserved."""

import numpy as np
import pytest
from support import hours_cases
from support.hours_cases import burst, crawled, few, many, parts, random_evidence

from service.core.change_hours.evidence import HourEvidence, learn
from service.core.change_hours.fit import fit, log_bayes_factor
from service.core.change_hours.pooling import (
    FLAT,
    FOLLOWING,
    HOST,
    IMAGINARY,
    OWN,
    ROUNDS,
    STRAY,
    host_factor,
    kind_shares,
    pooled,
)
from service.core.change_hours.posterior import PRIOR, ProfilePosterior
from service.core.change_hours.profile import TERMS, Profiles
from service.core.checks import InvalidInput

ROWS, COLUMNS = np.triu_indices(TERMS)


def observed(rng, n, size=0.7):
    """Return (n, TERMS) rows v and (n,) results y of measurements y = v theta + noise."""
    rows = size * rng.normal(size=(n, TERMS))
    return rows, rows @ rng.normal(size=TERMS) + rng.normal(size=n)


def evidence_of(rows, results):
    """Return the quadratic form of measurements as evidence of one host."""
    information = (rows.T @ rows)[ROWS, COLUMNS][None]
    return HourEvidence.none(1)._replace(information=information, score=(results @ rows)[None])


def one_by_one(rows, results, mean, covariance):
    """Return ln E exp(-1/2 (v theta)² + v theta y), by one measurement after the other."""
    total = 0.0
    for row, y in zip(rows, results, strict=True):
        centre, spread = row @ mean, row @ covariance @ row
        total += -0.5 * np.log1p(spread) - 0.5 * (y - centre) ** 2 / (1.0 + spread) + 0.5 * y * y
        gain = covariance @ row / (1.0 + spread)
        mean = mean + gain * (y - centre)
        covariance = covariance - np.outer(gain, row @ covariance)
    return total


@pytest.mark.parametrize("taught", [False, True])
def test_the_factor_of_the_host_is_that_of_its_crawls_one_by_one(taught):
    rng = np.random.default_rng(1)
    of_host, of_group = observed(rng, 40), observed(rng, 12)
    host = evidence_of(*of_host)
    if taught:
        both = (np.concatenate(each) for each in zip(of_host, of_group, strict=True))
        host = evidence_of(*both)
    group, near = evidence_of(*of_group), np.eye(TERMS)[:1]
    factor = host_factor(group, host, near, np.array([taught]))[0]
    precision = of_host[0].T @ of_host[0] + np.diag(PRIOR)
    mean = np.linalg.solve(precision, of_host[1] @ of_host[0] + PRIOR * np.eye(TERMS)[0])
    with_host = one_by_one(*of_group, mean, np.linalg.inv(precision))
    alone = np.zeros((TERMS, TERMS))
    alone[0, 0] = 1.0 / PRIOR[0]
    assert factor == pytest.approx(with_host - one_by_one(*of_group, np.eye(TERMS)[0], alone))


def test_a_host_without_evidence_is_as_likely_as_hours_of_their_own():
    rng = np.random.default_rng(2)
    group = random_evidence(rng, 6, np.geomspace(0.1, 3.0, 6))
    group.dated[3:], group.exposure[3:] = rng.poisson(2.0, (3, 24)), 1.5
    near = fit(group).coefficients
    none, alone = HourEvidence.none(6), log_bayes_factor(group)
    by_host = host_factor(group, none, near, np.zeros(6, np.bool_))
    np.testing.assert_allclose(by_host, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dated", [False, True])
def test_a_host_that_is_certain_gives_the_likelihood_of_its_profile(dated):
    rng = np.random.default_rng(3)
    group = random_evidence(rng, 1, [0.4])
    if dated:
        group.dated[:], group.exposure[:] = rng.poisson(1.0, 24), 1.0
    theta = burst(0.3).coefficients * np.append(1.0, np.full(TERMS - 1, 0.2))
    sure = 1e9 * np.eye(TERMS)
    host = HourEvidence.none(1)._replace(information=sure[ROWS, COLUMNS][None], score=theta @ sure)
    factor = host_factor(group, host, theta, np.zeros(1, np.bool_))[0]
    posterior = ProfilePosterior.of(group)
    of_prior = -0.5 * (PRIOR * theta[0] ** 2).sum() + PRIOR[0] * theta[0, 0]
    likelihood = posterior.log(theta)[0] - of_prior
    level = np.linspace(-3.0, 6.0, 40_001)
    rows = level[:, None] * np.eye(TERMS)[0]
    repeated = ProfilePosterior.of(group.take(np.zeros(len(level), int)))
    logs = repeated.log(rows) - 0.5 * PRIOR[0] + 0.5 * np.log(PRIOR[0] / (2.0 * np.pi))
    log_flat = logs.max() + np.log(np.exp(logs - logs.max()).sum() * (level[1] - level[0]))
    assert factor == pytest.approx(likelihood - log_flat, abs=0.02 if dated else 1e-4)


def kinds_by_loop(factors, weight):
    alpha = IMAGINARY * np.array([1.0 - FOLLOWING * weight, FOLLOWING * weight, STRAY])
    share = alpha / alpha.sum()
    for _ in range(ROUNDS):
        each = [[s * np.exp(f) for s, f in zip(share, row, strict=True)] for row in factors]
        each = [[value / sum(row) for value in row] for row in each]
        sums = [alpha[k] + sum(row[k] for row in each) for k in range(3)]
        share = np.array(sums) / (alpha.sum() + len(factors))
    return np.array(each)


def test_shares_of_kinds_are_those_of_a_loop_over_groups():
    rng = np.random.default_rng(4)
    host = np.sort(rng.integers(0, 5, 60))
    factors = np.column_stack((np.zeros(60), rng.normal(0, 5, 60), rng.normal(0, 5, 60)))
    weight = np.array([0.0, 0.3, 0.7, 1.0, 0.9])
    shares = kind_shares(factors, host, weight)
    for n, of_host in enumerate(weight):
        rows = host == n
        np.testing.assert_allclose(shares[rows], kinds_by_loop(factors[rows], of_host), atol=1e-12)


def test_shares_of_kinds_sum_to_one_whatever_the_evidence():
    factors = np.array([[0.0, 1e4, -1e4], [0.0, -1e5, 1e5], [0.0, -50.0, -1e6], [0.0, 0.0, 0.0]])
    shares = kind_shares(factors, np.array([0, 0, 1, 2]), np.array([1.0, 0.0, 0.5]))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    assert shares[0, HOST] == shares[1, OWN] == pytest.approx(1.0)
    assert shares[2, FLAT] == pytest.approx(1.0)
    assert kind_shares(np.zeros((0, 3)), np.zeros(0, int), np.ones(2)).shape == (0, 3)


def test_each_round_of_the_fit_makes_the_evidence_more_likely(monkeypatch):
    rng = np.random.default_rng(5)
    factors = np.column_stack((np.zeros(30), rng.normal(1, 4, 30), rng.normal(1, 4, 30)))
    alpha = IMAGINARY * np.array([1.0 - FOLLOWING, FOLLOWING, STRAY])
    likely = []
    for rounds in range(1, 12):
        monkeypatch.setattr("service.core.change_hours.pooling.ROUNDS", rounds)
        shares = kind_shares(factors, np.zeros(30, int), np.ones(1))
        pi = (alpha + shares.sum(axis=0)) / (alpha.sum() + 30)
        likely.append(np.log(np.exp(factors) @ pi).sum() + alpha @ np.log(pi))
    assert (np.diff(likely) > -1e-9).all()


def taught(days, n=150, rng_seed=1):
    """Return the evidence and the fit of groups, each with a profile of its own."""
    rng = np.random.default_rng(rng_seed)
    evidence = HourEvidence.none(len(days))
    profiles = Profiles.flat(len(days))
    each = [crawled(day, n, rng) for day in days]
    for part in range(10):
        for row, (intervals, changed) in enumerate(each):
            some, news = list(parts(intervals, changed, 10))[part]
            one = learn(
                few(evidence.take(slice(row, row + 1))),
                profiles.take(slice(row, row + 1)),
                some,
                news,
            )
            for column, new in zip(evidence, one, strict=True):
                column[row : row + 1] = new
        profiles = fit(evidence)
    return evidence


def at_hour(hour):
    """Return a day whose changes come within about an hour."""
    off = (hours_cases.HOURS - hour + 0.5) % 1.0 - 0.5
    return hours_cases.Day(np.exp(-0.5 * (off / 0.03) ** 2))


def together(evidence):
    """Return the evidence of one host with that of all groups."""
    return HourEvidence(*(column.sum(axis=0, keepdims=True) for column in evidence))


def test_groups_with_the_hours_of_their_host_follow_it_and_odd_ones_keep_theirs():
    evidence = taught([at_hour(0.3)] * 7 + [at_hour(0.8)], 900)
    host, taught_by = together(evidence.take(slice(7))), np.arange(8) < 7
    result = pooled(evidence, np.zeros(8, int), host, fit(host), taught_by)
    np.testing.assert_allclose(result.shares.sum(axis=1), 1.0)
    assert (result.shares[:7, HOST] > 0.8).all()
    assert result.shares[7, OWN] > 0.95
    assert result.certain[7] == 1.0
    np.testing.assert_allclose(result.profiles.weight, result.shares[:, 1:].sum(axis=1))
    peak = np.arctan2(*result.profiles.harmonics[:, [8, 0]].T) / (2 * np.pi) % 1
    np.testing.assert_allclose(peak[:7], 0.3, atol=0.04)
    assert peak[7] == pytest.approx(0.8, abs=0.05)


def test_a_flat_group_of_a_host_with_hours_has_weight_zero_and_keeps_its_row():
    evidence = taught([at_hour(0.3)] * 5 + [hours_cases.cosine(0.0)], 300)
    host = together(evidence)
    result = pooled(evidence, np.zeros(6, int), host, fit(host), np.ones(6, np.bool_))
    assert result.shares[5, FLAT] > 0.9
    assert result.profiles.weight[5] == 0.0
    assert not result.profiles.harmonics[5].any()
    assert not result.is_host.any()


def test_the_only_group_of_a_host_is_the_host():
    evidence = taught([hours_cases.cosine(0.9, 0.3)])
    one = np.zeros(1, int)
    known = fit(evidence)
    assert pooled(evidence, one, evidence, known, np.ones(1, np.bool_)).is_host.all()
    apart = pooled(evidence, one, evidence, known, np.zeros(1, np.bool_))
    assert not apart.is_host.any(), "a group with own hours does not teach its host"
    half = HourEvidence(*(0.5 * column for column in evidence))
    forgot = pooled(evidence, one, half, known, np.ones(1, np.bool_))
    assert not forgot.is_host.any(), "the host has forgotten its evidence"


def test_a_host_without_hours_lends_none():
    evidence = taught([hours_cases.cosine(0.0)] * 3, 200)
    host = together(evidence)
    result = pooled(evidence, np.zeros(3, int), host, Profiles.flat(1), np.ones(3, np.bool_))
    assert (result.shares[:, HOST] < 1e-9).all()
    assert not result.profiles.weight.any()


def test_blocks_of_groups_change_nothing(monkeypatch):
    rng = np.random.default_rng(6)
    evidence = random_evidence(rng, 9, np.geomspace(0.1, 2.0, 9))
    host = together(evidence)
    known = many(fit(host)._replace(weight=np.ones(1)), 1)
    arguments = evidence, np.zeros(9, int), host, known, np.arange(9) % 2 == 0
    whole = pooled(*arguments)
    monkeypatch.setattr("service.core.change_hours.pooling.BLOCK", 2)
    cut = pooled(*arguments)
    np.testing.assert_allclose(cut.shares, whole.shares, atol=1e-9)
    np.testing.assert_allclose(cut.profiles.coefficients, whole.profiles.coefficients, atol=1e-9)


def test_a_host_out_of_range_is_refused():
    with pytest.raises(InvalidInput, match="host"):
        pooled(
            HourEvidence.none(1),
            np.array([1]),
            HourEvidence.none(1),
            Profiles.flat(1),
            np.ones(1, np.bool_),
        )
