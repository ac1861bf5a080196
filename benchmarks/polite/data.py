"""A synthetic data set in the layout of PoliteCrawling, of any size, in bounded memory.

Ids are neither dense nor sorted, and each file has an order of its own. A page is crawled about
once a day, with some days left out; intervals have the 14 decimals of the real data. Histories
are slices of a few long ones, one for each of `N_RATES` change rates.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recrawl_lab.datasets.polite import CHANGE_RATES, HISTORIES, IMPORTANCES, URLS

MOST_CRAWLS = 98
"""Maximum number of crawls of a page, one a day for 14 weeks."""
RECORDED = 0.75
"""Share of these crawls that the data set contains."""
COMPLETE = 0.04
PAGES_PER_HOST = 400
N_RATES = 64
LONG = 20_000
"""Length of a long history, crawls."""
BLOCK = 100_000


def write_tables(folder: Path, n_pages: int, seed: int = 1) -> int:
    """Write the four files of an import; return the number of crawls in the histories."""
    rng = np.random.default_rng(seed)
    url_id = rng.permutation(3 * n_pages)[:n_pages]
    with (folder / f"{URLS}.txt").open("wb") as file:
        for i, page in enumerate(url_id.tolist()):
            host = i % max(1, n_pages // PAGES_PER_HOST)
            url = b"https://host%06d.example/articles/in/the/archive/%09d" % (host, i)
            file.write(b"%s\t%d\t%d\n" % (url, page, host))
    for name, share in ((IMPORTANCES, 1.0), (CHANGE_RATES, COMPLETE)):
        some = rng.permutation(url_id)[: int(share * n_pages)]
        if name == IMPORTANCES:
            number = np.exp(rng.normal(5.0, 1.5, len(some))).astype(np.int64)
        else:
            number = rng.gamma(0.5, 0.5, len(some))
        with (folder / f"{name}.txt").open("wb") as file:
            rows = zip(some.tolist(), number.tolist(), strict=True)
            file.writelines(b"%d\t%a\n" % row for row in rows)
    n_crawls = rng.binomial(MOST_CRAWLS, RECORDED, n_pages)
    with (folder / f"{HISTORIES}.txt").open("wb") as file:
        file.writelines(histories(rng.permutation(url_id), n_crawls, rng))
    return int(n_crawls.sum())


def histories(
    url_id: NDArray[np.int64], n_crawls: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[bytes]:
    """Yield the line of each page."""
    change_rate = rng.gamma(0.5, 0.5, N_RATES)
    interval = rng.gamma(4.0, 0.25, (N_RATES, LONG)).clip(0.01, 9.9)
    changed = rng.random(interval.shape) < -np.expm1(-change_rate[:, None] * interval)
    long = [
        b"".join(b"[%.14f, %d], " % crawl for crawl in zip(*of_rate, strict=True))
        for of_rate in zip(interval, changed, strict=True)
    ]
    each = len(long[0]) // LONG
    for start in range(0, len(url_id), BLOCK):
        n = n_crawls[start : start + BLOCK]
        rate = rng.integers(0, N_RATES, len(n)).tolist()
        begin = rng.integers(0, LONG - MOST_CRAWLS, len(n)) * each
        end = begin + n * each - 2
        first = (7 * rng.random(len(n))).tolist()
        some = url_id[start : start + BLOCK].tolist()
        for line in zip(some, first, rate, begin.tolist(), end.tolist(), strict=True):
            yield b"%d\t%.14f\t[%s]\n" % (*line[:2], long[line[2]][line[3] : line[4]])
