"""Captures of archives, read from their indexes: CDX, CDXJ, and JSON of Common Crawl and Wayback.

A line is one capture: URL, time, status, MIME type and digest. Content shows in a capture of status
200 with a digest. A revisit and a 304 repeat content. All other captures show none.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.estimation.captures import FORM
from service.model.arrays import INSTANT, KEY, OLDEST, Bools, Instants, instant
from service.model.errors import InvalidUrl, UnreadableFile
from service.model.urls import normalise
from service.model.words import counted
from service.transfer.text import line_blocks

REVISIT = "warc/revisit"
LONGEST_SHOWN = 80
"""Maximum characters of a bad value that a reason repeats."""
DIGITS = 14
"""Digits of a time: YYYYMMDDhhmmss."""
FORMS = {26: 1, 32: 2, 40: 3, 52: 4, 56: 4, 64: 5, 128: 6}
"""Form of a digest by its length: MD5, SHA-1, SHA-256 and SHA-512, in base 32 or base 16."""
MOST_MONTH, MOST_HOUR, MOST_MINUTE = 12, 23, 59
RECORD = np.dtype([("key", KEY), ("at", INSTANT), ("digest", np.int64)])
"""A capture that shows content: key of its page, time, hash of the digest; 0: a repetition."""
OTHER_SCHEMES = ("dns:", "urn:", "metadata:", "urn:pageinfo:", "ftp:", "whois:", "screenshot:")
"""Beginnings of what archives list beside pages."""
NEEDED = (("original", "url"), ("timestamp",), ("statuscode", "status"), ("digest",))
"""Names of the cells of an index that are needed, each by Wayback's name first."""
ROWS = re.compile(rb"\]\s*,\s*\[")
"""Pattern between two rows."""
CDX_LETTERS = {7: "NbamskS", 9: "NbamskrVg", 10: "NbamskrMVg", 11: "NbamskrMSVg"}
"""Columns of a CDX without a header, by their number. The first is what Wayback's server sends."""

Fields = tuple[str, bytes, Any, str | None, str | None]
"""URL, time, status, MIME type and digest of a capture."""


class BadLine(ValueError):
    """A line that cannot be read, with the reason and the remedy."""


class CaptureBlock(NamedTuple):
    """The captures of consecutive lines."""

    records: NDArray[Any]
    """(N,) captures that show content (`RECORD`)."""
    pages: dict[bytes, str]
    """Normal URL of each key in the records."""
    n_other: int
    """Captures that show no content of a page."""
    unreadable: list[tuple[int, str]]
    bytes_read: int


class _Item(msgspec.Struct):
    """JSON of a capture by the names of CDXJ and Common Crawl, or those of Wayback's server."""

    url: str = ""
    original: str = ""
    timestamp: str = ""
    status: str | int | None = None
    statuscode: str | int | None = None
    mime: str | None = None
    mimetype: str | None = None
    digest: str | None = None
    method: str | None = None
    message: str | None = None
    """Answer of Common Crawl's index in place of captures."""

    def fields(self, at: bytes) -> Fields | None:
        """Return the fields of the capture; None if it is no GET.

        Raise `BadLine` for the words of an index that has no captures.
        """
        if self.message is not None and not (self.url or self.original):
            raise BadLine(f"has the answer {_brief(self.message)} of an index; ask another index")
        if self.method is not None and self.method != "GET":
            return None
        status = self.statuscode if self.status is None else self.status
        return self.url or self.original, at, status, self.mime or self.mimetype, self.digest


_ITEM = msgspec.json.Decoder(_Item)
_ROW = msgspec.json.Decoder(list[str | int | None])
NO_CAPTURE: Fields = ("", b"", None, None, None)
"""Fields of a capture that is no page."""


def _cdxj(line: bytes) -> Fields | None:
    """Return the capture of `key time {JSON}`."""
    if line[:1] in b"!@#":  # headers and comments
        return None
    try:
        _, at, text = line.split(b" ", 2)
    except ValueError:
        raise BadLine("is not `key time {JSON}`; remove it") from None
    return _decoded(text).fields(at) or NO_CAPTURE


def _decoded(text: bytes) -> _Item:
    try:
        return _ITEM.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"has no JSON of a capture: {error}; remove or mend it") from None


class _Index:
    """JSON of an index: one object a line, or one array a line after the names of its cells."""

    names: dict[str, int] | None = None

    def __call__(self, line: bytes) -> Fields | None:
        if line.startswith(b"["):
            return self._row(line)
        item = _decoded(line)
        return item.fields(item.timestamp.encode()) or NO_CAPTURE

    def _row(self, line: bytes) -> Fields | None:
        text = line.rstrip(b",")
        text = text[1:] if text.startswith(b"[[") else text
        text = text[:-1] if text.endswith(b"]]") else text
        try:
            row = _ROW.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if ROWS.search(text):
                raise BadLine("has several rows; write one a line, as by jq -c '.[]'") from None
            raise BadLine(f"is no row of an index: {error}; remove or mend it") from None
        if not row:
            return None
        if self.names is None:
            self.names = _places([str(name) for name in row])
            return None
        if len(row) != len(self.names):
            own = counted(len(row), "cell")
            raise BadLine(f"has {own} where the first has {len(self.names)}; remove it")
        cells = {name: row[place] for name, place in self.names.items()}
        try:
            item = msgspec.convert({k: v for k, v in cells.items() if v is not None}, _Item)
        except msgspec.ValidationError as error:
            raise BadLine(f"is no row of an index: {error}; remove or mend it") from None
        return item.fields(item.timestamp.encode())


def _places(names: list[str]) -> dict[str, int]:
    """Return the place of each cell by its name; raise `UnreadableFile` if one is missing."""
    for needed in NEEDED:
        if not any(name in names for name in needed):
            raise UnreadableFile(
                f"the first row lacks the name {needed[0]}; ask the index for this field too, "
                "and do not collapse captures"
            )
    return {name: place for place, name in enumerate(names)}


class _Cdx:
    """Columns by the letters of the header; without a header, by their number."""

    def __init__(self) -> None:
        self.n_columns = 0
        self.places = (0, 0, 0, 0, 0)

    def __call__(self, line: bytes) -> Fields | None:
        if line.startswith((b" CDX ", b"CDX ")):
            self._take(line.decode(errors="replace").split()[1:])
            return None
        cells = line.split()
        if not self.n_columns:
            if len(cells) not in CDX_LETTERS:
                raise BadLine(
                    f"has {counted(len(cells), 'column')} and no header ` CDX …` names them; "
                    "add the header"
                )
            self._take(list(CDX_LETTERS[len(cells)]))
        if len(cells) != self.n_columns:
            raise BadLine(
                f"has {counted(len(cells), 'column')} where the header names {self.n_columns}; "
                "remove it"
            )
        url, at, status, mime, digest = self.places
        return (
            _text(cells[url]),
            cells[at],
            _text(cells[status]),
            _text(cells[mime]),
            _text(cells[digest]),
        )

    def _take(self, letters: list[str]) -> None:
        """Learn the columns from the letters: a URL, b time, s status, m MIME type, k digest."""
        if missing := [letter for letter in "absmk" if letter not in letters]:
            raise UnreadableFile(
                f"the header of the CDX lacks the letter {missing[0]}; of the columns, a (URL), "
                "b (time), s (status), m (MIME type) and k (digest) are needed"
            )
        self.n_columns = len(letters)
        url, at, status, mime, digest = (letters.index(letter) for letter in "absmk")
        self.places = url, at, status, mime, digest


def _text(cell: bytes) -> str:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        raise BadLine(f"is not UTF-8: {_brief(_plain(cell))}; percent-encode it") from None


PARSERS: dict[str, Callable[[], Callable[[bytes], Fields | None]]] = {
    "cdx": _Cdx,
    "cdxj": lambda: _cdxj,
    "index": _Index,
}
"""Parsers of a line by format; a parser returns None for a line without a capture."""


def read_captures(path: Path, kind: str, now: datetime) -> Iterator[CaptureBlock]:
    """Yield the captures of a file in blocks.

    Raises
    ------
    UnreadableFile
        The gzip is broken or cut off, or the header of a CDX lacks a column.
    """
    parse = PARSERS[kind]()
    for first, lines, bytes_read in line_blocks(path):
        try:
            block = parsed(lines, first, parse, now)
        except UnreadableFile as error:
            raise UnreadableFile(f"{path}: {error.detail}") from error
        yield block._replace(bytes_read=bytes_read)


def parsed(
    lines: Sequence[bytes], first: int, parse: Callable[[bytes], Fields | None], now: datetime
) -> CaptureBlock:
    """Return the captures of lines; `first` is the number of the first line."""
    unreadable: list[tuple[int, str]] = []
    keys: dict[str, bytes | BadLine | None] = {}
    pages: dict[bytes, str] = {}
    key, number, time, digest, n_other = [], [], [], [], 0
    for at_line, line in enumerate(lines, first):
        try:
            if not line or (fields := parse(line)) is None:
                continue
            url, at, status, mime, text = fields
            if (content := shown(status, mime, text)) is None:
                n_other += 1
                continue
            if url not in keys:
                keys[url] = _page(url, pages)
            if (page := keys[url]) is None:
                n_other += 1
                continue
            key.append(_good(page, at))
        except BadLine as error:
            unreadable.append((at_line, str(error)))
            continue
        number.append(at_line)
        time.append(at)
        digest.append(content)
    records = np.empty(len(key), RECORD)
    records["key"] = np.frombuffer(b"".join(key), KEY)
    records["digest"] = digest
    records["at"], good = times(time, now)
    for row in np.flatnonzero(~good).tolist():
        reason = f"has the time {_plain(time[row])}, which is no date or in the future; mend it"
        unreadable.append((number[row], reason))
    return CaptureBlock(records[good], pages, n_other, sorted(unreadable), 0)


def _good(page: bytes | BadLine, at: bytes) -> bytes:
    """Return the key of a page; raise `BadLine` if the URL or the form of the time is bad."""
    if isinstance(page, BadLine):
        raise page
    if len(at) < DIGITS or not at.isdigit():
        raise BadLine(f"has the time {_brief(_plain(at))}; write YYYYMMDDhhmmss")
    return page


def shown(status: Any, mime: str | None, digest: str | None) -> int | None:
    """Return the hash of the content, 0 for that of the capture before; None: none is shown."""
    named = bool(digest) and digest != "-"
    if status in ("200", 200) and mime != REVISIT:
        return digest_number(digest) if named else None
    if status in ("304", 304):
        # the digest of a 304 is that of an empty body
        return digest_number(digest) if named and mime == REVISIT else 0
    if mime == REVISIT and status in ("-", "", None, "200", 200):
        return digest_number(digest) if named else 0
    return None


def digest_number(digest: str | None) -> int:
    """Return a number for a digest, which is compared within one import only; not 0.

    Its last bits are the form of the digest (`FORM`).
    """
    text = (digest or "").rpartition(":")[2]
    return (hash(text) & ~FORM | FORMS.get(len(text), 0)) or FORM + 1


def _page(url: str, pages: dict[bytes, str]) -> bytes | BadLine | None:
    """Return the key of a page and note its URL; None for what is no page."""
    try:
        page = normalise(url)
    except InvalidUrl as error:
        if not url or url.lower().startswith(OTHER_SCHEMES):
            return None
        return BadLine(f"has the URL {_brief(url)}: {error.detail}")
    pages[page.key] = page.url
    return page.key


def _plain(text: bytes) -> str:
    return text.decode(errors="replace")


def _brief(text: str) -> str:
    return repr(text[:LONGEST_SHOWN])


def times(texts: Iterable[bytes], now: datetime) -> tuple[Instants, Bools]:
    """Return (N,) instants of times of at least 14 digits, and which of them are dates until now.

    >>> from datetime import UTC
    >>> at, good = times([b"20240229120000", b"20230229120000"], datetime(2026, 1, 1, tzinfo=UTC))
    >>> at[good].tolist()
    [datetime.datetime(2024, 2, 29, 12, 0)]
    """
    digits = np.array(list(texts), f"S{DIGITS}").view(np.uint8).reshape(-1, DIGITS)
    pairs = (digits.astype(np.int64) - ord("0")).reshape(-1, 7, 2) @ np.array([10, 1])
    century, year, month, day, hour, minute, second = pairs.T
    months = (century * 100 + year - 1970) * 12 + month - 1
    dates = months.astype("M8[M]").astype("M8[D]") + (day - 1)
    seconds = (hour * 60 + minute) * 60 + second
    at = dates.astype(INSTANT) + seconds.astype("m8[s]")
    good = (month >= 1) & (month <= MOST_MONTH) & (dates.astype("M8[M]").astype(int) == months)
    good &= (hour <= MOST_HOUR) & (minute <= MOST_MINUTE) & (second <= MOST_MINUTE)
    good &= (at >= instant(OLDEST)) & (at <= instant(now))
    return at, good
