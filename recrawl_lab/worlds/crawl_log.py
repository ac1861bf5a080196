"""Recordings from the log of a crawler: a CSV file with a line for each crawl.

The header names url, t and changed (1 or 0), or url, t and digest (of the content, any text). If
both columns exist, changed counts. t is in seconds since 1970 or an ISO 8601 instant with its zone.
status is optional, and importance is needed only if requested; other columns are not read. The file
may be gzipped and its lines in any order.

A recording makes these assumptions where a log is incomplete:

- The log does not contain the instant of a change. It is drawn uniformly from the interval between
  two crawls. Several changes between two crawls count as one.
- A page exists from its first crawl to its last one. If the last crawl finds it gone (404 or 410),
  its end is drawn uniformly from the last interval. A page that came back was never gone.
- A failed crawl (any status other than 200 to 299 and 304) is ignored.
"""

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.recording import (
    Recording,
    made_up_host,
)
from recrawl_lab.worlds.table import TextTable, floats, read_csv
from service.model.arrays import Bools, Floats, Ints
from service.model.errors import InvalidUrl
from service.model.urls import normalise
from service.model.words import counted, span

GONE = (404, 410)
OK, REDIRECT, UNCHANGED = 200, 300, 304
MOST_STATUS = 999
CHANGED = {"1": 1, "true": 1, "0": 0, "false": 0}
UNSEEN = (
    "a crawl log has only the two crawls between which a page changed: each change is at a "
    "random instant between them, and several count as one. Pages that changed faster than they "
    "were crawled seem slower than they are"
)


class Logged(NamedTuple):
    """(K,) crawls that were not ignored, by page and time."""

    row: Ints
    """Row in the table."""
    page: Ints
    at: Floats
    """Instant, seconds since 1970."""
    gone: Bools
    reported: Ints
    """1 or 0 for changed or not, or a number for each digest; 0 without a report."""

    def where(self, chosen: Bools | Ints) -> "Logged":
        """Return some of the crawls."""
        row, page, at, gone, reported = self
        return Logged(row[chosen], page[chosen], at[chosen], gone[chosen], reported[chosen])


def read_crawl_log(
    log: str | Path, *, rng: np.random.Generator, weighted: bool = False
) -> Recording:
    """Read and check the file, and draw the instants that it does not contain.

    Parameters
    ----------
    weighted
        Read the column importance; a page's newest value counts.

    Raises
    ------
    InvalidTrace
        The file is missing, unreadable or malformed; the message has the place and the remedy.
    """
    path = Path(log)
    wanted = ("url", "t", "importance") if weighted else ("url", "t")
    table = read_csv(path, wanted, ("changed", "digest", "status"))
    importance = table.importance() if weighted else None
    site = path.name.removesuffix(".gz").removesuffix(".csv")
    page, urls = _pages(table, made_up_host(site))
    crawls = _crawls(table, page)
    existing = crawls.where(~crawls.gone)
    first = np.flatnonzero(np.diff(existing.page, prepend=-1))
    last = np.append(first[1:], len(existing.page)) - 1
    ended = _ends(crawls, existing.where(last), rng)
    _refuse_single(path, ended > existing.at[first])
    changed = _changed(existing, first, by_digest="changed" not in table.column)
    return Recording(
        site=site,
        url=tuple(urls[i] for i in existing.page[first].tolist()),
        started=existing.at[first],
        ended=ended,
        changed_page=np.searchsorted(existing.page[first], existing.page[changed]),
        changed_at=between(existing.at[changed - 1], existing.at[changed], rng),
        bulk=np.zeros(len(changed), np.bool_),
        importance=None if importance is None else importance[existing.row[last]],
        notes=_notes(existing, first, len(table) - len(crawls.row)),
    )


def _refuse_single(path: Path, lasting: Bools) -> None:
    """Raise `InvalidTrace` if no page exists from one crawl to another."""
    if not lasting.any():
        raise InvalidTrace(
            f"{path}: no page has two successful crawls, which are needed to observe a change"
        )


# -- events between crawls


def _changed(existing: Logged, first: Ints, *, by_digest: bool) -> Ints:
    """Return the crawls that saw a change; `first` are first crawls of pages, which see none."""
    crawl = np.arange(len(existing.page))
    start = np.repeat(first, np.diff(first, append=len(crawl)))
    if not by_digest:
        return np.flatnonzero((existing.reported == 1) & (crawl > start))
    page_of_url = np.maximum.accumulate(np.where(existing.reported > 0, crawl, -1))
    before = np.append(-1, page_of_url[:-1])
    return np.flatnonzero(
        (existing.reported > 0)
        & (before >= start)
        & (existing.reported != existing.reported[before])
    )


def _ends(crawls: Logged, last: Logged, rng: np.random.Generator) -> Floats:
    """Return (N,) ends of pages: the `last` success, or a draw between it and the failed crawl."""
    gone = crawls.where(crawls.gone)
    page = np.minimum(np.searchsorted(last.page, gone.page), len(last.page) - 1)
    late = (last.page[page] == gone.page) & (gone.at > last.at[page])
    missed = np.full(len(last.page), np.inf)
    np.minimum.at(missed, page[late], gone.at[late])
    lost = missed < np.inf
    ended = last.at.copy()
    ended[lost] = between(last.at[lost], missed[lost], rng)
    return ended


def between(low: Floats, high: Floats, rng: np.random.Generator) -> Floats:
    """Return instants drawn uniformly from intervals open below and closed above."""
    at = high - rng.random(len(low)) * (high - low)
    return np.maximum(at, np.nextafter(low, np.inf))


def _notes(existing: Logged, first: Ints, n_failed: int) -> tuple[str, ...]:
    gap_s = np.delete(np.diff(existing.at, prepend=0.0), first)
    apart = f", {span(np.median(gap_s))} apart in the median" if len(gap_s) else ""
    once = int((np.diff(first, append=len(existing.page)) == 1).sum())
    notes = (
        (1, f"{counted(len(existing.page), 'crawl')} of {counted(len(first), 'page')}{apart}"),
        (1, UNSEEN),
        (once, f"{counted(once, 'page has', 'pages have')} only one crawl, which shows no change"),
        (n_failed, f"{counted(n_failed, 'crawl')} failed or listed twice: ignored"),
    )
    return tuple(note for reported, note in notes if reported)


# -- reading


def _crawls(table: TextTable, page: Ints) -> Logged:
    """Return the crawls that are not ignored, sorted; duplicates count once."""
    status = _status(table)
    there = ((status >= OK) & (status < REDIRECT)) | (status == UNCHANGED)
    gone = np.isin(status, GONE)
    if not there.any():
        raise InvalidTrace(
            f"{table.path}: no crawl found its page; some status must be 200 to 299, or 304"
        )
    at = _instants(table)
    reported = np.where(
        there & (status != UNCHANGED), _reported(table, there & (status != UNCHANGED)), 0
    )
    row = np.flatnonzero(there | gone)
    row = row[np.lexsort((at[row], page[row]))]
    same = (np.diff(page[row]) == 0) & (np.diff(at[row]) == 0)
    _refuse_contradictions(table, row[:-1][same], row[1:][same], 2 * reported + gone)
    row = row[np.append(True, ~same)]
    return Logged(row, page[row], at[row], gone[row], reported[row])


def _refuse_contradictions(table: TextTable, row: Ints, twin: Ints, answer: Ints) -> None:
    """Raise `InvalidTrace` for two crawls of a page at one instant with different results."""
    other = np.full(len(table), -1)
    other[twin] = np.where(answer[twin] != answer[row], row, -1)
    table.refuse(
        other >= 0,
        lambda row: (
            f"{table.column['url'][row]} was crawled at {table.column['t'][row]} in line "
            f"{table.line[other[row]]} too, with a different result; keep one of the two lines"
        ),
    )


def _pages(table: TextTable, host: str) -> tuple[Ints, list[str]]:
    """Return (N,) page numbers and their normal URLs; a path alone belongs to `host`."""
    number: dict[str, int] = {}
    page_of_url: dict[str, int] = {}
    for row, url in enumerate(table.column["url"]):
        if url not in page_of_url:
            try:
                normal = normalise(f"{host}{url}" if url.startswith("/") else url).url
            except InvalidUrl as error:
                raise InvalidTrace(
                    f"{table.path}, line {table.line[row]}: url {url[:200]!r}: {error.detail}, "
                    "or write a path with a leading /"
                ) from error
            page_of_url[url] = number.setdefault(normal, len(number))
    page = np.fromiter(map(page_of_url.__getitem__, table.column["url"]), np.int64, len(table))
    return page, list(number)


def _instants(table: TextTable) -> Floats:
    """Return (N,) instants as seconds since 1970."""
    cells = table.column["t"]
    at = floats(cells)
    for row in np.flatnonzero(np.isnan(at)).tolist():
        at[row] = _iso(cells[row])
    table.refuse(
        ~((at >= 0) & (at < np.inf)),
        lambda row: (
            f"t is {cells[row]!r}; write seconds since 1970, or an ISO 8601 instant with its zone "
            "such as 2026-01-31T12:00:00Z"
        ),
    )
    table.refuse_late("t", at)
    return at


def _iso(cell: str) -> float:
    try:
        at = datetime.fromisoformat(cell)
    except ValueError:
        return np.nan
    return at.timestamp() if at.tzinfo else np.nan


def _status(table: TextTable) -> Floats:
    """Return (N,) status codes; without a status the crawl succeeded."""
    cells = table.column.get("status")
    if cells is None:
        return np.full(len(table), float(OK))
    status = floats([cell.strip() or str(OK) for cell in cells])
    table.refuse(
        ~((status >= 0) & (status <= MOST_STATUS) & (status == np.floor(status))),
        lambda row: f"status is {cells[row]!r}; write the HTTP status, or 0 without an answer",
    )
    return status


def _reported(table: TextTable, where: Bools) -> Ints:
    """Return (N,) reports about the content; crawls in `where` must have a report."""
    if (cells := table.column.get("changed")) is not None:
        reported = np.fromiter((CHANGED.get(cell.strip().lower(), -1) for cell in cells), np.int64)
        table.refuse(where & (reported < 0), lambda row: f"changed is {cells[row]!r}; write 1 or 0")
        return reported
    if (digests := table.column.get("digest")) is None:
        raise InvalidTrace(
            f"{table.path}, line 1: no column changed or digest; add one to show whether a "
            "crawl found new content"
        )
    number: dict[str, int] = {"": 0}
    reported = np.fromiter((number.setdefault(cell, len(number)) for cell in digests), np.int64)
    table.refuse(
        where & (reported == 0),
        lambda row: (
            f"digest is {digests[row]!r}; write the content's digest, or status 304 if unchanged"
        ),
    )
    return reported
