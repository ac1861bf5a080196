"""Naive, SA and SAM: A22's recursions literally, step conditions, consistency and its limits."""

import numpy as np
import pytest

from service.core.checks import InvalidInput
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.core.prior import Prior

PRIOR = Prior(1.0, 20.0)


def crawls(rng, k=60):
    return rng.uniform(1.0, 5.0, k), rng.random(k) < 0.5


def literal_sa(rates, changed, eta, y):
    for k, (p, seen) in enumerate(zip(rates, changed, strict=True)):
        y = y + (k + 1) ** -eta * (seen * (y + p) - y)
    return y


def literal_sam(rates, changed, eta, beta, omega, z):
    previous = z
    for k, (p, seen) in enumerate(zip(rates, changed, strict=True)):
        eta_k = (k + 1) ** -eta
        zeta_k = 0.0 if k == 0 else ((k + 1) ** -beta - omega * eta_k) / k**-beta
        z, previous = z + eta_k * (seen * (z + p) - z) + zeta_k * (z - previous), z
    return z


def run(estimator, rates, changed):
    state = estimator.init()
    for p, seen in zip(rates, changed, strict=True):
        state = estimator.update(state, 0.3, seen, p)
    return estimator.change_rate(state)


def simulate(estimator, change_rate, crawl_rate, k, n, *, regular=False):
    rng = np.random.default_rng(17)
    state = estimator.init(n)
    for _ in range(k):
        interval = np.full(n, 1 / crawl_rate) if regular else rng.exponential(1 / crawl_rate, n)
        changed = rng.random(n) < -np.expm1(-change_rate * interval)
        state = estimator.update(state, interval, changed, crawl_rate)
    return estimator.change_rate(state)


@pytest.mark.parametrize("eta", [0.3, 0.75, 1.0])
def test_sa_is_the_papers_recursion_with_the_rates_in_force(eta):
    rates, changed = crawls(np.random.default_rng(1))
    expected = literal_sa(rates, changed, eta, PRIOR.mean)
    np.testing.assert_allclose(run(SA(eta, PRIOR), rates, changed), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("eta", "beta", "omega"), [(0.75, 0.6, 1.0), (1.2, 0.6, 0.5), (1.9, 1.0, 2.0)]
)
def test_sam_is_the_papers_recursion_and_begins_without_momentum(eta, beta, omega):
    rates, changed = crawls(np.random.default_rng(2))
    for k in (1, 2, 3, 60):
        expected = literal_sam(rates[:k], changed[:k], eta, beta, omega, PRIOR.mean)
        actual = run(SAM(eta, beta, omega, PRIOR), rates[:k], changed[:k])
        np.testing.assert_allclose(actual, max(expected, 0.0), rtol=1e-11)


def test_naive_is_the_share_of_changes_times_the_crawl_rate():
    np.testing.assert_allclose(run(Naive(), [3.0] * 4, [True, False, True, True]), 9.0 / 4.0)


@pytest.mark.parametrize(("estimator", "tolerance"), [(SA(), 0.05), (SAM(), 0.05)])
def test_on_poisson_crawls_sa_and_sam_find_the_rate(estimator, tolerance):
    rate = simulate(estimator, change_rate=5.0, crawl_rate=3.0, k=2000, n=300)
    np.testing.assert_allclose(rate.mean(), 5.0, rtol=tolerance)


def test_on_poisson_crawls_naive_stays_biased():
    rate = simulate(Naive(), change_rate=5.0, crawl_rate=3.0, k=1000, n=300)
    np.testing.assert_allclose(rate.mean(), 3.0 * 5.0 / 8.0, rtol=0.02)


def test_on_regular_crawls_sa_goes_where_its_refusal_says():
    limit = 3.0 * np.expm1(2.0 / 3.0)
    rate = simulate(SA(), change_rate=2.0, crawl_rate=3.0, k=2000, n=300, regular=True)
    np.testing.assert_allclose(rate.mean(), limit, rtol=0.05)
    assert "p (exp(change_rate / p) - 1)" in SA().refusal


@pytest.mark.parametrize("estimator", [Naive(), SA(), SAM()])
def test_a_crawl_without_a_rate_in_force_changes_nothing(estimator):
    state = estimator.update(estimator.init(3), [1.0] * 3, [True, False, True], [2.0] * 3)
    again = estimator.update(state, [1.0] * 3, [True, False, True], [np.nan, 0.0, np.nan])
    np.testing.assert_array_equal(state, again)
    untouched = estimator.update(estimator.init(2), [1.0] * 2, [True, False])
    np.testing.assert_array_equal(estimator.change_rate(untouched), [estimator.prior.mean] * 2)


@pytest.mark.parametrize("eta", [0.0, -0.5, 1.01, np.nan])
def test_sa_refuses_steps_that_do_not_converge(eta):
    with pytest.raises(InvalidInput, match=r"eta must lie in \(0, 1\]"):
        SA(eta)


@pytest.mark.parametrize(
    ("eta", "beta", "omega", "named"),
    [
        (0.6, 0.6, 1.0, "eta"),
        (0.5, 0.6, 1.0, "eta"),
        (1.3, 0.6, 1.0, "eta"),
        (0.75, 0.0, 1.0, "beta"),
        (2.0, 1.1, 1.0, "beta"),
        (0.75, 0.6, 0.0, "omega"),
        (0.75, 0.6, np.inf, "omega"),
    ],
)
def test_sam_refuses_steps_outside_of_the_papers_conditions(eta, beta, omega, named):
    with pytest.raises(InvalidInput, match=f"^{named} "):
        SAM(eta, beta, omega)


def test_sam_takes_both_ends_of_the_paper_remark_4():
    assert SAM(eta=1.2, beta=0.6).eta == 2 * SAM(eta=1.2, beta=0.6).beta
    assert SAM(eta=0.61, beta=0.6).beta == 0.6


def test_sam_never_reports_a_negative_rate():
    state = SAM().init()
    for k in range(200):
        state = SAM().update(state, 1.0, k < 3, 50.0)
        assert SAM().change_rate(state) >= 0
