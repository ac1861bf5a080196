"""Stretches of best hours: pairs by brute force, known answers, and bounds."""

import numpy as np
import pytest
from support.hours_cases import burst

from service.core.change_hours.best_hours import CONCENTRATION, excess_mass
from service.core.change_hours.profile import SLOTS, TERMS, Profiles
from service.core.change_hours.stretches import (
    ABOVE,
    LEAST_STRETCH,
    half_gap,
    near_crawls,
    stretches,
)

STRETCH = 1.0 / CONCENTRATION


def at_hours(hours):
    """Return the masses of rows that change at an hour each; NaN: at any hour."""
    rows = [burst(0.0 if np.isnan(h) else h / 24, 0.0 if np.isnan(h) else 1.0) for h in hours]
    profiles = Profiles(*(np.concatenate(each) for each in zip(*rows, strict=True)))
    return excess_mass(profiles, STRETCH)


def test_near_crawls_are_those_of_all_pairs():
    rng = np.random.default_rng(1)
    hour = np.where(rng.random(60) < 0.2, np.nan, 24 * rng.random(60))
    mass, host, crawls = at_hours(hour), rng.integers(0, 3, 60), rng.random(60)
    near, total = near_crawls(mass, host, crawls)
    timed, best = mass.any(axis=1), mass.argmax(axis=1)
    for row in np.flatnonzero(timed):
        same = host == host[row]
        off = np.abs((best - best[row] + SLOTS // 2) % SLOTS - SLOTS // 2) / SLOTS
        part = np.where(timed, off <= 0.5 * STRETCH + 1e-9, STRETCH)
        assert near[row] == pytest.approx((part * crawls)[same].sum())
        assert total[row] == pytest.approx(crawls[same].sum())


def test_twenty_groups_at_twenty_hours_need_forty_minutes_each():
    mass = at_hours(24 * np.arange(20) / 20)
    each = stretches(mass, np.zeros(20, int), np.ones(20, np.bool_), np.ones(20), np.zeros(20))
    assert 24 * 60 * each.mean() == pytest.approx(40, abs=6)


def test_a_host_alone_keeps_its_stretch_as_do_groups_at_one_hour():
    mass = at_hours([6.0, 6.0, 6.0])
    host, crawls = np.zeros(3, int), np.ones(3)
    each = stretches(mass, host, np.array([False, True, True]), crawls, np.zeros(3))
    np.testing.assert_allclose(each, STRETCH)


def test_a_host_is_crawled_at_most_as_its_delay_allows():
    mass, crawls = at_hours([6.0, 18.0]), np.array([300.0, 5.0])
    delay = np.full(2, 60 / 86_400)
    each = stretches(mass, np.zeros(2, int), np.array([False, True]), crawls, delay)
    assert each[0] == pytest.approx(300 / 1440)
    assert (each >= delay * crawls - 1e-12).all()
    endless = stretches(mass, np.zeros(2, int), np.ones(2, np.bool_), crawls, np.ones(2))
    np.testing.assert_array_equal(endless, 1.0)


def test_few_crawls_have_a_quarter_of_an_hour():
    mass, crawls = at_hours([6.0, 18.0]), np.array([1e6, 1.0])
    each = stretches(mass, np.zeros(2, int), np.ones(2, np.bool_), crawls, np.zeros(2))
    assert each[1] == LEAST_STRETCH


@pytest.mark.parametrize(("n", "hours"), [(1, 12.0), (2, 6.0), (3, 4.0), (4, 3.0), (6, 2.0)])
def test_a_bot_that_runs_n_times_a_day_has_half_of_its_interval(n, hours):
    runs = [burst(k / n).coefficients for k in range(n)]
    profiles = Profiles(np.mean(runs, axis=0), np.ones(1))
    width = STRETCH if n < 6 else 0.0
    assert 24 * half_gap(excess_mass(profiles, width))[0] == pytest.approx(hours)


def test_a_bot_that_runs_every_six_hours_is_followed_within_three():
    runs = np.mean([burst(k / 4).coefficients for k in range(4)], axis=0)
    mass = excess_mass(Profiles(runs, np.ones(1)), STRETCH)
    for is_group in (False, True):
        each = stretches(mass, np.zeros(1, int), np.array([is_group]), np.ones(1), np.zeros(1))
        assert 24 * each[0] == pytest.approx(3.0)


def test_rows_without_hours_have_any_stretch():
    mass = np.zeros((2, SLOTS), np.float32)
    each = stretches(mass, np.zeros(2, int), np.ones(2, np.bool_), np.zeros(2), np.zeros(2))
    assert ((each >= LEAST_STRETCH) & (each <= 1)).all()
    empty = np.zeros(0)
    none = stretches(mass[:0], empty.astype(int), empty.astype(bool), empty, empty)
    assert none.shape == (0,)


def test_half_gaps_are_those_of_each_row_alone():
    rng = np.random.default_rng(2)
    coefficients = rng.normal(size=(300, TERMS)) * 0.3
    mass = excess_mass(Profiles(coefficients, 1.0 * (rng.random(300) < 0.9)), STRETCH)
    for row, gap in zip(mass, half_gap(mass), strict=True):
        above = row > ABOVE * row.max()
        begins = np.flatnonzero(above & ~np.roll(above, 1))
        between = np.diff(begins, append=begins[:1] + SLOTS)
        assert gap == 0.5 * between.min(initial=SLOTS) / SLOTS
