"""Values of SQLite: instants in microseconds, arrays and lists in JSON, packed numbers in blobs."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from service.model.arrays import (
    COLUMN,
    INSTANT,
    UNIX_ZERO,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    datetime_at,
    nothing,
)
from service.model.columns import NOT_SHIFTED
from service.storage.dialect import IS_HELD
from service.storage.tables import metadata

NAT = np.iinfo(np.int64).min
"""The bits of numpy's NaT."""

COLUMNS = [column for table in metadata.tables.values() for column in table.c]
INSTANTS = {c.name for c in COLUMNS if isinstance(c.type, sa.DateTime)}
JSONS = {c.name for c in COLUMNS if isinstance(c.type, sa.JSON)}
"""Names of the columns that `decoded` reads as instants and as JSON."""


def values(column: NDArray[Any]) -> list[Any]:
    """Return a column as SQLite stores it: microseconds, numbers, blobs, None.

    SQLite itself stores NULL for NaN.
    """
    if column.dtype.kind == "M":
        us = column.astype(INSTANT)
        return _with_none(us.view(np.int64), np.isnat(us))
    if column.ndim > 1:
        rows = np.ascontiguousarray(column, "<f8")
        column = rows.view(f"V{8 * column.shape[1]}")[:, 0]
    listed: list[Any] = column.tolist()
    return listed


def shifts(column: Codes) -> list[Any]:
    """Return moves as SQLite stores them: None for `NOT_SHIFTED`."""
    return _with_none(column, column == NOT_SHIFTED)


def _with_none(column: NDArray[Any], none: Bools) -> list[Any]:
    n_none = np.count_nonzero(none)
    if n_none == len(column):
        return [None] * n_none
    if n_none:
        column = column.astype(object)
        column[none] = None
    listed: list[Any] = column.tolist()
    return listed


RARELY_DUE: dict[str, Any] = {
    "created_at": Instants,
    "requested_at": Instants,
    "gone": Bools,
    "n_failures": Ints,
    "outcome": Codes,
    "hops": Codes,
    "retry_rate": Floats,
    "held": Codes,
}
"""Columns of `DueColumns` that matter for few pages; `created_at` for pages never crawled."""
RARELY = f"""
CASE WHEN last_crawl_at IS NULL OR gone
        OR coalesce(requested_at, n_failures, retry_rate) IS NOT NULL
    THEN json_array(created_at, requested_at, coalesce(gone, 0), coalesce(n_failures, 0),
        coalesce(outcome, 0), coalesce(hops, 0), coalesce(retry_rate, 0.0), {IS_HELD}) END
"""
"""Expression with all columns of `RARELY_DUE`, because the driver takes time for each column."""


def rarely_due(cells: NDArray[np.object_]) -> dict[str, NDArray[Any]]:
    """Return the columns of `RARELY_DUE` from the values of `RARELY`."""
    row = np.flatnonzero(cells.astype(np.bool_))
    columns = {name: nothing(kind, len(cells)) for name, kind in RARELY_DUE.items()}
    if len(row):
        read = zip(*map(json.loads, cells[row]), strict=True)
        for (name, kind), some in zip(RARELY_DUE.items(), read, strict=True):
            columns[name][row] = column(some, COLUMN[kind], 0)
    return columns


def column(listed: Sequence[Any], kind: np.dtype[Any], width: int) -> NDArray[Any]:
    """Return the values that SQLite returned as a column of the element type."""
    if kind == INSTANT:
        us = [NAT if value is None else value for value in listed]
        return np.array(us, np.int64).view(INSTANT)
    if kind.kind == "f" and listed and isinstance(listed[0], bytes):
        return np.frombuffer(bytearray().join(listed), "<f8").reshape(-1, width)
    return np.array(listed, kind)


def typed(listed: Sequence[Any], dtype: str) -> NDArray[Any]:
    """Return the values that SQLite returned, none of them NULL, as a column of a numpy type."""
    if dtype.startswith("V"):
        return np.frombuffer(b"".join(listed), dtype)
    return np.array(listed, "i8").view(INSTANT) if dtype[0] == "M" else np.array(listed, dtype)


def columns(
    kinds: Mapping[str, np.dtype[Any]], rows: list[Any], width: int
) -> dict[str, NDArray[Any]]:
    """Return one or more rows as columns of these element types."""
    read = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    return {name: column(cells, kind, width) for (name, kind), cells in read}


def microseconds(moment: datetime) -> int:
    """Return an instant as SQLite stores it."""
    return (moment - UNIX_ZERO) // timedelta(microseconds=1)


def listed(page_id: Ints) -> str:
    """Return ids as the JSON array that `json_each` reads."""
    return json.dumps(page_id.tolist())


def parameter(value: Any) -> Any:
    """Return a value as SQLite stores it."""
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, np.ndarray):
        return json.dumps(value.tolist())
    return json.dumps(value) if isinstance(value, dict | tuple) else value


def decoded(name: str, cell: Any) -> Any:
    """Return the decoded value of a cell in the column of this name."""
    if cell is None:
        return None
    if name in INSTANTS:
        return datetime_at(cell)
    return json.loads(cell) if name in JSONS else cell
