"""Pages put in the order of their hosts, compiled by numba: two passes over the pages."""

import numpy as np
from numpy.typing import NDArray

from service.core.allocation.blocks import Pages, over_parts
from service.core.allocation.compiled import columns_of, jit
from service.core.allocation.inputs import Indices
from service.core.conditions import Bools, Floats

BUCKETS = 1 << 7
"""Pages are sorted by host into so many buckets, which a thread can fill at once, then in each."""

ROOM = 1 << 6
"""A bucket of one page in so many is sorted by way of memory of that size, which is faster."""


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
        columns = columns_of(pages, part)
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


@jit
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


@jit
def _count(host: Indices, digits: int) -> NDArray[np.int64]:
    """Count the pages of each bucket; hosts of one differ in their last binary `digits`."""
    counts = np.zeros(BUCKETS, np.int64)
    for i in range(host.size):
        counts[np.uint64(host[i]) >> np.uint64(digits)] += 1
    return counts


@jit
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


@jit
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
