"""Twins: pages that share their content with many others, which are together worth one. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.common_values import Contribution, Joint, alone, count, total

FULL = 10
"""Number of pages of one content up to which each counts in full."""
LEAST_OF_CHANGED = 0.05
"""Minimum factor on the importance of a page that has shown other content before."""
PAGES_A_BUCKET = 4
"""Maximum pages for each bucket in the mean; of such buckets hardly any has eleven by chance, and
their counts take a twentieth of the memory of the digests."""


def discounted(importance: NDArray[np.float64], digest: NDArray[Any]) -> NDArray[np.float64]:
    """Return (N,) importances, with those of n pages of one content divided by n - 9.

    Many copies are worth about one page. A set that grows beyond `FULL` loses its importance by and
    by, so that a page more or less changes no rate at once. Other content may come back to a page
    that had some, as after a wall in front of a site. Such a page keeps `LEAST_OF_CHANGED`.

    The digest 0 means none. The digest of a page that has changed comes with a minus.

    Digests are counted by buckets first. Only pages of full buckets are sorted, which are few
    beside the twins themselves. O(N) without twins.

    Examples
    --------
    >>> discounted(np.ones(24), np.array([7] * 13 + [8] * 10 + [0])).round(2)[[0, 12, 13, 23]]
    array([0.25, 0.25, 1.  , 1.  ])
    >>> discounted(np.ones(100), np.array([7] * 99 + [-7])).round(2)[[0, 99]]
    array([0.01, 0.05])
    """
    return alone(discounted_among(importance, digest))


def discounted_among(
    importance: NDArray[np.float64], digest: NDArray[Any]
) -> Joint[NDArray[np.float64]]:
    """Return (N,) importances as `discounted`, where twins may be in any part."""
    bits = np.abs(digest).view(np.uint64)
    n_pages = yield from count(len(bits))
    n_bits = max((n_pages // PAGES_A_BUCKET).bit_length(), 1)
    # Fibonacci hashing: the high bits of the product depend on all bits of the digest
    bucket = bits * np.uint64(0x9E3779B97F4A7C15)
    bucket >>= np.uint64(64 - n_bits)
    n_of_bucket = np.bincount(bucket.view(np.int64), minlength=1 << n_bits)
    # more pages than that make no difference, and short numbers cross
    full_buckets = (yield from total(np.minimum(n_of_bucket, FULL + 1).astype(np.int16))) > FULL
    full = np.flatnonzero((bits != 0) & full_buckets[bucket.view(np.int64)])
    own, place, n_own = np.unique(bits[full], return_inverse=True, return_counts=True)
    n_copies = yield Contribution((own, n_own), _counted, own_reply=True)
    if not (n_copies > FULL).any():
        return importance
    share = 1.0 / np.maximum(n_copies - FULL + 1, 1)[place]
    worth = importance.copy()
    worth[full] *= np.where(digest[full] < 0, np.maximum(share, LEAST_OF_CHANGED), share)
    return worth


def _counted(parts: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> list[NDArray[Any]]:
    """Return the number of pages of each digest of each part, counted over all parts."""
    if len(parts) == 1:
        return [parts[0][1]]
    every, place = np.unique(np.concatenate([own for own, _ in parts]), return_inverse=True)
    n_copies = np.bincount(place, np.concatenate([n for _, n in parts]), len(every))
    ends = np.cumsum([len(own) for own, _ in parts])[:-1]
    return np.split(n_copies.astype(np.int64)[place], ends)
