"""Phases: the position of a page's first crawl in its first interval."""

import numpy as np
from numpy.typing import ArrayLike

from service.model.arrays import Floats

GOLDEN_RATIO_64 = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio: its multiples modulo 2^64 are the Weyl sequence of lowest discrepancy."""


def phase(page_id: ArrayLike) -> Floats:
    """Return each page's phase in its first interval, a fixed fraction in [0, 1) of its id.

    Consecutive ids are spread more evenly than at random, so the crawls of an imported site do
    not come in bursts.

    Parameters
    ----------
    page_id : array_like of int, shape (N,)

    Examples
    --------
    >>> phase([0, 1, 2, 3]).round(3)
    array([0.   , 0.618, 0.236, 0.854])
    """
    turns = np.asarray(page_id).astype(np.uint64) * GOLDEN_RATIO_64
    return (turns >> np.uint64(11)).astype(np.float64) * 2.0**-53
