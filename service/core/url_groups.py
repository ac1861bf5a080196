"""What siblings have shown since a page was crawled last, and how fast its clock should run.

One revision often touches many pages of a directory: docs/theory.md, "When rates become crawls".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.conditions import Floats, InvalidInput, check_amount

SPARSE = 1 / 32
"""Fewer pages than this for each URL group there may be are sorted, more are looked up."""


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
"""Share of a page's changes that are believed to come with its siblings'."""

OWN_WEIGHT = 15.0
"""Siblings' crawls that weigh as much as what is expected of the page itself."""

FINEST, AGES = 0.01, 32
"""Ages are told apart to half a power of 2, from a quarter of an hour to two years, days."""


def observed_ratio(
    url_group: NDArray[np.integer], age: ArrayLike, interval: ArrayLike, change_rate: ArrayLike
) -> Floats:
    r"""Return how many times as many changes as its rate says to expect of a page since its crawl.

    Page j of change rate Delta_j was crawled a_j days ago. Of its siblings' last intervals those
    count whose middle lies after that crawl: O_j were found changed, and E_j were expected to be.
    With kappa = `OWN_WEIGHT` and s = `SHARED`

    .. math:: F_j = 1 - s + s \frac{\kappa \Delta_j a_j + O_j}{\kappa \Delta_j a_j + E_j}

    With O = E, and where nothing is known, F = 1. Time and memory O(N + 32 S).

    Parameters
    ----------
    url_group : (N,) int
        Which pages are siblings. Not negative.
    age : (N,) days
        Since each page's last crawl; NaN if there was none.
    interval : (N,) days
        The interval that this crawl closed, negative if the page had not changed in it; 0 where
        it is not known.
    change_rate : (N,) >= 0, 1/day

    Raise `InvalidInput` for another shape, or an entry that is negative or infinite.

    References
    ----------
    Derived (docs/theory.md). Clusters of pages that change together: Cho, Ntoulas 2002, Effective
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
    """Cells of a URL group and an age: of each page's crawl, and of each interval's middle."""

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
        """Return the cells of (N,) crawls and of the middles of some pages' intervals, by age."""
        present, place = renumber(url_group, int(url_group.max(initial=-1)) + 1)
        first = place * np.int64(AGES)
        of_interval = first[with_interval] + _bin(middle)
        return cls(first + _bin(crawled), of_interval, with_interval, present.size * AGES)

    def since(self, weight: Floats) -> Floats:
        """Return what siblings have in younger cells than the page's crawl, and half of its cell.

        `weight` is that of each interval.
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


def budget_factor(ripeness: ArrayLike, n_due: float) -> float:
    """Return by how much all clocks must run faster for `n_due` pages to be due; at least 1.

    Because a page that was crawled early starts anew, quiet siblings let more pages wait than
    changed ones bring forward. Without this factor a part of the bandwidth would be left over.

    Parameters
    ----------
    ripeness : array_like, shape (N,)
        How much of its interval each page will have behind it: due at 1.

    Examples
    --------
    >>> budget_factor([0.2, 0.5, 0.8, 1.1], n_due=2)
    1.25
    """
    ripe = np.asarray(ripeness, np.float64)
    n = round(n_due)
    if not 0 < n <= ripe.size:
        return 1.0
    last = float(np.partition(ripe, ripe.size - n)[ripe.size - n])
    return max(1.0, 1.0 / last) if last > 0 else 1.0
