"""Twins: pages that share their content with many others, where one copy is enough. Pure."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

OTHERS = 10
"""Number of other pages with the same digest above which a page is a twin."""
WEIGHT = 0.05
"""Factor on the importance of a twin."""
PAGES_A_BUCKET = 4
"""Maximum pages for each bucket in the mean; of such buckets hardly any has eleven by chance, and
their counts take a twentieth of the memory of the digests."""


def twins(digest: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of (N,) pages share their digest with more than `OTHERS` pages; 0: no digest.

    Digests are counted by buckets first. Only pages of full buckets are sorted, which are few
    beside the twins themselves. O(N) without twins.

    Examples
    --------
    >>> twins(np.array([7] * 11 + [8] * 10 + [0] * 20)).nonzero()[0].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    bits = np.ascontiguousarray(digest).view(np.uint64)
    some = bits != 0
    n_bits = max((len(bits) // PAGES_A_BUCKET).bit_length(), 1)
    # Fibonacci hashing: the high bits of the product depend on all bits of the digest
    bucket = bits * np.uint64(0x9E3779B97F4A7C15)
    bucket >>= np.uint64(64 - n_bits)
    full_buckets = np.bincount(bucket.view(np.int64), minlength=1 << n_bits) > OTHERS
    full = np.flatnonzero(some & full_buckets[bucket.view(np.int64)])
    _, place, count = np.unique(bits[full], return_inverse=True, return_counts=True)
    shared = np.zeros(len(bits), np.bool_)
    shared[full] = count[place] > OTHERS
    return shared


def discounted(importance: NDArray[np.float64], digest: NDArray[Any]) -> NDArray[np.float64]:
    """Return (N,) importances, with those of twins times `WEIGHT`."""
    shared = twins(digest)
    return np.where(shared, WEIGHT * importance, importance) if shared.any() else importance
