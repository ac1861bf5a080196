"""Timing: exact ping credit, Poisson draws of the right law, order of the overdue."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.conditions import InvalidInput
from service.core.timing import (
    first_due_in,
    next_due_in,
    overdue,
    ping_credit,
    poisson_gap,
    poisson_ping,
)


def crawls_of(crawl_probability, n_pings):
    credit, crawls = 0.0, []
    for _ in range(n_pings):
        crawl_now, credit = ping_credit(credit, crawl_probability)
        crawls.append(bool(crawl_now))
    return crawls


def test_due_times_are_the_rates_and_never_come_at_rate_zero():
    np.testing.assert_array_equal(first_due_in([2.0, 0.0], [0.5, 0.5]), [0.25, np.inf])
    np.testing.assert_array_equal(next_due_in([2.0, 0.0, 1e-320]), [0.5, np.inf, np.inf])


@given(st.floats(1e-6, 1e6), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_moves_a_crawl_by_at_most_its_share_of_the_interval(rate, jitter, at):
    days = next_due_in(rate, jitter, at)
    assert abs(days * rate - 1.0) <= jitter + 1e-12


def test_jitter_outside_of_its_domain_is_refused():
    with pytest.raises(InvalidInput, match="jitter"):
        next_due_in(1.0, jitter=1.5)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 10, 49, 1000])
def test_at_one_in_k_exactly_every_kth_ping_is_crawled(k):
    crawls = crawls_of(1.0 / k, 4 * k)
    assert [i + 1 for i, now in enumerate(crawls) if now] == [k, 2 * k, 3 * k, 4 * k]


@given(st.floats(0.0, 1.0))
def test_the_number_of_crawls_is_the_probability_times_the_pings(p):
    assert abs(sum(crawls_of(p, 200)) - 200 * p) < 1 + 1e-6


@given(st.lists(st.integers(0, 5), max_size=30), st.floats(0.0, 1.0))
def test_credit_stays_a_fraction_however_pings_are_batched(batches, p):
    credit = 0.0
    for n_pings in batches:
        crawl_now, credit = ping_credit(credit, p, n_pings)
        assert 0 <= credit < 1
        assert not (crawl_now and n_pings == 0)


def test_pings_that_come_together_share_one_crawl():
    crawl_now, credit = ping_credit([0.5, 0.0], [0.5, 0.25], n_pings=[5, 2])
    np.testing.assert_array_equal(crawl_now, [True, False])
    np.testing.assert_allclose(credit, [0.0, 0.5])


def test_poisson_gaps_have_the_rate_of_the_clock():
    gaps = poisson_gap(4.0, np.random.default_rng(1).random(100_000))
    np.testing.assert_allclose([gaps.mean(), gaps.std()], [0.25, 0.25], rtol=0.02)
    assert poisson_gap(0.0, 0.3) == np.inf


def test_poisson_pings_are_crawled_with_their_probability():
    rng = np.random.default_rng(2)
    assert abs(poisson_ping(0.3, rng.random(100_000)).mean() - 0.3) < 0.01


def test_the_most_overdue_page_is_the_furthest_past_its_interval():
    np.testing.assert_allclose(overdue([1.0, 10.0, 5.0], [2.0, 0.1, 0.0]), [2.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: first_due_in([1.0, -1.0], [0.5, 0.5]), r"crawl_rate .* \(entries 1\)"),
        (lambda: first_due_in([1.0, np.nan], [0.5, 0.5]), r"crawl_rate .* \(entries 1\)"),
        (lambda: first_due_in(1.0, 1.0), "phase"),
        (lambda: next_due_in(np.inf), "crawl_rate"),
        (lambda: ping_credit(0.0, 1.5), "crawl_probability"),
        (lambda: ping_credit(-0.1, 0.5), "credit"),
        (lambda: ping_credit(0.0, 0.5, -1), "n_pings"),
        (lambda: poisson_gap(1.0, 1.0), "uniform"),
        (lambda: poisson_ping(-0.1, 0.5), "crawl_probability"),
        (lambda: overdue(1.0, np.nan), "crawl_rate"),
    ],
)
def test_what_lies_outside_of_its_domain_is_refused_by_name(call, named):
    with pytest.raises(InvalidInput, match=named):
        call()
