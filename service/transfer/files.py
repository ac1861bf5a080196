"""Items in files: lists of URLs, CSV with a header, NDJSON or Parquet, in constant memory."""

import csv
import io
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from service.model import lenient_json
from service.model.errors import UnreadableFile
from service.transfer.captures import CDX_LETTERS, DIGITS
from service.transfer.text import content_of, first_lines

BLOCK = 5_000
NUMBERS = ("importance", "min_crawl_rate", "max_crawl_rate")
TOO_WIDE = "field larger than field limit"
"""Words of Python's reader of CSV about a cell that is too long."""
KINDS = ("urls", "csv", "tsv", "ndjson", "parquet")
ENDINGS = {"csv": "csv", "tsv": "tsv", "ndjson": "ndjson", "jsonl": "ndjson", "parquet": "parquet"}
"""Format by the ending of a name."""
OTHERS = {
    b"WARC/": "is a WARC; list its captures by cdxj-indexer, and import the list",
    b"<": "is a document; pass sitemaps and feeds on by `recrawl watch`",
    b"[": "is a JSON array; write one object a line, as by jq -c '.[]'",
    b"PK\x03\x04": "is a zip or a spreadsheet; unpack it, or save it as CSV",
    b"\xff\xfe": "is UTF-16; convert it, as by iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16; convert it, as by iconv -f UTF-16 -t UTF-8",
}
"""Words about files of no format, with the remedy, by the first bytes."""
URL = re.compile(rb"https?://\S+", re.IGNORECASE)
WHITESPACE = re.compile(r"\s")
ONE_URL = "whitespace in a URL; leave one URL in each line, with its spaces as %20"
"""Reason to skip a line of a list of URLs."""
CDXJ = re.compile(rb"\S+ \d{4,17} \{")


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
    kind = ENDINGS.get(path.name.lower().removesuffix(".gz").rpartition(".")[2])
    if kind is None or (kind == "parquet" and path.suffix == ".gz"):
        raise UnreadableFile(
            f"{path}: the name must end in .csv, .tsv, .ndjson or .jsonl (or .gz), or in .parquet"
        )
    return kind


def format_of(path: Path) -> str:
    """Return the format of a file: one of `KINDS`, or of `captures.PARSERS`.

    The first line shows an index of captures, the ending of the name a file of pages. The first
    line decides on other names. Raise `UnreadableFile` where none fits.
    """
    lines = [line for line in first_lines(path) if line[:1] not in (b"!", b"@")]
    first = lines[0] if lines else b""
    if kind := _of_captures(first):
        return kind
    for begin, remedy in OTHERS.items():
        if first.startswith(begin):
            raise UnreadableFile(f"{path} {remedy}")
    with suppress(UnreadableFile):
        return kind_of(path)
    if first.startswith(b"{"):
        return "ndjson"
    for kind, separator in (("csv", b","), ("tsv", b"\t")):
        if b"url" in [name.strip() for name in first.split(separator)]:
            return kind
    if not first or URL.fullmatch(first):
        return "urls"
    raise UnreadableFile(
        f"{path}: the first line {first[:40].decode(errors='replace')!r} is no URL, because it "
        "has no scheme such as https://, no header of a table with a column `url`, and no capture "
        "of an index; say the format with --format"
    )


def _of_captures(line: bytes) -> str | None:
    """Return the format of the index of captures that a line belongs to; None: to none."""
    if line.startswith((b" CDX ", b"CDX ")):
        return "cdx"
    if CDXJ.match(line):
        return "cdxj"
    if line.startswith((b'[["', b'["')) or (line.startswith(b"{") and b'"timestamp"' in line):
        return "index"
    if line == b"[]" or line.startswith(b'{"message"'):  # an index without captures
        return "index"
    cells = line.split()
    is_row = len(cells) in CDX_LETTERS and cells[1].isdigit() and len(cells[1]) == DIGITS
    return "cdx" if is_row else None


def read_items(
    path: Path,
    after_line: int = 0,
    block: int = BLOCK,
    *,
    names: Collection[str] = (),
    kind: str | None = None,
) -> Iterator[Block]:
    """Yield the items of a file in blocks; the caller checks their values.

    With `names`, a table may have only columns of these names. Without its kind, one of `KINDS`,
    the file shows it.

    Raises
    ------
    UnreadableFile
        The file is no list of URLs, CSV with a `url` column, NDJSON or Parquet, is not UTF-8, is a
        broken gzip, or has a column outside of `names`.
    """
    kind = kind or format_of(path)
    if kind == "parquet":
        yield from _parquet(path, after_line, block, names)
        return
    with content_of(path) as (content, raw):
        # a byte order mark is no part of the first name
        text = io.TextIOWrapper(content, "utf-8-sig", newline="")
        if kind == "urls":
            rows = _urls(text)
        else:
            rows = _ndjson(text, after_line) if kind == "ndjson" else _csv(text, path, kind, names)
        try:
            while part := list(islice(rows, block)):
                _refuse_log(path, part[0][1], names)
                if part[-1][0] > after_line:
                    yield _block([row for row in part if row[0] > after_line], raw.tell())
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"{path}: not UTF-8 ({error.reason}); convert it first") from error
        except csv.Error as error:
            raise UnreadableFile(f"{path}: not CSV: {error}") from error


def holds_states(path: Path, kind: str | None = None) -> bool:
    """Return whether the items of a file are pages with states, by its first item."""
    blocks = read_items(path, block=1, kind=kind)
    return "estimator" in next((b.items[0] for b in blocks if b.items), {})


def _block(rows: list[tuple[int, Any]], bytes_read: int) -> Block:
    good = [(line, item) for line, item in rows if not isinstance(item, _Unusable)]
    return Block(
        items=[item for _, item in good],
        lines=[line for line, _ in good],
        skipped=[(line, item.reason) for line, item in rows if isinstance(item, _Unusable)],
        last_line=rows[-1][0],
        bytes_read=bytes_read,
    )


def _urls(text: IO[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text, 1):
        if (url := line.strip()) and not url.startswith("#"):
            inner = WHITESPACE.search(url)
            yield number, _Unusable(ONE_URL) if inner else {"url": url}


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
    widest = csv.field_size_limit()
    names = [name.strip() for name in next(rows, [])]
    if "url" not in names:
        between = "tabs" if kind == "tsv" else "commas"
        raise UnreadableFile(
            f"{path}: the first line must name the columns, with {between} between them, one of "
            "them `url`"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise UnreadableFile(f"{path}: two columns are named {twice[0]}; rename or remove one")
    _refuse_unknown(path, names, fields)
    # cells may have line ends, and an open quote swallows the rest: errors name its first line
    begun = rows.line_num + 1
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            # the reader drops the rest of the line, so the next line begins a row
            if TOO_WIDE not in str(error) or rows.line_num > begun:
                raise UnreadableFile(
                    f"{path}:{begun}: not CSV from here on: {error}; is a quote left open?"
                ) from error
            yield begun, _Unusable(f"a cell has over {widest:,} characters; shorten it")
        else:
            if len(row) == len(names):
                yield rows.line_num, _item(names, row)
            elif row:
                yield rows.line_num, _Unusable("more or fewer cells than the header has")
        begun = rows.line_num + 1


def _refuse_log(path: Path, item: Any, fields: Collection[str]) -> None:
    # Raise `UnreadableFile` for the crawls of a log, which are no pages.
    is_log = isinstance(item, dict | list) and "observed_at" in item
    if is_log and fields and "observed_at" not in fields:
        raise UnreadableFile(
            f"{path}: this is a log of crawls, as it has `observed_at`; send its lines to "
            "POST /observations, the oldest first"
        )


def _refuse_unknown(path: Path, names: list[str], fields: Collection[str]) -> None:
    # Raise `UnreadableFile` for an unknown column, because each row would be rejected for it.
    _refuse_log(path, names, fields)
    if fields and (unknown := [name for name in names if name and name not in fields]):
        raise UnreadableFile(
            f"{path}: there is no field {', '.join(unknown)}; rename or remove the column "
            f"(fields are {', '.join(fields)})"
        )


def _item(names: list[str], row: list[str]) -> dict[str, Any]:
    """Return the cells that are not empty, numbers as floats."""
    cells = zip(names, map(str.strip, row), strict=True)
    item: dict[str, Any] = {name: cell for name, cell in cells if cell}
    if "tags" in item:
        item["tags"] = item["tags"].split()
    for name in NUMBERS:
        if name in item:
            with suppress(ValueError):  # its page is refused with the words of the API
                item[name] = float(item[name])
    return item


def _parquet(path: Path, after_line: int, block: int, fields: Collection[str]) -> Iterator[Block]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UnreadableFile(f"{path}: for Parquet, pip install 'recrawl[arrow]'") from error
    size, row = path.stat().st_size, 0
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
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
