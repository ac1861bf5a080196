r"""What an allocation costs: how stale each page is on average, times its importance.

With :math:`N` changes not yet crawled, the harmonic cost charges :math:`1 + 1/2 + \dots + 1/N`
and the binary cost :math:`1[N > 0]` (K19 Props 1, 4 and Eqs 12, 13).
"""

from math import factorial
from typing import Literal

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike
from scipy.special import digamma, exp1

from service.core.conditions import Bools, Floats, InvalidInput, check_array

Timing = Literal["poisson", "periodic"]

_TERMS = range(1, 18)
_HARMONIC_SERIES = [0.0] + [-((-1) ** k) / (k * factorial(k + 1)) for k in _TERMS]
_BINARY_SERIES = [0.0] + [-((-1) ** k) / factorial(k + 1) for k in _TERMS]


def harmonic_cost(
    importance: ArrayLike,
    change_rate: ArrayLike,
    crawl_rate: ArrayLike,
    crawl_probability: ArrayLike,
    complete: ArrayLike,
    *,
    timing: Timing = "poisson",
) -> Floats:
    r"""Harmonic cost of each page.

    On Poisson clocks :math:`\mu \ln(1 + (1-p)\Delta / (\rho + p\Delta))`, which is K19's
    :math:`\mu \ln(1 + \Delta/\rho)` for pages without pings and :math:`-\mu \ln p` for pages
    crawled on pings alone. On time, with :math:`x = \Delta/\rho`,
    :math:`\mu [Ein(x) - 1 + (1 - e^{-x})/x]`; with ping credits, :math:`\mu (H_k - k p)`,
    :math:`k = \lfloor 1/p \rfloor`.

    Parameters
    ----------
    importance : (N,) >= 0
    change_rate : (N,) >= 0, 1/day
    crawl_rate : (N,) >= 0, 1/day
        On the clock.
    crawl_probability : (N,) in [0, 1]
        On a ping; of no effect where `complete` is false.
    complete : (N,) bool
        Every change is announced by a ping.
    timing : {"poisson", "periodic"}
        Clock and pings as drawn by lot (K19), or on time and by ping credit. A complete page
        that is crawled both on time and by credit has no closed form; the better of the two
        alone bounds it from above.

    Returns
    -------
    (N,) float64
        0 where importance or change_rate is 0; infinite for a changing page that is never crawled.

    Raises
    ------
    InvalidInput
        An array outside of its domain, or an unknown timing.

    Examples
    --------
    >>> harmonic_cost([1, 1], [0.5, 0.5], [0.5, 0], [0, 0.5], [False, True]).round(6)
    array([0.693147, 0.693147])
    >>> harmonic_cost([1, 1], [0.5, 0.5], [0.5, 0], [0, 0.5], [False, True],
    ...               timing="periodic").round(6)
    array([0.42872, 0.5    ])
    """
    weight, change, clock, pinged = _check(
        importance, change_rate, crawl_rate, crawl_probability, complete
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if _periodic(timing):
            cost = np.minimum(_harmonic_on_time(change / clock), _harmonic_by_credit(pinged))
        else:
            cost = np.log1p((1 - pinged) * change / (clock + pinged * change))
        return _weigh(weight, change, cost)


def binary_cost(
    importance: ArrayLike,
    change_rate: ArrayLike,
    crawl_rate: ArrayLike,
    crawl_probability: ArrayLike,
    complete: ArrayLike,
    *,
    timing: Timing = "poisson",
) -> Floats:
    r"""Binary cost of each page: importance times the share of time it is out of date.

    On Poisson clocks :math:`\mu (1-p) \Delta / (\Delta + \rho)`; on time
    :math:`\mu [1 - (1 - e^{-x})/x]`, :math:`x = \Delta/\rho`; with ping credits
    :math:`\mu (1 - p)`. Parameters, result and errors as in `harmonic_cost`, but bounded:
    a page that is never crawled costs its importance.

    Examples
    --------
    >>> binary_cost([1, 1], [0.5, 0.5], [0.5, 0], [0, 0.25], [False, True])
    array([0.5 , 0.75])
    """
    weight, change, clock, pinged = _check(
        importance, change_rate, crawl_rate, crawl_probability, complete
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if _periodic(timing):
            cost = np.minimum(_binary_on_time(change / clock), 1 - pinged)
        else:
            cost = (1 - pinged) * (change / (change + clock))
        return _weigh(weight, change, cost)


def _harmonic_on_time(x: Floats) -> Floats:
    direct = np.euler_gamma + np.log(x) + exp1(x) - 1 - np.expm1(-x) / x
    return np.where(x < 1, polyval(np.minimum(x, 1), _HARMONIC_SERIES), direct)


def _binary_on_time(x: Floats) -> Floats:
    return np.where(x < 1, polyval(np.minimum(x, 1), _BINARY_SERIES), 1 + np.expm1(-x) / x)


def _harmonic_by_credit(p: Floats) -> Floats:
    """Mix runs of k and k + 1 pings between crawls, in the proportion that makes their mean 1/p."""
    k = np.floor(1 / p)
    return np.where(p > 0, digamma(k + 1) + np.euler_gamma - k * p, np.inf)


def _weigh(weight: Floats, change: Floats, cost: Floats) -> Floats:
    return np.where((weight > 0) & (change > 0), weight * cost, 0.0)


def _check(
    importance: ArrayLike,
    change_rate: ArrayLike,
    crawl_rate: ArrayLike,
    crawl_probability: ArrayLike,
    complete: ArrayLike,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Coerce; the crawl probability of pages without trusted pings becomes 0."""
    shape = np.shape(importance)
    probability = check_array(
        "crawl_probability",
        crawl_probability,
        shape,
        test=lambda p: (p >= 0) & (p <= 1),
        must="in [0, 1]",
    )
    observed = np.asarray(complete, np.bool_)
    if observed.shape != shape:
        raise InvalidInput("complete", f"has shape {observed.shape}, expected {shape}")
    return (
        check_array("importance", importance, shape, test=_not_negative, must="finite and >= 0"),
        check_array("change_rate", change_rate, shape, test=_not_negative, must="finite and >= 0"),
        check_array("crawl_rate", crawl_rate, shape, test=_not_negative, must="finite and >= 0"),
        np.where(observed, probability, 0.0),
    )


def _not_negative(values: Floats) -> Bools:
    return (values >= 0) & (values < np.inf)


def _periodic(timing: str) -> bool:
    if timing not in {"poisson", "periodic"}:
        raise InvalidInput("timing", f"is {timing!r}, expected 'poisson' or 'periodic'")
    return timing == "periodic"
