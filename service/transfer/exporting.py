"""Write all pages, or pages with their states, to CSV, NDJSON or Parquet, in constant memory."""

import csv
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recrawl_client.wire.pages import Page
from service.core.estimators.base import Estimator
from service.model.arrays import NO_TIME, Bools, Ints
from service.model.columns import PageStates, StoredPages
from service.model.domain import Observability
from service.model.errors import NotExportable, UnreadableFile
from service.model.listing import PageTags
from service.storage import Store
from service.storage.pages.kinds import FEED
from service.storage.pages.validators import ValidatorColumns
from service.transfer.files import kind_of
from service.transfer.lines import StateLine

BLOCK = 10_000
STATE = tuple(name for name in StateLine.__struct_fields__ if name != "note_if_new")
# a note belongs to the state of a page
PAGE = tuple(name for name in STATE if name in Page.__struct_fields__ and name != "note")
NAMES = np.array([kind.name for kind in Observability], object)
"""Observability by its code."""

Block = dict[str, NDArray[Any]]
Write = Callable[[Block], None]


def exported(store: Store, estimator: Estimator[Any] | None) -> Iterator[Block]:
    """Yield all pages by page_id; with an estimator, yield their states too.

    Raises
    ------
    NotExportable
        The estimator needs the observation log, which no file of states contains.
    """
    if estimator is not None and estimator.needs_history:
        raise NotExportable(
            f"estimator {estimator.name} needs the observation log, which no file of states "
            "contains; export without --states"
        )
    last = 0
    while True:
        with store.read_whole() as tx:
            pages, states = tx.read_pages(last, BLOCK)
            stored = None if estimator is None else tx.validators(pages.page_id)
            tags = tags_column(pages.page_id, tx.tags_of(pages.page_id))
        if not len(pages):
            return
        last = int(pages.page_id[-1])
        yield columns_of(pages, states, tags, estimator, stored)


def tags_column(page_id: Ints, pairs: PageTags) -> NDArray[np.object_]:
    """Return the list of tags of each page, ascending; None for a page without tags."""
    column = np.full(len(page_id), None, object)
    pages, first = np.unique(pairs.page_id, return_index=True)
    for row, tags in zip(
        np.searchsorted(page_id, pages).tolist(), np.split(pairs.tag, first[1:]), strict=False
    ):
        column[row] = tags.tolist()
    return column


def columns_of(
    pages: StoredPages,
    states: PageStates,
    tags: NDArray[np.object_],
    estimator: Estimator[Any] | None,
    stored: ValidatorColumns | None = None,
) -> Block:
    """Return the columns of a file; only with an estimator, include the columns of states."""
    columns = {f.name: getattr(states, f.name) for f in fields(states)}
    columns |= {f.name: getattr(pages, f.name) for f in fields(pages)}
    columns["observability"] = NAMES[states.observability]
    columns["tags"] = tags
    columns["kind"] = np.where(pages.feed, FEED, "page").astype(object)
    if estimator is None:
        return {name: columns[name] for name in PAGE}
    columns["estimator"] = np.full(len(pages), estimator.name, object)
    columns |= validators_in(pages.page_id, stored or ValidatorColumns.empty())
    return {name: columns[name] for name in STATE}


def validators_in(page_id: Ints, stored: ValidatorColumns) -> Block:
    """Return the validators of all pages; None or NaT where a page has none."""
    row = np.searchsorted(page_id, stored.page_id)
    columns: Block = {
        "etag": np.full(len(page_id), None, object),
        "last_modified": np.full(len(page_id), NO_TIME),
        "note": np.full(len(page_id), None, object),
    }
    columns["last_modified"][row] = stored.last_modified
    for name, texts in (("etag", stored.etag), ("note", stored.note)):
        present = texts != ""
        columns[name][row[present]] = texts[present]
    return columns


def cells(name: str, column: NDArray[Any]) -> list[Any]:
    """Return a column as values of JSON: instants as RFC 3339, none as None.

    >>> cells("requested_at", np.array(["2026-05-01T12:00", "NaT"], "M8[us]"))
    ['2026-05-01T12:00:00.000000Z', None]
    """
    none = _absent(name, column)
    if column.dtype.kind == "M":
        column = np.datetime_as_string(column, unit="us", timezone="UTC").astype(object)
    if none.any():
        column = column.astype(object)
        column[none] = None
    listed: list[Any] = column.tolist()
    return listed


def _absent(name: str, column: NDArray[Any]) -> Bools:
    """Return which rows of a column have no value."""
    absent: Bools = np.zeros(len(column), np.bool_)
    if column.dtype.kind == "M":
        absent = np.isnat(column)
    elif name.endswith("_crawl_rate") or name == "last_age":
        absent = np.isnan(column)
    elif name == "digest":
        absent = column == 0
    return absent


OWNER_ONLY = 0o600
"""Mode of an export."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` at the end; yield a device or a pipe itself.

    Raises
    ------
    UnreadableFile
        The folder cannot be written to.
    """
    path = path.resolve()  # a link stays, and its target is replaced
    whole = path.is_file() or not path.exists()
    part = path.with_name(path.name + ".part") if whole else path
    try:
        file = part.open("wb") if not whole else os.fdopen(_created(part), "wb")
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror}; choose another place") from error
    with file:
        yield file
    if whole:
        part.replace(path)


def _created(path: Path) -> int:
    """Return the descriptor of an empty file that only its owner reads, as the database."""
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, OWNER_ONLY)
    os.fchmod(descriptor, OWNER_ONLY)  # the part of an export that broke off
    return descriptor


@contextmanager
def writer(path: Path, kind: str | None, *, states: bool) -> Iterator[Write]:
    """Yield a function that writes blocks to a file, opened by `replacing`.

    Raises
    ------
    UnreadableFile
        Neither the name nor `kind` is a format, or the folder cannot be written to.
    """
    if str(path) == "-":
        with _formatted(sys.stdout.buffer, kind or "ndjson", states=states) as write:
            yield write
        return
    kind = kind or kind_of(path)
    with ExitStack() as opened:
        file: Any = opened.enter_context(replacing(path))
        if path.suffix == ".gz":
            file = opened.enter_context(gzip.open(file, "wb", compresslevel=3))
        yield opened.enter_context(_formatted(file, kind, states=states))


@contextmanager
def _formatted(file: IO[bytes], kind: str, *, states: bool) -> Iterator[Write]:
    names = STATE if states else PAGE
    if kind == "parquet":
        with _parquet(file, names) as write:
            yield write
    elif kind in ("csv", "tsv"):
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        rows = csv.writer(text, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
        rows.writerow(names)
        yield lambda block: _write_csv(rows, block)
        # the file stays open, because the caller closes it
        text.detach()
    else:
        yield lambda block: _write_ndjson(file, block)


def _write_csv(rows: Any, block: Block) -> None:
    columns = {name: cells(name, column) for name, column in block.items()}
    columns["tags"] = [tags and " ".join(tags) for tags in columns["tags"]]
    if "estimate" in columns:
        columns["estimate"] = [" ".join(map(repr, numbers)) for numbers in columns["estimate"]]
        columns["gone"] = [str(gone).lower() for gone in columns["gone"]]
    rows.writerows(zip(*columns.values(), strict=True))


def _write_ndjson(file: IO[bytes], block: Block) -> None:
    columns = [cells(name, column) for name, column in block.items()]
    items = [
        {name: value for name, value in zip(block, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]
    file.write(msgspec.json.Encoder().encode_lines(items))


@contextmanager
def _parquet(file: IO[bytes], names: tuple[str, ...]) -> Iterator[Write]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UnreadableFile("for Parquet, pip install 'recrawl[arrow]'") from error
    types = {
        "url": pa.string(),
        "tags": pa.list_(pa.string()),
        "kind": pa.string(),
        "observability": pa.string(),
        "estimator": pa.string(),
        "etag": pa.string(),
        "note": pa.string(),
        "estimate": pa.list_(pa.float64()),
        "gone": pa.bool_(),
        "n_observations": pa.int64(),
        "n_changes": pa.int64(),
        "n_pings": pa.int64(),
        "pings_since_crawl": pa.int64(),
        "digest": pa.int64(),
    }
    instant = pa.timestamp("us", "UTC")

    def type_of(name: str) -> Any:
        named_so = name.endswith("_at") or name in ("pings_since", "absent_since", "last_modified")
        return types.get(name, instant if named_so else pa.float64())

    schema = pa.schema([(name, type_of(name)) for name in names])

    def write(block: Block) -> None:
        arrays = [_arrow(pa, name, column, type_of(name)) for name, column in block.items()]
        table.write_batch(pa.record_batch(arrays, schema=schema))

    with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as table:
        yield write


def _arrow(pa: Any, name: str, column: NDArray[Any], kind: Any) -> Any:
    if column.dtype.kind in "OS" or column.ndim > 1:
        return pa.array(column.tolist(), kind)
    if column.dtype.kind == "M":
        return pa.array(column.view(np.int64), pa.int64(), mask=np.isnat(column)).cast(kind)
    return pa.array(column, kind, mask=_absent(name, column))
