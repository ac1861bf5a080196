"""Columns as SQLite stores them, and what it returned as columns."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.arrays import COLUMN, EPOCH, INSTANT, Bools, Codes, Floats, Instants, Ints
from service.columns import RARE, EpochColumns, PageStates

NAT = np.iinfo(np.int64).min
"""The bits of numpy's NaT."""

TOGETHER = 100
"""Rows that one statement inserts: a thousand variables or so."""

OF_CRAWLS = (
    "last_crawl_at", "last_observed_at", "digest", "gone", "n_observations", "n_changes", "gap",
    "last_interval", "estimate",
)  # fmt: skip
OF_EVENTS = (
    "n_pings", "ping_credit", "recent_pings", "real_pings", "false_pings", "trust",
    "n_failures", "redirects_to", "last_ping_at", "wanted_at",
)  # fmt: skip
"""What only pings, failures and redirects bring; 0 or none of most pages."""


KINDS: dict[str, Any] = {f.name: f.type for f in fields(PageStates)}
EPOCH_KINDS: dict[str, Any] = {f.name: f.type for f in fields(EpochColumns)}
LOCKED: dict[str, Any] = {
    "page_id": Ints, "last_crawl_at": Instants, "last_observed_at": Instants, "digest": Ints,
    "n_observations": Ints, "n_changes": Ints, "pings_since": Instants, "gap": Floats,
    "last_interval": Floats, "estimate": Floats, "flags": Codes,
}  # fmt: skip
"""What is read of every page that is locked. The flags, as a row costs by its columns: `gone`,
whether it has any of `OF_EVENTS`, and `observability`."""

SCHEDULED: dict[str, Any] = {"crawl_rate": Floats, "crawl_probability": Floats}
"""What is read beside where the schedule matters."""


LOADED: dict[str, Any] = {
    "page_id": Ints, "code": Ints, "importance": Floats, "last_observed_at": Instants,
    "last_interval": Floats, "gap": Floats, "estimate": Floats,
}  # fmt: skip
"""What an epoch reads of every page; its observability, section and host are one number."""
LOADED_RARE: dict[str, Any] = {name: EPOCH_KINDS[name] for name in ("page_id", *RARE)}
OBSERVABILITIES = 4
"""More than there are."""


def unpacked(flags: Codes) -> tuple[Bools, Bools, Codes]:
    """Give (N,) gone, eventful and observability."""
    return flags & 1 != 0, flags & 2 != 0, flags >> 2


def values(column: NDArray[Any]) -> list[Any]:
    """Give a column as SQLite stores it: microseconds, numbers, blobs, and None for none."""
    if column.dtype.kind == "M":
        us = column.astype(INSTANT)
        return _with_none(us.view(np.int64), np.isnat(us))
    if column.dtype.kind == "f" and column.ndim == 1:
        return _with_none(column, np.isnan(column))
    if column.ndim > 1:
        rows = np.ascontiguousarray(column, "<f8")
        column = rows.view(f"V{8 * column.shape[1]}")[:, 0]
    listed: list[Any] = column.tolist()
    return listed


def _with_none(column: NDArray[Any], none: Bools) -> list[Any]:
    if none.all():
        return [None] * len(column)
    if none.any():
        column = column.astype(object)
        column[none] = None
    listed: list[Any] = column.tolist()
    return listed


def column(listed: Sequence[Any], kind: Any, width: int) -> NDArray[Any]:
    """Give what SQLite returned as a column of the annotated type."""
    if kind == Instants:
        us = [NAT if value is None else value for value in listed]
        return np.array(us, np.int64).view(INSTANT)
    if listed and isinstance(listed[0], bytes):
        return np.frombuffer(bytearray().join(listed), "<f8").reshape(-1, width)
    return np.array(listed, COLUMN[kind])


def columns(kinds: Mapping[str, Any], rows: list[Any], width: int) -> dict[str, NDArray[Any]]:
    """Give rows, of which there are some, as columns of these types."""
    read = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    return {name: column(cells, kind, width) for (name, kind), cells in read}


def microseconds(moment: datetime) -> int:
    """Give an instant as SQLite stores it."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def listed(page_id: Ints) -> str:
    """Give ids as the JSON array that `json_each` reads."""
    return json.dumps(page_id.tolist())


def add_rows(driver: sqlite3.Connection, statement: str, *columns: Iterable[Any]) -> None:
    """Run `INSERT … VALUES (…)` for every row of the columns, most of them `TOGETHER` at a time.

    The driver lets go of the interpreter while a statement runs. At every row that gains nothing
    and costs a struggle for it with other threads; for many rows they work meanwhile.
    """
    rows = list(zip(*columns, strict=True))
    whole = len(rows) - len(rows) % TOGETHER
    head, _, row = statement.rpartition("VALUES")
    several = f"{head}VALUES {','.join([row] * TOGETHER)}"
    parts = (rows[start : start + TOGETHER] for start in range(0, whole, TOGETHER))
    driver.executemany(several, (tuple(chain.from_iterable(part)) for part in parts))
    driver.executemany(statement, rows[whole:])


def eventful(states: PageStates) -> Bools:
    """(N,) tell which pages have what only pings, failures and redirects bring."""
    has: Bools = ~np.isnat(states.last_ping_at) | ~np.isnat(states.wanted_at)
    for name in OF_EVENTS[:-2]:
        has |= getattr(states, name) != 0
    return has


def written(states: PageStates, *names: str) -> Iterable[list[Any]]:
    """Give columns as they are stored, and which pages they are of."""
    return (values(getattr(states, name)) for name in (*names, "page_id"))
