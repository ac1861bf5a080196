"""Sitemaps and feeds: bytes in, entries out, one at a time; nothing is ever fetched.

The reader accepts every form of the sitemap protocol, RSS, Atom and JSON Feed, plain or gzip:

- any namespace, and extensions for news, images and videos,
- any encoding of the web, and text before the document,
- faults in the markup, which are repaired and counted,
- a document that breaks off: the entries before the place are read.

Entities are never expanded, and the inflated size has a limit.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from service.connectors.decoding import decoded
from service.connectors.entries import (
    FEED,
    GRAMMARS,
    ROOTS,
    HeadField,
    Kind,
    SitemapEntry,
    feed_entry,
    head_field,
    sitemap_entry,
)
from service.connectors.inflating import MAGIC, BrokenGzip, inflated
from service.connectors.json_feed import JsonFeed
from service.connectors.markup import Markup
from service.connectors.references import Faults
from service.model.errors import BodyTooLarge, MalformedBody
from service.model.words import counted

PIECE = 65_536
"""Length of what is read at once, bytes."""

EMPTY_PART = 1_000
"""Size that an empty member of a gzip counts for, bytes; this avoids endless empty members."""
MAX_LAYERS = 3
"""Maximum layers of gzip; a file packed twice and sent with Content-Encoding gzip has three."""
BLANKS = "\ufeff\0 \t\r\n\x0b\x0c"
"""Characters before a document that do not count."""
MAX_LINE = 8_192
"""Maximum length of a line of a text sitemap, characters; the rest of the line is dropped."""
XML = re.compile(rf"<(?:\?xml\b|(?:[\w-]+:)?(?:{'|'.join(ROOTS)})[\s>])", re.IGNORECASE)
"""Pattern of what begins a document after the messages of a program that failed."""
ENTRIES: dict[bool, Kind] = {False: "urlset", True: "index"}


class Sitemap:
    r"""A sitemap document that is read once.

    After the last entry, `kind`, `warnings`, `faults`, `broke_off`, `n_entries` and `line` are
    final. Relative addresses are those of a document at `base`.

    Raises
    ------
    BodyTooLarge
        The document inflates to more than `max_bytes`; raised before the first entry.
    MalformedBody
        The document is no sitemap and no feed, or has no readable part.

    Examples
    --------
    >>> sitemap = Sitemap(b"https://example.com/\nhttps://example.com/news\n", 1_000)
    >>> [entry.loc for entry in sitemap], sitemap.kind, sitemap.warnings
    (['https://example.com/', 'https://example.com/news'], 'text', [])
    """

    def __init__(self, content: bytes, max_bytes: int, base: str = "") -> None:
        self.kind: Kind = "text"
        self.warnings: list[str] = []
        self.faults = Faults()
        """Faults that were repaired."""
        self.broke_off = ""
        """Place and reason where a part of the document could not be read."""
        self.n_entries = 0
        self.line = 0
        """Line up to which the document was read."""
        self.head: list[HeadField] = []
        """Statements of a feed about itself, such as its hub."""
        self._base = base
        for _ in self._inflated(content, max_bytes):  # measured before the first entry is used
            pass
        self.warnings.clear()
        self.broke_off = ""
        self._pieces = filter(None, self._inflated(content, max_bytes))

    def __iter__(self) -> Iterator[SitemapEntry]:
        """Yield the entries in their order."""
        pieces = decoded(self._pieces, self.faults)
        head = ""
        while not head and (piece := next(pieces, None)) is not None:
            self.line += piece.count("\n") if not (head := piece.lstrip(BLANKS)) else 0
        if not head:
            raise MalformedBody("; ".join(["the document is empty", *self.warnings]))
        if head[0] == "{":
            return self._json(chain([head], pieces))
        is_xml = head[0] == "<" or (not head.startswith("http") and XML.search(head))
        whole = chain([head], pieces)
        return self._xml(whole) if is_xml else self._text(whole)

    def _inflated(self, content: bytes, max_bytes: int) -> Iterator[bytes]:
        """Yield the inflated document in pieces."""
        pieces: Iterator[bytes] = (
            content[start : start + PIECE] for start in range(0, len(content), PIECE)
        )
        for _ in range(MAX_LAYERS):
            first = next(pieces, b"")
            pieces = chain([first], pieces)
            if not first.startswith(MAGIC):
                break
            pieces = _limited(self._gunzip(pieces), max_bytes)
        return _limited(pieces, max_bytes)

    def _gunzip(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the content of one gzip, up to the break of a broken one."""
        try:
            yield from inflated(pieces)
        except BrokenGzip as error:
            self._break_off(f"the gzip {error}; what came before was taken")

    def _break_off(self, reason: str) -> None:
        self.broke_off = self.broke_off or reason
        self._warn(reason)

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _text(self, pieces: Iterable[str]) -> Iterator[SitemapEntry]:
        """Yield an entry for each line."""
        for line in _lines(pieces):
            self.line += 1
            if loc := line.strip():
                yield SitemapEntry(self.n_entries, loc, None, is_child=False)
                self.n_entries += 1
        self._tell_faults(0)

    def _xml(self, pieces: Iterable[str]) -> Iterator[SitemapEntry]:
        """Yield the entries, and warn where the document breaks off after its root."""
        markup = Markup(GRAMMARS, self.faults)
        read, first_fault = sitemap_entry, -1
        try:
            for element in markup.entries(pieces):
                if not self.n_entries:
                    self.kind = ROOTS[markup.root]
                    read = feed_entry if GRAMMARS[markup.root] is FEED else sitemap_entry
                entry = read(self.n_entries, element, markup.references, self._base)
                if self.faults and first_fault < 0:
                    first_fault = self.n_entries
                if read is sitemap_entry and ENTRIES[entry.is_child] != ROOTS[markup.root]:
                    self._judge(markup.root, entry)
                self.n_entries += 1
                yield entry
        except ValueError as error:
            self._fail(markup, str(error))
        else:
            if not markup.is_whole:
                self._fail(markup, f"<{markup.root}> has no end")
        finally:
            self.line = markup.line
            self.head = [head_field(each, markup.references) for each in markup.heads]
        self.kind = self.kind if self.n_entries else ROOTS[markup.root]
        self._tell_faults(max(first_fault, 0))

    def _json(self, pieces: Iterable[str]) -> Iterator[SitemapEntry]:
        """Yield the items of a JSON Feed."""
        text, self.kind = "".join(pieces), "json"
        feed = JsonFeed(text, self._base, self.faults)
        try:
            for entry in feed:
                self.n_entries += 1
                yield entry
        finally:
            self.line, self.head = text.count("\n") + 1, feed.head
        if feed.broke_off:
            self._break_off(
                f"the document was cut short or is broken after {self._entries()}: {feed.broke_off}"
            )
        self._tell_faults(feed.first_fault)

    def _fail(self, markup: Markup, reason: str) -> None:
        """Warn of the place where a document breaks off; raise `MalformedBody` without a root."""
        if not markup.has_root and markup.root:
            raise MalformedBody(
                f"the document's root is <{markup.root[:40]}>; a sitemap has urlset or "
                "sitemapindex, a feed rss, RDF or feed, or send text with one URL a line"
            )
        if not markup.has_root:
            raise MalformedBody(f"the document is not well-formed XML: {reason}")
        self._break_off(
            f"the document was cut short or is broken after {self._entries()}: {reason}, "
            f"line {markup.line}"
        )

    def _entries(self) -> str:
        return counted(self.n_entries, "entry", "entries")

    def _judge(self, root: str, entry: SitemapEntry) -> None:
        """Set the kind by the entries, even against the root."""
        name = "sitemap" if entry.is_child else "url"
        self._warn(f"the root is {root}, but entries are <{name}>; they were taken as such")
        if not entry.position:
            self.kind = ENTRIES[entry.is_child]

    def _tell_faults(self, first: int) -> None:
        """Warn of faults that were repaired."""
        if self.faults:
            kinds = ", ".join(f"{kind} ({n:,})" for kind, n in self.faults.items())
            self._warn(f"faults repaired: {self.faults.n:,}, the first at entry {first}: {kinds}")


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines of text."""
    line = ""
    for piece in pieces:
        *whole, line = (line + piece).replace("\r", "\n").split("\n")
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
