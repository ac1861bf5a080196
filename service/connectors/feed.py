"""Atom and RSS as hubs send them: bytes in, entries out; nothing is fetched."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin

from service.connectors.markup import PIECE, Element, elements
from service.connectors.sitemap import SitemapEntry, parse_lastmod
from service.model.urls import MAX_URL_BYTES

ENTRIES = ("entry", "item")
TIMES = ("updated", "pubDate", "date", "published")
"""Date elements of Atom, RSS 2.0 and RSS 1.0, the most reliable first."""
FIELDS = ("link", "guid", *TIMES)
PAGE = (None, "alternate")
"""Relations of an Atom link that names the entry's page."""
FIRST_YEAR = 1990
"""First year that counts as a date; earlier ones, such as 1970, are placeholders."""


def read_feed(content: bytes, topic: str, now: datetime) -> Iterator[SitemapEntry]:
    r"""Yield the page of each entry and its date; `now` replaces a missing or impossible date.

    A permanent `guid` is a link where there is no other. An entry without a link stands for the
    topic. A document that is no feed, or an empty feed, stands for the topic too. A feed that
    breaks off yields the entries before the break.

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
    with suppress(ValueError):
        for fields in _entries(content, topic):
            yield _entry(n_entries, fields, topic, now)
            n_entries += 1
    if not n_entries:
        yield _entry(0, {}, topic, now)


def _entry(position: int, fields: dict[str, str], topic: str, now: datetime) -> SitemapEntry:
    moments = (_moment(fields[name]) for name in TIMES if name in fields)
    changed_at = min(next(filter(None, moments), now), now)
    loc = fields.get("link") or fields.get("guid") or topic
    return SitemapEntry(position, loc, changed_at.isoformat(), is_child=False)


def _entries(content: bytes, topic: str) -> Iterator[dict[str, str]]:
    """Yield the first value of each field of each entry at its end tag, then free the entry."""
    # an XML declaration may not follow white space
    content = content.lstrip()
    fields: dict[str, str] = {}
    pieces = (content[start : start + PIECE] for start in range(0, len(content), PIECE))
    for event, element in elements(pieces):
        if event == "start":
            continue
        if element.local in ENTRIES:
            yield fields
            fields = {}
        elif (
            element.parent is not None
            and element.parent.local in ENTRIES
            and element.local in FIELDS
            and (text := _value(element, topic))
        ):
            fields.setdefault(element.local, text)


def _value(element: Element, topic: str) -> str:
    """Return the value of a field, empty where it does not name the entry's page."""
    if element.local == "link":
        href, rel = element.attributes.get("href"), element.attributes.get("rel")
        link = (href if rel in PAGE else None) or element.text
        return link and _resolved(_base(element, topic), link)
    if element.local == "guid" and not _is_permanent(element):
        return ""
    return element.text


def _is_permanent(guid: Element) -> bool:
    """Return whether a `guid` is an address; many without `isPermaLink` are none."""
    is_link = guid.attributes.get("isPermaLink", "true") == "true"
    return is_link and guid.text.startswith(("http://", "https://"))


def _base(element: Element, topic: str) -> str:
    """Return the base of links in an element; a base longer than any URL is ignored."""
    outer = topic if element.parent is None else _base(element.parent, topic)
    base = element.attributes.get("xml:base", "")
    return _resolved(outer, base) if len(base) <= MAX_URL_BYTES else outer


def _resolved(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:  # such as https://[
        return link


def _moment(date: str) -> datetime | None:
    """Return a date in the W3C's or in mail's format; None for other text and placeholders."""
    if (moment := parse_lastmod(date)) is None:
        try:
            moment = parsedate_to_datetime(date)
            moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
    return moment if moment.year >= FIRST_YEAR else None
