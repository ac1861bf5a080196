"""Every registered estimator keeps the contract of `Estimator`."""

import dataclasses

import numpy as np
import pytest
import scipy

from service.core.checks import InvalidInput
from service.core.estimators import ESTIMATORS, make_estimator
from service.core.estimators.base import from_columns, to_columns
from service.core.estimators.gamma import GammaState
from service.core.forecast import probability_unchanged
from service.core.prior import Prior

names = pytest.mark.parametrize("name", sorted(ESTIMATORS))


@names
def test_it_is_found_by_its_name_and_takes_prior_and_half_life(name):
    estimator = make_estimator(name, prior=Prior(2.0, 10.0), half_life_days=365.0)
    assert type(estimator) is ESTIMATORS[name]
    assert estimator.name == name
    parameters = {field.name for field in dataclasses.fields(estimator)}
    if "prior" in parameters:
        assert estimator.prior == Prior(2.0, 10.0)
    if "half_life_days" in parameters:
        assert estimator.half_life_days == 365.0


@names
def test_it_says_why_where_periodic_timing_is_refused(name):
    estimator = make_estimator(name)
    assert bool(estimator.refusal) != estimator.periodic_timing_ok


@names
def test_estimates_are_finite_and_not_negative_from_the_first_crawl_on(name):
    rng = np.random.default_rng(11)
    estimator = make_estimator(name)
    state = estimator.init(50)
    for _ in range(30):
        rate = estimator.change_rate(state)
        assert rate.shape == (50,)
        assert (np.isfinite(rate) & (rate >= 0)).all()
        crawl_rate = np.where(rng.random(50) < 0.1, np.nan, 2.0)
        state = estimator.update(state, rng.exponential(0.5, 50), rng.random(50) < 0.6, crawl_rate)


@names
def test_it_forecasts_from_certainty_down_and_never_below_its_own_estimate(name):
    rng = np.random.default_rng(13)
    estimator = make_estimator(name)
    state = estimator.init(20)
    for _ in range(12):
        state = estimator.update(state, rng.exponential(0.5, 20), rng.random(20) < 0.6, 2.0)
    rate = estimator.change_rate(state)
    np.testing.assert_array_equal(probability_unchanged(estimator, state, 0.0), np.ones(20))
    soon, later = (probability_unchanged(estimator, state, t) for t in (0.1, 3.0))
    assert ((later <= soon) & (soon <= 1)).all()
    assert (later >= np.exp(-rate * 3.0) * (1 - 1e-12)).all()  # Jensen: an average, or a plug-in
    each = probability_unchanged(estimator, state, np.full(20, 3.0))
    np.testing.assert_array_equal(each, later)
    with pytest.raises(InvalidInput, match="t must be"):
        probability_unchanged(estimator, state, -1.0)


@names
def test_it_has_one_kind_of_interval_or_none(name):
    bayesian = {"gamma", "bursty", "lognormal", "complete"}
    likelihood = {"mle", "binned_mle"}
    assert hasattr(ESTIMATORS[name], "credible_interval") == (name in bayesian)
    assert hasattr(ESTIMATORS[name], "confidence_interval") == (name in likelihood)


@names
def test_its_parameters_are_frozen(name):
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError, AttributeError)):
        make_estimator(name).name_of_nothing = 1


@pytest.mark.parametrize("name", sorted(n for n in ESTIMATORS if not ESTIMATORS[n].needs_history))
def test_its_state_survives_storage_row_by_row(name):
    rng = np.random.default_rng(12)
    estimator = make_estimator(name)
    state = estimator.init(6)
    for _ in range(4):
        state = estimator.update(state, rng.exponential(0.5, 6), rng.random(6) < 0.6, 2.0)
    rows = to_columns(state)
    restored = from_columns(estimator, rows[::2])
    np.testing.assert_array_equal(
        estimator.change_rate(restored), estimator.change_rate(state)[::2]
    )
    again = estimator.update(restored, 1.0, True, 2.0)
    np.testing.assert_array_equal(
        to_columns(again), to_columns(estimator.update(state, 1.0, True, 2.0))[::2]
    )


def test_counted_changes_have_the_exact_posterior():
    complete = make_estimator("complete")
    state = GammaState(changes=4.0, days=9.5)
    low, high = complete.credible_interval(state, mass=0.9)
    np.testing.assert_allclose(
        scipy.stats.gamma(4.5, scale=0.1).cdf([low, high]), [0.05, 0.95], rtol=1e-9
    )
    assert complete.change_rate(state) == scipy.stats.gamma(4.5, scale=0.1).mean()
    np.testing.assert_allclose(probability_unchanged(complete, state, 10.0), 0.5**4.5)


def test_a_state_of_another_estimator_is_refused():
    with pytest.raises(InvalidInput, match="columns are 3, gamma has 2"):
        from_columns(make_estimator("gamma"), np.zeros((5, 3)))


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInput, match=r"estimator must be one of gamma, .*, not 'gama'"):
        make_estimator("gama")
