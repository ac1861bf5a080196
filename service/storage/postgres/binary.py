"""Arrays in the binary formats of Postgres, without a Python object per value.

A statement takes numpy arrays for `unnest` and returns the arrays of `array_agg`. COPY moves whole
tables. Arrays have no NULL: the statement converts -infinity, NaN and 0 to NULL and back. COPY
writes NULL for the masked values of a masked array.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from service.model.arrays import INSTANT, UNSPECIFIED, datetime_at
from service.storage.column_builder import Gathered

POSTGRES_EPOCH = np.array("2000-01-01", INSTANT)
"""Zero of timestamptz; numpy's NaT has the bits of Postgres's -infinity."""

SINCE = np.dtype("m8[us]")

OIDS = {
    "b1": (16, 1000),
    "i2": (21, 1005),
    "i4": (23, 1007),
    "i8": (20, 1016),
    "f4": (700, 1021),
    "f8": (701, 1022),
    "M8": (1184, 1185),
    "V16": (2950, 2951),
    "V": (17, 1001),
    "O": (25, 1009),
}
"""Oids of the element and of its array, by numpy kind: bool, the integers, the floats, timestamptz,
uuid, bytea, text."""

MATRIX = 2

KINDS = {"?": "?", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d", "M8[us]": "q"}
CODES = {np.dtype(name): code for name, code in KINDS.items()}
"""Code of `struct` for each type of numbers and instants, in the byte order of this machine."""

EMPTY = struct.Struct(">3i")
"""Format of an empty array: number of dimensions, flag of NULLs, oid of the element."""
HEAD = struct.Struct(">5i")
"""Format of the head of a one-dimensional array: as `EMPTY`, then the length and first index."""


@cache
def _element(value: Any) -> np.dtype[Any]:
    return np.dtype([("length", ">i4"), ("value", value)])


@cache
def _oids(dtype: np.dtype[Any]) -> tuple[int, int]:
    for name in (dtype.str[1:], dtype.kind, dtype.str[1:3]):
        if name in OIDS:
            return OIDS[name]
    raise TypeError(f"no Postgres type is known for {dtype}")


@cache
def _ordered(dtype: np.dtype[Any], order: Literal[">", "="]) -> np.dtype[Any]:
    return dtype.newbyteorder(order)


def wire(values: NDArray[Any]) -> NDArray[Any]:
    """Return a column in the bytes Postgres sends: big-endian, instants counted from 2000."""
    if values.dtype.kind == "M":
        return (values.astype(INSTANT, copy=False) - POSTGRES_EPOCH).view(np.int64).astype(">i8")
    if values.ndim == MATRIX:  # rows of float64: one bytea each, little-endian as in memory
        rows = np.ascontiguousarray(values, "<f8")
        return rows.view(f"V{rows.shape[1] * 8}").reshape(len(rows))
    if values.dtype.kind in "if":
        return values.astype(_ordered(values.dtype, ">"))
    return values


def unwire(values: NDArray[Any], oid: int) -> NDArray[Any]:
    """Return a column from the bytes of `wire`; `oid` is that of the element."""
    if oid == OIDS["M8"][0]:
        return values.astype(np.int64).view(SINCE) + POSTGRES_EPOCH
    if values.dtype.kind in "if":
        return values.astype(_ordered(values.dtype, "="))
    return values.copy()


def dumped(value: Any) -> tuple[int, bytes | None]:
    """Return a parameter's type and its bytes; Postgres infers the type of None."""
    if isinstance(value, np.ndarray):
        return _dumped_array(value)
    if value is None:
        return 0, None
    for kind, (oid, dump) in SCALARS.items():
        if isinstance(value, kind):
            return oid, dump(value)
    raise TypeError(f"no Postgres type is known for {type(value).__name__}")


def _dumped_array(array: NDArray[Any]) -> tuple[int, bytes]:
    """Return the oid, and the bytes: the head, then each element after its length."""
    if array.shape == (1,) and (single := _single(array.dtype)) is not None:
        return single[0], single[1](_number(array))
    element, oid = OIDS["V"] if array.ndim == MATRIX else _oids(array.dtype)
    if not len(array):
        return oid, EMPTY.pack(0, 0, element)
    head = HEAD.pack(1, 0, element, len(array), 1)
    if array.dtype.kind == "O":
        return oid, head + _text_elements(array)
    values = wire(array)
    rows = np.empty(len(array), _element(values.dtype))
    rows["length"] = values.dtype.itemsize
    rows["value"] = values
    return oid, head + rows.tobytes()


@cache
def _single(dtype: np.dtype[Any]) -> tuple[int, Callable[[Any], bytes]] | None:
    """Return the oid and the encoder of an array of one number or instant; None: of another kind.

    It takes a third of the time that an array of rows takes, and most requests have one item.
    """
    if (code := CODES.get(dtype)) is None:
        return None
    element, oid = _oids(dtype)
    return oid, partial(struct.Struct(f">6i{code}").pack, 1, 0, element, 1, 1, dtype.itemsize)


def _number(array: NDArray[Any]) -> Any:
    """Return the number of an array, in microseconds since 2000 if it is an instant."""
    if array.dtype.kind != "M":
        return array.item()
    since = array.view(np.int64).item()
    return since if since == NAT else since - FROM_1970


def _text_elements(texts: NDArray[np.object_]) -> bytes:
    parts: list[bytes] = []
    for text in texts:
        encoded = text.encode()
        parts += (len(encoded).to_bytes(4, "big"), encoded)
    return b"".join(parts)


def _loaded_array(data: bytes) -> NDArray[Any]:
    """Return the array that Postgres sent; read all elements at once."""
    if len(data) == EMPTY.size:
        oid = EMPTY.unpack(data)[2]
        return np.empty(0, object if oid in TEXTS else np.float64)
    _, _, oid, n, _ = HEAD.unpack_from(data)
    if n == 1 and (single := SINGLES.get(oid)) is not None:
        return _loaded_single(data, oid, *single)
    if oid in TEXTS:
        return _texts(data, n)
    width = (len(data) - HEAD.size) // n
    dtype = ELEMENT_DTYPES.get(oid) or f"V{width - 4}"
    return unwire(np.ndarray(n, dtype, data, HEAD.size + 4, width), oid)


def _loaded_single(
    data: bytes, oid: int, element: struct.Struct, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return an array of one number or instant, in less time than an array of rows."""
    (number,) = element.unpack_from(data, HEAD.size + 4)
    if oid == OIDS["M8"][0] and number != NAT:
        number += FROM_1970
    return np.array((number,), dtype)


def _texts(data: bytes, n: int) -> NDArray[np.object_]:
    texts, at = np.empty(n, object), HEAD.size
    for i in range(n):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        texts[i] = data[at + 4 : end].decode()
        at = end
    return texts


ELEMENT_DTYPES = {
    oid: np.dtype(f">{kind.replace('M', 'i')}")
    for kind, (oid, _) in OIDS.items()
    if kind not in ("V", "O")
}
SINGLES = {_oids(dtype)[0]: (struct.Struct(f">{code}"), dtype) for dtype, code in CODES.items()}
"""Format and numpy type of an element by oid: numbers and instants."""
TEXT = OIDS["O"][0]
TEXTS = (TEXT, 1042, 1043)
"""Oids of text, char(n) and varchar."""
JSONB, JSONB_VERSION = 3802, b"\1"
FIRST, MICROSECOND = datetime(2000, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
FROM_1970 = int(POSTGRES_EPOCH.astype(np.int64))
"""Microseconds from 1970 to `FIRST`."""
NAT = -(2**63)
"""The integer of numpy's NaT, which is that of -infinity on Postgres."""

SCALARS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    datetime: (1184, lambda at: ((at - FIRST) // MICROSECOND).to_bytes(8, "big", signed=True)),
    bool: (16, lambda truth: bytes([truth])),
    int: (20, lambda number: number.to_bytes(8, "big", signed=True)),
    float: (701, struct.Struct(">d").pack),
    str: (TEXT, str.encode),
    bytes: (17, bytes),
    dict: (JSONB, lambda value: JSONB_VERSION + json.dumps(value).encode()),
    tuple: (JSONB, lambda value: JSONB_VERSION + json.dumps(value).encode()),
}
"""Oid and encoder of each type of single values; `bool` is before `int`, its base class."""


def _whole(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data == b"\1",
    20: _whole,
    21: _whole,
    23: _whole,
    17: bytes,
    700: lambda data: float(str(np.frombuffer(data, ">f4")[0])),  # 0.3, not 0.30000001
    701: lambda data: struct.unpack(">d", data)[0],
    1184: lambda data: datetime_at(_whole(data) + FROM_1970),
    JSONB: lambda data: json.loads(data[len(JSONB_VERSION) :]),
    **dict.fromkeys((18, 19, *TEXTS), bytes.decode),
    **dict.fromkeys((1014, 1015, *(array for _, array in OIDS.values())), _loaded_array),
}
"""Decoder of values by oid; "char", name, text, char(n) and varchar are text."""


def loaded(oid: int, data: bytes | None) -> Any:
    """Return the decoded value; None for NULL."""
    return None if data is None else LOADERS[oid](data)


HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"


def _row_dtype(values: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    layout: list[tuple[str, Any]] = [("n_fields", ">i2")]
    for i, value in enumerate(values):
        layout += [(f"length{i}", ">i4"), (f"value{i}", value)]
    return np.dtype(layout)


def copy_in(columns: list[NDArray[Any]], block: int = 65_536) -> Iterator[bytes]:
    """Yield the bytes of COPY … FROM STDIN (FORMAT BINARY) for these columns, block by block."""
    starts = range(0, len(columns[0]), block)
    return copy_blocks([c[start : start + block] for c in columns] for start in starts)


def copy_blocks(blocks: Iterable[list[NDArray[Any]]]) -> Iterator[bytes]:
    """Yield the bytes of COPY … FROM STDIN (FORMAT BINARY) for blocks of columns."""
    yield HEADER
    for parts in blocks:
        dtype = _row_dtype([wire(np.ma.getdata(part[:0])).dtype for part in parts])
        rows = np.empty(len(parts[0]), dtype)
        rows["n_fields"] = len(parts)
        for i, part in enumerate(parts):
            value = wire(np.ma.getdata(part))
            rows[f"length{i}"] = value.dtype.itemsize
            rows[f"value{i}"] = value
        nulls = [np.ma.getmaskarray(part) for part in parts]
        yield _without(rows, nulls) if any(null.any() for null in nulls) else rows.tobytes()
    yield TRAILER


def masked_arrays(values: NDArray[Any], null: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """Return (N, K) numbers as N values of COPY, arrays of K numbers; NULL where `null`."""
    n, length = values.shape
    element, _ = _oids(values.dtype)
    head = HEAD.pack(1, 0, element, length, 1)
    elements = _element(wire(values[:0, 0]).dtype)
    rows = np.empty(n, [("head", f"V{HEAD.size}"), ("elements", elements, (length,))])
    rows["head"] = np.void(head)
    rows["elements"]["length"] = values.dtype.itemsize
    rows["elements"]["value"] = values
    octets = rows.view(f"V{rows.dtype.itemsize}")
    return octets if null is None else np.ma.array(octets, mask=null)


def _without(rows: NDArray[np.void], nulls: list[NDArray[np.bool_]]) -> bytes:
    """Return the rows with NULL where a mask is true: a length of -1 and no value."""
    octets = rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
    remains = np.ones(octets.shape, np.bool_)
    for i, null in enumerate(nulls):
        rows[f"length{i}"][null] = -1
        value, start = rows.dtype.fields[f"value{i}"][:2]  # type: ignore[index]
        remains[null, start : start + value.itemsize] = False
    return octets[remains].tobytes()


def copy_out(
    connection: psycopg.Connection[Any],
    statement: str,
    dtypes: Mapping[str, str],
    block: int = 65_536,
) -> dict[str, NDArray[Any]]:
    """Run COPY (…) TO STDOUT (FORMAT BINARY) and return its columns (`copied_blocks`)."""
    gathered = Gathered({name: np.empty(0, dtype) for name, dtype in dtypes.items()})
    for columns in copied_blocks(connection, statement, dtypes, block):
        gathered.append(columns)
    return gathered.columns()


def copied_blocks(
    connection: psycopg.Connection[Any],
    statement: str,
    dtypes: Mapping[str, str],
    block: int = 65_536,
) -> Iterator[list[NDArray[Any]]]:
    """Run COPY (…) TO STDOUT (FORMAT BINARY) and yield the columns of blocks of rows.

    `dtypes` has the numpy type of each column, which has a fixed width and no NULL.
    """
    empty = {name: np.empty(0, dtype) for name, dtype in dtypes.items()}
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        layout = _row_dtype(wire(column).dtype for column in empty.values())
        for rows in _row_blocks(connection, layout, block):
            yield [unwire(rows[f"value{i}"], _oid(c)) for i, c in enumerate(empty.values())]
        copy.read()  # so that psycopg sees the end of the copy


def _oid(column: NDArray[Any]) -> int:
    return OIDS["M8"][0] if column.dtype.kind == "M" else 0


def _row_blocks(
    connection: psycopg.Connection[Any], dtype: np.dtype[Any], block: int
) -> Iterator[NDArray[np.void]]:
    """Yield blocks of rows; libpq returns one message a row."""
    pgconn, n_trailer = connection.pgconn, len(TRAILER)
    receive = partial(pgconn.get_copy_data, 1)  # 0 bytes: the next row has not arrived
    while not (received := receive())[0]:
        connection.wait(_arrived(pgconn))
    length, message = received
    message, length = message[len(HEADER) :], length - len(HEADER)
    while length != n_trailer:
        rows: list[bytes] = []
        while length != n_trailer and len(rows) < block:
            if length > 0:
                rows.append(bytes(message))
            elif length == 0:
                connection.wait(_arrived(pgconn))
            else:
                raise _failure(pgconn)
            length, message = receive()
        yield np.frombuffer(b"".join(rows), dtype)


def _arrived(pgconn: pq.abc.PGconn) -> PQGen[None]:
    """Wait for bytes from the server, within the limits of the connection; libpq has no limits."""
    while not (yield Wait.R):
        pass
    pgconn.consume_input()


def _failure(pgconn: pq.abc.PGconn) -> psycopg.Error:
    """Return the error that ended a copy; read all results, so that the connection is free."""
    failure: psycopg.Error = psycopg.OperationalError("the server ended the copy")
    while result := pgconn.get_result():
        if result.status == pq.ExecStatus.FATAL_ERROR:
            failure = psycopg.errors.error_from_result(result)
    return failure


def masked(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column with its "none" masked: NaN of numbers, UNSPECIFIED of codes."""
    if column.dtype.kind != "f" and column.dtype != np.int16:
        return column
    none = np.isnan(column) if column.dtype.kind == "f" else column == UNSPECIFIED
    return np.ma.array(column, mask=none) if none.any() else column
