"""The columns of all pages for an epoch, read from the two tables in the order of their files.

A message a row costs the client nearly as much as the server. An index scan in the order of
page_ids costs the server a third of its time. Therefore a statement packs each column of a range of
a table into one value. The columns are sorted and joined here. A snapshot has each row at one
place, so the ranges of one snapshot are the table. Parallel workers of Postgres may share them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from service.model.arrays import Bools, Ints
from service.model.columns import RARE, EpochColumns
from service.model.host_sets import EVERY_HOST, HostSet
from service.storage.column_builder import Gathered, placed
from service.storage.epochs.loading import SHARED_DIGEST, no_share
from service.storage.postgres.binary import unwire

RANGE = 2_048
"""Pages of 8 KB whose rows are packed together, some 120,000 rows."""

SEND = {
    "b1": "boolsend({})",
    "i2": "int2send({})",
    "i4": "int4send({})",
    "i8": "int8send({})",
    "f4": "float4send({})",
    "f8": "float8send({})",
    "M8[us]": "timestamptz_send({})",
}
"""Function that returns the bytes of a value, by numpy type."""
TIMESTAMPTZ = 1184

FLOATS = {
    2: "point_send(point({}, {}))",
    3: "circle_send(circle(point({}, {}), {}))",
    4: "lseg_send(lseg(point({}, {}), point({}, {})))",
}
"""Function that returns the bytes of several numbers as float8, by how many. Because an aggregate
costs more than a number, numbers that float8 represents exactly share one."""

OF_PINGS = ("n_pings", "recent_pings", "last_ping_at", "real_pings", "false_pings", "trust")


class Packed(NamedTuple):
    """A table, the types of columns of all its rows, and those of rows that satisfy a condition."""

    name: str
    numbers: tuple[dict[str, str], ...]
    """Types of columns that `FLOATS` sends together; page_ids and host_ids are below 2^53."""
    usual: dict[str, str]
    seldom: dict[str, dict[str, str]]
    """Types of columns by the condition on their rows; page_id is added."""


PAGES = Packed(
    "pages",
    ({"page_id": "i8", "importance": "f8"},),
    {},
    {
        "NOT ROW(min_crawl_rate, max_crawl_rate) IS NULL": {
            "min_crawl_rate": "f8",
            "max_crawl_rate": "f8",
        }
    },
)
NO_SHARE = no_share("(last_crawl_at IS NULL OR last_observed_at = '-infinity')")
STATES = Packed(
    "page_states",
    (
        {"page_id": "i8", "host_id": "i8", "url_group": "i4", "n_observations": "i8"},
        # float8 keeps 53 bits of a digest, which differ for different contents
        {"last_interval": "f8", "interval_factor": "f8", "observability": "i2", "digest": "f8"},
    ),
    {"last_observed_at": "M8[us]", "estimate": "V"},
    {
        # NULL in three columns costs less to see than what the two values need
        "gone OR n_failures IS NOT NULL OR held IS NOT NULL OR hops IS NOT NULL": {
            "no_share": "b1",
            "last_failure_at": "M8[us]",
        },
        "last_age IS NOT NULL": {"last_age": "f4"},
        "cost IS NOT NULL": {"cost": "f8"},
        "born_at IS NOT NULL": {"born_at": "M8[us]"},
        f"observability = 1 OR NOT ROW({', '.join(OF_PINGS)}) IS NULL": {
            "n_pings": "i4",
            "recent_pings": "f8",
            "pings_since": "M8[us]",
            "last_ping_at": "M8[us]",
            "real_pings": "f8",
            "false_pings": "f8",
            "trust": "f8",
        },
    },
)
EXPRESSIONS = {
    "digest": SHARED_DIGEST,
    "no_share": f"coalesce({NO_SHARE}, false)",
    "last_failure_at": "coalesce(CASE WHEN n_failures > 0 THEN last_crawl_at END, '-infinity')",
}
"""Values that no column has, by their names here."""
IN_PLACE_OF_NULL = {
    "min_crawl_rate": "'NaN'",
    "max_crawl_rate": "'NaN'",
    "last_observed_at": "last_crawl_at, '-infinity'",
    "n_pings": "0",
    "recent_pings": "0",
    "last_ping_at": "'-infinity'",
    "real_pings": "0",
    "false_pings": "0",
    "trust": "0",
}
WIDE = {"f4": "f8", "i4": "i8"}
"""Type in arrays of numbers that are short in the table."""

ONLY_WORKERS = "SET LOCAL parallel_leader_participation = off"
"""Statement that leaves the ranges to parallel workers. A leader that packs ranges, too, reads
64 KB of a worker's range before it begins its next one. Therefore its workers wait."""

SIZE = "SELECT pg_relation_size('{}') / current_setting('block_size')::int"


def load(
    driver: psycopg.Connection[Any], width: int, hosts: HostSet
) -> tuple[EpochColumns, NDArray[Any]]:
    """Return the pages of hosts by ascending page_id, and their digests.

    The transaction has one snapshot.
    """
    driver.execute(ONLY_WORKERS)
    pages, (bounds,) = read_packed(driver, _ranges(driver, PAGES, hosts), PAGES, 0)
    every_state = _ranges(driver, STATES, hosts)
    states, (failures, ages, costs, births, pings) = read_packed(
        driver, every_state, STATES, 8 * width
    )
    page_id = pages["page_id"]
    if not np.array_equal(page_id, states["page_id"]):
        page_id = np.intersect1d(page_id, states["page_id"], assume_unique=True)
        pages, states = (_at(part, page_id) for part in (pages, states))
    digest = states.pop("digest")
    columns = {**states, "importance": pages["importance"]}
    shareless = failures["page_id"][failures.pop("no_share")]
    for some in (bounds, ages, failures, costs, births, pings):
        row, there = _rows(page_id, some.pop("page_id"))
        for name, values in some.items():
            columns[name] = placed(len(page_id), row, values[there], RARE[name])
    row, _ = _rows(page_id, shareless)
    for name, none in (("importance", 0.0), ("min_crawl_rate", np.nan)):
        if not np.array_equal(columns[name][row], np.full(len(row), none), equal_nan=True):
            columns[name] = np.array(columns[name])
            columns[name][row] = none
    columns["estimate"] = columns["estimate"].view("<f8").reshape(-1, width)
    return EpochColumns(**columns), digest


def read_packed(
    driver: psycopg.Connection[Any], statement: str, table: Packed, width: int
) -> tuple[dict[str, NDArray[Any]], list[dict[str, NDArray[Any]]]]:
    """Return the usual columns by ascending page_id, and the others as they come."""
    usual = table.usual | {name: f"V{width}" for name in table.usual if name == "estimate"}
    seldom = [{"page_id": "i8", **kinds} for kinds in table.seldom.values()]
    every = {name: kind for kinds in (*table.numbers, usual) for name, kind in kinds.items()}
    gathered = Gathered({name: np.empty(0, kind) for name, kind in every.items()})
    some: list[list[NDArray[Any]]] = [[] for _ in seldom]
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(["bytea"] * (len(table.numbers) + len(usual) + len(seldom)))
        for packed in copy.rows():
            values = iter([value or b"" for value in packed])
            numbers = [part for kinds in table.numbers for part in _numbers(kinds, next(values))]
            others = [_column(kind, next(values)) for kind in usual.values()]
            gathered.append(numbers + others)
            for parts, kinds in zip(some, seldom, strict=True):
                parts.append(np.frombuffer(next(values), _row(kinds)))
    rows = [np.concatenate([np.empty(0, _row(k)), *p]) for k, p in zip(seldom, some, strict=True)]
    few = [
        {name: _column(kind, row[name]) for name, kind in kinds.items()}
        for kinds, row in zip(seldom, rows, strict=True)
    ]
    return _sorted(gathered.columns()), few


def _ranges(driver: psycopg.Connection[Any], table: Packed, hosts: HostSet) -> str:
    """Return the statement that copies the packed columns of each range of a table's file."""
    only = "" if hosts == EVERY_HOST else f" AND ({hosts.condition})"
    sent = [FLOATS[len(kinds)].format(*map(_present, kinds)) for kinds in table.numbers]
    sent += [_sent(name, kind) for name, kind in table.usual.items()]
    packed = [f"string_agg({value}, '')" for value in sent]
    for where, kinds in table.seldom.items():
        row = " || ".join(_sent(name, kind) for name, kind in {"page_id": "i8", **kinds}.items())
        packed.append(f"string_agg({row}, '') FILTER (WHERE {where})")
    ((n_blocks,),) = driver.execute(SIZE.format(table.name)).fetchall()
    ranges = " UNION ALL ".join(
        f"SELECT {', '.join(packed)} FROM {table.name} "
        f"WHERE ctid >= '({first},0)' AND ctid < '({first + RANGE},0)'{only}"
        for first in range(0, max(n_blocks, 1), RANGE)
    )
    # traces show the first part of a statement only, so the table is named there
    return f"COPY (/* {table.name} */ {ranges}) TO STDOUT (FORMAT BINARY)"


def _sent(name: str, kind: str) -> str:
    return SEND.get(kind, "{}").format(_present(name))


def _present(name: str) -> str:
    if name in EXPRESSIONS:
        return EXPRESSIONS[name]
    none = IN_PLACE_OF_NULL.get(name)
    return name if none is None else f"coalesce({name}, {none})"


def _row(kinds: dict[str, str]) -> np.dtype[Any]:
    return np.dtype([(name, _wired(kind)) for name, kind in kinds.items()])


def _wired(kind: str) -> str:
    return kind if kind.startswith("V") else f">{kind.replace('M8[us]', 'i8')}"


def _numbers(kinds: dict[str, str], values: bytes) -> Iterator[NDArray[Any]]:
    """Return the columns of numbers that were sent together."""
    rows = np.frombuffer(values, ">f8").reshape(-1, len(kinds))
    return (rows[:, i].astype(kind) for i, kind in enumerate(kinds.values()))


def _column(kind: str, values: Any) -> NDArray[Any]:
    """Return a column from packed bytes, or from a field of packed rows."""
    read = np.frombuffer(values, _wired(kind)) if isinstance(values, bytes) else values
    column = unwire(read, TIMESTAMPTZ if kind.startswith("M") else 0)
    return column.astype(WIDE.get(kind, kind), copy=False)


def _sorted(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    page_id = columns["page_id"]
    if (page_id[1:] > page_id[:-1]).all():
        return columns
    return _taken(columns, np.argsort(page_id, kind="stable"))


def _at(columns: dict[str, NDArray[Any]], page_id: Ints) -> dict[str, NDArray[Any]]:
    return _taken(columns, columns["page_id"].searchsorted(page_id))


def _taken(columns: dict[str, NDArray[Any]], row: Ints) -> dict[str, NDArray[Any]]:
    """Return some rows; a column with one value for all rows takes no memory."""
    return {
        name: np.broadcast_to(column[:1], len(row)) if column.strides[0] == 0 else column[row]
        for name, column in columns.items()
    }


def _rows(page_id: Ints, some: Ints) -> tuple[Ints, Bools]:
    """Return the rows of those of some pages that there are, and which those are."""
    row = page_id.searchsorted(some)
    there = row < len(page_id)
    there[there] = page_id[row[there]] == some[there]
    return row[there], there
