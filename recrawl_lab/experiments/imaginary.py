"""GF08's two imaginary intervals, fitted to a corpus of change rates."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from service.core.conditions import InvalidInput, check_array
from service.core.estimators.mle import ImaginaryIntervals


def fit_imaginary_intervals(change_rate: ArrayLike) -> ImaginaryIntervals:
    """Fit the two imaginary intervals of GF08 to a corpus of change rates.

    The lengths (c, u) maximise the likelihood of the rates,

        mean ln(1 - e^(-c x)) - u mean(x) + ln u + ln(u + c) - ln c,

    where GF08 anneal the squared distance of densities: the same two numbers wherever the family
    fits, without a histogram and reproducibly. Given c, u is a root of a quadratic; c is
    searched between 1/1000 and 1000 mean change intervals. The family is narrow (coefficient of
    variation between 0.71 and 1): a corpus that is more spread out gets the largest c.

    Parameters
    ----------
    change_rate : array_like, shape (N,), 1/day
        Positive.

    Raises
    ------
    InvalidInput
        No rate, or one that is not positive and finite.

    References
    ----------
    GF08 section 4.4.

    Examples
    --------
    >>> rates = np.random.default_rng(1).gamma(1.5, 0.02, 10_000)
    >>> f"{fit_imaginary_intervals(rates).change_rate:.4f}"
    '0.0098'
    """
    rates = check_array(
        "change_rate",
        change_rate,
        (np.size(change_rate),),
        test=lambda rate: (rate > 0) & (rate < np.inf),
        must="positive and finite",
    )
    if not rates.size:
        raise InvalidInput("change_rate", "has no entries")
    x = rates / rates.mean()

    def best_unchanged(c: float) -> float:
        """Root u of 1/u + 1/(u + c) = mean(x) = 1."""
        return float(2.0 * c / (c - 2.0 + np.hypot(c, 2.0)))

    def negative(log_c: float) -> float:
        c = float(np.exp(log_c))
        u = best_unchanged(c)
        return float(u - np.mean(np.log(-np.expm1(-c * x))) - np.log(u * (u + c) / c))

    c = np.exp(minimize_scalar(negative, bounds=(-np.log(1e3), np.log(1e3)), method="bounded").x)
    return ImaginaryIntervals(float(c / rates.mean()), best_unchanged(c) / float(rates.mean()))
