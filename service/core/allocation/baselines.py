"""Rules without an optimum, to compare with (K19 supplement, section 9.3)."""

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.inputs import check_bandwidth, check_pages
from service.core.allocation.result import Allocation
from service.core.conditions import Floats


def allocate_uniform(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,  # noqa: ARG001
) -> Allocation:
    """Every page of any importance at the same rate, pings ignored (UniformCrawl).

    Parameters, units and errors as in `allocate_harmonic`.

    Examples
    --------
    >>> allocate_uniform([10, 1], [0.1, 2.0], [False, True], 0.5).crawl_rate
    array([0.25, 0.25])
    """
    pages = check_pages(importance, change_rate, complete)
    return _in_proportion((pages.importance > 0).astype(np.float64), bandwidth)


def allocate_change_rate(
    importance: ArrayLike,
    change_rate: ArrayLike,
    complete: ArrayLike,
    bandwidth: float,
    *,
    start: float | None = None,  # noqa: ARG001
) -> Allocation:
    """Every page in proportion to its change rate, pings ignored (ChangeRateCrawl).

    Parameters, units and errors as in `allocate_harmonic`; pages of no importance are given
    nothing, and nothing is spent where no page changes.

    Examples
    --------
    >>> allocate_change_rate([10, 1], [0.5, 1.5], [False, True], 0.5).crawl_rate
    array([0.125, 0.375])
    """
    pages = check_pages(importance, change_rate, complete)
    return _in_proportion(np.where(pages.importance > 0, pages.change_rate, 0.0), bandwidth)


def _in_proportion(weight: Floats, bandwidth: float) -> Allocation:
    bandwidth = check_bandwidth(bandwidth)
    total = float(weight.sum())
    rate = weight * (bandwidth / total) if total else np.zeros_like(weight)
    return Allocation(rate, np.zeros_like(rate), 0.0, bandwidth, float(rate.sum()))
