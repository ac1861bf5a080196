"""Profiles: integrals, tables and the busiest hours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from support.hours_cases import TURN, burst, cosine, many, two_waves

from service.core.change_hours.profile import (
    HARMONICS,
    LEAST_INTENSITY,
    ORDERS,
    SLOTS,
    TERMS,
    Profiles,
    busiest,
    integrals,
    intensity,
    waves,
)


@pytest.mark.parametrize(("start", "end"), [(0.2, 0.3), (0.9, 3.15), (20_000.4, 20_007.1)])
def test_integrals_are_those_of_each_term(start, end):
    values = integrals(np.array([start]), np.array([end]))[0]
    assert values[0] == end - start
    for k in ORDERS:
        for term, wave in ((k, np.cos), (k + HARMONICS, np.sin)):
            whole = quad(lambda t, k=k, wave=wave: wave(TURN * k * t), start, end, limit=400)[0]
            assert values[term] == pytest.approx(whole, abs=1e-8)


@given(st.floats(0, 30_000), st.integers(1, 14))
def test_whole_days_hold_every_wave_to_its_end(start, days):
    values = integrals(np.array([start]), np.array([start + days]))[0]
    np.testing.assert_allclose(values[1:], 0.0, atol=1e-10)


def test_waves_are_those_of_each_order():
    at = np.array([0.0, 0.37, 19_876.25])
    np.testing.assert_allclose(waves(at), np.exp(2j * np.pi * at[:, None] * ORDERS), atol=1e-9)


def test_a_profile_in_half_hours_has_the_mean_of_each_half_hour():
    day = cosine()
    means = day.profile.reshape(-1, 125).mean(axis=1)  # 160 parts, not half-hours
    table = intensity(day.profiles())[0]
    at = (np.arange(SLOTS) + 0.5) / SLOTS
    np.testing.assert_allclose(table, np.interp(at, (np.arange(160) + 0.5) / 160, means), atol=3e-3)
    assert table.mean() == pytest.approx(1.0)


def test_a_truncated_series_is_never_negative_and_keeps_its_mean():
    table = intensity(many(burst(0.4), 3))
    assert (table > 0.5 * LEAST_INTENSITY).all()
    np.testing.assert_allclose(table.mean(axis=1), 1.0)


def test_the_intercept_takes_up_a_wrong_change_rate():
    """Twice as many changes as expected, at the same hours, are the same profile."""
    profiles = two_waves().profiles()
    twice = Profiles(2.0 * profiles.coefficients, profiles.weight)
    np.testing.assert_allclose(intensity(twice), intensity(profiles))


@given(st.integers(0, 2**32 - 1))
def test_the_busiest_stretch_is_the_shortest_that_holds_half_of_the_changes(seed):
    rng = np.random.default_rng(seed)
    coefficients = np.concatenate(([1.0], rng.normal(0.0, rng.uniform(0.0, 0.6), TERMS - 1)))
    profiles = Profiles(coefficients[None], np.ones(1))
    day = np.tile(intensity(profiles)[0] / SLOTS, 2)
    start, end, share = (column[0] for column in busiest(profiles))
    first, length = round(2 * start), round(2 * ((end - start) % 24))
    assert share == pytest.approx(day[first : first + length].sum())
    assert share >= 0.5
    shorter = max(day[i : i + length - 1].sum() for i in range(SLOTS))
    assert shorter < 0.5
    assert share == pytest.approx(max(day[i : i + length].sum() for i in range(SLOTS)))


def test_the_busiest_stretch_may_go_on_after_midnight():
    start, end, share = (float(column[0]) for column in busiest(burst(0.0)))
    assert (start, end) == (23.0, 0.5)
    assert 0.5 <= share < 0.6


def test_the_busiest_stretch_of_a_flat_day_is_half_of_it():
    start, end, share = busiest(Profiles.flat(2))
    assert start.tolist() == [0.0, 0.0]
    assert end.tolist() == [12.0, 12.0]
    np.testing.assert_allclose(share, 0.5)


def test_no_hosts_have_no_profiles():
    assert intensity(Profiles.flat(0)).shape == (0, SLOTS)
    assert busiest(Profiles.flat(0)).share.shape == (0,)


def test_an_index_selects_hosts():
    profiles = many(burst(0.4), 3)
    profiles.weight[:] = [0.1, 0.2, 0.3]
    assert profiles.take(np.array([2, 0])).weight.tolist() == [0.3, 0.1]
    assert profiles.take(slice(1, 2)).coefficients.shape == (1, TERMS)
