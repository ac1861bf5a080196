"""Arrays to and from Postgres in its binary formats, without a Python object per value.

A statement takes `unnest(%s::bigint[])` with a numpy array for the parameter, and gives one
row of `array_agg`s back as numpy arrays; COPY moves whole tables. All elements of a column
have one width. In arrays none is null: "none" travels as -infinity, NaN or 0 and is turned into
NULL (and back) by the statement. Into COPY, what a masked array masks goes as NULL.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import pq
from psycopg.adapt import Buffer, Dumper, Loader

from service.domain import INSTANT
from service.storage.gathered import Gathered

POSTGRES_EPOCH = np.int64(946_684_800_000_000)
"""2000-01-01 in microseconds since 1970: where timestamptz counts from."""
NAT = np.iinfo(np.int64).min
"""numpy's NaT and, the same bits, Postgres's -infinity."""

OIDS = {
    "b1": (16, 1000),
    "i2": (21, 1005),
    "i4": (23, 1007),
    "i8": (20, 1016),
    "f8": (701, 1022),
    "M8": (1184, 1185),
    "V16": (2950, 2951),
    "V6": (27, 1010),
    "V": (17, 1001),
    "O": (25, 1009),
}
"""numpy kind -> (oid of the element, oid of its array): bool, the integers, float8,
timestamptz, uuid, tid, bytea, text."""


MATRIX = 2

EMPTY = struct.Struct(">3i")
"""Number of dimensions, whether there are nulls, the element's oid: all of an empty array."""
HEAD = struct.Struct(">5i")
"""The same, then the length and the first index: the head of a one-dimensional array."""


@cache
def _element(value: Any) -> np.dtype[Any]:
    """Give an element behind its length, as both travel."""
    return np.dtype([("length", ">i4"), ("value", value)])


def _oids(dtype: np.dtype[Any]) -> tuple[int, int]:
    for name in (dtype.str[1:], dtype.kind, dtype.str[1:3]):
        if name in OIDS:
            return OIDS[name]
    raise TypeError(f"no Postgres type is known for {dtype}")


def wire(values: NDArray[Any]) -> NDArray[Any]:
    """Give a column in the bytes Postgres sends: big-endian, instants counted from 2000."""
    if values.dtype.kind == "M":
        us = values.astype(INSTANT).view(np.int64)
        return np.where(us == NAT, NAT, us - POSTGRES_EPOCH).astype(">i8")
    if values.ndim == MATRIX:  # rows of float64: one bytea each, little-endian as in memory
        rows = np.ascontiguousarray(values, "<f8")
        return rows.view(f"V{rows.shape[1] * 8}").reshape(len(rows))
    if values.dtype.kind in "if":
        return values.astype(values.dtype.newbyteorder(">"))
    return values


def unwire(values: NDArray[Any], oid: int) -> NDArray[Any]:
    """Undo `wire`; `oid` is the element's."""
    if oid == OIDS["M8"][0]:
        us = values.astype(np.int64)
        return np.add(us, POSTGRES_EPOCH, out=us, where=us != NAT).view(INSTANT)
    if values.dtype.kind in "if":
        return values.astype(values.dtype.newbyteorder("="))
    return values.copy()


class ArrayDumper(Dumper):
    """A numpy array as a one-dimensional Postgres array parameter."""

    format = pq.Format.BINARY

    def get_key(self, obj: NDArray[Any], format: Any) -> Any:  # noqa: A002, ARG002 - psycopg's
        """Choose a dumper for each element type."""
        return (self.cls, obj.dtype.str, obj.ndim)

    def upgrade(self, obj: NDArray[Any], format: Any) -> "ArrayDumper":  # noqa: A002, ARG002
        """Give the dumper for this element type."""
        dumper = ArrayDumper(self.cls, self.connection)
        element = np.dtype("V") if obj.ndim == MATRIX else obj.dtype
        dumper.element, dumper.oid = OIDS["V"] if obj.ndim == MATRIX else _oids(element)
        return dumper

    element: int

    def dump(self, obj: NDArray[Any]) -> Buffer | None:
        """Write the header and every element behind its length."""
        if not len(obj):
            return EMPTY.pack(0, 0, self.element)
        head = HEAD.pack(1, 0, self.element, len(obj), 1)
        if obj.dtype.kind == "O":
            return head + _text_elements(obj)
        values = wire(obj)
        rows = np.empty(len(obj), _element(values.dtype))
        rows["length"] = values.dtype.itemsize
        rows["value"] = values
        return head + rows.tobytes()


def _text_elements(texts: NDArray[np.object_]) -> bytes:
    parts: list[bytes] = []
    for text in texts:
        encoded = text.encode()
        parts += (len(encoded).to_bytes(4, "big"), encoded)
    return b"".join(parts)


ELEMENT_DTYPES = {
    16: "?",
    21: ">i2",
    23: ">i4",
    20: ">i8",
    701: ">f8",
    1184: ">i8",
    2950: "V16",
    27: "V6",
}


class ArrayLoader(Loader):
    """A one-dimensional array of equally wide elements as a numpy array."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> NDArray[Any]:
        """Read the header, then all elements at once."""
        data = bytes(data)
        if len(data) == EMPTY.size:
            return np.empty(0)
        _, _, oid, n, _ = HEAD.unpack_from(data)
        width = (len(data) - HEAD.size) // n - 4
        rows = np.frombuffer(data, _element(ELEMENT_DTYPES.get(oid, f"V{width}")), n, HEAD.size)
        return unwire(rows["value"], oid)


def register(connection: psycopg.Connection[Any]) -> None:
    """Teach a connection to take and give arrays."""
    connection.adapters.register_dumper(np.ndarray, ArrayDumper)
    for element, array in OIDS.values():
        if element != OIDS["O"][0]:
            connection.adapters.register_loader(array, ArrayLoader)


HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"


def _row_dtype(values: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    layout: list[tuple[str, Any]] = [("n_fields", ">i2")]
    for i, value in enumerate(values):
        layout += [(f"length{i}", ">i4"), (f"value{i}", value)]
    return np.dtype(layout)


def copy_in(columns: list[NDArray[Any]], block: int = 65_536) -> Iterator[bytes]:
    """Give the bytes of COPY … FROM STDIN (FORMAT BINARY) for these columns, block by block."""
    dtype = _row_dtype([wire(np.ma.getdata(c[:0])).dtype for c in columns])
    yield HEADER
    for start in range(0, len(columns[0]), block):
        parts = [c[start : start + block] for c in columns]
        rows = np.empty(len(parts[0]), dtype)
        rows["n_fields"] = len(parts)
        for i, part in enumerate(parts):
            value = wire(np.ma.getdata(part))
            rows[f"length{i}"] = value.dtype.itemsize
            rows[f"value{i}"] = value
        nulls = [np.ma.getmaskarray(part) for part in parts]
        yield _without(rows, nulls) if any(null.any() for null in nulls) else rows.tobytes()
    yield TRAILER


def _without(rows: NDArray[np.void], nulls: list[NDArray[np.bool_]]) -> bytes:
    """Give the rows with NULL, a length of -1 and no value, where the masks say so."""
    octets = rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
    kept = np.ones(octets.shape, np.bool_)
    for i, null in enumerate(nulls):
        rows[f"length{i}"][null] = -1
        value, start = rows.dtype.fields[f"value{i}"][:2]  # type: ignore[index]
        kept[null, start : start + value.itemsize] = False
    return octets[kept].tobytes()


def copy_out(
    connection: psycopg.Connection[Any], statement: str, dtypes: dict[str, str], block: int = 65_536
) -> dict[str, NDArray[Any]]:
    """Run COPY (…) TO STDOUT (FORMAT BINARY) and give its columns.

    `dtypes` names each column with its numpy type (`M8[us]`, `f8`, `V16`, …); all columns
    are not null and of fixed width. A column of one value takes no memory and is read-only.
    """
    empty = {name: np.empty(0, dtype) for name, dtype in dtypes.items()}
    gathered = Gathered(empty)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        layout = _row_dtype([wire(column).dtype for column in empty.values()])
        for rows in _row_blocks(connection.pgconn, layout, block):
            gathered.append(
                unwire(rows[f"value{i}"], OIDS["M8"][0] if column.dtype.kind == "M" else 0)
                for i, column in enumerate(empty.values())
            )
        copy.read()  # the end of the copy, for psycopg to see
    return gathered.columns()


def _row_blocks(
    pgconn: pq.abc.PGconn, dtype: np.dtype[Any], block: int
) -> Iterator[NDArray[np.void]]:
    """Read rows until the trailer: libpq hands out one message a row."""
    receive, n_trailer = pgconn.get_copy_data, len(TRAILER)
    length, message = receive(0)
    rows = [bytes(message)[len(HEADER) :]]
    length -= len(HEADER)
    while True:
        while length != n_trailer and len(rows) < block:
            length, message = receive(0)
            if length < 0:
                raise _failure(pgconn)
            rows.append(bytes(message))
        ended = length == n_trailer
        yield np.frombuffer(b"".join(rows), dtype, len(rows) - ended)
        if ended:
            return
        rows = []


def _failure(pgconn: pq.abc.PGconn) -> psycopg.Error:
    """Read why the server gave up half-way, and with it all that keeps the connection busy."""
    failure: psycopg.Error = psycopg.OperationalError("the server ended the copy")
    while result := pgconn.get_result():
        if result.status == pq.ExecStatus.FATAL_ERROR:
            failure = psycopg.errors.error_from_result(result)
    return failure
