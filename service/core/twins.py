"""Twins: pages that share their content with many others, which are together worth one. Pure."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FULL = 10
"""Number of pages of one content up to which each counts in full."""
PAGES_A_BUCKET = 4
"""Maximum pages for each bucket in the mean; of such buckets hardly any has eleven by chance, and
their counts take a twentieth of the memory of the digests."""


def discounted(importance: NDArray[np.float64], digest: NDArray[Any]) -> NDArray[np.float64]:
    """Return (N,) importances, with those of n pages of one content divided by n - 9.

    Many copies are worth about one page. A set that grows beyond `FULL` loses its importance by and
    by, so that a page more or less changes no rate at once. The digest 0 means none.

    Digests are counted by buckets first. Only pages of full buckets are sorted, which are few
    beside the twins themselves. O(N) without twins.

    Examples
    --------
    >>> discounted(np.ones(24), np.array([7] * 13 + [8] * 10 + [0])).round(2)[[0, 12, 13, 23]]
    array([0.25, 0.25, 1.  , 1.  ])
    """
    bits = np.ascontiguousarray(digest).view(np.uint64)
    n_bits = max((len(bits) // PAGES_A_BUCKET).bit_length(), 1)
    # Fibonacci hashing: the high bits of the product depend on all bits of the digest
    bucket = bits * np.uint64(0x9E3779B97F4A7C15)
    bucket >>= np.uint64(64 - n_bits)
    full_buckets = np.bincount(bucket.view(np.int64), minlength=1 << n_bits) > FULL
    full = np.flatnonzero((bits != 0) & full_buckets[bucket.view(np.int64)])
    _, place, count = np.unique(bits[full], return_inverse=True, return_counts=True)
    if not (count > FULL).any():
        return importance
    worth = importance.copy()
    worth[full] /= np.maximum(count - FULL + 1, 1)[place]
    return worth
