"""The passes of `interpreted` over pages without noise and bounds, compiled by numba.

One loop a pass: each page is read once, and its numbers never leave the registers. The sums may
be reordered (that is what lets them run in vector registers), and no number is ever NaN. Pages of
hosts lie in the order of these (`ordered`), so that a sum by host is one over a run of pages;
scattered over the hosts, it would wait for memory at every page.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from service.core.allocation.blocks import Pages
from service.core.allocation.inputs import Indices
from service.core.allocation.plain import NEVER_ZERO
from service.core.allocation.roots import CLOSE, MOST_PASSES, NEAR, Values
from service.core.conditions import Bools, Floats

STRETCH = 1 << 10
"""Pages whose rates are read off at a time."""

OPTIONS: dict[str, Any] = {
    "nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "nsz", "nnan", "contract"},
}  # fmt: skip


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, and keep what was compiled for the next process, where a folder can be written."""
    compiled: Callable[..., Any]
    try:
        compiled = numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # neither beside this file nor at home
        compiled = numba.njit(**OPTIONS)(function)
    return compiled


def survey(pages: Pages, first: Indices | None, part: slice, sums: Floats) -> None:
    """See `interpreted.survey`; where pages lie in runs, `part` is one of hosts."""
    if first is None:
        sums[1:, 0] = _survey(*columns_of(pages, part))
    else:
        _survey_runs(*pages[:3], first, part.start, part.stop, sums)


def take(pages: Pages, first: Indices | None, part: slice, s: Floats, sums: Floats) -> None:
    """See `interpreted.take`; where pages lie in runs, `part` is one of hosts."""
    if first is None:
        sums[:, 0] = _take(*columns_of(pages, part), s[0])
    else:
        _take_runs(*pages[:3], first, part.start, part.stop, s, sums)


def limit(
    pages: Pages,
    first: Indices,
    part: slice,
    s: Floats,
    values: Values,
    bandwidth: Floats,
    lower: Floats,
) -> None:
    """See `roots.limit`; `part` is one of hosts."""
    _limit_runs(*pages[:3], first, part.start, part.stop, s, *values, bandwidth, lower)


def settle(
    pages: Pages,
    host: Indices | None,
    part: slice,
    s: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
) -> tuple[float, float, float]:
    """See `interpreted.settle`."""
    of_page = None if host is None else host[part]
    answer: tuple[float, float, float] = _settle(
        *columns_of(pages, part), of_page, s, crawl_rate[part], crawl_probability[part]
    )
    return answer


def columns_of(pages: Pages, part: slice) -> tuple[Floats, Floats, Bools]:
    """View the columns of a part."""
    return pages.importance[part], pages.change_rate[part], pages.complete[part]


@jit
def _survey(importance: Floats, change_rate: Floats, complete: Bools) -> tuple[float, float, float]:
    weight = ping_rate = spread = 0.0
    for i in range(importance.size):
        announced = change_rate[i] if complete[i] else 0.0
        weight += importance[i]
        ping_rate += announced
        spread += np.sqrt(importance[i] * (change_rate[i] - announced))
    return weight, ping_rate, spread


@jit
def _survey_runs(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    first: NDArray[np.int64],
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    for host in range(start, stop):
        run = slice(first[host], first[host + 1])
        weight, ping_rate, spread = _survey(importance[run], change_rate[run], complete[run])
        sums[1, host] = weight
        sums[2, host] = ping_rate
        sums[3, host] = spread


@jit
def _demand(
    importance: float, change_rate: float, complete: np.bool_, s: float
) -> tuple[float, float]:
    """Evaluate rate and slope of one page (`plain.demand`) with one division."""
    wanted = importance * s
    root = np.sqrt(change_rate * (change_rate + 4 * wanted))
    shared = change_rate / max(root * (change_rate + root), NEVER_ZERO)
    rate = 2 * wanted * root * shared
    slope = importance * (change_rate + root) * shared
    if complete:
        rate = min(wanted, change_rate)
        slope = importance if wanted < change_rate else 0.0
    return rate, slope


@jit
def _take(
    importance: Floats, change_rate: Floats, complete: Bools, s: float
) -> tuple[float, float]:
    rates = slopes = 0.0
    for i in range(importance.size):
        rate, slope = _demand(importance[i], change_rate[i], complete[i], s)
        rates += rate
        slopes += slope
    return rates, slopes


@jit
def _take_runs(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    first: NDArray[np.int64],
    start: int,
    stop: int,
    s: Floats,
    sums: Floats,
) -> None:
    for host in range(start, stop):
        if s[host] >= 0:
            run = slice(first[host], first[host + 1])
            rate, slope = _take(importance[run], change_rate[run], complete[run], s[host])
            sums[0, host] = rate
            sums[1, host] = slope


@jit
def _limit_runs(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    first: NDArray[np.int64],
    start: int,
    stop: int,
    s: Floats,
    value: Floats,
    slope: Floats,
    bandwidth: Floats,
    lower: Floats,
) -> None:
    """Find roots by Newton's method, each while the pages of the host are in the cache.

    What they take is concave in s, so that all steps but the first lead up, never past the root.
    """
    for host in range(start, stop):
        if s[host] == 0:
            value[host] = 0.0
        if value[host] <= bandwidth[host]:
            continue
        run = slice(first[host], first[host + 1])
        at, rate, rising, before = s[host], value[host], slope[host], np.inf
        for _ in range(MOST_PASSES):
            missing = bandwidth[host] - rate
            off = abs(missing) / bandwidth[host]
            if off <= CLOSE or (off <= NEAR and off > before / 2):
                break
            at, before = min(max(at + missing / rising, lower[host]), s[host]), off
            rate, rising = _take(importance[run], change_rate[run], complete[run], at)
        s[host], value[host] = at, rate


@jit
def _settle(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    host: Indices | None,
    s: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
) -> tuple[float, float, float]:
    """Write rates a stretch at a time: what lies between two loops stays in the nearest cache."""
    used = missed = worst = 0.0
    at, off = np.full(STRETCH, s[0]), np.empty(STRETCH)
    for start in range(0, importance.size, STRETCH):
        here = slice(start, min(start + STRETCH, importance.size))
        size = here.stop - here.start
        if host is not None:
            for i in range(size):
                at[i] = s[host[start + i]]
        columns = importance[here], change_rate[here], complete[here]
        rates, misses = _read_off(*columns, at, crawl_rate[here], crawl_probability[here], off)
        used += rates
        missed += misses
        for i in range(size):
            worst = max(worst, off[i])
    return used, missed, worst


@jit
def _read_off(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    s: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
    off: Floats,
) -> tuple[float, float]:
    """Write rates and how far they are from stationary (`plain.violation`).

    The largest of these is left to the caller: a maximum would keep the loop from vector registers.
    """
    used = missed = 0.0
    for i in range(importance.size):
        at, change = s[i], change_rate[i]
        wanted = importance[i] * at
        rate, _ = _demand(importance[i], change, complete[i], at)
        ideal = wanted if complete[i] else wanted * change
        is_now = rate if complete[i] else rate * (rate + change)
        broken = abs((is_now - ideal) / (ideal + NEVER_ZERO))
        broken = 0.0 if complete[i] and wanted >= change else broken
        off[i] = broken
        crawl_rate[i] = 0.0 if complete[i] else rate
        crawl_probability[i] = rate / (change + NEVER_ZERO) if complete[i] else 0.0
        used += rate
        missed += rate * broken / max(at, NEVER_ZERO)
    return used, missed
