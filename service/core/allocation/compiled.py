"""The passes of `interpreted` over pages without noise and bounds, compiled by numba.

One loop a pass: each page is read once, and its numbers never leave the registers. The sums may
be reordered (that is what lets them run in vector registers), and no number is ever NaN.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from service.core.allocation.blocks import BLOCK, Pages, blocks
from service.core.allocation.inputs import Indices
from service.core.allocation.plain import NEVER_ZERO
from service.core.conditions import Bools, Floats

_compile: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "nnan", "contract"}
)


def survey(pages: Pages, host: Indices | None, part: slice, sums: Floats) -> None:
    """See `interpreted.survey`."""
    _survey(*_columns(pages, host, part), sums)


def take(pages: Pages, host: Indices | None, part: slice, s: Floats, sums: Floats) -> None:
    """See `interpreted.take`."""
    _take(*_columns(pages, host, part), s, sums)


def settle(
    pages: Pages,
    host: Indices | None,
    part: slice,
    s: Floats,
    sums: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
) -> float:
    """See `interpreted.settle`."""
    worst, off = 0.0, np.empty(BLOCK)
    for block in blocks(part):
        here = off[: block.stop - block.start]
        out = crawl_rate[block], crawl_probability[block], here
        _settle(*_columns(pages, host, block), s, sums, *out)
        worst = max(worst, float(here.max()))
    return worst


def _columns(pages: Pages, host: Indices | None, part: slice) -> tuple[Any, ...]:
    importance, change_rate, complete, *_ = pages.cut(part)
    return importance, change_rate, complete, None if host is None else host[part]


@_compile
def _survey(
    importance: Floats, change_rate: Floats, complete: Bools, host: Indices | None, sums: Floats
) -> None:
    weight = ping_rate = spread = 0.0
    for i in range(importance.size):
        announced = change_rate[i] if complete[i] else 0.0
        root = np.sqrt(importance[i] * (change_rate[i] - announced))
        if host is None:
            weight += importance[i]
            ping_rate += announced
            spread += root
        else:
            of = sums[host[i]]
            of[1] += importance[i]
            of[2] += announced
            of[3] += root
    if host is None:
        sums[0, 1] += weight
        sums[0, 2] += ping_rate
        sums[0, 3] += spread


@_compile
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


@_compile
def _take(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    host: Indices | None,
    s: Floats,
    sums: Floats,
) -> None:
    if host is None:
        all_rates = all_slopes = 0.0
        for i in range(importance.size):
            rate, slope = _demand(importance[i], change_rate[i], complete[i], s[0])
            all_rates += rate
            all_slopes += slope
        sums[0, 0] += all_rates
        sums[0, 1] += all_slopes
        return
    for i in range(importance.size):
        h = host[i]
        if s[h] >= 0:
            rate, slope = _demand(importance[i], change_rate[i], complete[i], s[h])
            of = sums[h]
            of[0] += rate
            of[1] += slope


@_compile
def _settle(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    host: Indices | None,
    s: Floats,
    sums: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
    off: Floats,
) -> None:
    """Write rates and how far they are from stationary (`plain.violation`).

    The largest of these is left to the caller: a maximum would keep the loop from vector registers.
    """
    used = missed = 0.0
    s_of_all = s[0]
    for i in range(importance.size):
        at = s_of_all if host is None else s[host[i]]
        change = change_rate[i]
        wanted = importance[i] * at
        rate, _ = _demand(importance[i], change, complete[i], at)
        ideal = wanted if complete[i] else wanted * change
        is_now = rate if complete[i] else rate * (rate + change)
        broken = abs((is_now - ideal) / (ideal + NEVER_ZERO))
        broken = 0.0 if complete[i] and wanted >= change else broken
        off[i] = broken
        crawl_rate[i] = 0.0 if complete[i] else rate
        crawl_probability[i] = rate / (change + NEVER_ZERO) if complete[i] else 0.0
        if host is None:
            used += rate
            missed += rate * broken
        else:
            of = sums[host[i]]
            of[0] += rate
            of[1] += rate * broken
    if host is None:
        sums[0, 0] += used
        sums[0, 1] += missed
