"""Columns as SQLite stores them, and what it returned as columns."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from service.model.arrays import COLUMN, EPOCH, INSTANT, Bools, Floats, Instants, Ints
from service.model.columns import RARE, EpochColumns, PageStates
from service.storage.tables import Instant, metadata

NAT = np.iinfo(np.int64).min
"""The bits of numpy's NaT."""

TOGETHER = 100
"""Rows that one statement inserts: a thousand variables or so."""

NOT_WRITTEN = ("page_id", "pings_since", "observability", "crawl_rate", "crawl_probability")
WRITTEN = (
    *(name for name in PageStates.__dataclass_fields__ if name not in NOT_WRITTEN),
    "page_id",
)
"""Columns of a state in the order of `SAVE_STATES`."""

EPOCH_KINDS: dict[str, Any] = {f.name: f.type for f in fields(EpochColumns)}
COLUMNS = [column for table in metadata.tables.values() for column in table.c]
INSTANTS = {c.name for c in COLUMNS if isinstance(c.type, Instant)}
JSONS = {c.name for c in COLUMNS if isinstance(c.type, sa.JSON)}
"""Names of the columns that `decoded` reads as instants and as JSON."""

LOADED: dict[str, Any] = {
    "page_id": Ints,
    "code": Ints,
    "importance": Floats,
    "last_observed_at": Instants,
    "last_interval": Floats,
    "interval_factor": Floats,
    "estimate": Floats,
}
"""What an epoch reads of every page; its observability, URL group and host are one number."""
LOADED_RARE: dict[str, Any] = {name: EPOCH_KINDS[name] for name in ("page_id", *RARE)}
OBSERVABILITIES = 4
"""More than there are."""


def values(column: NDArray[Any]) -> list[Any]:
    """Return a column as SQLite stores it: microseconds, numbers, blobs, and None for none."""
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
    """Return what SQLite returned as a column of the annotated type."""
    if kind == Instants:
        us = [NAT if value is None else value for value in listed]
        return np.array(us, np.int64).view(INSTANT)
    if listed and isinstance(listed[0], bytes):
        return np.frombuffer(bytearray().join(listed), "<f8").reshape(-1, width)
    return np.array(listed, COLUMN[kind])


def columns(kinds: Mapping[str, Any], rows: list[Any], width: int) -> dict[str, NDArray[Any]]:
    """Return rows, of which there are some, as columns of these types."""
    read = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    return {name: column(cells, kind, width) for (name, kind), cells in read}


def microseconds(moment: datetime) -> int:
    """Return an instant as SQLite stores it."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def listed(page_id: Ints) -> str:
    """Return ids as the JSON array that `json_each` reads."""
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


def written(states: PageStates) -> Iterator[list[Any]]:
    """Return columns as they are stored, the pages they are of last."""
    return (values(getattr(states, name)) for name in WRITTEN)


def parameter(value: Any) -> Any:
    """Return a value as SQLite stores it."""
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, np.ndarray):
        return json.dumps(value.tolist())
    return json.dumps(value) if isinstance(value, dict | tuple) else value


def decoded(name: str, cell: Any) -> Any:
    """Return what SQLite stored in the column of this name."""
    if cell is None:
        return None
    if name in INSTANTS:
        return EPOCH + timedelta(microseconds=cell)
    return json.loads(cell) if name in JSONS else cell
