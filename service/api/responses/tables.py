"""Lists of pages as JSON, NDJSON, CSV and Arrow."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import json
from numpy.typing import NDArray

from recrawl_client.wire.listing import ListedPage
from service.api.responses.encode import END_OF_STREAM
from service.leases.due import due_at
from service.leases.listing import states_of
from service.leases.unfinished import later
from service.model.arrays import Floats, moments
from service.model.domain import Observability
from service.model.listing import ShownPages
from service.model.outcomes import Outcome

CSV = "text/csv"
NAMES = np.array([kind.name for kind in Observability], object)
"""Observability by its code."""
OUTCOMES = np.array([outcome.name for outcome in Outcome], object)
"""Outcome by its code."""
COLUMNS = ListedPage.__struct_fields__
NO_TAGS: list[str] = []


class ListPart(Protocol):
    """A part of a list."""

    @property
    def after(self) -> int | None:
        """Place after which the next part begins; None at the end."""


PartT = TypeVar("PartT", bound=ListPart)


def parts_ahead(part: PartT, read: Callable[[int], PartT], *, embedded: bool) -> Iterator[PartT]:
    """Yield this part and the following ones, each from a short transaction of its own.

    A thread reads the next part while this one is encoded and sent; not on SQLite (`embedded`),
    whose reader would wait for the interpreter at every row.
    """
    if embedded:
        while part.after is not None:
            yield part
            part = read(part.after)
        yield part
        return
    with ThreadPoolExecutor(1, "parts") as ahead:
        while part.after is not None:
            following = ahead.submit(read, part.after)
            yield part
            part = following.result()
        yield part


def columns_of(pages: ShownPages) -> dict[str, NDArray[Any]]:
    """Return the columns of a list in the order of `ListedPage`, with names for codes."""
    columns = pages.arrays() | {
        "state": states_of(pages),
        "observability": NAMES[pages.observability],
        "next_crawl_at": later(due_at(pages), pages.until),
        "outcome": _outcomes(pages),
    }
    return {name: columns[name] for name in COLUMNS}


def _outcomes(pages: ShownPages) -> NDArray[np.object_]:
    """Return the names of the outcomes of the last crawls; None before the first."""
    outcomes: NDArray[np.object_] = OUTCOMES[pages.outcome]
    outcomes[np.isnat(pages.last_crawl_at)] = None
    return outcomes


def listed(pages: ShownPages) -> list[ListedPage]:
    """Return the pages as items."""
    columns = columns_of(pages)
    tags = columns.pop("tags").tolist()
    values = {name: _values(column) for name, column in columns.items()}
    values["tags"] = [sorted(each.split()) if each else NO_TAGS for each in tags]
    values["redirect_url"] = [url or None for url in values["redirect_url"]]
    return list(map(ListedPage, *(values[name] for name in COLUMNS)))


def _values(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind == "M":
        return moments(column)
    return or_none(column) if column.dtype.kind == "f" else list(column.tolist())


def or_none(numbers: Floats) -> list[Any]:
    """Return numbers as values of JSON, NaN as None."""
    none = np.isnan(numbers)
    if none.all():
        return [None] * len(numbers)
    values: list[Any] = numbers.tolist()
    for row in np.flatnonzero(none).tolist():
        values[row] = None
    return values


def lines(parts: Iterable[ShownPages]) -> Iterator[bytes]:
    """Yield one page a line."""
    encoder = json.Encoder()
    for pages in parts:
        yield encoder.encode_lines(listed(pages))


def csv_rows(parts: Iterable[ShownPages]) -> Iterator[bytes]:
    """Yield a header and one page a row; tags are separated by spaces, none is empty."""
    yield (",".join(COLUMNS) + "\r\n").encode()
    for pages in parts:
        text = io.StringIO()
        columns = (_cells(column) for column in columns_of(pages).values())
        csv.writer(text).writerows(zip(*columns, strict=True))
        yield text.getvalue().encode()


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind != "M":
        return _values(column)
    text = np.datetime_as_string(column, unit="us", timezone="UTC").astype(object)
    text[np.isnat(column)] = None
    cells: list[Any] = text.tolist()
    return cells


def arrow_batches(parts: Iterable[ShownPages]) -> Iterator[bytes]:
    """Yield the schema, a record batch for each part, and the end."""
    import pyarrow as pa

    kinds = {"i": pa.int64(), "f": pa.float64(), "M": pa.timestamp("us", tz="UTC")}
    empty = columns_of(ShownPages.empty())
    types = {name: kinds.get(column.dtype.kind, pa.string()) for name, column in empty.items()}
    schema = pa.schema(list((types | {"tags": pa.list_(pa.string())}).items()))

    def arrow(name: str, column: NDArray[Any]) -> Any:
        if name == "tags":
            column = np.fromiter((sorted(tags.split()) for tags in column), object, len(column))
        none = np.isnan(column) if column.dtype.kind == "f" else None
        if name == "redirect_url":
            none = column == ""
        return pa.array(column, schema.field(name).type, mask=none)

    yield schema.serialize().to_pybytes()
    for pages in parts:
        if len(pages):
            arrays = [arrow(name, column) for name, column in columns_of(pages).items()]
            yield pa.record_batch(arrays, schema=schema).serialize().to_pybytes()
    yield END_OF_STREAM
