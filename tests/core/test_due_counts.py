"""Crawls that readers of the schedule will make, and the factor at which they are as wanted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.budget_factor import HIGHEST, LOWEST
from service.core.checks import InvalidInput
from service.core.due_counts import (
    MOST_MOVED,
    STEPS,
    counts,
    factor_for,
    moved,
    n_due,
    needed_rates,
)

RESOLUTION = (HIGHEST / LOWEST) ** (1 / STEPS)
"""Ratio of the factors at the two ends of a step."""
factors = st.lists(st.floats(0.0, 8.0) | st.just(np.inf), max_size=40).map(np.array)


def made(rate, waited, interval, days):
    """Return the crawls of a page within some days, one after the other."""
    at, n = max(interval / rate - waited, 0.0), 0
    while at <= days:
        at, n = at + 1 / rate, n + 1
    return n


def test_closed_cases():
    assert needed_rates(1, waited=9.0, interval=1.0, days=1.0) == 0.1
    assert needed_rates(1, waited=9.0, interval=1.1, days=1.0) == pytest.approx(0.11)
    assert needed_rates(3, waited=0.0, interval=1.0, days=2.0) == 1.5
    assert needed_rates(2, waited=99.0, interval=1.0, days=0.5) == 2.0, "the first one is due now"


@pytest.mark.parametrize("seed", range(20))
def test_as_many_crawls_are_due_as_a_page_makes_one_after_the_other(seed):
    rng = np.random.default_rng(seed)
    waited, interval, days = rng.exponential(5.0), rng.uniform(0.9, 1.1), rng.uniform(0.01, 3.0)
    nth = np.arange(1, 200)
    needed = needed_rates(nth, np.full(199, waited), np.full(199, interval), days)
    assert (np.diff(needed) > 0).all()
    for rate in rng.exponential(3.0, 20):
        assert np.count_nonzero(needed <= rate) == made(rate, waited, interval, days)


@given(factors, st.integers(0, 50))
def test_at_the_factor_as_many_are_due_as_wanted_or_as_can_be(needed, n_crawls):
    factor = factor_for(counts(needed), n_crawls)
    assert LOWEST <= factor <= HIGHEST
    if factor > LOWEST:
        assert np.count_nonzero(needed < factor / RESOLUTION) <= n_crawls
    if factor < HIGHEST:
        assert np.count_nonzero(needed <= factor * RESOLUTION) > n_crawls


@given(factors, st.integers(0, 40))
def test_counts_of_parts_add_up_and_lose_no_crawl_that_may_be_due(needed, n_first):
    whole = counts(needed)
    assert whole.sum() == np.count_nonzero(needed <= HIGHEST)
    np.testing.assert_array_equal(whole, counts(needed[:n_first]) + counts(needed[n_first:]))


@given(factors, st.integers(0, 40), st.integers(0, 40))
def test_more_crawls_need_no_lower_factor(needed, few, more):
    of_steps = counts(needed)
    assert factor_for(of_steps, min(few, more)) <= factor_for(of_steps, max(few, more))


def test_within_a_step_crawls_need_factors_at_equal_distances():
    of_steps = counts(np.full(1_000, 1.00001))
    ends = [factor_for(of_steps, n) for n in (0, 500, 999, 1_000)]
    assert ends[0] == pytest.approx(1.0)
    assert ends[1] == pytest.approx(RESOLUTION**0.5)
    assert ends[2] < RESOLUTION
    assert ends[3] == HIGHEST


@given(factors, st.floats(LOWEST, HIGHEST))
def test_the_crawls_due_at_a_factor_are_those_that_need_no_more(needed, factor):
    n = n_due(counts(needed), factor)
    assert n >= np.count_nonzero(needed < factor / RESOLUTION) - 1e-6
    assert n <= np.count_nonzero(needed <= factor * RESOLUTION) + 1e-6


@given(factors, st.floats(-5.0, 50.0), st.floats(LOWEST, HIGHEST))
def test_no_crawl_is_lost_where_the_factor_may_not_move_as_far_as_wanted(needed, n_crawls, last):
    of_steps = counts(needed)
    factor, beyond = moved(of_steps, n_crawls, last)
    assert LOWEST <= factor <= HIGHEST
    assert abs(np.log(factor / last)) <= MOST_MOVED + 1e-9
    assert n_due(of_steps, factor) == pytest.approx(max(n_crawls, 0) + beyond, abs=1e-9)
    wanted = factor_for(of_steps, n_crawls)
    if abs(np.log(wanted / last)) < MOST_MOVED and LOWEST < wanted < HIGHEST:
        assert beyond == pytest.approx(0.0, abs=1e-3)
        assert factor == wanted


def test_what_was_made_beyond_the_plan_is_not_forgiven_while_nothing_is_due():
    assert moved(counts(np.array([2.0])), -3.0, last=1.0) == (pytest.approx(np.exp(0.05)), 0.0)


def test_no_time_is_refused_by_name():
    for days in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InvalidInput, match="days"):
            needed_rates(1, 1.0, 1.0, days)


def test_columns_may_be_read_only_strided_and_empty():
    needed = np.broadcast_to(1.0, 7)
    assert counts(needed).sum() == counts(np.ones(14)[::2]).sum() == 7
    assert factor_for(counts(np.zeros(0)), 0) == HIGHEST
    assert needed_rates(np.zeros(0), np.zeros(0), np.zeros(0), 1.0).size == 0
