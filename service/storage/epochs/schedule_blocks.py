"""Schedules on Postgres: a row for a block of pages, with one array for each column.

A row of its own costs a page 24 bytes of header, 8 of id and 20 in the index, beside 12 bytes of
rates. In a block a page costs 14 bytes in all, and 4 more in blocks with pages that change hours
moved. Shifts are packed, because an epoch reads arrays of them in ten times the time. Block k has
the pages from `PAGES` k to `PAGES` k + `PAGES` - 1.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Ints, element_types
from service.model.columns import NOT_SHIFTED, ScheduleColumns, ShiftColumns
from service.storage.postgres.binary import masked_arrays
from service.storage.postgres.short_numbers import narrow
from service.storage.postgres.words import PAGES, SHIFT

CHUNK = 1 << 18
"""Least pages whose blocks are encoded at a time."""
ABSENT = -1.0
"""Crawl rate in the place of a page that the schedule does not have."""

ALWAYS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "change_rate": narrow,
    "crawl_rate": narrow,
    "urgency": lambda urgency: urgency.astype(np.float32),
}
"""Columns of all blocks, and their form."""
SELDOM: dict[str, float] = {
    "crawl_probability": 0.0,
    "shift": NOT_SHIFTED,
    "carried": NOT_SHIFTED,
    "observed_ratio": 0.0,
}
"""Columns that most blocks do not have, and the value that stands for none."""
PACKED, OF_BLOCK = np.dtype(">u2"), f"V{2 * PAGES}"
"""Type of `shift` and `carried` as stored, less `NOT_SHIFTED`, and that of a block of them."""

SHIFTED = """
SELECT block, shift, carried FROM schedule WHERE epoch = {} AND shift IS NOT NULL ORDER BY block
"""
"""Statement that reads the blocks with pages whose crawls an epoch shifted."""


def columns(names: Collection[str]) -> list[str]:
    """Return the columns of the table that the rows of `blocks` have."""
    return ["block", "epoch", *ALWAYS, *names]


def blocks(
    epoch: int, schedule: ScheduleColumns, names: Collection[str]
) -> Iterator[list[NDArray[Any]]]:
    """Yield the columns of blocks for COPY, some thousand blocks at a time.

    `names` has at least those columns of `SELDOM` that the rows need.
    """
    start, n = 0, len(schedule)
    while start < n:
        last = int(schedule.page_id[min(start + CHUNK, n) - 1]) | PAGES - 1
        end = int(schedule.page_id.searchsorted(last, side="right"))
        yield _encoded(epoch, schedule.take(slice(start, end)), names)
        start = end


def seldom(schedule: ScheduleColumns) -> list[str]:
    """Return the columns of `SELDOM` that some rows need."""
    stated = schedule.arrays()
    return [n for n, none in SELDOM.items() if n in stated and (stated[n] != none).any()]


def short(schedule: ScheduleColumns, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return the columns of rows as `blocks` writes them, without those that no row needs.

    They cross processes in half the bytes, and `long` has the same blocks.
    """
    rates = {name: form(getattr(schedule, name)) for name, form in ALWAYS.items()}
    stated, n = schedule.arrays(), len(schedule)
    others = {
        name: np.ascontiguousarray(stated[name]) if name in stated else np.full(n, SELDOM[name])
        for name in names
    }
    return {"page_id": schedule.page_id, **rates, **others}


def long(columns: dict[str, NDArray[Any]]) -> ScheduleColumns:
    """Return rows from the columns of `short`."""
    n, kinds = len(columns["page_id"]), element_types(ScheduleColumns)
    none = {
        name: np.broadcast_to(kinds[name].type(value), n)
        for name, value in SELDOM.items()
        if name not in columns
    }
    return ScheduleColumns(**columns, **none)


def _encoded(epoch: int, rows: ScheduleColumns, present: Collection[str]) -> list[NDArray[Any]]:
    block, first = np.unique(rows.page_id >> SHIFT, return_index=True)
    row = np.repeat(np.arange(len(block)), np.diff(np.append(first, len(rows))))
    place = (row << SHIFT) + (rows.page_id & PAGES - 1)
    encoded: list[NDArray[Any]] = [block, np.broadcast_to(np.int32(epoch), len(block))]
    for name, form in ALWAYS.items():
        none = ABSENT if name == "crawl_rate" else 0.0
        encoded.append(masked_arrays(_dense(form(getattr(rows, name)), place, len(block), none)))
    for name in present:
        column = getattr(rows, name)
        if name == "observed_ratio":
            column = narrow(np.nan_to_num(column))
        dense = _dense(column, place, len(block), SELDOM[name])
        null = (dense == SELDOM[name]).all(axis=1)
        packed = _packed(dense, null) if dense.dtype == np.int16 else masked_arrays(dense, null)
        encoded.append(packed)
    return encoded


def _packed(minutes: NDArray[np.int16], null: NDArray[np.bool_]) -> NDArray[Any]:
    octets = (minutes.astype(np.int32) - NOT_SHIFTED).astype(PACKED).view(OF_BLOCK)[:, 0]
    return np.ma.array(octets, mask=null)


def shifts(block: Ints, shift: NDArray[np.void], carried: NDArray[np.void]) -> ShiftColumns:
    """Return the pages that were shifted, from the columns of `SHIFTED`."""
    columns = [octets.view(PACKED).reshape(len(block), PAGES) for octets in (shift, carried)]
    row, place = np.nonzero(columns[0])
    minutes = (each[row, place].astype(np.int32) + NOT_SHIFTED for each in columns)
    shifts, carries = (each.astype(np.int16) for each in minutes)
    return ShiftColumns(page_id=(block[row] << SHIFT) + place, shift=shifts, carried=carries)


def _dense(values: NDArray[Any], place: Ints, n_blocks: int, none: float) -> NDArray[Any]:
    dense = np.full(n_blocks << SHIFT, none, values.dtype)
    dense[place] = values
    return dense.reshape(n_blocks, PAGES)
