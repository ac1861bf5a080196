"""Atom and RSS as hubs send them: bytes in, the pages they tell of out; nothing is fetched."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from service.sources.quiet import QuietFile
from service.sources.sitemap import MAX_DEPTH, PIECE, Entry, parse_lastmod

ENTRIES = ("entry", "item")
TIMES = ("updated", "pubDate", "date", "published")
"""Atom's, RSS 2.0's and RSS 1.0's, the most telling first."""
BASE = "{http://www.w3.org/XML/1998/namespace}base"
PAGE = (None, "alternate")
"""Relations of an Atom link that names the entry's page."""


def read_feed(content: bytes, topic: str, now: datetime) -> Iterator[Entry]:
    r"""Give the page of each entry and when it changed: now, where it does not say or lies ahead.

    An entry without a link stands for the topic, and so does all that is no feed or an empty one.
    Of a feed that breaks off, the entries before the break are given.

    Examples
    --------
    >>> now = datetime(2026, 5, 1, tzinfo=UTC)
    >>> atom = b"<feed><entry><link href='/a'/><updated>2026-04-30</updated></entry></feed>"
    >>> [(e.loc, e.lastmod) for e in read_feed(atom, "https://example.com/feed", now)]
    [('https://example.com/a', '2026-04-30T00:00:00+00:00')]
    >>> [(e.loc, e.lastmod) for e in read_feed(b"<p>Hello", "https://example.com/", now)]
    [('https://example.com/', '2026-05-01T00:00:00+00:00')]
    """
    n_entries = 0
    with suppress(ParseError, DefusedXmlException, ValueError, LookupError):
        for fields in _entries(content, topic):
            yield _entry(n_entries, fields, topic, now)
            n_entries += 1
    if not n_entries:
        yield _entry(0, {}, topic, now)


def _entry(position: int, fields: dict[str, str], topic: str, now: datetime) -> Entry:
    moments = (_moment(fields[name]) for name in TIMES if name in fields)
    changed_at = min(next(filter(None, moments), now), now)
    return Entry(position, fields.get("link", topic), changed_at.isoformat(), is_child=False)


def _entries(content: bytes, topic: str) -> Iterator[dict[str, str]]:
    """Give the first of each field of each entry as it ends; what was read is dropped."""
    path: list[Any] = []
    bases, fields = [topic], dict[str, str]()
    file = QuietFile(content[start : start + PIECE] for start in range(0, len(content), PIECE))
    for event, element in iterparse(file, events=("start", "end")):
        file.heard()
        name = element.tag.rpartition("}")[2]
        if event == "start":
            path.append(element)
            bases.append(_resolved(bases[-1], element.get(BASE, "")))
            if len(path) > MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
            continue
        path.pop()
        base = bases.pop()
        if name in ENTRIES:
            yield fields
            fields = {}
        elif path and path[-1].tag.rpartition("}")[2] in ENTRIES:
            text = (element.text or "").strip()
            if name == "link":
                linked = element.get("href") if element.get("rel") in PAGE else None
                text = _resolved(base, linked or text) if linked or text else ""
            if text:
                fields.setdefault(name, text)
        if path:
            path[-1].clear()


def _resolved(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:  # such as https://[
        return link


def _moment(told: str) -> datetime | None:
    """Read a date of the W3C's or of mail."""
    if (found := parse_lastmod(told)) is not None:
        return found
    try:
        found = parsedate_to_datetime(told)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
