"""Text files read as bytes, also compressed: blocks of lines in constant memory."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from service.model.errors import UnreadableFile

TOGETHER = 1 << 24
"""Bytes of one block of lines."""
MARK = codecs.BOM_UTF8
"""Bytes before a text that do not count."""
LONGEST = 1 << 16
"""Maximum length of a line, bytes; the rest of a longer one is dropped, so it cannot be read."""
GZIP = b"\x1f\x8b"
COMPRESSION = 10
"""Bytes of an index for each byte of its gzip."""


def is_gzip(path: Path) -> bool:
    """Return whether a file is compressed, by its name or its first bytes."""
    with path.open("rb") as raw:
        return path.suffix == ".gz" or raw.read(len(GZIP)) == GZIP


def content_bytes(path: Path) -> int:
    """Return the size of a file's content, bytes, as far as its size shows it."""
    return path.stat().st_size * (COMPRESSION if is_gzip(path) else 1)


@contextmanager
def content_of(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the content of a file and the file itself, whose position is the progress.

    Raises
    ------
    UnreadableFile
        The gzip is broken or cut off.
    """
    compressed = is_gzip(path)
    with path.open("rb") as raw:
        try:
            yield (gzip.GzipFile(fileobj=raw) if compressed else raw), raw  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableFile(f"{path}: the gzip is broken or cut off: {error}") from error


def line_blocks(path: Path) -> Iterator[tuple[int, list[bytes], int]]:
    """Yield blocks of lines with the number of the first line and the position in the file.

    Lines have no end; a line with spaces alone is empty.
    """
    number, rest, mark = 1, b"", MARK
    with content_of(path) as (content, raw):
        while chunk := content.read(TOGETHER):
            chunk, mark = chunk.removeprefix(mark), b""
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()[:LONGEST]
            yield number, [line.rstrip() for line in lines], raw.tell()
            number += len(lines)
        if rest:
            yield number, [rest.rstrip()], raw.tell()


def first_lines(path: Path, n_bytes: int = LONGEST) -> list[bytes]:
    """Return the lines at the begin of a file, without blank lines and comments."""
    with content_of(path) as (content, _):
        lines = content.read(n_bytes).removeprefix(MARK).split(b"\n")
    return [line.rstrip() for line in lines if line.strip() and not line.startswith(b"#")]
