"""Worlds read from recordings of real pages.

A trace DIR/SITE is two gzipped CSV files: DIR/SITE.csv.gz, a line for each change (page, t in
seconds since 1970, bulk), and DIR/pages/SITE.pages.csv.gz, a line for each page (page, obs_start,
obs_end, n_changes); further columns are not read.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from service.domain import Bools, Floats, Ints
from service.errors import InvalidTrace
from service.sim.world import Importance, World, draw_importance, offsets

SECONDS_PER_DAY = 86_400.0
TRACE_DAYS = 1096.0
"""The last three years are played unless told otherwise."""


class PageRows(NamedTuple):
    """Every page of a recording; instants are seconds since 1970."""

    name: list[str]
    started: Floats
    ended: Floats
    n_changes: Ints


class ChangeRows(NamedTuple):
    """Every recorded change."""

    page: Ints
    at: Floats
    bulk: Bools


def trace_world(
    trace: str | Path,
    *,
    rng: np.random.Generator,
    days: float = TRACE_DAYS,
    importance: Importance = "equal",
    bulk: bool = False,
    complete_share: float = 0.0,
) -> World:
    """Read the recorded history of a site.

    Parameters
    ----------
    trace
        DIR/SITE, for DIR/SITE.csv.gz (the changes) and DIR/pages/SITE.pages.csv.gz (the pages).
    days
        The window: the last `days` days of the recording, or all of it if that is shorter.
    importance
        The same for every page, or drawn as in the synthetic world.
    bulk
        Count revisions that touched more than 200 pages at once.
    complete_share
        Share of the pages, drawn at random, whose changes are announced.

    Raises
    ------
    InvalidTrace
        A file is missing, unreadable or malformed; says where and what to do.
    """
    pages_file, changes_file = _files(Path(trace))
    page = _read_pages(pages_file)
    change = _read_changes(changes_file, page)
    end = float(page.ended.max())
    start = max(float(page.started.min()), end - days * SECONDS_PER_DAY)
    alive = (page.ended > start) & (page.ended > page.started)
    counted = (change.at > start) & alive[change.page] & (bulk | ~change.bulk)
    row = np.cumsum(alive) - 1
    changed_at = (change.at[counted] - start) / SECONDS_PER_DAY
    changed_page = row[change.page[counted]]
    n_pages = int(alive.sum())
    counts = np.bincount(changed_page, minlength=n_pages)
    created = np.maximum(page.started[alive] - start, 0.0) / SECONDS_PER_DAY
    ended = (page.ended[alive] - start) / SECONDS_PER_DAY
    site = Path(trace).name
    return World(
        name=site,
        days=(end - start) / SECONDS_PER_DAY,
        url=tuple(f"https://{site}.example{quote(page.name[i])}" for i in np.flatnonzero(alive)),
        importance=draw_importance(importance, n_pages, rng),
        announced=rng.permutation(n_pages) < round(complete_share * n_pages),
        created=created,
        ended=ended,
        changed_at=changed_at[np.lexsort((changed_at, changed_page))],
        first=offsets(counts),
        change_rate=counts / (ended - created),
        notes=_notes(page, change, (start, end), len(changed_at) / n_pages, bulk=bulk),
    )


def _notes(
    page: PageRows,
    change: ChangeRows,
    window: tuple[float, float],
    per_page: float,
    *,
    bulk: bool,
) -> tuple[str, ...]:
    start, end = window
    first, last = (np.datetime64(int(t), "s").astype("M8[D]") for t in (start, end))
    notes = [f"window {first} to {last} ({(end - start) / SECONDS_PER_DAY:.0f} days)"]
    left_out = int((change.bulk & (change.at > start)).sum())
    if left_out:
        verb = "counted" if bulk else "left out"
        notes.append(f"{left_out:,} changes by bulk revisions (> 200 pages at once) {verb}")
    notes.append(
        f"{per_page:.2g} changes per page: hindsight rates count changes still to come, so the "
        "fewer there are the more of hindsight's lead is foresight that nobody can have"
    )
    untimed = page.n_changes.sum() - len(change.at)
    if untimed > 0:
        notes.append(
            f"{untimed:,} pages changed once in the whole recording, at an instant it does not "
            "keep; they count as unchanged"
        )
    return tuple(notes)


# -- reading


def _files(trace: Path) -> tuple[Path, Path]:
    pages = trace.parent / "pages" / f"{trace.name}.pages.csv.gz"
    changes = trace.parent / f"{trace.name}.csv.gz"
    for path in (pages, changes):
        if not path.is_file():
            sites = sorted(p.name.removesuffix(".csv.gz") for p in trace.parent.glob("*.csv.gz"))
            there = f"; {trace.parent} has {', '.join(sites)}" if sites else ""
            raise InvalidTrace(
                f"no file {path}: a trace DIR/SITE is the files DIR/SITE.csv.gz and "
                f"DIR/pages/SITE.pages.csv.gz{there}"
            )
    return pages, changes


def _read_pages(path: Path) -> PageRows:
    rows: dict[str, tuple[float, float, int]] = {}
    for where, row in _rows(path, ("page", "obs_start", "obs_end", "n_changes")):
        name = row["page"]
        started, ended = (_number(where, row, column) for column in ("obs_start", "obs_end"))
        n_changes = _number(where, row, "n_changes")
        if not name.startswith("/"):
            raise InvalidTrace(f"{where}: page {name!r} is not a path; write it with a leading /")
        if name in rows:
            raise InvalidTrace(f"{where}: page {name!r} is listed twice; keep one of its lines")
        if started > ended:
            raise InvalidTrace(
                f"{where}: obs_start {row['obs_start']} is later than obs_end {row['obs_end']}; "
                "a page is observed from obs_start to obs_end"
            )
        rows[name] = started, ended, int(n_changes)
    columns = zip(*rows.values(), strict=True)
    pages = PageRows(list(rows), *(np.array(column) for column in columns))
    if not (pages.ended > pages.started).any():
        raise InvalidTrace(f"{path}: no page is observed for any time; check obs_start and obs_end")
    return pages


def _read_changes(path: Path, pages: PageRows) -> ChangeRows:
    index = {name: i for i, name in enumerate(pages.name)}
    rows = []
    for where, row in _rows(path, ("page", "t", "bulk")):
        at = _number(where, row, "t")
        i = index.get(row["page"])
        if i is None:
            raise InvalidTrace(
                f"{where}: page {row['page']!r} is not in the pages file; list it there with its "
                "obs_start and obs_end"
            )
        if not pages.started[i] < at <= pages.ended[i]:
            raise InvalidTrace(
                f"{where}: t {row['t']} lies outside of the page's life, obs_start "
                f"{pages.started[i]:.0f} to obs_end {pages.ended[i]:.0f}; creation is no change"
            )
        if row["bulk"] not in {"0", "1"}:
            raise InvalidTrace(f"{where}: bulk is {row['bulk']!r}; write 0 or 1")
        rows.append((i, at, row["bulk"] == "1"))
    return ChangeRows(*(np.array(column) for column in zip(*rows, strict=True)))


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Read a gzipped CSV file with these columns among others; yields where each row stands."""
    line = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            missing = [name for name in columns if name not in header]
            if missing:
                raise InvalidTrace(
                    f"{path}, line 1: no column {', '.join(missing)}; the first line must name "
                    f"the columns, among them {', '.join(columns)}"
                )
            for cells in reader:
                line = reader.line_num
                if len(cells) != len(header):
                    raise InvalidTrace(
                        f"{path}, line {line}: {len(cells)} fields, expected {len(header)}: "
                        f"{', '.join(header)}"
                    )
                yield f"{path}, line {line}", dict(zip(header, cells, strict=True))
    except (EOFError, OSError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InvalidTrace(
            f"{path}, after line {line}: {error}; the file must be gzipped CSV in UTF-8"
        ) from error
    if line == 1:
        raise InvalidTrace(f"{path}: no line after the header; a recording has at least one")


def _number(where: str, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise InvalidTrace(
            f"{where}: {column} is {row[column]!r}; write a finite number that is not negative"
            + (" (seconds since 1970)" if column != "n_changes" else "")
        )
    return value
