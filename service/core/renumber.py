"""Numbers from 0 on for the sections that are there, of the many that could be."""

import numpy as np
from numpy.typing import NDArray

SPARSE = 1 / 32
"""Fewer pages than this for each section there may be are sorted, more are looked up."""


def renumber(
    section: NDArray[np.integer], n_sections: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Give the sections that have pages, and which of them each page is in. O(N log N) or O(N + S).

    Parameters
    ----------
    section : (N,) int
        In [0, n_sections).

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
    if section.size < SPARSE * n_sections:
        used, place = np.unique(section, return_inverse=True)
        return used, place
    has = np.zeros(n_sections, np.bool_)
    has[section] = True
    used = np.flatnonzero(has)
    places = np.empty(n_sections, np.int32)
    places[used] = np.arange(used.size)
    return used, places[section]
