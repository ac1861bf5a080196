r"""The cost of an allocation: the average staleness of each page, times its importance.

The staleness of a page follows from its number :math:`N` of changes since the last crawl. The
harmonic cost is :math:`1 + 1/2 + \dots + 1/N`, the binary cost :math:`1[N > 0]` (K19 Props 1, 4
and Eqs 12, 13).
"""

from collections.abc import Callable
from math import factorial
from typing import Literal, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import ArrayLike
from scipy.special import digamma, exp1

from service.core.checks import Floats, InvalidInput, check_amount, check_share

Timing = Literal["poisson", "periodic"]


class _Pages(NamedTuple):
    """(N,) arguments of the costs; rates in 1/day.

    `missed`: rate of the changes that do not lead to a crawl at once. `crawls`: rate of all
    crawls, on the clock and on pings.
    """

    importance: Floats
    change_rate: Floats
    clock: Floats
    probability: Floats
    missed: Floats
    crawls: Floats


class Costs(NamedTuple):
    """(N,) costs of pages."""

    harmonic: Floats
    binary: Floats


_TERMS = range(1, 18)
_HARMONIC_SERIES = [0.0] + [-((-1) ** k) / (k * factorial(k + 1)) for k in _TERMS]
_BINARY_SERIES = [0.0] + [-((-1) ** k) / factorial(k + 1) for k in _TERMS]


def costs(
    importance: ArrayLike,
    change_rate: ArrayLike,
    crawl_rate: ArrayLike,
    crawl_probability: ArrayLike,
    complete: ArrayLike,
    *,
    timing: Timing = "poisson",
    ping_recall: ArrayLike | None = None,
    ping_precision: ArrayLike | None = None,
) -> Costs:
    """Return harmonic and binary cost of each page.

    A changing page that is never crawled has an infinite harmonic cost. Its binary cost is its
    importance.

    Parameters
    ----------
    importance, change_rate, crawl_rate : (N,) >= 0, the rates in 1/day
        `crawl_rate`: crawls on the clock.
    crawl_probability : (N,) in [0, 1]
        Probability that a ping causes a crawl; not used where `complete` is false.
    complete : (N,) bool
        True where a ping announces every change.
    timing : {"poisson", "periodic"}
        "poisson": random intervals and random choice of pings (K19). "periodic": regular intervals
        and ping credit (`core.waits`).
    ping_recall, ping_precision : (N,) in [0, 1], optional
        As in `allocate_harmonic`; only with Poisson timing.

    Raises
    ------
    InvalidInput
        An array is outside of its domain, the timing is unknown, or pings are noisy under
        periodic timing.

    Examples
    --------
    >>> costs([1, 1], [0.5, 0.5], [0.5, 0], [0, 0.5], [False, True]).harmonic.round(6)
    array([0.693147, 0.693147])
    """
    if timing not in {"poisson", "periodic"}:
        raise InvalidInput("timing", f"is {timing!r}, expected 'poisson' or 'periodic'")
    if timing == "periodic" and (ping_recall is not None or ping_precision is not None):
        raise InvalidInput("timing", "'periodic' has no closed form for noisy pings")
    rates = change_rate, crawl_rate, crawl_probability
    pages = _check(importance, *rates, complete, ping_recall, ping_precision)
    matters = (pages.importance > 0) & (pages.change_rate > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        each = (_on_time if timing == "periodic" else _at_random)(pages)
        return Costs(*(np.where(matters, pages.importance * cost, 0.0) for cost in each))


def _at_random(pages: _Pages) -> Costs:
    r"""Return :math:`\ln(1 + (\alpha + (1-p) q g)/(\rho + p g))` and the share of time out of date.

    Without false and missing pings, the harmonic cost is K19's: :math:`\ln(1 + \Delta/\rho)` for
    pages without pings, and :math:`-\ln p` for pages that are crawled on pings alone.
    """
    return Costs(
        np.log1p(pages.missed / pages.crawls), pages.missed / (pages.missed + pages.crawls)
    )


def _on_time(pages: _Pages) -> Costs:
    r"""Return the costs under regular intervals and ping credit, with :math:`x = \Delta/\rho`.

    On the clock the harmonic cost is :math:`Ein(x) - 1 + (1 - e^{-x})/x`, the binary cost
    :math:`1 - (1 - e^{-x})/x`. By ping credit the costs are :math:`H_k - k p`,
    :math:`k = \lfloor 1/p \rfloor`, and :math:`1 - p`. A complete page that is crawled in both
    ways has no closed form. The smaller of the two costs bounds its cost from above.
    """
    x = pages.change_rate / pages.clock
    harmonic = _by_series_below_1(x, _HARMONIC_SERIES, _interpolated)
    if pages.probability.any():
        harmonic = np.minimum(harmonic, _harmonic_by_credit(pages.probability))
    binary = _by_series_below_1(x, _BINARY_SERIES, lambda x: 1 + np.expm1(-x) / x)
    return Costs(harmonic, np.minimum(binary, 1 - pages.probability))


def _interpolated(x: Floats) -> Floats:
    """Return `_harmonic_on_time` of x >= 1 to 14 digits in a tenth of its time."""
    log_x = np.log(x)
    cost = _BETWEEN(np.minimum(log_x, _LOG_FAR))
    far = log_x > _LOG_FAR
    cost[far] = np.euler_gamma + log_x[far] - 1 + 1 / x[far]  # the other terms are below 1e-18
    return cost


def _harmonic_on_time(log_x: Floats) -> Floats:
    x = np.exp(log_x)
    return np.asarray(np.euler_gamma + log_x + exp1(x) - 1 - np.expm1(-x) / x)


_LOG_FAR = np.log(40.0)
_BETWEEN = Chebyshev.interpolate(_harmonic_on_time, 32, [0.0, _LOG_FAR])


def _by_series_below_1(
    x: Floats, series: list[float], direct: Callable[[Floats], Floats]
) -> Floats:
    """Return the sum of the series for x < 1, where `direct` would lose digits, else `direct`."""
    cost, small = np.empty_like(x), x < 1
    near = x[small]
    total = np.full_like(near, series[-1])
    for coefficient in reversed(series[:-1]):  # in place, because memory costs most of the time
        total *= near
        total += coefficient
    cost[small] = total
    cost[~small] = direct(x[~small])
    return cost


def _harmonic_by_credit(p: Floats) -> Floats:
    """Return the harmonic cost of crawls after k or k + 1 pings, 1/p on average."""
    cost = np.full_like(p, np.inf)
    pinged = np.flatnonzero(p)
    k = np.floor(1 / p[pinged])
    cost[pinged] = digamma(k + 1) + np.euler_gamma - k * p[pinged]
    return cost


def _check(
    importance: ArrayLike,
    change_rate: ArrayLike,
    crawl_rate: ArrayLike,
    crawl_probability: ArrayLike,
    complete: ArrayLike,
    ping_recall: ArrayLike | None,
    ping_precision: ArrayLike | None,
) -> _Pages:
    """Return the arguments, checked; pings of complete pages have recall 1 and precision 1."""
    shape = np.shape(importance)
    observed = np.asarray(complete, np.bool_)
    if observed.shape != shape:
        raise InvalidInput("complete", f"has shape {observed.shape}, expected {shape}")
    change = check_amount("change_rate", change_rate, shape)
    clock = check_amount("crawl_rate", crawl_rate, shape)
    probability = check_share("crawl_probability", crawl_probability, shape)
    recall = 0.0 if ping_recall is None else check_share("ping_recall", ping_recall, shape)
    right = 1.0 if ping_precision is None else check_share("ping_precision", ping_precision, shape)
    announced = np.where(observed, change, recall * change)
    unannounced = np.where(observed, 0.0, (1 - recall) * change)
    with np.errstate(divide="ignore", invalid="ignore"):
        pings = np.where(announced > 0, announced / np.where(observed, 1.0, right), 0.0)
    return _Pages(
        check_amount("importance", importance, shape),
        change,
        clock,
        np.where(observed, probability, 0.0),
        missed=unannounced + (1 - probability) * announced,
        crawls=clock + probability * pings,
    )
