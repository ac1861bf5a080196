"""Numbers from 0 on for the URL groups that are there, of the many that could be."""

import numpy as np
from numpy.typing import NDArray

SPARSE = 1 / 32
"""Fewer pages than this for each URL group there may be are sorted, more are looked up."""


def renumber(
    url_group: NDArray[np.integer], n_url_groups: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the URL groups that have pages, each page's index: O(N log N) or O(N + S).

    Parameters
    ----------
    URL group : (N,) int
        In [0, n_url_groups).

    Returns
    -------
    used : (U,) int, ascending
    place : (N,) int in [0, U)

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
