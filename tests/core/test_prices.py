"""Costs of crawls, learnt page by page."""

import numpy as np
import pytest

from service.core.common_values import alone
from service.core.prices import (
    LEAST,
    LEAST_SHARE,
    WEIGHT,
    allocated,
    expected,
    learnt,
    means_of_hosts,
)


def test_a_mean_moves_by_its_weight_towards_each_crawl():
    mean = np.array([0.0])
    for cost in (8.0, 8.0, 16.0):
        mean = learnt(mean, np.array([cost]))
    assert mean == pytest.approx(8.0 + WEIGHT * 8.0)


def test_equal_prices_keep_their_mean_to_the_bit():
    mean = np.array([0.01])
    for _ in range(100):
        mean = learnt(mean, np.array([0.01]))
    assert mean.tolist() == [0.01]


def test_a_crawl_that_took_nothing_is_known():
    assert learnt(np.array([0.0]), np.array([0.0])).tolist() == [LEAST]


def test_a_page_without_a_cost_takes_the_mean_of_its_host_and_then_that_of_all():
    cost, host = np.array([2.0, 4.0, 0.0, 0.0]), np.array([7, 7, 7, 9])
    assert alone(allocated(cost, host, typical=99.0, most=1e9)).tolist() == [2.0, 4.0, 3.0, 3.0]
    assert alone(allocated(np.zeros(2), host[:2], typical=99.0, most=1e9)).tolist() == [99.0, 99.0]
    assert alone(allocated(np.zeros(0), host[:0], typical=99.0, most=1e9)).tolist() == []


def test_no_cost_is_far_below_the_mean():
    cost = np.array([1e-12, 10.0, 20.0])
    least = alone(allocated(cost, np.arange(3), typical=1.0, most=1e9)).min()
    assert least == pytest.approx(LEAST_SHARE * cost.mean())


def test_means_count_the_pages_that_have_a_cost():
    assert means_of_hosts(np.array([2.0, 0.0, 6.0]), np.array([0, 0, 2]), 3).tolist() == [2, 0, 6]
    assert expected(np.zeros(1), np.array([4.0]), 2.0).tolist() == [4.0]


@pytest.mark.parametrize("absurd", [1e3, 1e15, 1e300])
def test_a_cost_beyond_the_day_changes_the_cost_of_no_other_page(absurd):
    cost, host = np.array([2.0, 4.0, 0.0, absurd, 0.0]), np.array([7, 7, 7, 7, 9])
    assert alone(allocated(cost, host, typical=99.0, most=100.0)).tolist() == [2, 4, 3, absurd, 3]
