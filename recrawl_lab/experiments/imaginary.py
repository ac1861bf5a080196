"""GF08's two imaginary intervals, fitted to a corpus of change rates."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from typing_extensions import override

from service.core.checks import Floats, InvalidInput, check_array
from service.core.estimators.history import History
from service.core.estimators.likelihood import likeliest_rate, with_imaginary
from service.core.estimators.mle import MLE


@dataclass(frozen=True, slots=True)
class ImaginaryIntervals:
    """A prior in the form of two imaginary crawls of every page before its first real one.

    Density of the change rate ∝ (1 - e^(-changed x)) e^(-unchanged x).

    Parameters
    ----------
    changed, unchanged : float, days
        Positive lengths of the interval with a change and of the interval without one.

    Examples
    --------
    >>> f"{ImaginaryIntervals(changed=10.0, unchanged=20.0).change_rate:.4f}"
    '0.0405'
    """

    changed: float
    unchanged: float

    def __post_init__(self) -> None:
        for name, value in (("changed", self.changed), ("unchanged", self.unchanged)):
            if not 0 < value < np.inf:
                raise InvalidInput(f"imaginary.{name}", f"must be positive, not {value}")

    @property
    def change_rate(self) -> float:
        """Return the likeliest change rate before the first crawl, 1/day."""
        return float(np.log1p(self.changed / self.unchanged) / self.changed)


@dataclass(frozen=True, slots=True)
class ImaginaryMLE(MLE):
    """MLE with imaginary intervals of the same lengths for every page (GF08 section 4.4)."""

    _: KW_ONLY
    imaginary: ImaginaryIntervals

    @override
    def change_rate(self, state: History) -> Floats:
        lengths = self.imaginary.changed, self.imaginary.unchanged
        changed, unchanged = (np.full(len(state.crawls), length) for length in lengths)
        return likeliest_rate(with_imaginary(self.likelihood(state), changed, unchanged))


def fit_imaginary_intervals(change_rate: ArrayLike) -> ImaginaryIntervals:
    """Return the two imaginary intervals of GF08 that fit a corpus of change rates.

    The lengths (c, u) maximise the likelihood of the rates,

        mean ln(1 - e^(-c x)) - u mean(x) + ln u + ln(u + c) - ln c,

    whereas GF08 anneal the squared distance of densities. If the family fits, both methods return
    the same two numbers, but the likelihood needs no histogram and is reproducible. For each c, u
    is the root of 1/u + 1/(u + c) = 1; the search for c covers 0.001 to 1000 mean change intervals.

    Raise `InvalidInput` for no rate, or one that is not positive and finite (GF08 section 4.4).

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
        return float(2.0 * c / (c - 2.0 + np.hypot(c, 2.0)))

    def negative(log_c: float) -> float:
        c = float(np.exp(log_c))
        u = best_unchanged(c)
        return float(u - np.mean(np.log(-np.expm1(-c * x))) - np.log(u * (u + c) / c))

    c = np.exp(minimize_scalar(negative, bounds=(-np.log(1e3), np.log(1e3)), method="bounded").x)
    return ImaginaryIntervals(float(c / rates.mean()), best_unchanged(c) / float(rates.mean()))
