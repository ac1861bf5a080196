"""The simulation itself: exact integrals, the laws of its events, the same credit as the timing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recrawl_lab.reference.simulate import by_credit, play_page, poisson_instants, staleness
from service.core.checks import InvalidInput
from service.core.waits import ping_credit

instants = st.lists(st.integers(0, 1000), max_size=40).map(lambda at: np.sort(at) / 100)


def integrated(changed_at, crawled_at, days):
    """Walk from event to event and add up cost times time."""
    events = sorted([(at, 1) for at in changed_at] + [(at, 2) for at in crawled_at])
    waiting, now, harmonic, binary = 0, 0.0, 0.0, 0.0
    for at, kind in [*events, (days, 0)]:
        harmonic += (at - now) * sum(1 / k for k in range(1, waiting + 1))
        binary += (at - now) * (waiting > 0)
        now, waiting = at, {0: waiting, 1: waiting + 1, 2: 0}[kind]
    return harmonic / days, binary / days


def test_a_worked_example_is_integrated_by_hand():
    # 1 for a day, 1.5 for two days, crawled; then 1 for the last day of ten
    np.testing.assert_allclose(staleness([1.0, 2.0, 9.0], [4.0], 10.0), [0.5, 0.4])


@given(instants, instants)
def test_the_sum_over_changes_is_the_walk_over_events(changed_at, crawled_at):
    found = staleness(changed_at, crawled_at, 10.0)
    np.testing.assert_allclose(found, integrated(changed_at, crawled_at, 10.0), atol=1e-12)


@given(instants, instants, st.floats(1e-6, 1e6))
def test_averages_do_not_depend_on_the_unit_of_time(changed_at, crawled_at, unit):
    here = staleness(changed_at, crawled_at, 10.0)
    there = staleness(changed_at * unit, crawled_at * unit, 10.0 * unit)
    np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)


def test_nothing_changed_costs_nothing_and_nothing_crawled_costs_all():
    assert staleness([], [1.0], 5.0) == (0.0, 0.0)
    assert staleness([0.0, 0.0], [], 5.0) == (1.5, 1.0)


@given(st.floats(0, 1))
def test_credit_is_spent_as_the_timing_spends_it(p):
    credit, spent = 0.0, []
    for _ in range(150):
        now, credit = ping_credit(credit, p)
        spent.append(bool(now))
    together = np.cumsum(by_credit(150, p))
    assert np.abs(together - np.cumsum(spent)).max() <= 1  # rounding may move a crawl by a ping
    if p in (0.0, 0.25, 0.5, 1.0):
        assert by_credit(150, p).tolist() == spent


def test_events_come_at_their_rates_and_at_random():
    rng = np.random.default_rng(1)
    gaps = np.diff(poisson_instants(rng, 4.0, 50_000.0))
    np.testing.assert_allclose([gaps.mean(), gaps.std()], [0.25, 0.25], rtol=0.02)
    played = play_page(rng, 50_000.0, 2.0, 0.5, 0.4, ping_recall=0.7, ping_precision=0.4)
    np.testing.assert_allclose(played.changed_at.size, 100_000, rtol=0.02)
    np.testing.assert_allclose(played.n_pings, 0.7 * 100_000 / 0.4, rtol=0.02)
    np.testing.assert_allclose(played.crawled_at.size, 25_000 + 0.4 * 175_000, rtol=0.02)


def test_the_same_seed_plays_the_same():
    one, other = (
        play_page(np.random.default_rng(3), 100.0, 1.0, 1.0, 0.5, ping_recall=0.5) for _ in range(2)
    )
    for column, again in zip(one, other, strict=True):
        np.testing.assert_array_equal(column, again)


def test_a_page_that_never_changes_or_is_never_crawled_is_played_as_well():
    for timing in "poisson", "periodic":
        still = play_page(np.random.default_rng(4), 10.0, 0.0, 0.0, 1.0, timing=timing)
        assert [still.changed_at.size, still.crawled_at.size, still.n_pings] == [0, 0, 0]


@pytest.mark.parametrize(
    ("given_", "named"),
    [
        ({"days": 0.0}, "days"),
        ({"change_rate": -1.0}, "change_rate"),
        ({"crawl_rate": np.inf}, "crawl_rate"),
        ({"crawl_probability": 1.1}, "crawl_probability"),
        ({"ping_recall": np.nan}, "ping_recall"),
        ({"ping_precision": 0.0}, "ping_precision"),
        ({"timing": "weekly"}, "timing"),
    ],
)
def test_senseless_plays_are_refused_by_name(given_, named):
    with pytest.raises(InvalidInput, match=named):
        play_page(np.random.default_rng(0), **{"days": 1.0, "change_rate": 1.0} | given_)


def test_instants_out_of_order_or_range_are_refused():
    with pytest.raises(InvalidInput, match=r"changed_at must be ascending .* \(entries 1\)"):
        staleness([2.0, 1.0], [], 5.0)
    with pytest.raises(InvalidInput, match="crawled_at"):
        staleness([], [6.0], 5.0)
    with pytest.raises(InvalidInput, match="days"):
        staleness([], [], 0.0)
