"""The passes of `interpreted` over pages without noise and bounds, compiled by numba.

One loop a pass: each page is read once, and its numbers never leave the registers. The sums may
be reordered (that is what lets them run in vector registers), and no number is ever NaN. Pages of
hosts lie in the order of these (`by_host`), so that a sum by host is one over a run of pages;
scattered over the hosts, it would wait for memory at every page.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from service.core.allocation.blocks import BLOCK, Pages, blocks, over_parts
from service.core.allocation.inputs import Indices
from service.core.allocation.plain import NEVER_ZERO
from service.core.conditions import Bools, Floats

BUCKETS = 1 << 8
"""Pages are sorted by host into so many buckets, which a thread can fill at once, then in each."""

ROOM = 1 << 6
"""A bucket of one page in so many is sorted by way of memory of that size, which is faster."""

_compile: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "nnan", "contract"}
)


def by_host(
    pages: Pages, host: Indices, n_hosts: int, scratch: tuple[Floats, Floats]
) -> tuple[Pages, NDArray[np.int64]]:
    """Put pages in the order of their hosts, in the memory of `scratch`, unless they already are.

    Returns them and the first page of each host, with the number of pages at the end.
    """
    first = np.empty(n_hosts + 1, np.int64)
    if _find_runs(host, first):
        return pages, first
    n, digits = host.size, (-(-n_hosts // BUCKETS) - 1).bit_length()
    width = 1 << digits
    counts = np.array(over_parts(lambda part: _count(host[part], digits), n))
    edges = np.append(0, counts.sum(axis=0).cumsum())
    starts = dict(
        zip(
            counts.sum(axis=1).cumsum().tolist(),
            counts.cumsum(axis=0) - counts + edges[:-1],
            strict=True,
        )
    )
    within = np.empty(n, np.uint32 if width > 1 << 16 else np.uint16)
    importance, change_rate = scratch
    first[:] = n

    def distribute(part: slice) -> None:
        columns = _columns(pages, part)
        _distribute(
            *columns, host[part], digits, starts[part.stop], importance, change_rate, within
        )

    over_parts(distribute, n)
    complete = np.empty(n, np.bool_)

    def sort(buckets: slice) -> None:
        room = np.empty((2, n // ROOM))
        for bucket in range(buckets.start, min(buckets.stop, -(-n_hosts // width))):
            here = slice(edges[bucket], edges[bucket + 1])
            hosts = first[bucket * width : min((bucket + 1) * width, n_hosts)]
            _sort(importance[here], change_rate[here], within[here], hosts, complete[here], room)
            hosts += here.start

    over_parts(sort, n, edges)
    return Pages(importance, change_rate, complete), first


def survey(pages: Pages, first: Indices | None, part: slice, sums: Floats) -> None:
    """See `interpreted.survey`; where pages lie in runs, `part` is one of hosts."""
    if first is None:
        sums[1:, 0] = _survey(*_columns(pages, part))
    else:
        _survey_runs(*pages[:3], first, part.start, part.stop, sums)


def take(pages: Pages, first: Indices | None, part: slice, s: Floats, sums: Floats) -> None:
    """See `interpreted.take`; where pages lie in runs, `part` is one of hosts."""
    if first is None:
        sums[:, 0] = _take(*_columns(pages, part), s[0])
    else:
        _take_runs(*pages[:3], first, part.start, part.stop, s, sums)


def settle(
    pages: Pages,
    host: Indices | None,
    part: slice,
    s: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
) -> tuple[float, float, float]:
    """See `interpreted.settle`."""
    used = missed = worst = 0.0
    buffers = np.empty((2, BLOCK))
    for block in blocks(part):
        of_page, off = buffers[:, : block.stop - block.start]
        if host is not None:
            _gather(s, host[block], of_page)
        out = crawl_rate[block], crawl_probability[block], off
        at = None if host is None else of_page
        more = _settle(*_columns(pages, block), s[0], at, *out)
        used, missed = used + more[0], missed + more[1]
        worst = max(worst, float(off.max()))
    return used, missed, worst


def _columns(pages: Pages, part: slice) -> tuple[Floats, Floats, Bools]:
    return pages.importance[part], pages.change_rate[part], pages.complete[part]


@_compile
def _find_runs(host: Indices, first: NDArray[np.int64]) -> bool:
    """Find the first page of each host, if hosts do not decrease."""
    next_host = 0
    for i in range(host.size):
        if host[i] < next_host - 1:
            return False
        while next_host <= host[i]:
            first[next_host] = i
            next_host += 1
    first[next_host:] = host.size
    return True


@_compile
def _count(host: Indices, digits: int) -> NDArray[np.int64]:
    """Count the pages of each bucket; hosts of one differ in their last binary `digits`."""
    counts = np.zeros(BUCKETS, np.int64)
    for i in range(host.size):
        counts[np.uint64(host[i]) >> np.uint64(digits)] += 1
    return counts


@_compile
def _distribute(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    host: Indices,
    digits: int,
    to: NDArray[np.int64],
    importance_out: Floats,
    change_rate_out: Floats,
    within: Indices,
) -> None:
    """Append pages to their buckets, complete ones with a negative importance."""
    for i in range(host.size):
        bucket = np.uint64(host[i]) >> np.uint64(digits)
        j = to[bucket]
        to[bucket] += 1
        importance_out[j] = -importance[i] if complete[i] else importance[i]
        change_rate_out[j] = change_rate[i]
        within[j] = np.uint64(host[i]) - (bucket << np.uint64(digits))


@_compile
def _sort(
    importance: Floats,
    change_rate: Floats,
    within: Indices,
    first: NDArray[np.int64],
    complete: Bools,
    room: Floats,
) -> None:
    """Sort a bucket by way of `room`, or if it is too large in place, by swapping pages."""
    ends = np.zeros(first.size, np.int64)
    for i in range(within.size):
        ends[within[i]] += 1
    ends = ends.cumsum()
    first[0] = 0
    first[1:] = ends[:-1]
    grown = first.copy()
    if importance.size <= room.shape[1]:
        for i in range(within.size):
            j = grown[within[i]]
            grown[within[i]] += 1
            room[0, j] = importance[i]
            room[1, j] = change_rate[i]
        importance[:] = room[0, : importance.size]
        change_rate[:] = room[1, : importance.size]
    for host in range(first.size):
        while grown[host] < ends[host]:
            i, of = grown[host], within[grown[host]]
            j = grown[of]
            grown[of] += 1
            importance[i], importance[j] = importance[j], importance[i]
            change_rate[i], change_rate[j] = change_rate[j], change_rate[i]
            within[i], within[j] = within[j], within[i]
    for i in range(importance.size):
        complete[i] = importance[i] < 0
        importance[i] = abs(importance[i])


@_compile
def _survey(importance: Floats, change_rate: Floats, complete: Bools) -> tuple[float, float, float]:
    weight = ping_rate = spread = 0.0
    for i in range(importance.size):
        announced = change_rate[i] if complete[i] else 0.0
        weight += importance[i]
        ping_rate += announced
        spread += np.sqrt(importance[i] * (change_rate[i] - announced))
    return weight, ping_rate, spread


@_compile
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
    importance: Floats, change_rate: Floats, complete: Bools, s: float
) -> tuple[float, float]:
    rates = slopes = 0.0
    for i in range(importance.size):
        rate, slope = _demand(importance[i], change_rate[i], complete[i], s)
        rates += rate
        slopes += slope
    return rates, slopes


@_compile
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


@_compile
def _gather(s: Floats, host: Indices, at: Floats) -> None:
    for i in range(at.size):
        at[i] = s[host[i]]


@_compile
def _settle(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    s_of_all: float,
    s: Floats | None,
    crawl_rate: Floats,
    crawl_probability: Floats,
    off: Floats,
) -> tuple[float, float]:
    """Write rates and how far they are from stationary (`plain.violation`).

    The largest of these is left to the caller: a maximum would keep the loop from vector registers.
    """
    used = missed = 0.0
    for i in range(importance.size):
        at = s_of_all if s is None else s[i]
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
        used += rate
        missed += rate * broken / max(at, NEVER_ZERO)
    return used, missed
