"""Columns of pages: cut into blocks that fit the cache, shared among threads, ordered by host."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats

BLOCK = 1 << 17
"""Pages of a block: many enough that threads seldom wait for the interpreter, which one thread at a
time holds. A pass over 20 million pages takes 0.17 s with 2^14 pages a block, 0.10 s with 2^17."""

LARGE = 1 << 18
"""Number of pages from which threads save time."""

MOST_THREADS = 8
"""Maximum number of threads. More threads would wait for memory, and each holds sums by host."""

T = TypeVar("T")
Indices = NDArray[np.integer]


class Pages(NamedTuple):
    """Pages as (N,) arrays; None for a column that the problem does not have.

    `min_crawl_rate` and `max_crawl_rate`, `ping_recall` and `ping_precision` come in pairs. `cost`
    is the amount of the budget that a crawl takes; None: 1.
    """

    importance: Floats
    change_rate: Floats
    complete: Bools
    ping_recall: Floats | None = None
    ping_precision: Floats | None = None
    min_crawl_rate: Floats | None = None
    max_crawl_rate: Floats | None = None
    cost: Floats | None = None

    def cut(self, block: slice | NDArray[np.integer]) -> "Pages":
        """Return a range of the pages as views, or the pages of an index array as copies."""
        importance, change_rate, complete, *others = self
        return Pages(
            importance[block],
            change_rate[block],
            complete[block],
            *(None if column is None else column[block] for column in others),
        )


def blocks(part: slice, size: int = BLOCK) -> Iterator[slice]:
    """Yield the blocks of a range of pages."""
    for start in range(part.start, part.stop, size):
        yield slice(start, min(start + size, part.stop))


def over_parts(
    function: Callable[[slice], T], n: int, first: NDArray[np.integer] | None = None
) -> list[T]:
    """Return the results of `function` on contiguous parts of n pages, one part a thread, in order.

    With `first`, which has the first page of each run of pages and then n, a part consists of whole
    runs. The slices then count runs.
    """
    threads = min(os.cpu_count() or 1, MOST_THREADS) if n >= LARGE else 1
    edges = [n * i // threads for i in range(threads + 1)]
    if first is not None:
        edges = [int(edge) for edge in np.searchsorted(first, edges)]
    if threads == 1:
        return [function(slice(edges[0], edges[1]))]
    parts = [slice(start, stop) for start, stop in pairwise(edges)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, parts))


def over_blocks(function: Callable[[slice], T], n: int, size: int = BLOCK) -> Iterator[T]:
    """Yield the results of `function` on every block of n pages, in order; computed in threads."""
    for results in over_parts(lambda part: [function(block) for block in blocks(part, size)], n):
        yield from results


MOST_BUCKETS = 1 << 7
"""Maximum number of buckets; more streams of pages would slow down the writes."""

LEAST_PAGES = 1 << 15
"""Minimum mean number of pages in a bucket; smaller buckets cost more time than they save."""

CHUNK = 1 << 17
"""Number of pages that are moved at a time."""


class Buckets(NamedTuple):
    """Pages in order of the bucket of their host; bucket b has hosts b * width to (b + 1) * width.

    The sums of the hosts of a bucket fit the cache.

    `edges` has the first page of each bucket, and then the number of pages. `host` counts from
    the first host of the bucket if `relative`, else from 0.
    """

    pages: Pages
    host: Indices
    edges: NDArray[np.intp]
    width: int
    relative: bool

    def pages_of(self, bucket: int) -> slice:
        """Return the range of the pages of a bucket."""
        return slice(int(self.edges[bucket]), int(self.edges[bucket + 1]))

    def hosts_in(self, bucket: int, block: slice) -> Indices:
        """Return the hosts of pages of a bucket, counted from the first host of the bucket."""
        host = self.host[block]
        return host if self.relative or bucket == 0 else host - bucket * self.width


def by_host(pages: Pages, host: Indices, n_hosts: int, scratch: tuple[Floats, Floats]) -> Buckets:
    """Return the pages in buckets; few pages, or pages in order of host, are not copied.

    Copies keep their importance and change rate in `scratch`. O(N).
    """
    n = host.size
    digits = (-(-n_hosts // min(MOST_BUCKETS, n // LEAST_PAGES + 1)) - 1).bit_length()
    width, n_buckets = 1 << digits, -(-n_hosts >> digits)
    if n_buckets <= 1:
        return Buckets(pages, host, np.array([0, n]), n_hosts, relative=True)
    if np.iinfo(host.dtype).max < n_hosts:
        host = host.astype(np.intp)
    if _in_order(host):
        firsts = np.minimum(np.arange(n_buckets + 1) * width, n_hosts).astype(host.dtype)
        edges = np.searchsorted(host, firsts)
        return Buckets(pages, host, edges, width, relative=False)
    return _distribute(pages, host, digits, n_buckets, scratch)


def _in_order(host: Indices) -> bool:
    before, after = host[:-1], host[1:]
    chunks = blocks(slice(0, before.size), CHUNK)
    return all(bool((before[chunk] <= after[chunk]).all()) for chunk in chunks)


def _distribute(
    pages: Pages, host: Indices, digits: int, n_buckets: int, scratch: tuple[Floats, Floats]
) -> Buckets:
    """Return copies of the pages in buckets; hosts of a bucket differ in their last `digits` bits.

    The function first counts the pages of each bucket in each chunk. Therefore threads can write
    at the same time.
    """
    n, width = host.size, 1 << digits

    def count(chunk: slice) -> tuple[int, NDArray[np.intp]]:
        return chunk.start, np.bincount(host[chunk] >> digits, minlength=n_buckets)

    starts, counts = zip(*over_blocks(count, n, CHUNK), strict=True)
    ends = np.cumsum(counts, axis=0)
    edges = np.append(0, ends[-1].cumsum())
    ends_of_chunk = dict(zip(starts, ends + edges[:-1], strict=True))
    host_in_bucket: Indices = np.empty(n, np.min_scalar_type(width - 1))
    others: list[Any] = [None if column is None else np.empty_like(column) for column in pages[2:]]
    copies = Pages(*scratch, *others)

    def copy(chunk: slice) -> None:
        bucket = (host[chunk] >> digits).astype(np.uint8)
        order = bucket.argsort(kind="stable")  # a radix sort
        size = np.bincount(bucket, minlength=n_buckets)
        to = np.repeat(ends_of_chunk[chunk.start] - size.cumsum(), size)
        to += np.arange(to.size)
        host_in_bucket[to] = (host[chunk] & (width - 1))[order]
        for source, target in zip(pages, copies, strict=True):
            if source is not None and target is not None:
                target[to] = source[chunk][order]

    list(over_blocks(copy, n, CHUNK))
    return Buckets(copies, host_in_bucket, edges, width, relative=True)
