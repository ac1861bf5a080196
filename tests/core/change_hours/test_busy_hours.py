"""Pages crawled many times a day: their crawls keep pace with the intensity, and their rate."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hours_cases import burst, cosine, interval_cost, many

from service.core.change_hours.busy_hours import pace, paced
from service.core.change_hours.profile import SLOTS, TERMS, Profiles
from service.core.checks import InvalidInput


def some_pace(rng, hosts=3):
    coefficients = np.hstack((np.ones((hosts, 1)), rng.normal(0.0, 0.4, (hosts, TERMS - 1))))
    return pace(Profiles(coefficients, rng.random(hosts)))


def crawls(table, start, n):
    """n equal intervals of one day, and the instants of their crawls."""
    at = [np.array([start])]
    for _ in range(n):
        at.append(paced(table, np.zeros(1, int), at[-1], [1.0 / n]))
    return np.concatenate(at)


@pytest.mark.parametrize(("n", "share"), [(4, 0.938), (12, 0.9096), (48, 0.9052)])
def test_the_cost_falls_to_the_square_of_the_mean_root(n, share):
    """Of equal intervals' cost, averaged over their phases; (mean sqrt s)² = .9049 in the limit."""
    day, rate = cosine(peak=0.0), 1e-6
    table = pace(day.profiles())

    def cost(at):
        return sum(interval_cost(day, rate, start, end, 500) for start, end in pairwise(at))

    paced_cost = equal_cost = 0.0
    for phase in np.arange(8) / 8 / n:
        paced_cost += cost(crawls(table, phase, n))
        equal_cost += cost(phase + np.arange(n + 1) / n)
    assert paced_cost / equal_cost == pytest.approx(share, abs=1e-3)
    assert np.sqrt(day.profile).mean() ** 2 == pytest.approx(0.9049, abs=1e-4)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 20_000.0), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_crawls_keep_their_rate(seed, start, n):
    """n intervals of 1/n day take one day, whatever the profile."""
    table = some_pace(np.random.default_rng(seed))[:1]
    at = crawls(table, start, n)
    assert at[-1] - start == pytest.approx(1.0, abs=1e-9 * n)
    assert (np.diff(at) > 0).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_the_next_crawl_is_an_interval_of_operational_time_later(seed):
    rng = np.random.default_rng(seed)
    table, n = some_pace(rng), 40
    host, last = rng.integers(0, 3, n), 20_000.0 + 5.0 * rng.random(n)
    interval = 10.0 ** rng.uniform(-4, 0.5, n)
    after = paced(table, host, last, interval)
    edges = np.arange(SLOTS + 1) / SLOTS

    def operational(at, row):
        return np.floor(at) + np.interp(at % 1.0, edges, table[row])

    for page in range(n):
        row = host[page]
        passed = operational(after[page], row) - operational(last[page], row)
        assert passed == pytest.approx(interval[page], abs=1e-9)


def test_a_flat_day_and_a_weight_of_none_leave_intervals_alone():
    for profiles in (Profiles.flat(2), many(burst(0.4, weight=0.0), 2)):
        last = np.array([3.3, 20_000.9])
        interval = np.array([0.04, 0.25])
        after = paced(pace(profiles), np.array([0, 1]), last, interval)
        np.testing.assert_allclose(after, last + interval)


def test_crawls_come_closer_in_busy_hours():
    at = crawls(pace(burst(0.5)), 0.0, 48) % 1.0
    assert ((at > 0.42) & (at < 0.58)).mean() > 2 * 0.16
    half = crawls(pace(burst(0.5, weight=0.5)), 0.0, 48) % 1.0
    near = [((at > 0.42) & (at < 0.58)).sum() for at in (at, half)]
    assert near[0] > near[1] > 48 * 0.16


def test_no_interval_is_no_time():
    table = some_pace(np.random.default_rng(1))
    last = np.array([0.0, 0.999999, 7.5])
    np.testing.assert_allclose(paced(table, np.arange(3), last, np.zeros(3)), last, atol=1e-9)
    assert paced(table, np.zeros(0, int), np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("host", "last", "interval", "named"),
    [
        ([0, 3], [0.0, 0.0], [0.1, 0.1], r"host must lie in \[0, 3\)"),
        ([0], [np.nan], [0.1], "last"),
        ([0], [0.0], [-0.1], "interval"),
        ([0], [0.0], [np.inf], "interval"),
        ([0, 1], [0.0], [0.1, 0.1], "last has shape"),
    ],
)
def test_arguments_out_of_their_domain_are_refused_by_name(host, last, interval, named):
    with pytest.raises(InvalidInput, match=named):
        paced(some_pace(np.random.default_rng(1)), np.array(host), last, interval)
