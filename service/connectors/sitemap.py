"""Sitemap documents: bytes in, entries out, one at a time; nothing is ever fetched.

The reader accepts every form of the sitemap protocol: urlset, index and text, plain or gzip. The
reader also accepts the deviations of real sites:

- any namespace, and extensions for news, images and videos,
- a byte-order mark, and blanks before the first tag,
- a document that breaks off: `warnings` reports the place, after the entries before the place.

Entities are never expanded, and the inflated size has a limit.
"""

import codecs
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Literal, NamedTuple

from service.connectors.markup import PIECE, Declared, elements
from service.model.errors import BodyTooLarge, MalformedBody

EMPTY_PART = 1_000
"""Size that an empty member of a gzip counts for, bytes; this avoids endless empty members."""
GZIP = b"\x1f\x8b"
MAX_LAYERS = 2
"""Maximum layers of gzip; a .gz file sent with Content-Encoding gzip has two."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LONGEST_MARK = 3
MAX_LINE = 8_192
"""Maximum length of a line of a text sitemap, characters; the rest of the line is dropped."""

Kind = Literal["urlset", "index", "text"]
ROOTS: dict[str, Kind] = {"urlset": "urlset", "sitemapindex": "index"}
ENTRIES: dict[str, Kind] = {"url": "urlset", "sitemap": "index"}
FIELDS = ("loc", "lastmod")
ENTRY_DEPTH, FIELD_DEPTH = 2, 3


class SitemapEntry(NamedTuple):
    """One page of a sitemap, or one sitemap of an index."""

    position: int
    """Position in the document, from 0."""
    loc: str
    """Address; empty where the entry has none."""
    lastmod: str | None
    is_child: bool
    """True for a sitemap to fetch, false for a page."""


class Sitemap:
    r"""A sitemap document that is read once.

    After the last entry, `kind`, `warnings` and `broke_off` are final. `broke_off` is true where
    a part of the document could not be read.

    Raises
    ------
    BodyTooLarge
        The document inflates to more than `max_bytes`; raised before the first entry.
    MalformedBody
        The document is no sitemap, has no readable part, or declares entities or attributes.

    Examples
    --------
    >>> sitemap = Sitemap(b"https://example.com/\nhttps://example.com/news\n", 1_000)
    >>> [entry.loc for entry in sitemap], sitemap.kind, sitemap.warnings
    (['https://example.com/', 'https://example.com/news'], 'text', [])
    """

    def __init__(self, content: bytes, max_bytes: int) -> None:
        self.kind: Kind = "text"
        self.warnings: list[str] = []
        self.broke_off = False
        for _ in self._inflated(content, max_bytes):  # measured before the first entry is used
            pass
        self.warnings.clear()
        self.broke_off = False
        self._pieces = filter(None, self._inflated(content, max_bytes))

    def __iter__(self) -> Iterator[SitemapEntry]:
        """Yield the entries in their order."""
        head, encoding = _start(self._pieces)
        if not head:
            raise MalformedBody("; ".join(["the document is empty", *self.warnings]))
        whole = chain([head], self._pieces)
        is_xml = head.decode(encoding, "ignore").lstrip()[:1] == "<"
        return self._xml(whole) if is_xml else self._text(whole, encoding)

    def _inflated(self, content: bytes, max_bytes: int) -> Iterator[bytes]:
        """Yield the inflated document in pieces."""
        pieces: Iterator[bytes] = (
            content[start : start + PIECE] for start in range(0, len(content), PIECE)
        )
        for _ in range(MAX_LAYERS):
            first = next(pieces, b"")
            pieces = chain([first], pieces)
            if not first.startswith(GZIP):
                break
            pieces = _limited(self._gunzip(pieces), max_bytes)
        return _limited(pieces, max_bytes)

    def _gunzip(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the content of one gzip, up to the break of a broken one."""
        member = zlib.decompressobj(wbits=31)
        try:
            for piece in pieces:
                rest = piece
                while rest:
                    if member.eof:
                        if not rest.startswith(GZIP[: len(rest)]):
                            return  # padding after the last member
                        member = zlib.decompressobj(wbits=31)
                    if (inflated := member.decompress(rest, PIECE)) or member.eof:
                        yield inflated
                    rest = member.unused_data if member.eof else member.unconsumed_tail
        except zlib.error as error:
            self._break_off(f"the gzip is broken ({error}); what came before was taken")
        else:
            if not member.eof:
                self._break_off("the gzip was cut short; what came before was taken")

    def _break_off(self, warning: str) -> None:
        self.broke_off = True
        self._warn(warning)

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _text(self, pieces: Iterable[bytes], encoding: str) -> Iterator[SitemapEntry]:
        """Yield an entry for each line."""
        position = 0
        for line in _lines(pieces, encoding):
            if loc := line.strip():
                yield SitemapEntry(position, loc, None, is_child=False)
                position += 1
        if not position:
            self._warn("the text holds no address; a sitemap of text has one URL a line")

    def _xml(self, pieces: Iterable[bytes]) -> Iterator[SitemapEntry]:
        """Yield the entries, and warn where the document breaks off after its root."""
        n_entries, root = 0, ""
        try:
            for part in _elements(pieces):
                if isinstance(part, str):
                    root = self._root(part)
                    continue
                yield SitemapEntry(n_entries, *part)
                n_entries += 1
                self._judge(root, is_child=part.is_child, first=n_entries == 1)
        except Declared as error:
            raise MalformedBody(
                "the document declares entities, which are never expanded (limit: none), or "
                "attributes by default; write the characters themselves, and & as &amp;"
            ) from error
        except ValueError as error:
            if not root:
                raise MalformedBody(f"the document is not well-formed XML: {error}") from error
            self._break_off(
                f"the document was cut short or is broken after {n_entries} entries: {error}"
            )

    def _root(self, name: str) -> str:
        if name not in ROOTS:
            raise MalformedBody(
                f"the document's root is <{name[:40]}>; a sitemap has urlset or sitemapindex, "
                "or is text with one URL a line"
            )
        self.kind = ROOTS[name]
        return name

    def _judge(self, root: str, *, is_child: bool, first: bool) -> None:
        """Set the kind by the entries, even against the root."""
        name = "sitemap" if is_child else "url"
        if ENTRIES[name] != ROOTS[root]:
            self._warn(f"the root is {root}, but entries are <{name}>; they were taken as such")
            if first:
                self.kind = ENTRIES[name]


class _Fields(NamedTuple):
    """Fields of an entry."""

    loc: str
    lastmod: str | None
    is_child: bool


def _elements(pieces: Iterable[bytes]) -> Iterator[str | _Fields]:
    """Yield the root's name, then each entry at its end tag; memory of read elements is freed.

    A field counts only in its entry's own namespace, so `image:loc` is no `loc`.
    """
    fields: dict[str, str] = {}
    for event, element in elements(pieces):
        if event == "start":
            if element.parent is None:
                yield element.local
        elif element.depth == ENTRY_DEPTH:
            name = element.local
            if name in ENTRIES:
                yield _Fields(fields.get("loc", ""), fields.get("lastmod"), name == "sitemap")
            fields = {}
        elif (
            element.depth == FIELD_DEPTH
            and element.parent is not None
            and element.local in FIELDS
            and element.namespace == element.parent.namespace
        ):
            fields.setdefault(element.local, element.text)


def _start(pieces: Iterator[bytes]) -> tuple[bytes, str]:
    """Return the first bytes after a byte-order mark and blanks, and the encoding.

    The mark of UTF-16 stays in place, because its decoders need the mark.
    """
    head = b""
    while len(head) < LONGEST_MARK and (piece := next(pieces, b"")):
        head += piece
    if head.startswith(UTF_16):
        return head, "utf-16"
    head = head.removeprefix(codecs.BOM_UTF8).lstrip()
    while not head and (piece := next(pieces, b"")):
        head = piece.lstrip()
    return head, "utf-8"


def _lines(pieces: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Yield lines of text; invalid bytes become replacement characters."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    line = ""
    for piece in pieces:
        *whole, line = (line + decoder.decode(piece)).replace("\r", "\n").split("\n")
        yield from (each[:MAX_LINE] for each in whole)
        line = line[:MAX_LINE]
    yield line


def _limited(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece) or EMPTY_PART
        if size > max_bytes:
            raise BodyTooLarge(
                f"the document inflates to over {max_bytes} bytes; split it under a sitemap index, "
                "or raise RECRAWL_MAX_BODY_BYTES"
            )
        yield piece


YEAR, MONTH, DAY, LONGEST = 4, 7, 10, 40
"""Length of a year, of a month and of a day, and maximum length of a date, characters."""
SPANS = {YEAR: timedelta(366), MONTH: timedelta(31)}
WEST = timedelta(hours=12)
"""Difference between UTC and the westernmost time zone, where a day ends last."""


def parse_lastmod(lastmod: str) -> datetime | None:
    """Return the instant of a date in any of the W3C's forms; None for other text.

    A year, a month or a day stands for its beginning, so equal texts are equal instants (see
    `latest`). A time without a zone is UTC.

    >>> parse_lastmod("2004-12"), parse_lastmod("2004-12-23T18:00:15+02:00")
    (datetime.datetime(2004, 12, 1, 0, 0, tzinfo=datetime.timezone.utc),
     datetime.datetime(2004, 12, 23, 16, 0, 15, tzinfo=datetime.timezone.utc))
    >>> parse_lastmod("yesterday")
    """
    lastmod = lastmod.strip()
    if len(lastmod) > LONGEST:
        return None
    whole = lastmod + {YEAR: "-01-01", MONTH: "-01"}.get(len(lastmod), "")
    try:
        moment = datetime.fromisoformat(whole)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def latest(lastmod: str, moment: datetime, now: datetime) -> datetime:
    """Return the last instant, at most `now`, of the period that `lastmod` names.

    `moment` is the result of `parse_lastmod(lastmod)`.

    >>> day, noon = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> latest("2026-05-01", day, noon) == noon, latest("2026-05-01T00:00Z", day, noon) == day
    (True, True)
    """
    length = len(lastmod.strip())
    if length > DAY:
        return moment
    return max(moment, min(moment + SPANS.get(length, timedelta(1)) + WEST, now))
