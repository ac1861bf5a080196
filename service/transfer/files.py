"""Items in files: CSV with a header, NDJSON or Parquet, read once, in constant memory.

An item is a page, or a page with its state. The functions convert items to columns of the store.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from recrawl_client.wire.common import Etag, Moment
from recrawl_client.wire.pages import Page
from service.model import lenient_json
from service.model.arrays import COLUMN, EPOCH, INSTANT, KEY, UNSPECIFIED, Floats, Instants
from service.model.columns import PageColumns, PageStates
from service.model.domain import Observability
from service.model.errors import InvalidUrl, UnreadableFile
from service.model.urls import NormalUrl, normalise
from service.model.wording import fault_of, worded
from service.storage.tagging import TaggedRows
from service.storage.validators import MOST_NOTE_BYTES, NO_NOTE, ValidatorChanges

BLOCK = 5_000
NUMBERS = ("importance", "min_crawl_rate", "max_crawl_rate")
KINDS = ("csv", "tsv", "ndjson", "jsonl", "parquet")


class Block(NamedTuple):
    """Consecutive items of a file."""

    items: list[dict[str, Any]]
    lines: list[int]
    """Line of each item, from 1; of Parquet the row."""
    skipped: list[tuple[int, str]]
    """Lines without an item, each with the reason."""
    last_line: int
    bytes_read: int
    """Position in the file after the block, bytes; of Parquet in proportion to the rows."""


class _Unusable(NamedTuple):
    reason: str


def kind_of(path: Path) -> str:
    """Return the format by the ending of the name; raise `UnreadableFile` for any other."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in KINDS or (kind == "parquet" and path.suffix == ".gz"):
        raise UnreadableFile(
            f"{path}: the name must end in .csv, .tsv, .ndjson or .jsonl (or .gz), or in .parquet"
        )
    return kind


def read_items(
    path: Path, after_line: int = 0, block: int = BLOCK, *, names: Collection[str] = ()
) -> Iterator[Block]:
    """Yield the items of a file in blocks; the caller checks their values.

    With `names`, a table may have only columns of these names.

    Raises
    ------
    UnreadableFile
        The file is neither CSV with a `url` column nor NDJSON nor Parquet, is not UTF-8, is a
        broken gzip, or has a column outside of `names`.
    """
    kind = kind_of(path)
    if kind == "parquet":
        yield from _parquet(path, after_line, block, names)
        return
    with path.open("rb") as raw:
        content = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        text = io.TextIOWrapper(content, "utf-8-sig", newline="")
        lines = kind in ("ndjson", "jsonl")
        rows = _ndjson(text, after_line) if lines else _csv(text, path, kind, names)
        try:
            while part := list(islice(rows, block)):
                if part[-1][0] > after_line:
                    yield _block([row for row in part if row[0] > after_line], raw.tell())
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"{path}: not UTF-8 ({error.reason}); convert it first") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableFile(f"{path}: the gzip is broken or cut off: {error}") from error
        except csv.Error as error:
            raise UnreadableFile(f"{path}: not CSV: {error}") from error


def holds_states(path: Path) -> bool:
    """Return whether the items of a file are pages with states, by its first item."""
    return "estimator" in next((b.items[0] for b in read_items(path, block=1) if b.items), {})


def _block(rows: list[tuple[int, Any]], bytes_read: int) -> Block:
    good = [(line, item) for line, item in rows if not isinstance(item, _Unusable)]
    return Block(
        items=[item for _, item in good],
        lines=[line for line, _ in good],
        skipped=[(line, item.reason) for line, item in rows if isinstance(item, _Unusable)],
        last_line=rows[-1][0],
        bytes_read=bytes_read,
    )


def _ndjson(text: IO[str], after_line: int) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text, 1):
        if number <= after_line or not line.strip():
            continue
        try:
            item = lenient_json.parse(line)
        except ValueError as error:
            yield number, _Unusable(f"not JSON: {error}")
            continue
        if isinstance(item, lenient_json.Contradiction):
            yield number, _Unusable(str(item))
        else:
            yield number, item if isinstance(item, dict) else _Unusable("not a JSON object")


def _csv(
    text: IO[str], path: Path, kind: str, fields: Collection[str]
) -> Iterator[tuple[int, Any]]:
    rows = csv.reader(text, delimiter="\t" if kind == "tsv" else ",", strict=True)
    names = [name.strip() for name in next(rows, [])]
    if "url" not in names:
        raise UnreadableFile(f"{path}: the first line must name the columns, one of them `url`")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UnreadableFile(f"{path}: two columns are named {twice[0]}; rename or remove one")
    _refuse_unknown(path, names, fields)
    begun = rows.line_num + 1
    try:
        for row in rows:
            if len(row) == len(names):
                yield rows.line_num, _item(names, row)
            elif row:
                yield rows.line_num, _Unusable("more or fewer cells than the header has")
            begun = rows.line_num + 1
    except csv.Error as error:
        raise UnreadableFile(
            f"{path}:{begun}: not CSV from here on: {error}; is a quote left open?"
        ) from error


def _refuse_unknown(path: Path, names: list[str], fields: Collection[str]) -> None:
    """Raise `UnreadableFile` for an unknown column, because each row would be rejected for it."""
    if fields and (unknown := [name for name in names if name and name not in fields]):
        raise UnreadableFile(
            f"{path}: there is no field {', '.join(unknown)}; rename or remove the column "
            f"(fields are {', '.join(fields)})"
        )


def _item(names: list[str], row: list[str]) -> dict[str, Any] | _Unusable:
    """Return the cells that are not empty, numbers as floats."""
    cells = zip(names, map(str.strip, row), strict=True)
    item: dict[str, Any] = {name: cell for name, cell in cells if cell}
    if "tags" in item:
        item["tags"] = item["tags"].split()
    for name in NUMBERS:
        if name in item:
            try:
                item[name] = float(item[name])
            except ValueError:
                return _Unusable(f"{name} is not a number: {item[name][:40]!r}")
    return item


def _parquet(path: Path, after_line: int, block: int, fields: Collection[str]) -> Iterator[Block]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UnreadableFile(f"{path}: for Parquet, pip install 'recrawl[arrow]'") from error
    size, row = path.stat().st_size, 0
    try:
        with ParquetFile(path) as file:
            _refuse_unknown(path, file.schema_arrow.names, fields)
            n_rows = file.metadata.num_rows
            for batch in file.iter_batches(block):
                first, row = row + 1, row + len(batch)
                if row <= after_line:
                    continue
                numbered = enumerate(_items(batch), first)
                rows = [(line, item) for line, item in numbered if line > after_line]
                yield _block(rows, size * row // n_rows)
    except (ArrowException, OSError, ValueError) as error:
        raise UnreadableFile(f"{path}: not Parquet, or no values of its: {error}") from error


def _items(batch: Any) -> Iterator[dict[str, Any]]:
    columns = [_values(column) for column in batch.columns]
    names = batch.schema.names
    for row in zip(*columns, strict=True):
        yield {n: value for n, value in zip(names, row, strict=True) if value is not None}


def _values(column: Any) -> list[Any]:
    """Return a column as Python values.

    Other tools write texts as bytes and numbers as decimals. Instants are converted through UTC,
    because this is a hundred times faster.
    """
    if str(column.type) in ("binary", "large_binary"):
        texts = column.to_pylist()
        return [None if text is None else text.decode(errors="replace") for text in texts]
    if str(column.type).startswith("decimal"):
        column = column.cast("float64")
    if getattr(column.type, "tz", None) is None:
        return list(column.to_pylist())
    naive = column.cast(f"timestamp[{column.type.unit}]").to_pylist()
    return [at and at.replace(tzinfo=UTC) for at in naive]


Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Amount = Annotated[float, Meta(ge=0, le=1e300)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Interval = Annotated[float, Meta(ge=-1e7, le=1e7)]
Digest = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Note = Annotated[str, Meta(max_length=MOST_NOTE_BYTES, description="JSON of a note")]
MICROSECOND = timedelta(microseconds=1)
NAT = np.iinfo(np.int64).min
"""Integer value of numpy's NaT."""


class StateLine(Page, frozen=True, kw_only=True):
    """A page and its state; the fields have the order of a file's columns."""

    created_at: Moment
    estimator: str
    """Name of the estimator of `estimate`."""
    estimate: list[Number]
    interval_factor: Amount
    n_observations: Count
    n_changes: Count
    last_crawl_at: Moment | None = None
    last_observed_at: Moment | None = None
    digest: Digest = 0
    gone: bool = False
    pings_since: Moment
    n_pings: Count = 0
    pings_since_crawl: Count = 0
    last_ping_at: Moment | None = None
    requested_at: Moment | None = None
    ping_credit: Number = 0.0
    real_pings: Number = 0.0
    false_pings: Number = 0.0
    trust: Number = 0.0
    n_failures: Annotated[int, Meta(ge=0, le=1_000)] = 0
    last_interval: Interval = 0.0
    last_age: Annotated[float, Meta(ge=0, le=1e7)] | None = None
    """Days from the last modification that the site reported to the crawl that reported it."""
    etag: Etag | None = None
    last_modified: Moment | None = None
    note: Note | None = None
    """JSON of the note."""


class Parsed(NamedTuple):
    """The good items of a block, each page once, and the bad items by their positions."""

    lines: list[Any]
    position: list[int]
    pages: PageColumns
    rejected: list[tuple[int, str]]

    @property
    def tags(self) -> TaggedRows | None:
        """Tags of the lines that state tags; None if no line does."""
        stated = {
            row: line.tags
            for row, line in enumerate(self.lines)
            if not isinstance(line.tags, UnsetType)
        }
        return TaggedRows.of(stated) if stated else None


def parse(items: Sequence[dict[str, Any]], kind: type[Page]) -> Parsed:
    """Return the checked items with their pages; of items with one URL, keep the newest."""
    lines, rejected = _converted(items, kind)
    pages: dict[bytes, tuple[int, Any, NormalUrl]] = {}
    for position, line in lines:
        try:
            page = normalise(line.url)
        except InvalidUrl as error:
            rejected.append((position, error.detail))
            continue
        low, high = line.min_crawl_rate, line.max_crawl_rate
        if low is not UNSET and high is not UNSET and low > high:
            reason = f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}; lower or drop it"
            rejected.append((position, reason))
            continue
        other = pages.get(page.key)
        if other is None or _evidence_at(line) >= _evidence_at(other[1]):
            pages[page.key] = position, line, page
    positions, newest, normal = zip(*pages.values(), strict=True) if pages else ((), (), ())
    described = _page_columns(list(newest), list(normal))
    return Parsed(list(newest), list(positions), described, rejected)


def _converted(
    items: Sequence[dict[str, Any]], kind: type[Page]
) -> tuple[list[tuple[int, Any]], list[tuple[int, str]]]:
    """Return all items converted at once; after a failure, each item alone without its nulls."""
    for item in items:
        if isinstance(cell := item.get("estimate"), str):
            item["estimate"] = cell.split()
    try:
        return list(enumerate(msgspec.convert(items, list[kind], strict=False))), []  # type: ignore[valid-type]
    except msgspec.ValidationError:
        lines, rejected = [], []
    for position, item in enumerate(items):
        fields = {name: value for name, value in item.items() if value is not None}
        try:
            line = msgspec.convert(fields, kind, strict=False)
        except msgspec.ValidationError as error:
            rejected.append((position, worded(fault_of(error), fields, kind)))
        else:
            lines.append((position, line))
    return lines, rejected


def _evidence_at(line: Page) -> list[datetime]:
    """Return the instants of a line's newest evidence, the later one first."""
    if not isinstance(line, StateLine):
        return []
    return sorted(filter(None, (line.last_crawl_at, line.last_ping_at)), reverse=True)


def _page_columns(lines: list[Page], pages: list[NormalUrl]) -> PageColumns:
    observability = [
        UNSPECIFIED
        if isinstance(line.observability, UnsetType)
        else Observability[line.observability]
        for line in lines
    ]
    return PageColumns(
        key=np.frombuffer(b"".join(page.key for page in pages), KEY),
        url=np.array([page.url for page in pages], object),
        host=np.array([page.host for page in pages], object),
        importance=_numbers([line.importance for line in lines]),
        observability=np.array(observability, np.int16),
        min_crawl_rate=_numbers([line.min_crawl_rate for line in lines]),
        max_crawl_rate=_numbers([line.max_crawl_rate for line in lines]),
    )


def _numbers(values: list[float | UnsetType]) -> Floats:
    return np.array([np.nan if value is UNSET else value for value in values], np.float64)


def instants(moments: Sequence[datetime | None]) -> Instants:
    """Return (N,) moments as instants, to the microsecond; None is NaT."""
    us = [NAT if at is None else (at - EPOCH) // MICROSECOND for at in moments]
    return np.array(us, np.int64).view(INSTANT)


def states_of(lines: list[StateLine]) -> PageStates:
    """Return the states of lines without ids and rates in force, which no line contains."""
    n = len(lines)
    columns = {
        field.name: _column(field.type, [getattr(line, field.name) for line in lines])
        for field in fields(PageStates)
        if field.name in OF_STATES
    }
    return PageStates(
        page_id=np.zeros(n, np.int64),
        observability=np.full(n, UNSPECIFIED, np.int16),
        host_id=np.zeros(n, np.int64),
        url_group=np.zeros(n, np.int32),
        urgency=np.full(n, np.nan),
        redirects_to=np.zeros(n, np.int64),
        crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan),
        **columns,
    )


def _column(kind: Any, values: list[Any]) -> Any:
    return instants(values) if kind == Instants else np.array(values, COLUMN[kind])


def validators_of(lines: list[StateLine]) -> ValidatorChanges:
    """Return the validators and notes of lines, which replace the stored ones."""
    return ValidatorChanges(
        page_id=np.zeros(len(lines), np.int64),
        etag=np.array([line.etag or "" for line in lines], object),
        last_modified=instants([line.last_modified for line in lines]),
        note=np.array([line.note or NO_NOTE for line in lines], object),
        resets=np.ones(len(lines), np.bool_),
    )


OF_STATES = frozenset(StateLine.__struct_fields__) - {"observability"}
"""Fields of a state in a line, without the observability, which belongs to the page."""
