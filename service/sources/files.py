"""Pages in files: CSV with a header or NDJSON, plain or gzipped, read once, in constant memory."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from service.errors import UnreadableFile

BLOCK = 5_000
NUMBERS = ("importance", "min_crawl_rate", "max_crawl_rate")


class Block(NamedTuple):
    """Some items of a file."""

    items: list[dict[str, Any]]
    lines: list[int]
    """The line each item stands in."""
    skipped: list[tuple[int, str]]
    """Lines that are no items, and why."""
    bytes_read: int
    """Of the file as it lies on disk."""


class _Unusable(NamedTuple):
    reason: str


def read_pages(path: Path, block: int = BLOCK) -> Iterator[Block]:
    """Give a file's items as POST /pages takes them; what is in them, the service judges.

    Raises
    ------
    UnreadableFile
        Neither CSV with a `url` column nor NDJSON, not UTF-8, or a broken gzip.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in ("csv", "tsv", "ndjson", "jsonl"):
        raise UnreadableFile(f"{path}: the name must end in .csv, .tsv, .ndjson or .jsonl (or .gz)")
    with path.open("rb") as raw:
        content = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        text = io.TextIOWrapper(content, "utf-8-sig", newline="")
        rows = _ndjson(text) if kind in ("ndjson", "jsonl") else _csv(text, path, kind)
        try:
            while found := list(islice(rows, block)):
                yield _block(found, raw)
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"{path}: not UTF-8 ({error.reason}); convert it first") from error
        except (EOFError, gzip.BadGzipFile) as error:
            raise UnreadableFile(f"{path}: the gzip is broken or cut off: {error}") from error
        except csv.Error as error:
            raise UnreadableFile(f"{path}: not CSV: {error}") from error


def _block(found: list[tuple[int, Any]], raw: IO[bytes]) -> Block:
    good = [(line, item) for line, item in found if not isinstance(item, _Unusable)]
    return Block(
        items=[item for _, item in good],
        lines=[line for line, _ in good],
        skipped=[(line, item.reason) for line, item in found if isinstance(item, _Unusable)],
        bytes_read=raw.tell(),
    )


def _ndjson(text: IO[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, _Unusable(f"not JSON: {error}")
            continue
        yield number, item if isinstance(item, dict) else _Unusable("not a JSON object")


def _csv(text: IO[str], path: Path, kind: str) -> Iterator[tuple[int, Any]]:
    rows = csv.DictReader(text, delimiter="\t" if kind == "tsv" else ",")
    if "url" not in (rows.fieldnames or ()):
        raise UnreadableFile(f"{path}: the first line must name the columns, one of them `url`")
    for row in rows:
        if None in row or None in row.values():
            yield rows.line_num, _Unusable("more or fewer cells than the header has")
        else:
            yield rows.line_num, _item(row)


def _item(row: dict[str, str]) -> dict[str, Any] | _Unusable:
    """Leave empty cells out and turn numbers into numbers."""
    item: dict[str, Any] = {name: cell.strip() for name, cell in row.items() if cell.strip()}
    for name in NUMBERS:
        if name in item:
            try:
                item[name] = float(item[name])
            except ValueError:
                return _Unusable(f"{name} is not a number: {item[name][:40]!r}")
    return item
