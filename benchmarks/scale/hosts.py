"""Hosts of very different sizes, and their logical shards and databases, by a hash.

The number of pages of a host has a Pareto tail, cut at the largest host. Hosts are drawn in blocks,
so memory does not grow with their number.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 1_000_000
"""Number of hosts that are drawn at a time."""
LARGEST = 4_096
"""Number of the largest hosts that are kept, by size."""
SECONDS_A_DAY = 86_400.0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Corpus(NamedTuple):
    """Pages of logical shards, and the largest hosts."""

    pages: Floats
    """(logical,) pages of each logical shard."""
    largest: Floats
    """Pages of the largest hosts, descending."""
    largest_shard: Ints
    """Logical shard of each of the largest hosts."""
    n_hosts: int
    delayed: float
    """Share of the crawls that hosts with the default delay cannot take."""


def mean_size(tail: float, largest: float) -> float:
    """Return the mean number of pages of a host; the smallest has one page.

    >>> round(mean_size(2.0, 1e9), 6)
    2.0
    """
    return tail / (1 - tail) * (largest ** (1 - tail) - 1) / (1 - largest**-tail)


def sizes(rng: np.random.Generator, n: int, tail: float, largest: float) -> Floats:
    """Return the number of pages of each of `n` hosts."""
    return np.asarray((1 - rng.random(n) * (1 - largest**-tail)) ** (-1 / tail))


def corpus(
    rng: np.random.Generator,
    n_pages: float,
    logical: int,
    tail: float,
    largest_host: float,
    crawls_a_day: float,
    delay_s: float,
) -> Corpus:
    """Return the logical shards of a corpus; sizes are scaled so that they add up to `n_pages`."""
    n_hosts = max(round(n_pages / mean_size(tail, largest_host)), 1)
    pages = np.zeros(logical)
    largest, shard_of_largest = np.empty(0), np.empty(0, np.int64)
    excess, most = 0.0, SECONDS_A_DAY / delay_s / crawls_a_day if delay_s else np.inf
    for first in range(0, n_hosts, BLOCK):
        size = sizes(rng, min(BLOCK, n_hosts - first), tail, largest_host)
        shard = rng.integers(0, logical, len(size))
        pages += np.bincount(shard, size, minlength=logical)
        excess += float(np.maximum(size - most, 0.0).sum())
        largest = np.append(largest, size)
        shard_of_largest = np.append(shard_of_largest, shard)
        order = np.argsort(-largest)[:LARGEST]
        largest, shard_of_largest = largest[order], shard_of_largest[order]
    total = float(pages.sum())
    scale = n_pages / total
    return Corpus(pages * scale, largest * scale, shard_of_largest, n_hosts, excess / total)


def spans(logical: int, n: int) -> list[Ints]:
    """Return the logical shards of each of `n` databases or actors: equal spans, as in a file."""
    return [np.asarray(span, np.int64) for span in np.array_split(np.arange(logical), n)]


def divided(pages: Floats, databases: int, actors: int) -> list[Floats]:
    """Return the pages of each actor of each database; an actor has whole logical shards."""
    return [
        np.array([float(pages[part].sum()) for part in np.array_split(span, actors)])
        for span in spans(len(pages), databases)
    ]


def with_exceptions(one: Corpus, databases: int, n: int) -> Corpus:
    """Return a corpus whose `n` largest hosts are exceptions in the emptiest shards.

    Each goes to the logical shard with the fewest pages of the database with the fewest.
    """
    pages = one.pages.copy()
    np.subtract.at(pages, one.largest_shard[:n], one.largest[:n])
    places = spans(len(pages), databases)
    shard_of_largest = one.largest_shard.copy()
    for host in range(min(n, len(one.largest))):
        span = places[int(np.argmin([pages[span].sum() for span in places]))]
        shard = span[int(np.argmin(pages[span]))]
        pages[shard] += one.largest[host]
        shard_of_largest[host] = shard
    return one._replace(pages=pages, largest_shard=shard_of_largest)
