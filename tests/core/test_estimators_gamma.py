"""Gamma: golden posteriors, the integrated posterior as oracle, what holds for any input."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.checks import InvalidInput
from service.core.estimators.gamma import Gamma, GammaState
from service.core.forecast import probability_unchanged
from service.core.prior import Prior

GOLDEN = [  # (a, b, interval, changed) -> (a', b')
    ((0.8, 1.5, 1.0, True), (1.6998766797959697, 1.7782209743721369)),
    ((0.8, 1.5, 1.0, False), (0.8, 2.5)),
    ((3.0, 10.0, 0.01, True), (3.999998335000442, 10.004991670838047)),
    ((0.5, 0.001, 5.0, True), (0.5108310070392574, 0.0010072178239331625)),
    ((20.0, 4.0, 0.3, True), (20.821393123717005, 4.076706451162921)),
]

shapes = st.floats(0.05, 1e4)
days = st.floats(1e-3, 1e5)
intervals = st.floats(1e-9, 1e5)


def posterior_after(a, b, interval, changed):
    gamma = Gamma(Prior(a, b))
    return gamma.posterior(gamma.update(gamma.init(), interval, changed))


def integrated_moments(a, b, interval):
    """Mean and variance of the exact posterior after "changed", by quadrature over ln(rate)."""
    log_rate = np.linspace(
        np.log(a / b) - 60 / min(a, 1.0), np.log((a + 60 + 12 * a**0.5) / b), 400_001
    )
    rate = np.exp(log_rate)
    log_density = a * log_rate - b * rate + np.log(-np.expm1(-interval * rate))
    weight = np.exp(log_density - log_density.max())
    mean = weight @ rate / weight.sum()
    return mean, weight @ (rate - mean) ** 2 / weight.sum()


@pytest.mark.parametrize(("given_", "expected"), GOLDEN)
def test_one_update_gives_the_golden_posterior(given_, expected):
    np.testing.assert_allclose(posterior_after(*given_), expected, rtol=1e-12)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("a", [0.3, 1.0, 7.5, 60.0])
@pytest.mark.parametrize("interval", [1e-6, 0.02, 1.0, 30.0, 1e4])
def test_mean_and_variance_are_those_of_the_integrated_posterior(a, interval):
    new_a, new_b = posterior_after(a, 4.0, interval, changed=True)
    mean, variance = integrated_moments(a, 4.0, interval)
    np.testing.assert_allclose([new_a / new_b, new_a / new_b**2], [mean, variance], rtol=1e-8)


@given(a=shapes, b=days, interval=intervals)
def test_a_change_adds_at_most_one_change_and_never_removes_evidence(a, b, interval):
    gamma = Gamma(Prior(a, b))
    state = gamma.update(gamma.init(), interval, changed=True)
    assert 0 <= state.changes <= 1 + 1e-9
    assert 0 <= state.days <= interval
    assert gamma.change_rate(state) >= gamma.prior.mean * (1 - 1e-12)


@given(a=shapes, b=days, interval=intervals)
def test_what_was_probable_before_is_the_average_of_what_is_estimated_after(a, b, interval):
    gamma = Gamma(Prior(a, b))
    unchanged = probability_unchanged(gamma, gamma.init(), interval)
    after = [
        gamma.change_rate(gamma.update(gamma.init(), interval, seen)) for seen in (False, True)
    ]
    expected = unchanged * after[0] + (1 - unchanged) * after[1]
    np.testing.assert_allclose(expected, gamma.prior.mean, rtol=1e-7)


@given(a=shapes, b=days, interval=intervals, unit=st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(a, b, interval, unit):
    in_days = posterior_after(a, b, interval, changed=True)
    in_units = posterior_after(a, b * unit, interval * unit, changed=True)
    np.testing.assert_allclose(in_units, (in_days[0], in_days[1] * unit), rtol=1e-9)


def test_extreme_intervals_and_states_stay_finite_without_warnings():
    grid = np.array(
        np.meshgrid([0, 1e-9, 1, 1e6, 1e15], [0, 1e-9, 1, 1e6, 1e15], [1e-9, 1, 1e5], [0, 1])
    )
    changes, watched, interval, changed = grid.reshape(4, -1)
    for half_life in (None, 1e-3, 365.0):
        gamma = Gamma(half_life_days=half_life)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            state = gamma.update(GammaState(changes, watched), interval, changed)
            rate = gamma.change_rate(state)
            low, high = gamma.credible_interval(state)
            unchanged = probability_unchanged(gamma, state, 1e5)
        assert np.isfinite([*state, rate, low, high, unchanged]).all()
        assert ((low >= 0) & (low <= high)).all()
        assert (np.array([*state]) >= 0).all()
        assert (rate > 0).all()


def test_a_long_history_settles_where_it_is_most_likely():
    gamma, state = Gamma(), Gamma().init()
    for step in range(4000):
        state = gamma.update(state, 1.0, changed=step % 4 == 0)
    np.testing.assert_allclose(gamma.change_rate(state), -np.log(0.75), rtol=0.01)


def test_many_pages_are_updated_exactly_as_one_by_one():
    rng = np.random.default_rng(7)
    gamma = Gamma(half_life_days=30.0)
    interval, changed = rng.exponential(3.0, (5, 40)), rng.random((5, 40)) < 0.4
    together = gamma.init(40)
    for step in range(5):
        together = gamma.update(together, interval[step], changed[step])
    for page in range(40):
        alone = gamma.init()
        for step in range(5):
            alone = gamma.update(alone, interval[step, page], changed[step, page])
        np.testing.assert_allclose([together.changes[page], together.days[page]], alone, rtol=1e-14)


def test_read_only_strided_and_empty_inputs_are_served():
    gamma = Gamma()
    interval = np.arange(1.0, 9.0)[::2]
    interval.flags.writeable = False
    state = gamma.update(gamma.init(4), interval, [True, False, True, False])
    assert state.days.shape == (4,)
    assert gamma.change_rate(gamma.update(gamma.init(0), [], [])).shape == (0,)


def test_evidence_loses_half_of_its_weight_in_a_half_life():
    gamma = Gamma(half_life_days=10.0)
    state = gamma.update(GammaState(8.0, 40.0), 10.0, changed=False)
    np.testing.assert_allclose(state, (4.0, 30.0))


def test_a_new_prior_shifts_every_posterior_and_touches_no_state():
    old, new = Gamma(Prior(0.5, 15.0)), Gamma(Prior(2.0, 10.0))
    state = GammaState(np.array([0.0, 3.0]), np.array([0.0, 50.0]))
    assert dataclasses.replace(old, prior=new.prior) == new
    np.testing.assert_allclose(new.change_rate(state), [0.2, 5.0 / 60.0])


def test_a_last_modified_age_counts_one_change_and_the_quiet_days_since():
    gamma = Gamma(Prior(0.5, 15.0))
    crawl = [10.0] * 5, [True, True, True, False, True]
    state = gamma.update(gamma.init(5), *crawl, age=[2.0, np.nan, 11.0, 2.0, -1.0])
    plain = gamma.update(gamma.init(5), *crawl)
    np.testing.assert_allclose([state.changes[0], state.days[0]], [1.0, 2.0])
    np.testing.assert_array_equal(state.changes[1:], plain.changes[1:])
    np.testing.assert_array_equal(state.days[1:], plain.days[1:])


@pytest.mark.parametrize("interval", [0.0, -1.0, np.nan, np.inf])
def test_an_interval_that_is_no_time_is_refused_by_entry(interval):
    with pytest.raises(InvalidInput, match=r"interval must be positive and finite \(entries 1\)"):
        Gamma().update(Gamma().init(3), [1.0, interval, 2.0], [True] * 3)


def test_arrays_of_another_shape_are_refused():
    with pytest.raises(InvalidInput, match="interval has shape"):
        Gamma().update(Gamma().init(3), [1.0, 2.0], [True] * 3)
    with pytest.raises(InvalidInput, match="changed has shape"):
        Gamma().update(Gamma().init(3), [1.0] * 3, [True] * 2)


def test_parameters_outside_of_their_domain_are_refused():
    with pytest.raises(InvalidInput, match="half_life_days"):
        Gamma(half_life_days=0.0)
    with pytest.raises(InvalidInput, match=r"prior\.a"):
        Prior(0.0, 1.0)
    with pytest.raises(InvalidInput, match="mass"):
        Gamma().credible_interval(Gamma().init(), mass=1.0)
    with pytest.raises(InvalidInput, match="t must be"):
        probability_unchanged(Gamma(), Gamma().init(), -1.0)


def test_ninety_percent_intervals_hold_the_rate_nine_times_in_ten():
    rng = np.random.default_rng(3)
    prior = Prior(0.8, 4.0)
    gamma = Gamma(prior)
    rate = rng.gamma(prior.a, 1 / prior.b, 4000)
    state = gamma.init(4000)
    for _ in range(40):
        interval = rng.exponential(2.0, 4000)
        state = gamma.update(state, interval, rng.random(4000) < -np.expm1(-rate * interval))
    low, high = gamma.credible_interval(state)
    assert abs(np.mean((low <= rate) & (rate <= high)) - 0.9) < 0.02


def test_predictions_are_calibrated():
    rng = np.random.default_rng(5)
    prior = Prior(0.8, 4.0)
    gamma = Gamma(prior)
    rate = rng.gamma(prior.a, 1 / prior.b, 20_000)
    interval = np.full(20_000, 3.0)
    state = gamma.update(gamma.init(20_000), interval, rng.random(20_000) < -np.expm1(-rate * 3.0))
    predicted = probability_unchanged(gamma, state, 5.0)
    seen = rng.random(20_000) < np.exp(-rate * 5.0)
    for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 1.0)):
        group = (predicted >= low) & (predicted < high)
        if group.any():
            assert abs(predicted[group].mean() - seen[group].mean()) < 0.03


def test_a_whole_history_leaves_nearly_the_exact_posterior():
    rng = np.random.default_rng(9)
    gamma = Gamma(Prior(0.5, 2.0))
    log_rate = np.linspace(-12, 5, 8001)
    rate = np.exp(log_rate)
    for truth in (0.1, 1.0, 4.0):
        interval = rng.exponential(1.0, 80)
        changed = rng.random(80) < -np.expm1(-truth * interval)
        state = gamma.init()
        for days, seen in zip(interval, changed, strict=True):
            state = gamma.update(state, days, seen)
        x = rate[:, np.newaxis] * interval
        log_density = np.where(changed, np.log(-np.expm1(-x)), -x).sum(axis=1)
        log_density += gamma.prior.a * log_rate - gamma.prior.b * rate
        weight = np.exp(log_density - log_density.max())
        weight /= weight.sum()
        mean = weight @ rate
        a, b = gamma.posterior(state)
        np.testing.assert_allclose(a / b, mean, rtol=0.1)
        np.testing.assert_allclose(a**0.5 / b, np.sqrt(weight @ (rate - mean) ** 2), rtol=0.25)
