"""The feed of changes as Parquet: the columns of a reading, with the places of the changes."""

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from service.archive.parquet import Format, optional, plain, weight_of
from service.model.arrays import INSTANT, NO_TIME, Instants
from service.model.changes import FeedColumns

if TYPE_CHECKING:
    import pyarrow as pa

NONE = int(NO_TIME.astype(np.int64))
"""Number of `NO_TIME`."""


@cache
def schema() -> "pa.Schema":
    """Return the columns of a file."""
    import pyarrow as pa

    instant = pa.timestamp("us", "UTC")
    return pa.schema(
        {
            "seq": pa.int64(),
            "offset": pa.int16(),
            "page_id": pa.int64(),
            "observed_at": instant,
            "changed_after": instant,
            "kind": pa.int8(),
            "digest": pa.int64(),
            "last_modified": instant,
            "moved_to": pa.int64(),
            "weight": pa.float64(),
        },
        metadata={b"recrawl": b"feed of changes 1"},
    )


def encode(rows: FeedColumns) -> "pa.Table":
    """Return changes as a table."""
    import pyarrow as pa

    columns = {
        "seq": pa.array(rows.seq),
        "offset": pa.array(rows.offset.astype(np.int16)),
        "page_id": pa.array(rows.page_id),
        "observed_at": _instants(rows.observed_at),
        "changed_after": _instants(rows.changed_after),
        "kind": pa.array(rows.kind.astype(np.int8)),
        "digest": pa.array(rows.digest, mask=rows.digest == 0),
        "last_modified": _instants(rows.last_modified),
        "moved_to": pa.array(rows.moved_to, mask=rows.moved_to == 0),
        "weight": optional(rows.weight, len(rows)),
    }
    return pa.table(columns, schema=schema())


def decode(table: "pa.Table") -> FeedColumns:
    """Return the changes of a table."""
    return FeedColumns(
        seq=plain(table["seq"], 0),
        offset=plain(table["offset"], 0).astype(np.int64),
        page_id=plain(table["page_id"], 0),
        observed_at=_of_instants(table["observed_at"]),
        changed_after=_of_instants(table["changed_after"]),
        kind=plain(table["kind"], 0).astype(np.int16),
        digest=plain(table["digest"], 0),
        last_modified=_of_instants(table["last_modified"]),
        moved_to=plain(table["moved_to"], 0),
        weight=weight_of(table),
    )


def _instants(column: Instants) -> "pa.Array":
    import pyarrow as pa

    numbers = pa.array(column.view(np.int64), mask=np.isnat(column))
    return numbers.cast(pa.timestamp("us", "UTC"))


def _of_instants(column: "pa.ChunkedArray") -> Instants:
    return plain(column.cast("int64"), NONE).view(INSTANT)


def _committed_at(rows: FeedColumns) -> Instants:
    return rows.seq.view(INSTANT)


FEED = Format(
    folder="changes/",
    schema=schema,
    encodings={
        "seq": "DELTA_BINARY_PACKED",
        "offset": "DELTA_BINARY_PACKED",
        "page_id": "DELTA_BINARY_PACKED",
        "observed_at": "BYTE_STREAM_SPLIT",
        "changed_after": "BYTE_STREAM_SPLIT",
    },
    dictionaries=("kind",),
    encode=encode,
    decode=decode,
    place=attrgetter("seq"),
    time=_committed_at,
)
