"""Import the PoliteCrawling data set: learn from the histories, then insert the pages.

Memory holds at most 150 bytes a page: its importance and the estimate from its history. Each page
is written once, with its state; the log stays empty. Pages are inserted in the order of their
keys, many at a time. Because the index of the keys may exceed its cache, the order avoids most
reads and writes of index pages. A resumed import reads all histories again, and continues to write
at the page where the interrupted import stopped.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recrawl_lab.datasets.polite import (
    CHANGE_RATES,
    HISTORIES,
    IMPORTANCES,
    TABLES,
    URLS,
    ById,
    RowBlock,
    by_id,
    find_table,
    read_histories,
    read_numbers,
    read_urls,
)
from recrawl_lab.datasets.polite_learning import Learning, Taught, learn_histories, states_after
from service.model.arrays import INSTANT, KEY, NO_TIME, Bools, Ints, instant
from service.model.columns import PageColumns
from service.model.domain import Observability
from service.model.errors import InvalidUrl, NotExportable, UnreadableFile
from service.model.urls import NormalUrl, normalise
from service.storage import Brought, Store
from service.storage.column_builder import Gathered
from service.transfer.importing import FUTURE_ALLOWED, ImportStep, Skipped, take_over

LEAST_IMPORTANCE = 1e-9
MOST_IMPORTANCE = 1e9
TOGETHER = 10_000
"""Pages in one transaction."""


class PageIndex(NamedTuple):
    """Contents of the other files, by URL_ID."""

    importance: ById
    rate: ById
    """Change rate of pages with complete observations, 1/day."""
    history: ById
    """Row of each page in `taught`."""
    taught: Taught


class PageBatch(NamedTuple):
    """(N,) distinct pages of some rows, by key."""

    pages: PageColumns
    url_id: Ints
    refused: list[tuple[int, str]]
    """Line number and reason of each refused line."""


def import_polite(
    folder: Path, store: Store, learning: Learning, standing: dict[str, Any]
) -> Iterator[ImportStep]:
    """Yield the steps of an import of the folder; `standing` is that of an interrupted import.

    Raises
    ------
    UnreadableFile
        A file is missing, or has two different lines for one URL_ID.
    NotExportable
        The estimator needs the log of all crawls, which the import does not write.
    """
    if learning.estimator.needs_history:
        raise NotExportable(
            f"estimator {learning.estimator.name} needs the observation log, which this "
            "import leaves empty; choose another RECRAWL_ESTIMATOR"
        )
    paths = {name: find_table(folder, name) for name in TABLES}
    rate, bad = read_numbers(paths[CHANGE_RATES])
    importance, more = read_numbers(paths[IMPORTANCES])
    skipped = [Skipped(paths[CHANGE_RATES], *line) for line in bad]
    skipped += [Skipped(paths[IMPORTANCES], *line) for line in more]
    done = sum(paths[name].stat().st_size for name in (CHANGE_RATES, IMPORTANCES))
    report: dict[str, Any] = {"began": str(learning.began), "urls": 0} | standing
    yield ImportStep(0, 0, 0, skipped, done, report.copy())

    path = paths[HISTORIES]
    line, url_id, taught = yield from _learn(path, rate, learning, done, report)
    done += path.stat().st_size
    index = PageIndex(importance, rate, by_id(path, url_id, np.arange(len(url_id))), taught)
    named = yield from _import_pages(paths[URLS], store, learning, index, done, report)
    lost = [
        Skipped(path, number, f"URL_ID {missing} has no page")
        for number, missing in zip(line[~named].tolist(), url_id[~named].tolist(), strict=True)
    ]
    done += paths[URLS].stat().st_size
    yield ImportStep(0, 0, 0, lost, done, report.copy())


def _learn(
    path: Path, rate: ById, learning: Learning, done: int, report: dict[str, Any]
) -> Generator[ImportStep, None, tuple[Ints, Ints, Taught]]:
    """Learn from all histories; return their lines, their URL_IDs and the results."""
    lines, ids = np.zeros(0, np.int64), np.zeros(0, np.int64)
    gathered = Gathered({"line": lines, "url_id": ids, **Taught.nothing(learning)._asdict()})
    for rows in read_histories(path):
        complete = rate.get(rows.columns.url_id, -1.0) >= 0
        taught = learn_histories(rows.columns, complete, learning)
        past = taught.last_crawl_at <= instant(learning.now + FUTURE_ALLOWED)
        gathered.append(c[past] for c in (rows.lines, rows.columns.url_id, *taught))
        beyond = "the history runs beyond now; import with an earlier --began"
        refused = [(number, beyond) for number in rows.lines[~past].tolist()]
        yield _step(path, rows, done, report, refused)
    line, url_id, *columns = gathered.columns().values()
    return line, url_id, Taught(*columns)


def _import_pages(
    path: Path,
    store: Store,
    learning: Learning,
    index: PageIndex,
    done: int,
    report: dict[str, Any],
) -> Generator[ImportStep, None, Bools]:
    """Import all pages; return a mask of the histories that have a page.

    Pages before the position of an interrupted import are only read.
    """
    named = np.zeros(len(index.taught.estimate), np.bool_)
    for rows in read_urls(path):
        batch = find_pages(rows, index)
        at = index.history.get(batch.url_id, -1)
        _name(named, at, path, batch.url_id)
        created = restored = 0
        if rows.last_line > report["urls"]:
            created, restored = _add(batch, at, store, learning, index)
            report["urls"] = rows.last_line
        yield _step(path, rows, done, report, batch.refused, created=created, restored=restored)
    return named


def _step(
    path: Path,
    rows: RowBlock,
    done: int,
    report: dict[str, Any],
    refused: list[tuple[int, str]],
    *,
    created: int = 0,
    restored: int = 0,
) -> ImportStep:
    skipped = [Skipped(path, *line) for line in sorted([*rows.skipped, *refused])]
    n_rows = len(rows.lines) + len(rows.skipped)
    return ImportStep(n_rows, created, restored, skipped, done + rows.bytes_read, report.copy())


def _name(named: Bools, at: Ints, path: Path, url_id: Ints) -> None:
    """Mark histories that have a page; raise `UnreadableFile` if one has two pages."""
    order = np.argsort(at, kind="stable")
    order = order[at[order] >= 0]
    twice = named[at[order]]
    twice[1:] |= np.diff(at[order]) == 0
    if twice.any():
        raise UnreadableFile(
            f"{path}: URL_ID {url_id[order][twice][0]} appears more than once; keep one line"
        )
    named[at[order]] = True


def find_pages(rows: RowBlock, index: PageIndex) -> PageBatch:
    """Return the pages of some rows; of several rows with one URL the last counts."""
    importance = index.importance.get(rows.columns.url_id, np.nan)
    refused: list[tuple[int, str]] = []
    pages: dict[bytes, tuple[int, NormalUrl]] = {}
    for i, url in enumerate(rows.columns.url):
        try:
            page = normalise(url)
        except InvalidUrl as error:
            refused.append((int(rows.lines[i]), error.detail))
        else:
            pages[page.key] = i, page
    order = sorted(pages)
    row = np.array([pages[key][0] for key in order], np.int64)
    for i in row[~(importance[row] <= MOST_IMPORTANCE)].tolist():
        what = f"the importance {importance[i]}, over {MOST_IMPORTANCE:g}"
        what = "no importance" if np.isnan(importance[i]) else what
        refused.append((int(rows.lines[i]), f"URL_ID {rows.columns.url_id[i]} has {what}"))
    usable = importance[row] <= MOST_IMPORTANCE
    row = row[usable]
    complete = index.rate.get(rows.columns.url_id[row], -1.0) >= 0
    unsaid = np.full(len(row), np.nan)
    described = PageColumns(
        key=np.frombuffer(b"".join(order), KEY)[usable],
        url=np.array([pages[key][1].url for key in order], object)[usable],
        host=np.array([pages[key][1].host for key in order], object)[usable],
        importance=np.maximum(importance[row], LEAST_IMPORTANCE),
        observability=np.where(complete, Observability.complete, Observability.incomplete).astype(
            np.int16
        ),
        min_crawl_rate=unsaid,
        max_crawl_rate=unsaid,
    )
    return PageBatch(described, rows.columns.url_id[row], refused)


def _add(
    batch: PageBatch, at: Ints, store: Store, learning: Learning, index: PageIndex
) -> tuple[int, int]:
    """Insert pages with states from their histories; return the numbers of pages and states."""
    rate = index.rate.get(batch.url_id, np.nan)
    created = restored = 0
    for start in range(0, len(at), TOGETHER):
        part = slice(start, start + TOGETHER)
        taught = at[part] >= 0
        with store.begin() as tx:
            pages = batch.pages.take(part)
            states = states_after(index.taught.take(at[part][taught]), rate[part][taught], learning)
            never = np.full(len(states), NO_TIME, INSTANT)
            new, over = take_over(
                tx, pages.take(taught), Brought(states, never, never), learning.now
            )
            rest = tx.register(pages.take(~taught), learning.now).created
        created += new + int(rest.sum())
        restored += over
    return created, restored
