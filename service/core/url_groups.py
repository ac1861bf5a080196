"""The URL groups that a set of pages has, numbered from 0."""

import numpy as np
from numpy.typing import NDArray

SPARSE = 1 / 32
"""Pages per possible URL group below which `renumber` sorts, instead of making a table."""


def renumber(
    url_group: NDArray[np.integer], n_url_groups: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the (U,) URL groups in [0, n_url_groups) that have pages, and each page's index.

    O(N log N) or O(N + S).

    Examples
    --------
    >>> used, place = renumber(np.array([70, 3, 70]), 100)
    >>> used.tolist(), place.tolist()
    ([3, 70], [1, 0, 1])
    """
    if url_group.size < SPARSE * n_url_groups:
        used, place = np.unique(url_group, return_inverse=True)
        return used, place
    has = np.zeros(n_url_groups, np.bool_)
    has[url_group] = True
    used = np.flatnonzero(has)
    places = np.empty(n_url_groups, np.int32)
    places[used] = np.arange(used.size)
    return used, places[url_group]
