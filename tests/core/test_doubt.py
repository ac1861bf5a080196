"""Allocation under doubt: against the exact integral, by brute force, at the ends of numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln, hyperu

from service.core.doubt import counted_rate, share_changed


def crawl_rate(change_rate, gain):
    """Return the closed form of the harmonic optimum."""
    return 2 * gain / (1 + np.sqrt(1 + 4 * gain / change_rate))


def counted(a, b, gain):
    """Return the ratio of the counted rate to the mean of one page."""
    columns = (np.array([float(value)]) for value in (a / b, a, b, gain))
    return counted_rate(*columns)[0] / (a / b)


@pytest.mark.parametrize(("a", "most"), [(1e-4, 0.05), (0.01, 0.05), (0.2, 0.05), (1.0, 0.09)])
def test_the_share_is_the_exact_integral_nearly(a, most):
    z = np.geomspace(1e-3, 1e3, 60)
    exact = a * hyperu(1.0, 1.0 - a, z)  # a e^z E_{1+a}(z)
    np.testing.assert_allclose(share_changed(np.full(60, a), z), exact, rtol=most)


def saved_at(rho, a, b):
    """Return E ln(1 + D/rho) over a Gamma(a, b), by quadrature in ln D."""

    def term(x):
        rate = np.exp(x)
        density = np.exp(a * (x + np.log(b)) - b * rate - gammaln(a))
        return density * np.log1p(rate / rho)

    return quad(term, -60, np.log(60 / b), limit=400)[0]


@pytest.mark.parametrize(("a", "days", "gain"), [(0.001, 20, 2), (0.01, 250, 2), (0.2, 60, 0.05)])
def test_the_crawl_rate_has_the_least_expected_cost(a, days, gain):
    def cost(log_rate):
        rate = np.exp(log_rate)
        return saved_at(rate, a, days) + rate / gain

    best = np.exp(minimize_scalar(cost, bounds=(-14, np.log(gain)), method="bounded").x)
    mean = a / days
    ours = crawl_rate(mean * counted(a, days, gain), gain)
    assert ours == pytest.approx(best, rel=0.04)
    assert crawl_rate(mean, gain) > 1.1 * best, "the mean crawls it too often"


def test_a_corpus_of_few_live_pages_costs_less_under_doubt():
    rng, n, days, gain = np.random.default_rng(1), 50_000, 10.0, 2.0
    rate = rng.gamma(0.01, 1.0, n)
    changes = rng.poisson(rate * days)
    a, b = 0.01 + changes, np.full(n, 1.0 + days)

    def under_doubt(gain):
        return crawl_rate(counted_rate(a / b, a, b, np.full(n, gain)), gain)

    plain = crawl_rate(a / b, gain)
    assert under_doubt(gain).sum() < 0.85 * plain.sum()
    more = brentq(lambda gain: under_doubt(gain).sum() - plain.sum(), gain, 10 * gain)
    cost = [np.log1p(rate / by).sum() for by in (plain, under_doubt(more))]
    assert cost[1] < 0.98 * cost[0]


positive = st.floats(1e-6, 1e6)


@given(positive, positive, st.floats(1e-9, 1e9), st.floats(1.0, 100.0))
def test_a_page_counts_at_most_its_mean_and_more_with_more_evidence(a, b, gain, more):
    share = counted(a, b, gain)
    assert 0 < share <= 1
    assert counted(more * a, more * b, gain) >= share * 0.9  # the closed form is exact to 9 %
    if a > 1e4:
        assert share == pytest.approx(1, rel=1e-3)


def test_what_is_certain_or_has_no_share_counts_as_it_is():
    rate = np.array([0.3, 0.3, 0.3, 0.0])
    a, b = np.array([np.inf, 0.01, 0.01, 0.01]), np.array([1.0, 2.0, 2.0, 5e-324])
    gain = np.array([1.0, 0.0, np.inf, 1.0])
    assert counted_rate(rate, a, b, gain).tolist() == rate.tolist()
    assert counted_rate(*(np.zeros(0) for _ in range(4))).size == 0
    extreme = counted_rate(*(np.array([value]) for value in (1e-300, 1e-300, 1.0, 1e300)))
    assert np.isfinite(extreme).all()
