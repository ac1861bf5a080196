"""The factor that keeps the crawls of readers without leases at the budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.budget_factor import (
    HIGHEST,
    LOWEST,
    MOST_OVERSPENT,
    Spent,
    budget_factor,
    settling_days,
    share_wanted,
)
from service.core.checks import InvalidInput

PER_DAY = 1_000.0


def after(last, n_crawled, days=1.0, n_pages=1_000):
    return budget_factor(last, Spent(n_crawled, PER_DAY * days, n_pages), days)


def test_golden_values():
    assert after(1.0, 900.0) == pytest.approx(np.exp(0.01))
    assert after(1.2, 2_000.0) == pytest.approx(1.2 * np.exp(-0.1))
    assert after(1.0, 0.0, n_pages=10_000) == pytest.approx(np.exp(1 / 20))  # 2 n / R = 20 days
    few = budget_factor(1.0, Spent(0.0, 4.0, 1), 1.0)  # 100 / R = 25 days
    assert few == pytest.approx(np.exp(1 / 25))


def test_its_logarithm_is_the_bandwidth_that_is_left_over():
    rng = np.random.default_rng(1)
    crawls = rng.poisson(PER_DAY * (1 + 0.2 * rng.standard_normal(200)))
    factor = 1.0
    for n_crawled in crawls:
        factor = after(factor, float(n_crawled))
    left_over = 200 - crawls.sum() / PER_DAY
    assert np.log(factor) == pytest.approx(left_over / 10)


@given(st.floats(0.05, 50.0), st.floats(0, 1e9), st.floats(1e-6, 1e4), st.integers(0, 10**9))
def test_it_stays_within_its_bounds(last, n_crawled, days, n_pages):
    factor = budget_factor(last, Spent(n_crawled, PER_DAY * days, n_pages), days)
    assert LOWEST <= factor <= HIGHEST


def test_short_epochs_correct_as_much_as_one_long_one():
    steps = 1.0
    for _ in range(24):
        steps = after(steps, 30.0, days=1 / 24)
    assert steps == pytest.approx(after(1.0, 720.0))


def test_an_import_counts_as_far_as_a_bound():
    assert after(1.5, 1e12, days=0.01) == after(1.5, PER_DAY * 0.01 * (1 + MOST_OVERSPENT), 0.01)


def test_a_plan_that_asks_for_more_or_less_than_its_rates_settles_at_them():
    """The crawls that take place are the factor times 1.25 times the plan, then .8 times."""
    for excess in (1.25, 0.8):
        factor, spent_so_far = 1.0, 0.0
        for _ in range(400):
            n_crawled = PER_DAY * excess * factor
            spent_so_far += n_crawled
            factor = after(factor, n_crawled)
        assert factor * excess == pytest.approx(1.0, abs=1e-9)
        assert spent_so_far / PER_DAY == pytest.approx(400 + 10 * np.log(excess), rel=1e-3)


def test_few_crawls_left_over_are_made_up_soon_and_many_over_the_settling_time():
    assert share_wanted(1.0, 10.0) == 1.0
    assert share_wanted(np.exp(0.003), 10.0) == pytest.approx(1.003 + 0.01, abs=1e-5)
    assert share_wanted(np.exp(-0.3), 10.0) == pytest.approx(np.exp(-0.3) - 0.1)
    assert share_wanted(4.0, 40.0) == 4.1


@given(st.floats(LOWEST, HIGHEST), st.floats(20.0, 1e5), st.integers(0, 10**6))
def test_readers_who_make_what_is_wanted_come_to_the_budget(feedback, a_day, n_pages):
    """What a day makes beyond the budget is what fewer crawls are left over."""
    settles = settling_days(a_day, n_pages)
    for _ in range(3):
        share = share_wanted(feedback, settles)
        after_it = budget_factor(feedback, Spent(share * a_day, a_day, n_pages), 1.0)
        made_up = settles * np.log(feedback / after_it)
        assert made_up == pytest.approx(share - 1.0, abs=1e-9)
        assert abs(np.log(after_it)) <= abs(np.log(feedback)) + 1e-12
        feedback = after_it


def test_nothing_planned_changes_nothing():
    assert budget_factor(1.1, Spent(5.0, 0.0, 3), 1.0) == 1.1
    assert budget_factor(1.1, Spent(5.0, 7.0, 3), 0.0) == 1.1


@pytest.mark.parametrize(
    ("last", "crawls", "days", "name"),
    [
        (0.0, Spent(1, 1, 1), 1.0, "last"),
        (np.nan, Spent(1, 1, 1), 1.0, "last"),
        (1.0, Spent(-1, 1, 1), 1.0, "n_crawled"),
        (1.0, Spent(1, np.inf, 1), 1.0, "n_planned"),
        (1.0, Spent(1, 1, 1), -1.0, "days"),
    ],
)
def test_what_is_no_number_of_crawls_is_refused_by_name(last, crawls, days, name):
    with pytest.raises(InvalidInput) as refused:
        budget_factor(last, crawls, days)
    assert refused.value.name == name
