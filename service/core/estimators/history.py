"""Histories of many pages, for the estimators that read every interval again."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.checks import Floats
from service.core.estimators.base import CheckedCrawl, Estimator

Index = NDArray[np.intp]


class History(NamedTuple):
    """Crawls of N pages, page after page and oldest first: page i has starts[i] to starts[i+1].

    The service reads the log in blocks of pages, so a history takes the memory of one block.
    """

    starts: Any
    """(N + 1,) offsets into the other arrays."""
    interval: Any
    """(K,) days."""
    changed: Any
    """(K,) 1.0 where the page changed, else 0.0."""

    @property
    def page(self) -> Index:
        """(K,) page of each crawl."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def crawls(self) -> Index:
        """(N,) number of crawls of each page."""
        return np.asarray(np.diff(self.starts))

    def sum_by_page(self, values: Floats) -> Floats:
        """Return the sums of a (K,) array over the crawls of each page."""
        sums, crawled = np.zeros(len(self.starts) - 1), self.crawls > 0
        if crawled.any():
            sums[crawled] = np.add.reduceat(values, self.starts[:-1][crawled])
        return sums

    def take(self, pages: Index) -> "History":
        """Return the crawls of the pages with these ascending indices."""
        chosen = np.zeros(len(self.starts) - 1, np.bool_)
        chosen[pages] = True
        of_pages = np.repeat(chosen, self.crawls)
        starts = np.concatenate([[0], np.cumsum(self.crawls[pages])])
        return History(starts, self.interval[of_pages], self.changed[of_pages])


class HistoryEstimator(Estimator[History]):
    """An estimator that reads all crawls of each page again."""

    State: ClassVar[type[History]] = History
    needs_history: ClassVar[bool] = True

    @override
    def init(self, n: int | None = None) -> History:
        pages = 1 if n is None else n
        return History(np.zeros(pages + 1, np.intp), np.zeros(0), np.zeros(0))

    @override
    def shape(self, state: History) -> tuple[int, ...]:
        return state.crawls.shape

    @override
    def learn(self, state: History, crawl: CheckedCrawl) -> History:
        ends = state.starts[1:]
        return History(
            state.starts + np.arange(len(state.starts)),
            np.insert(state.interval, ends, crawl.days),
            np.insert(state.changed, ends, crawl.changed),
        )
