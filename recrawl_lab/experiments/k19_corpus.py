"""The pages of K19's experiments: importances and change rates, and the cost of an allocation.

With `data` the pages come from the PoliteCrawling data set that K19 published. Pages with complete
observations have the rates of the data set; the rates of other pages come from their crawls by
equation 10. Without `data` a synthetic set has the published shape. Its importance is heavily
skewed and mostly below 1,000; most pages change once in a few days, and 4 % have complete
observations.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recrawl_lab.datasets.polite import (
    CHANGE_RATES,
    HISTORIES,
    IMPORTANCES,
    find_table,
    read_histories,
    read_numbers,
)
from recrawl_lab.experiments.imaginary import ImaginaryIntervals, ImaginaryMLE
from recrawl_lab.experiments.runs import gather_history
from recrawl_lab.worlds.world import LOG_CHANGE_RATE, LOG_IMPORTANCE
from service.core.allocation.problem import Allocation
from service.core.costs import costs
from service.model.arrays import Bools, Floats, Ints
from service.model.errors import UnreadableFile

COMPLETE_SHARE = 0.04
BANDWIDTH_PER_PAGE = 0.2
EQUATION_10 = ImaginaryMLE(imaginary=ImaginaryIntervals(0.5, 0.5))
"""K19's estimator without complete observations, with imaginary intervals of half a day."""
STAND_IN = (
    "log-normal importances and change rates of the published shape, 4 % of the pages with "
    "complete observations, stand in for K19's data; --data DIR takes the data itself"
)


class Corpus(NamedTuple):
    """(N,) pages whose change rates count as the truth."""

    importance: Floats
    change_rate: Floats
    """Change rate, 1/day."""
    complete: Bools

    @property
    def bandwidth(self) -> float:
        """Return the total crawls a day: 0.2 a page."""
        return BANDWIDTH_PER_PAGE * len(self.importance)

    def pick(self, which: Ints | Bools) -> "Corpus":
        """Return some of the pages."""
        return Corpus(self.importance[which], self.change_rate[which], self.complete[which])


class Cost(NamedTuple):
    """Cost a page, with crawls and pings at random times (K19's propositions 1 and 4)."""

    harmonic: float
    binary: float


def cost(pages: Corpus, allocation: Allocation) -> Cost:
    """Return the cost of an allocation under the true change rates."""
    columns = (*pages[:2], allocation.crawl_rate, allocation.crawl_probability, pages.complete)
    return Cost(float(costs(*columns).harmonic.mean()), float(costs(*columns).binary.mean()))


def made_up(rng: np.random.Generator, n_pages: int) -> Corpus:
    """Return random pages of the published shape."""
    return Corpus(
        rng.lognormal(*LOG_IMPORTANCE, n_pages),
        rng.lognormal(*LOG_CHANGE_RATE, n_pages),
        rng.permutation(n_pages) < max(1, round(COMPLETE_SHARE * n_pages)),
    )


def read_pages(folder: Path, progress: Callable[[float], None]) -> Corpus:
    """Return the pages of the data set and report progress up to one half; skip unusable lines.

    Raises
    ------
    UnreadableFile
        A file is missing, broken, or has two lines for one page; or no page is usable.
    """
    importances, _ = read_numbers(find_table(folder, IMPORTANCES))
    announced, _ = read_numbers(find_table(folder, CHANGE_RATES))
    path = find_table(folder, HISTORIES)
    size = path.stat().st_size
    parts = [(announced.url_id, announced.value)]
    for block in read_histories(path):
        histories = block.columns
        page = np.repeat(np.arange(len(histories.url_id)), histories.n_crawls)
        timed = histories.interval > 0
        history = gather_history(
            page[timed], histories.interval[timed], histories.changed[timed], len(histories.url_id)
        )
        excluded = np.isin(histories.url_id, announced.url_id) | (history.crawls == 0)
        rate = EQUATION_10.change_rate(history)
        parts.append((histories.url_id[~excluded], rate[~excluded]))
        progress(0.5 * block.bytes_read / size)
    url_id, rate = (np.concatenate(column) for column in zip(*parts, strict=True))
    pages = Corpus(
        importances.get(url_id, 0.0), rate, np.arange(len(url_id)) < len(announced.url_id)
    )
    pages = pages.pick((pages.importance > 0) & (pages.change_rate > 0))
    if not len(pages.importance):
        raise UnreadableFile(
            f"{folder}: no page has an importance and a change rate; check the files"
        )
    return pages
