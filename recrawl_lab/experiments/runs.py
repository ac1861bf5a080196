"""Many runs of one page at once: its crawls, and the estimates from them.

These are the settings of A22: the page changes at random at one rate and is crawled at random at
another. The estimator knows the crawl rate. Arrays are (K, R): K crawls of R independent runs.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.checks import check_array
from service.core.estimators.base import Estimator, check_crawl
from service.core.estimators.history import History
from service.core.prior import Prior
from service.model.arrays import Bools, Floats, Ints

INK = {
    "naive": "#999999",
    "lln": "#d95f02",
    "sa": "#7570b3",
    "sam": "#e7298a",
    "mle": "#1b9e77",
    "plain mle": "#66a61e",
    "gamma": "#1f4e9c",
}
"""Colours of the estimators, the same in all figures."""


class CrawlRuns(NamedTuple):
    """(K, R) crawls of R runs, oldest first."""

    interval: Floats
    """Time since the previous crawl, in the unit of the rates."""
    changed: Bools
    crawl_rate: float
    """Crawl rate in force over all intervals."""


class Error(NamedTuple):
    """(C,) root mean square errors relative to the true rate, with standard errors."""

    rmse: Floats
    standard_error: Floats


def poisson_runs(
    rng: np.random.Generator, change_rate: float, crawl_rate: float, shape: tuple[int, int]
) -> CrawlRuns:
    """Return (K, R) crawls on a Poisson clock of a page that changes at Poisson instants."""
    interval = rng.exponential(1.0 / crawl_rate, shape)
    return CrawlRuns(interval, rng.random(shape) < -np.expm1(-change_rate * interval), crawl_rate)


def checkpoints(n_crawls: int, n: int = 40, also: tuple[int, ...] = ()) -> Ints:
    """Return ascending numbers of crawls for estimates, evenly spaced in the logarithm.

    >>> checkpoints(100, 5, also=(50,))
    array([  1,   3,  10,  31,  50, 100])
    """
    even = np.geomspace(1, n_crawls, n).astype(np.int64)
    return np.unique([*even.tolist(), *(k for k in also if k <= n_crawls), n_crawls])


def estimates(estimator: Estimator[Any], runs: CrawlRuns, after: Ints) -> Floats:
    """Return (C, R) estimates of all runs after each of the (C,) ascending numbers of crawls."""
    n_runs = runs.interval.shape[1]
    if estimator.needs_history:
        return np.array([_from_history(estimator, runs, int(k)) for k in after])
    state, rates = estimator.init(n_runs), np.empty((len(after), n_runs))
    row = dict(zip(after.tolist(), range(len(after)), strict=True))
    for k in range(int(after[-1])):
        state = estimator.update(state, runs.interval[k], runs.changed[k], runs.crawl_rate)
        if k + 1 in row:
            rates[row[k + 1]] = estimator.change_rate(state)
    return rates


def gather_history(page: ArrayLike, interval: ArrayLike, changed: ArrayLike, n: int) -> History:
    """Return the history of n pages from (K,) crawls; those of a page are oldest first.

    Examples
    --------
    >>> history = gather_history([1, 0, 1], [2.0, 5.0, 3.0], [True, False, False], n=3)
    >>> history.starts, history.interval
    (array([0, 1, 3, 3]), array([5., 2., 3.]))
    """
    pages = np.asarray(page, np.intp)
    days, was_changed = check_crawl(pages.shape, interval, changed)
    check_array("page", pages, pages.shape, test=lambda i: (i >= 0) & (i < n), must=f"below {n}")
    order = np.argsort(pages, kind="stable")
    columns = (np.broadcast_to(column, pages.shape)[order] for column in (days, was_changed))
    return History(np.concatenate([[0], np.cumsum(np.bincount(pages, minlength=n))]), *columns)


def _from_history(estimator: Estimator[Any], runs: CrawlRuns, k: int) -> Floats:
    n_runs = runs.interval.shape[1]
    page = np.repeat(np.arange(n_runs), k)
    interval, changed = runs.interval[:k].T.ravel(), runs.changed[:k].T.ravel()
    return estimator.change_rate(gather_history(page, interval, changed, n_runs))


def start_at(crawl_rate: float) -> Prior:
    """Return a prior of mean `crawl_rate` for SA and SAM; A22 does not specify their start."""
    return Prior(0.5, 0.5 / crawl_rate)


def relative_error(estimate: Floats, change_rate: float) -> Error:
    """Return the error over the runs of (C, R) estimates."""
    square = (estimate / change_rate - 1.0) ** 2
    rmse = np.sqrt(square.mean(axis=-1))
    spread = square.std(axis=-1) / np.sqrt(square.shape[-1])
    return Error(rmse, spread / np.maximum(2.0 * rmse, np.finfo(float).tiny))


def band(estimate: Floats) -> tuple[Floats, Floats]:
    """Return (C,), (C,) bounds that contain 95 % of the runs."""
    low, high = np.quantile(estimate, (0.025, 0.975), axis=-1)
    return low, high
