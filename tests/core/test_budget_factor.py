"""Crawls counted since the last epoch, and the factor that keeps them at the bandwidth."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.budget_factor import (
    HIGHEST,
    LOWEST,
    MOST_OVERSPENT,
    Spent,
    Window,
    budget_factor,
    spent,
)
from service.core.checks import InvalidInput

DAY = Window(1.0, 0.0)


def facts(histories):
    """Return age, last interval and number of recrawls of pages crawled at these ages, falling."""
    last = [ages[-1] for ages in histories]
    interval = [ages[-2] - ages[-1] if len(ages) > 1 else 0.0 for ages in histories]
    return last, interval, [len(ages) - 1 for ages in histories]


def test_the_last_two_crawls_count_where_they_lie_in_the_window():
    histories = [[9.0, 0.5], [9.0, 3.0, 0.9, 0.2], [9.0, 5.0, 1.5]]
    crawls = spent(*facts(histories), [0.1, 0.2, 0.3], Window(1.0, 0.3))
    assert crawls == Spent(2.0, pytest.approx(0.7 * 0.6), 3)


def test_the_first_crawl_of_a_page_and_the_time_before_it_do_not_count():
    crawls = spent(*facts([[0.4], [0.8, 0.3], [7.0]]), [2.0, 3.0, 5.0], DAY)
    assert crawls == Spent(1.0, pytest.approx(2 * 0.4 + 3 * 0.8 + 5), 3)


def test_crawls_without_content_count_where_they_lie_in_the_window():
    columns = *facts([[9.0, 0.5], [9.0, 3.0]]), [0.1, 0.2]
    failure_age = [0.29, 0.3, 0.99, 1.0, 7.0]
    plain = spent(*columns, Window(1.0, 0.3))
    crawls = spent(*columns, Window(1.0, 0.3), failure_age=failure_age)
    assert crawls == plain._replace(n_crawled=plain.n_crawled + 2)


def test_a_page_crawled_each_quarter_of_a_day_counts_four_times_a_day():
    ages = np.arange(40, 0, -1) / 4 - 0.1
    crawls = spent(*facts([ages.tolist()]), [4.0], DAY)
    assert crawls == Spent(4.0, 4.0, 1)


def test_crawls_before_the_last_two_are_as_dense_as_the_factor_made_them():
    ages = np.arange(60, 0, -1) / 6 - 0.1
    assert spent(*facts([ages.tolist()]), [4.0], DAY, factor=1.5) == Spent(6.0, 4.0, 1)


def test_no_more_crawls_count_than_there_were():
    assert spent([0.1], [0.1], [2], [1000.0], DAY).n_crawled == 2
    assert spent([0.1], [0.1], [3], [1000.0], DAY).n_crawled == 3


@given(st.integers(0, 2**32), st.floats(0.05, 20.0))
def test_crawls_of_one_rate_are_counted_as_in_their_histories(seed, days):
    rng = np.random.default_rng(seed)
    rate, horizon = rng.uniform(0.05, 3.0, 20), 60.0
    histories = [
        (horizon - rng.uniform(0, 1 / r) - np.arange(int(horizon * r)) / r).tolist() for r in rate
    ]
    crawls = spent(*facts(histories), rate, Window(days, 0.0))
    n_within = sum(np.count_nonzero(np.array(h) < days) for h in histories)
    assert crawls.n_crawled == pytest.approx(n_within, abs=1)  # an instant may fall on the edge
    assert crawls.n_planned == pytest.approx(rate.sum() * days)


def test_windows_side_by_side_count_each_crawl_once():
    rng = np.random.default_rng(5)
    histories = [np.sort(rng.uniform(0, 4, 2))[::-1].tolist() for _ in range(500)]
    columns = *facts([[9.0, *ages] for ages in histories]), np.full(500, 0.5)
    edges = [4.0, 2.5, 1.0, 0.4, 0.0]
    parts = [spent(*columns, Window(*edge)) for edge in pairwise(edges)]
    assert sum(part.n_crawled for part in parts) == 1_000
    assert sum(part.n_planned for part in parts) == pytest.approx(4.0 * 250)
    failures = rng.uniform(0, 4, 300)
    parts = [spent(*columns, Window(*edge), failure_age=failures) for edge in pairwise(edges)]
    assert sum(part.n_crawled for part in parts) == 1_300


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("age", 0, [-1.0]), ("interval", 1, [np.nan]), ("n_recrawls", 2, [-1]), ("crawl_rate", 3, [])],
)
def test_what_is_no_amount_is_refused_by_name(name, place, value):
    columns = [[1.0], [1.0], [1], [1.0]]
    columns[place] = value
    with pytest.raises(InvalidInput) as refused:
        spent(*columns, DAY)
    assert refused.value.name == name


@pytest.mark.parametrize("failure_age", [[-1.0], [np.nan], [0.5, np.inf]])
def test_the_age_of_a_failure_is_an_amount(failure_age):
    with pytest.raises(InvalidInput) as refused:
        spent([1.0], [1.0], [1], [1.0], DAY, failure_age=failure_age)
    assert refused.value.name == "failure_age"


# -- the factor

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
