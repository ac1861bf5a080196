"""LLN and complete observations: the papers' formulas literally, consistency, what is refused."""

import numpy as np
import pytest

from service.core.checks import InvalidInput
from service.core.estimators.gamma import CompleteObservations, GammaState
from service.core.estimators.lln import LLN
from service.core.prior import Prior


def test_lln_is_the_sum_of_the_papers_equation():
    rng = np.random.default_rng(1)
    lln = LLN()
    rates, changed = rng.uniform(1.0, 5.0, 60), rng.random(60) < 0.5
    state = lln.init()
    for k in range(60):
        state = lln.update(state, 0.3, changed[k], rates[k])
        if k >= 1:
            expected = sum(rates[: k + 1] * changed[: k + 1]) / (sum(~changed[: k + 1]) + 1.0)
            np.testing.assert_allclose(lln.change_rate(state), expected, rtol=1e-13)


def test_lln_finds_the_rate_when_the_crawl_rate_moves_between_epochs():
    rng = np.random.default_rng(2)
    lln, n, change_rate = LLN(), 200, 5.0
    state = lln.init(n)
    for k in range(2000):
        crawl_rate = np.full(n, (3.0, 12.0, 30.0)[k % 3])
        interval = rng.exponential(1.0 / crawl_rate)
        changed = rng.random(n) < -np.expm1(-change_rate * interval)
        state = lln.update(state, interval, changed, crawl_rate)
    np.testing.assert_allclose(lln.change_rate(state).mean(), change_rate, rtol=0.02)


def test_lln_is_finite_whatever_comes_first():
    lln = LLN(prior=Prior(1.0, 20.0))
    assert lln.change_rate(lln.init()) == 0.05
    for first in (True, False):
        assert np.isfinite(lln.change_rate(lln.update(lln.init(), 1.0, first, 2.0)))


def test_a_crawl_without_a_rate_in_force_leaves_lln_as_it_was():
    lln = LLN()
    state = lln.update(lln.init(3), [1.0] * 3, [True, False, True], [2.0, 2.0, 2.0])
    again = lln.update(state, [1.0] * 3, [True, False, True], [np.nan, 0.0, np.nan])
    np.testing.assert_array_equal(state, again)


def test_senseless_rates_are_refused():
    for rate in (-1.0, np.inf):
        with pytest.raises(InvalidInput, match="crawl_rate"):
            LLN().update(LLN().init(), 1.0, changed=True, crawl_rate=rate)


def test_complete_observations_are_the_counts_of_k19_equation_11():
    complete = CompleteObservations()
    state = GammaState(np.array([0.0, 1.0, 7.0]), np.array([2.0, 4.0, 8.0]))
    np.testing.assert_allclose(complete.change_rate(state), [0.5 / 2.5, 1.5 / 4.5, 7.5 / 8.5])
    assert complete.change_rate(complete.init()) == 1.0


def test_a_page_without_pings_for_long_is_estimated_as_quiet():
    complete = CompleteObservations()
    state = complete.update(complete.init(), 1000.0, changed=False)
    assert complete.change_rate(state) < 0.001
