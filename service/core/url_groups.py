"""Changes that other pages of a URL group have shown since a page's last crawl, and their effect.

One revision often touches many pages of a directory. A page whose siblings, the other pages of its
URL group, have changed is therefore crawled sooner: docs/theory.md, "When rates become crawls".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.conditions import Floats, InvalidInput, check_amount

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


SHARED = 0.4
"""Share of a page's changes that happen together with changes of its siblings."""

OWN_WEIGHT = 15.0
"""Weight of the page's own expected changes against those of siblings' crawls."""

FINEST, AGES = 0.01, 32
"""Smallest age, days, and number of age bins of half a power of 2: 15 minutes to two years."""


def observed_ratio(
    url_group: NDArray[np.integer], age: ArrayLike, interval: ArrayLike, change_rate: ArrayLike
) -> Floats:
    r"""Return (N,) ratios of observed to expected changes of pages since their last crawls.

    Page j of change rate Delta_j was crawled a_j days ago. The last intervals of its siblings count
    if their middle lies after that crawl: O_j of them changed, E_j were expected to change. With
    kappa = `OWN_WEIGHT` and s = `SHARED`

    .. math:: F_j = 1 - s + s \frac{\kappa \Delta_j a_j + O_j}{\kappa \Delta_j a_j + E_j}

    F = 1 with O = E, and without intervals. Time and memory O(N + 32 S).

    Parameters
    ----------
    url_group : (N,) int
        URL group of each page. Not negative.
    age : (N,) days
        Days since each page's last crawl; NaN: never crawled.
    interval : (N,) days
        Interval that the last crawl ended, negative if the page had not changed in it; 0: unknown.
    change_rate : (N,) >= 0, 1/day

    Raise `InvalidInput` for another shape, or an entry that is negative or infinite.

    References
    ----------
    Derived in docs/theory.md. Clusters of pages that change together: Cho, Ntoulas 2002, Effective
    Change Detection Using Sampling; Tan, Mitra 2010, Clustering-based Incremental Web Crawling.

    Examples
    --------
    >>> url_groups, age, interval = np.zeros(3, int), [5.0, 5.0, 1.0], [-9.0, -9.0, 4.0]
    >>> observed_ratio(url_groups, age, interval, change_rate=0.01).round(3)
    array([1.487, 1.487, 1.   ])
    """
    shape = url_group.shape
    rate = np.broadcast_to(check_amount("change_rate", change_rate, np.shape(change_rate)), shape)
    days, interval = (np.asarray(column, np.float64) for column in (age, interval))
    for name, column in (("age", days), ("interval", interval)):
        if column.shape != shape or np.isinf(column).any():
            raise InvalidInput(name, f"must be finite and of shape {shape}")
    with_interval = np.flatnonzero((interval != 0) & ~np.isnan(days))
    if not with_interval.size:
        return np.ones(shape)
    length = np.abs(interval[with_interval])
    own = OWN_WEIGHT * rate * np.nan_to_num(days)
    cells = _Cells.of(
        url_group, np.nan_to_num(days), days[with_interval] + 0.5 * length, with_interval
    )
    observed = own + cells.since((interval[with_interval] > 0).astype(np.float64))
    expected = own + cells.since(-np.expm1(-rate[with_interval] * length))
    ratio = np.divide(observed, expected, out=np.ones(shape), where=own > 0)
    return np.asarray(1.0 - SHARED + SHARED * ratio)


class _Cells(NamedTuple):
    """Cells by URL group and age bin, of each page's crawl and of each interval's middle."""

    of_crawl: NDArray[np.int64]
    of_interval: NDArray[np.int64]
    with_interval: NDArray[np.intp]
    n: int

    @classmethod
    def of(
        cls,
        url_group: NDArray[np.integer],
        crawled: Floats,
        middle: Floats,
        with_interval: NDArray[np.intp],
    ) -> "_Cells":
        """Return the cells of (N,) ages of crawls, and of the ages of some intervals' middles."""
        present, place = renumber(url_group, int(url_group.max(initial=-1)) + 1)
        first = place * np.int64(AGES)
        of_interval = first[with_interval] + _bin(middle)
        return cls(first + _bin(crawled), of_interval, with_interval, present.size * AGES)

    def since(self, weight: Floats) -> Floats:
        """Return the weight of siblings' intervals in younger cells than each page's crawl.

        Intervals in the cell of the crawl count by half. `weight` has the weight of each interval.
        """
        of_bin = np.bincount(self.of_interval, weight, self.n)
        total = -0.5 * of_bin[self.of_crawl]
        by_url_group = of_bin.reshape(-1, AGES)
        np.cumsum(by_url_group, axis=1, out=by_url_group)
        total += of_bin[self.of_crawl]
        own = self.of_interval == self.of_crawl[self.with_interval]
        total[self.with_interval] -= 0.5 * weight * own
        return np.asarray(np.maximum(total, 0.0))


def _bin(age: Floats) -> NDArray[np.int64]:
    steps = np.log2(np.maximum(age, FINEST) / FINEST)
    return np.minimum(2.0 * steps, AGES - 1).astype(np.int64)
