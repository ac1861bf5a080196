"""Recordings of real pages, as files of their changes.

A trace DIR/SITE is two CSV files. DIR/SITE.csv.gz has a line for each change (page, t in seconds
since 1970, bulk). DIR/pages/SITE.pages.csv.gz has a line for each page (page, obs_start, obs_end,
n_changes, and importance if requested). Lines may come in any order, other columns are not read,
and either file may be plain .csv.
"""

import re
from itertools import repeat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.recording import Recording, made_up_host
from recrawl_lab.worlds.table import TextTable, read_csv
from service.model.arrays import Bools, Floats, Ints

ENDINGS = (".csv.gz", ".csv")
DOTS = re.compile(r"/\.{1,2}(/|$)")
"""Dot segments in a path; two such paths may name one page."""


def read_trace(trace: str | Path, *, weighted: bool = False) -> Recording:
    """Read and check both files.

    Parameters
    ----------
    trace
        DIR/SITE, for DIR/SITE.csv.gz (the changes) and DIR/pages/SITE.pages.csv.gz (the pages).
    weighted
        Read the pages' column importance.

    Raises
    ------
    InvalidTrace
        A file is missing, unreadable or malformed; the message has the place and the remedy.
    """
    folder, site = Path(trace).parent, Path(trace).name
    pages_file = _file(folder / "pages", f"{site}.pages", folder)
    changes_file = _file(folder, site, folder)
    pages = _read_pages(pages_file, weighted=weighted)
    page, at, bulk = _read_changes(changes_file, pages)
    return Recording(
        site=site,
        url=tuple(f"{made_up_host(site)}{quote(name)}" for name in pages.row),
        started=pages.started,
        ended=pages.ended,
        changed_page=page,
        changed_at=at,
        bulk=bulk,
        importance=pages.table.importance() if weighted else None,
        notes=_undated(int(pages.n_changes.sum()) - len(at)),
    )


def _undated(n_changes: int) -> tuple[str, ...]:
    note = (
        f"{n_changes:,} pages changed once in the whole recording, at an unrecorded "
        "instant; they count as unchanged"
    )
    return (note,) if n_changes > 0 else ()


# -- reading


class TracePages(NamedTuple):
    """The content of the pages file."""

    table: TextTable
    row: dict[str, int]
    """Row by the page's path."""
    started: Floats
    ended: Floats
    n_changes: Floats


def _file(folder: Path, name: str, trace_folder: Path) -> Path:
    for ending in ENDINGS:
        if (path := folder / f"{name}{ending}").is_file():
            return path
    files = (p.name for ending in ENDINGS for p in trace_folder.glob(f"*{ending}"))
    sites = sorted({file.removesuffix(".gz").removesuffix(".csv") for file in files})
    there = f"; {trace_folder} has {', '.join(sites)}" if sites else ""
    raise InvalidTrace(
        f"no file {folder / name}{ENDINGS[0]}: a trace DIR/SITE is the files DIR/SITE.csv.gz and "
        f"DIR/pages/SITE.pages.csv.gz (or .csv){there}"
    )


def _read_pages(path: Path, *, weighted: bool) -> TracePages:
    wanted = ("page", "obs_start", "obs_end", "n_changes")
    table = read_csv(path, (*wanted, "importance") if weighted else wanted)
    started, ended = table.seconds("obs_start"), table.seconds("obs_end")
    table.refuse(
        started > ended,
        lambda row: (
            f"obs_start {started[row]:.0f} is later than obs_end {ended[row]:.0f}; a page is "
            "observed from obs_start to obs_end"
        ),
    )
    if not (ended > started).any():
        raise InvalidTrace(f"{path}: no page is observed for any time; check obs_start and obs_end")
    return TracePages(table, _rows(table), started, ended, table.counts("n_changes"))


def _rows(table: TextTable) -> dict[str, int]:
    """Return each page's row by its path."""
    names = table.column["page"]
    table.refuse(
        np.array([not name.startswith("/") for name in names]),
        lambda row: f"page {names[row]!r} is not a path; write it with a leading /",
    )
    table.refuse(
        np.array([DOTS.search(name) is not None for name in names]),
        lambda row: f"page {names[row]!r} has dot segments; write the path that they lead to",
    )
    first: dict[str, int] = {}
    rows = [first.setdefault(name, row) for row, name in enumerate(names)]
    table.refuse(
        np.array(rows) != np.arange(len(rows)),
        lambda row: (
            f"page {names[row]!r} is listed twice, first in line {table.line[rows[row]]}; keep "
            "one of its lines"
        ),
    )
    return first


def _read_changes(path: Path, pages: TracePages) -> tuple[Ints, Floats, Bools]:
    """Return page, instant and bulk mark of (M,) changes, in the order of the file."""
    table = read_csv(path, ("page", "t", "bulk"))
    names, bulk = table.column["page"], table.column["bulk"]
    page = np.fromiter(map(pages.row.get, names, repeat(-1)), np.int64, len(table))
    table.refuse(
        page < 0,
        lambda row: (
            f"page {names[row]!r} is not in the pages file; list it there with its obs_start and "
            "obs_end"
        ),
    )
    at, started, ended = table.seconds("t"), pages.started[page], pages.ended[page]
    table.refuse(
        ~((started < at) & (at <= ended)),
        lambda row: (
            f"t {at[row]:.0f} lies outside of the page's life, obs_start {started[row]:.0f} to "
            f"obs_end {ended[row]:.0f}; creation is no change"
        ),
    )
    table.refuse(
        np.array([cell not in {"0", "1"} for cell in bulk]),
        lambda row: f"bulk is {bulk[row]!r}; write 0 or 1",
    )
    first = _first(page, at)
    table.refuse(
        first != np.arange(len(table)),
        lambda row: (
            f"the change of {names[row]} at {at[row]:.0f} is already in line "
            f"{table.line[first[row]]}; keep one of the two lines"
        ),
    )
    return page, at, np.array([cell == "1" for cell in bulk])


def _first(page: Ints, at: Floats) -> Ints:
    """Return (M,) the first row with the page and instant of each row."""
    order = np.lexsort((at, page))
    new = np.append(True, (np.diff(page[order]) != 0) | (np.diff(at[order]) != 0))
    first = np.empty_like(order)
    first[order] = order[new][np.cumsum(new) - 1]
    return first
