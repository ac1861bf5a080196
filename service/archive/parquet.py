"""The log as Parquet: 11 bytes an entry, of them 10 of the times and intervals themselves.

| column | encoding | bytes an entry |
| --- | --- | --- |
| `observed_at` | eight streams of bytes, whose upper ones compress | 4.9 |
| `interval_us` | the same; microseconds, because days as a fraction take 6.8 | 5.1 |
| `page_id` | differences, because entries of a day are in order of page | 0.6 |
| `kind`, `changed`, `status` | dictionary, bits | 0.5 |
| `interval`, `crawl_rate`, `weight` | NULL in most rows | 0.0 |

`interval` has the rare intervals that are no whole number of microseconds, in days. An estimator of
the papers, which logs crawl rates, adds 7 bytes an entry.
"""

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import (
    DAY,
    INSTANT,
    UNSPECIFIED,
    Bools,
    Columns,
    Floats,
    Instants,
    Ints,
    Numbers,
)
from service.model.columns import LogColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, ParquetWriter

ROWS_OF_GROUP = 65_536
"""Entries of a row group, the least that a reader of one page reads: 0.7 MB, 3 ms."""
DAY_US = float(DAY.astype(np.int64))
EXACT = 2.0**53
"""Bound of whole numbers that a float keeps."""
FORMAT = {b"recrawl": b"observation log 1"}
"""Metadata of each file."""


@cache
def schema() -> "pa.Schema":
    """Return the columns of a file."""
    import pyarrow as pa

    return pa.schema(
        {
            "page_id": pa.int64(),
            "observed_at": pa.timestamp("us", "UTC"),
            "kind": pa.int8(),
            "changed": pa.bool_(),
            "interval_us": pa.int64(),
            "interval": pa.float64(),
            "crawl_rate": pa.float64(),
            "status": pa.int16(),
            "weight": pa.float64(),
        },
        metadata=FORMAT,
    )


class Format(NamedTuple):
    """The form of the rows of a file; the first column ascends, and has statistics."""

    folder: str
    """Start of the names of files."""
    schema: Callable[[], "pa.Schema"]
    encodings: Mapping[str, str]
    dictionaries: tuple[str, ...]
    encode: Callable[[Any], "pa.Table"]
    decode: Callable[["pa.Table"], Any]
    place: Callable[[Any], Ints]
    """Function that returns the first column of rows."""
    time: Callable[[Any], Instants]
    """Function that returns the instants of rows, whose days the files have."""


def writer(sink: IO[bytes], form: Format) -> "ParquetWriter":
    """Return a writer of files of a format."""
    from pyarrow.parquet import ParquetWriter

    schema = form.schema()
    return ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(form.dictionaries),
        column_encoding=dict(form.encodings),
        write_statistics=schema.names[:1],
        write_page_checksum=True,
    )


def reader(source: IO[bytes]) -> "ParquetFile":
    """Return an open file whose pages are checked by their checksums when they are read.

    The footer is one read and each row group another, because an object store delays each read.
    """
    from pyarrow.parquet import ParquetFile

    return ParquetFile(source, page_checksum_verification=True, pre_buffer=True)


def bounds(file: "ParquetFile") -> list[int]:
    """Return the first and the last value of the first column in each row group, in a row."""
    groups = (file.metadata.row_group(i).column(0) for i in range(file.num_row_groups))
    each = (group.statistics for group in groups)
    return [end for bound in each for end in (bound.min, bound.max)]


def encode(rows: LogColumns) -> "pa.Table":
    """Return entries as a table."""
    import pyarrow as pa

    whole, exact = _whole_us(rows.interval)
    columns = {
        "page_id": pa.array(rows.page_id),
        "observed_at": pa.array(rows.observed_at.view(np.int64)).cast(pa.timestamp("us", "UTC")),
        "kind": pa.array(rows.kind.astype(np.int8)),
        "changed": pa.array(rows.changed == 1, mask=rows.changed == UNSPECIFIED),
        "interval_us": pa.array(whole, mask=~exact),
        "interval": _numbers(np.where(exact, np.nan, rows.interval)),
        "crawl_rate": _numbers(rows.crawl_rate),
        "status": pa.array(rows.status, mask=rows.status == UNSPECIFIED),
        "weight": optional(rows.weight, len(rows)),
    }
    return pa.table(columns, schema=schema())


def decode(table: "pa.Table") -> LogColumns:
    """Return the entries of a table."""
    whole = plain(table["interval_us"], 0)
    exact = table["interval_us"].is_valid().to_numpy()
    odd = plain(table["interval"], np.nan)
    changed = plain(table["changed"].cast("int8"), -1)
    return LogColumns(
        page_id=plain(table["page_id"], 0),
        observed_at=table["observed_at"].cast("int64").to_numpy().view(INSTANT),
        kind=plain(table["kind"], 0).astype(np.int16),
        changed=changed.astype(np.int16),
        interval=np.where(exact, whole / DAY_US, odd),
        crawl_rate=plain(table["crawl_rate"], np.nan),
        status=plain(table["status"], UNSPECIFIED),
        weight=weight_of(table),
    )


def _whole_us(interval: Floats) -> tuple[Ints, Bools]:
    """Return intervals as whole microseconds, and which of them these represent bit for bit."""
    inside = np.abs(interval) < EXACT / DAY_US
    whole = np.rint(np.where(inside, interval, 0.0) * DAY_US).astype(np.int64)
    again = whole / DAY_US
    return whole, inside & (again.view(np.int64) == np.ascontiguousarray(interval).view(np.int64))


def optional(values: Numbers, n: int) -> "pa.Array":
    """Return n numbers that may be missing, NULL for NaN."""
    return _numbers(np.full(n, np.nan) if values is None else values)


def weight_of(table: "pa.Table") -> Numbers:
    """Return the weights of a table; None if it has none, like files of before there were any."""
    if "weight" not in table.column_names:
        return None
    column = table["weight"]
    return None if column.null_count == len(column) else plain(column, np.nan)


def _numbers(values: Floats) -> "pa.Array":
    import pyarrow as pa

    return pa.array(values, mask=np.isnan(values))


def plain(column: "pa.ChunkedArray", none: float) -> NDArray[Any]:
    """Return a column with `none` where it is NULL."""
    return np.asarray((column.fill_null(none) if column.null_count else column).to_numpy())


LOG = Format(
    folder="",
    schema=schema,
    encodings={
        "page_id": "DELTA_BINARY_PACKED",
        "observed_at": "BYTE_STREAM_SPLIT",
        "interval_us": "BYTE_STREAM_SPLIT",
        "crawl_rate": "BYTE_STREAM_SPLIT",
    },
    dictionaries=("kind", "status"),
    encode=encode,
    decode=decode,
    place=attrgetter("page_id"),
    time=attrgetter("observed_at"),
)


class Checksum:
    """A checksum of the values of rows in their order, whatever the file that has them."""

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=16)
        self.n_rows = 0

    def add(self, rows: Columns) -> None:
        """Add rows; weights count only where there are any, because older files have none."""
        for name, column in rows.arrays().items():
            if name == "weight" and np.isnan(column).all():
                continue
            plain = (
                np.where(np.isnan(column), np.nan, column) if column.dtype.kind == "f" else column
            )
            self.hash.update(np.ascontiguousarray(plain).tobytes())
        self.n_rows += len(rows)

    @property
    def text(self) -> str:
        """The checksum so far."""
        return self.hash.hexdigest()
