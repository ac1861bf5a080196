"""Pages put in order of ranges of hosts, so that the sums of a range fit the cache."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.allocation.blocks import Pages, blocks, in_blocks, over_blocks
from service.core.allocation.inputs import Indices
from service.core.conditions import Floats

MOST_BUCKETS = 1 << 7
"""Maximum number of ranges: more streams of pages than these slow down the writes."""

LEAST_PAGES = 1 << 15
"""Mean number of pages in a bucket below which a bucket costs more than it saves."""

CHUNK = 1 << 17
"""Pages that are moved at a time."""


class Buckets(NamedTuple):
    """Pages in order of the bucket of their host; bucket b has hosts b * width to (b + 1) * width.

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
    """Return the pages in buckets; few pages or pages in order remain where they are.

    Otherwise `scratch` holds their importance and change rate afterwards. O(N).
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
    """Copy the pages to their buckets; hosts of a bucket differ in their last binary `digits`.

    Because the sizes of the buckets in each chunk are counted first, threads write at once.
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

    in_blocks(copy, n, CHUNK)
    return Buckets(copies, host_in_bucket, edges, width, relative=True)
