"""Sets of pages with known optima, for the tests of allocation and costs."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


class Case(NamedTuple):
    importance: np.ndarray
    change_rate: np.ndarray
    complete: np.ndarray
    bandwidth: float


def golden_set(n=1000, seed=20190619):
    """Return n pages, log-normal importance and change rate, 4 % complete, bandwidth 0.2 n."""
    rng = np.random.default_rng(seed)
    importance = np.exp(rng.normal(np.log(10), 1.5, n))
    change_rate = np.exp(rng.normal(np.log(0.3), 1.2, n))
    complete = np.zeros(n, bool)
    complete[rng.choice(n, n // 25, replace=False)] = True
    return Case(importance, change_rate, complete, 0.2 * n)


SIX_IMPORTANCE = np.array([10.0, 5.0, 1.0, 3.0, 8.0, 0.5])
SIX_CHANGE_RATE = np.array([0.1, 1.0, 2.0, 0.5, 0.25, 4.0])
SIX_COMPLETE = np.array([False, False, False, False, True, True])


def six_pages(bandwidth):
    return Case(SIX_IMPORTANCE, SIX_CHANGE_RATE, SIX_COMPLETE, bandwidth)


def magnitudes(decades=12, *, zero=True):
    """Return a strategy of positive numbers over 2 * `decades` decades, sometimes 0."""
    positive = st.floats(-decades, decades).map(lambda x: 10.0**x)
    return st.one_of(positive, st.just(0.0)) if zero else positive


@st.composite
def cases(draw, max_pages=8, decades=12, *, zero=True):
    n = draw(st.integers(1, max_pages))
    column = hnp.arrays(np.float64, n, elements=magnitudes(decades, zero=zero))
    return Case(
        draw(column),
        draw(column),
        draw(hnp.arrays(np.bool_, n)),
        draw(magnitudes(decades, zero=zero)),
    )
