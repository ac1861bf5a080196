"""Entries of sitemaps and feeds: the page that each names, and the date that it states."""

from typing import Literal, NamedTuple

from service.connectors.dates import read_date
from service.connectors.links import resolved
from service.connectors.markup import Element, Grammar
from service.connectors.references import References
from service.model.urls import MAX_URL_BYTES

Kind = Literal["urlset", "index", "rss", "atom", "json", "text"]
ROOTS: dict[str, Kind] = {
    "urlset": "urlset",
    "sitemapindex": "index",
    "rss": "rss",
    "rdf": "rss",
    "channel": "rss",
    "feed": "atom",
    "entry": "atom",
}
"""Kind of a document by its root."""
FEEDS = ("rss", "atom", "json")
TIMES = ("updated", "pubdate", "date", "modified", "published", "issued")
"""Date elements of Atom, RSS 2.0 and RSS 1.0, the most reliable first."""
ABOUT = "about"
NAMES = ("guid", "id")
"""Elements that name an entry for good, often by its address."""
SITEMAP = Grammar(
    entries=frozenset(("url", "sitemap")),
    fields=frozenset(("loc", "lastmod")),
    plain=frozenset(("changefreq", "priority", "link")),
    containers=frozenset(("image", "video", "news")),
)
FEED = Grammar(
    entries=frozenset(("item", "entry")),
    fields=frozenset(("link", *NAMES, *TIMES)),
    plain=frozenset(("title", "description", "summary", "comments")),
    # all XHTML content of Atom stands in one div
    containers=frozenset(("source", "author", "contributor", "image", "group", "div")),
    heads=frozenset(("link", "ttl", "updateperiod", "updatefrequency")),
)
GRAMMARS = {root: FEED if kind in FEEDS else SITEMAP for root, kind in ROOTS.items()}
ATOM = "http://www.w3.org/2005/Atom"
PAGE = ("", "alternate")
"""Relations of an Atom link that names the entry's page."""
REGISTRY = "http://www.iana.org/assignments/relation/"
"""Beginning of the long form of a relation (RFC 4287)."""
FIRST_YEAR = 1990
"""First year that counts as a date; earlier ones, such as 1970, are placeholders."""


class SitemapEntry(NamedTuple):
    """One page of a sitemap or feed, or one sitemap of an index."""

    position: int
    """Position in the document, from 0."""
    loc: str
    """Address; empty where the entry has none."""
    lastmod: str | None
    is_child: bool
    """True for a sitemap to fetch, false for a page."""


class HeadField(NamedTuple):
    """A statement of a feed about itself."""

    name: str
    """Name of the element without prefix: `link`, `ttl`, `updateperiod` or `updatefrequency`."""
    rel: str
    """Relations of a link, in small letters; empty for others."""
    value: str
    """Address of a link, else the text."""


def head_field(head: Element, references: References) -> HeadField:
    """Return a statement of RSS or Atom about the feed."""
    attributes = head.attributes
    value = references.text(attributes.get("href", "") or head.raw)
    rel = references.text(attributes.get("rel", "")).lower()
    return HeadField(head.local, rel, value)


def sitemap_entry(position: int, entry: Element, references: References, base: str) -> SitemapEntry:
    """Return an entry of a sitemap; a field of another namespace, such as image:loc, is none."""
    loc, lastmod, prefix = "", None, entry.name.prefix
    for field in entry.fields:
        if field.name.prefix != prefix and not _belongs(field, entry):
            continue
        if field.name.local == "lastmod":
            lastmod = lastmod or references.text(field.raw)
        else:
            loc = loc or references.text(field.raw)
    return SitemapEntry(position, resolved(base, loc), lastmod, entry.local == "sitemap")


def feed_entry(position: int, entry: Element, references: References, base: str) -> SitemapEntry:
    """Return an entry of a feed with the first of its dates that can be read.

    A permanent `guid` or `id` that is an address is a link where there is no other.
    """
    links, names, dates = list[str](), list[str](), dict[str, str]()
    for field in entry.fields:
        text = references.text(field.raw)
        if field.local in TIMES:
            dates.setdefault(field.local, text)
        elif field.local == "link":
            links += _link(field, entry, text, references, base)
        elif _belongs(field, entry) and _is_permanent(field, text):
            names.append(text)
    # RSS 0.90 and 1.0 name the entry in an attribute of RDF, whose prefix may have any name
    about = (value for name, value in entry.attributes.items() if name.rpartition(":")[2] == ABOUT)
    names.append(resolved(_base(entry, base), references.text(next(about, ""))))
    texts = [dates[name] for name in TIMES if dates.get(name)]
    lastmod = next(filter(_is_date, texts), texts[0] if texts else None)
    return SitemapEntry(position, next(filter(None, links + names), ""), lastmod, is_child=False)


def _belongs(field: Element, entry: Element) -> bool:
    """Return whether a field is in its entry's namespace; prefixes need no declaration."""
    if field.name.prefix == entry.name.prefix:
        return True
    return (namespace := field.namespace) is not None and namespace == entry.namespace


def _link(
    field: Element, entry: Element, text: str, references: References, base: str
) -> list[str]:
    """Return the address that a link names, if that is the entry's page."""
    is_atom = field.name.prefix.startswith("atom") or field.namespace == ATOM
    if not is_atom and not _belongs(field, entry):
        return []
    attributes = field.attributes
    relation = attributes.get("rel", "").strip().lower().removeprefix(REGISTRY)
    href = attributes.get("href", "") if relation in PAGE else ""
    link = references.text(href) or text
    return [resolved(_base(field, base), link)] if link else []


def _is_permanent(name: Element, text: str) -> bool:
    """Return whether a `guid` or `id` is an address; many without `isPermaLink` are none."""
    is_link = name.attributes.get("ispermalink", "true").lower() != "false"
    return is_link and text.startswith(("http://", "https://"))


def _base(element: Element, base: str) -> str:
    """Return the base of links in an element; a base longer than any URL is ignored."""
    outer = base if element.parent is None else _base(element.parent, base)
    own = element.attributes.get("xml:base", "")
    return resolved(outer, own) if own and len(own) <= MAX_URL_BYTES else outer


def _is_date(text: str) -> bool:
    date = read_date(text)
    return date is not None and date.begins.year >= FIRST_YEAR
