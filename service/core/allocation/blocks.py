"""Columns of pages cut into blocks that fit the cache, and blocks shared among threads.

Everything the solvers know about the pages is a sum or a maximum over such blocks, so a
partition may as well live in another process: one multiplier goes out, one pair comes back.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.core.conditions import Bools, Floats

BLOCK = 1 << 15
"""Pages a block: few enough for the cache, enough to leave threads little to wait for."""

LARGE = 1 << 18
"""Number of pages from which threads are worth starting."""

MOST_THREADS = 8
"""More than these wait for memory, and each holds sums for every host."""

T = TypeVar("T")


class Pages(NamedTuple):
    """Pages as (N,) arrays; None for a column of no interest.

    `min_crawl_rate` and `max_crawl_rate`, `ping_recall` and `ping_precision` come in pairs.
    """

    importance: Floats
    change_rate: Floats
    complete: Bools
    ping_recall: Floats | None = None
    ping_precision: Floats | None = None
    min_crawl_rate: Floats | None = None
    max_crawl_rate: Floats | None = None

    def cut(self, block: slice | NDArray[np.integer]) -> "Pages":
        """View a range of the pages, or copy some."""
        importance, change_rate, complete, *others = self
        return Pages(
            importance[block],
            change_rate[block],
            complete[block],
            *(None if column is None else column[block] for column in others),
        )


def blocks(part: slice, size: int = BLOCK) -> Iterator[slice]:
    """Cut a range of pages into blocks."""
    for start in range(part.start, part.stop, size):
        yield slice(start, min(start + size, part.stop))


def over_parts(
    function: Callable[[slice], T], n: int, first: NDArray[np.integer] | None = None
) -> list[T]:
    """Apply `function` to contiguous parts of n pages, one part a thread; results in order.

    Where pages lie in runs, of which `first` has the first page of each and then n, parts are of
    whole runs and counted in runs.
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
    """Apply `function` to every block of n pages, parts in threads; results in order."""
    for results in over_parts(lambda part: [function(block) for block in blocks(part, size)], n):
        yield from results


def in_blocks(function: Callable[[slice], None], n: int, size: int = BLOCK) -> None:
    """Apply `function` to every block of n numbers for what it writes there, parts in threads."""
    for _ in over_blocks(function, n, size):
        pass
