import numpy as np
import pytest
from scipy.optimize import minimize

from recrawl_lab.experiments.imaginary import ImaginaryIntervals, fit_imaginary_intervals
from service.core.checks import InvalidInput


def imaginary_density(x, c, u):
    return -np.expm1(-c * x) * np.exp(-u * x) * u * (u + c) / c


def test_imaginary_intervals_come_back_from_rates_drawn_from_them():
    rng = np.random.default_rng(7)
    truth = ImaginaryIntervals(changed=10.0, unchanged=20.0)
    rates = rng.exponential(1 / 20.0, 400_000)
    rates = rates[
        rng.random(rates.size) < -np.expm1(-10.0 * rates)
    ]  # rejection: the density itself
    fitted = fit_imaginary_intervals(rates)
    np.testing.assert_allclose([fitted.changed, fitted.unchanged], [10.0, 20.0], rtol=0.12)
    np.testing.assert_allclose(fitted.change_rate, truth.change_rate, rtol=0.03)


def test_imaginary_intervals_maximise_the_likelihood_of_the_rates():
    rates = np.random.default_rng(8).gamma(1.6, 0.05, 5000)

    def negative(logs):
        return -np.log(imaginary_density(rates, *np.exp(logs))).mean()

    fitted = fit_imaginary_intervals(rates)
    best = minimize(negative, np.log([20.0, 20.0]), method="Nelder-Mead", options={"fatol": 1e-13})
    np.testing.assert_allclose([fitted.changed, fitted.unchanged], np.exp(best.x), rtol=1e-3)


def test_the_likeliest_imaginary_rate_is_the_top_of_the_density():
    imaginary = ImaginaryIntervals(7.0, 3.0)
    x = np.linspace(0.001, 2.0, 200_001)
    top = x[np.argmax(imaginary_density(x, 7.0, 3.0))]
    np.testing.assert_allclose(imaginary.change_rate, top, atol=1e-4)


def test_spread_out_and_identical_corpora_give_imaginary_intervals_at_the_ends():
    spread = fit_imaginary_intervals(np.random.default_rng(9).gamma(0.3, 1.0, 5000))
    alike = fit_imaginary_intervals([0.2, 0.2])
    assert spread.changed * 0.3 > 900
    assert alike.changed * 0.2 < 0.0011
    with pytest.raises(InvalidInput, match="no entries"):
        fit_imaginary_intervals([])
    with pytest.raises(InvalidInput, match="positive"):
        fit_imaginary_intervals([0.1, 0.0])
