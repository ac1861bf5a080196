"""Kept histories of many pages, for the estimators that look at every interval again."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.conditions import Bools, Floats, InvalidInput, check_array
from service.core.estimators.base import Estimator, check_crawl

Index = NDArray[np.intp]


def sum_by_page(page: Index, values: Floats, n: int) -> Floats:
    """Sum of `values` over the entries of each of n pages."""
    return np.bincount(page, weights=values, minlength=n).astype(np.float64, copy=False)


class History(NamedTuple):
    """Crawls of N pages, page after page and oldest first: page i has starts[i] to starts[i+1].

    Read from the log in blocks of pages, a history needs memory for one block only.
    """

    starts: Any
    """(N + 1,) offsets into the other arrays."""
    interval: Any
    """(K,) days."""
    changed: Any
    """(K,) 1.0 where the page changed, else 0.0."""
    age: Any
    """(K,) days from the last modification to the crawl; NaN where unknown."""

    @property
    def page(self) -> Index:
        """(K,) page of each crawl."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def crawls(self) -> Index:
        """(N,) crawls of each page."""
        return np.asarray(np.diff(self.starts))

    def sum_by_page(self, values: Floats) -> Floats:
        """Sum of a (K,) array over the crawls of each page."""
        sums, crawled = np.zeros(len(self.starts) - 1), self.crawls > 0
        if crawled.any():
            sums[crawled] = np.add.reduceat(values, self.starts[:-1][crawled])
        return sums

    def take(self, pages: Index) -> "History":
        """Return some pages, given by ascending indices, and their crawls."""
        chosen = np.zeros(len(self.starts) - 1, np.bool_)
        chosen[pages] = True
        return self._choose(np.repeat(chosen, self.crawls), self.crawls[pages])

    def suffix(self, length: int) -> "History":
        """Return the last `length` crawls of each page."""
        page = self.page
        chosen = np.arange(page.size) >= self.starts[1:][page] - length
        return self._choose(chosen, np.minimum(self.crawls, length))

    def _choose(self, chosen: Bools, crawls: Index) -> "History":
        columns = (column[chosen] for column in self[1:])
        return History(np.concatenate([[0], np.cumsum(crawls)]), *columns)

    def append(self, interval: ArrayLike, changed: ArrayLike) -> "History":
        """Add one crawl to every page."""
        n = len(self.starts) - 1
        days, was_changed = check_crawl((n,), interval, changed)
        ends = self.starts[1:]
        return History(
            self.starts + np.arange(n + 1),
            np.insert(self.interval, ends, days),
            np.insert(self.changed, ends, was_changed),
            np.insert(self.age, ends, np.nan),
        )


class HistoryEstimator(Estimator[History]):
    """An estimator that looks at the kept crawls of each page again.

    Parameters
    ----------
    suffix : int or None
        Crawls that are looked at, the last of each page. None: all.
    """

    suffix: int | None

    State: ClassVar[type[History]] = History
    needs_history: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.suffix is not None and self.suffix < 1:
            raise InvalidInput("suffix", f"must be at least 1, not {self.suffix}")

    def init(self, n: int | None = None) -> History:
        """History of n pages (of one, for None) without crawls."""
        pages = 1 if n is None else n
        return History(np.zeros(pages + 1, np.intp), np.zeros(0), np.zeros(0), np.zeros(0))

    def update(
        self,
        state: History,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,  # noqa: ARG002 - every estimator has it
    ) -> History:
        """Append one crawl to every page and forget what lies before the suffix."""
        return self.recent(state.append(interval, changed))

    def recent(self, state: History) -> History:
        """Return the crawls that are looked at."""
        return state if self.suffix is None else state.suffix(self.suffix)


def gather_history(
    page: ArrayLike,
    interval: ArrayLike,
    changed: ArrayLike,
    n: int,
    *,
    age: ArrayLike = np.nan,
) -> History:
    """Order the crawls of one block of the observation log by page.

    Parameters
    ----------
    page : array_like of int, shape (K,)
        Index 0 … n-1 of the crawled page within the block; crawls of a page oldest first.
    interval, changed, age : array_like, shape (K,)
        As in `History`; age may be a number.
    n : int
        Pages in the block.

    Examples
    --------
    >>> history = gather_history([1, 0, 1], [2.0, 5.0, 3.0], [True, False, False], n=3)
    >>> history.starts, history.interval
    (array([0, 1, 3, 3]), array([5., 2., 3.]))
    """
    pages = np.asarray(page, np.intp)
    days, was_changed = check_crawl(pages.shape, interval, changed)
    check_array("page", pages, pages.shape, test=lambda i: (i >= 0) & (i < n), must=f"below {n}")
    ages = np.asarray(age, np.float64)
    if ages.shape not in ((), pages.shape):
        raise InvalidInput("age", f"has shape {ages.shape}, expected {pages.shape}")
    order = np.argsort(pages, kind="stable")
    columns = (np.broadcast_to(column, pages.shape)[order] for column in (days, was_changed, ages))
    return History(np.concatenate([[0], np.cumsum(np.bincount(pages, minlength=n))]), *columns)
