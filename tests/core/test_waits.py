"""Timing: exact ping credit, Poisson draws of the right law."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.checks import InvalidInput
from service.core.waits import backoff, exponential, jittered, ping_credit


def crawls_of(crawl_probability, n_pings):
    credit, crawls = 0.0, []
    for _ in range(n_pings):
        crawl_now, credit = ping_credit(credit, crawl_probability)
        crawls.append(bool(crawl_now))
    return crawls


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_moves_a_crawl_by_at_most_its_share_of_the_interval(jitter, at):
    assert abs(jittered(jitter, at) - 1.0) <= jitter + 1e-12


def test_jitter_outside_of_its_domain_is_refused():
    with pytest.raises(InvalidInput, match="jitter"):
        jittered(1.5, 0.5)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 10, 49, 1000])
def test_at_one_in_k_exactly_every_kth_ping_is_crawled(k):
    crawls = crawls_of(1.0 / k, 4 * k)
    assert [i + 1 for i, now in enumerate(crawls) if now] == [k, 2 * k, 3 * k, 4 * k]


@given(st.floats(0.0, 1.0))
def test_the_number_of_crawls_is_the_probability_times_the_pings(p):
    assert abs(sum(crawls_of(p, 200)) - 200 * p) < 1 + 1e-6


@given(st.lists(st.floats(0.0, 1.0), max_size=30))
def test_credit_stays_a_fraction_however_probabilities_move(probabilities):
    credit = 0.0
    for p in probabilities:
        crawl_now, credit = ping_credit(credit, p)
        assert 0 <= credit < 1
        assert not (crawl_now and p == 0)


def test_poisson_gaps_have_the_law_of_the_clock():
    gaps = exponential(np.random.default_rng(1).random(100_000))
    np.testing.assert_allclose([gaps.mean(), gaps.std()], [1.0, 1.0], rtol=0.02)


@given(st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=12))
def test_a_wait_is_hardly_longer_than_twice_the_time_of_trouble(uniform):
    waits = backoff(np.arange(1, len(uniform) + 1), 60.0, 86_400.0, uniform)
    before = np.cumsum(waits) - waits
    assert (waits <= 75.0 + 2.0 * before + 1e-9).all()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: jittered(0.1, [0.5, 1.0]), r"uniform .* \(entries 1\)"),
        (lambda: ping_credit(0.0, -0.5), "earned"),
        (lambda: ping_credit(-0.1, 0.5), "credit"),
        (lambda: exponential(1.0), "uniform"),
        (lambda: backoff(-1, 1.0, 2.0, 0.5), "n_failures"),
    ],
)
def test_what_lies_outside_of_its_domain_is_refused_by_name(call, named):
    with pytest.raises(InvalidInput, match=named):
        call()
