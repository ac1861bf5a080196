"""Well-formed documents of four formats, in parts that a rule can break."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from random import Random
from typing import NamedTuple

HOST = "https://shop.example"
BASE = f"{HOST}/maps/document.xml"
SITEMAPS = "http://www.sitemaps.org/schemas/sitemap/0.9"
IMAGES = "http://www.google.com/schemas/sitemap-image/1.1"
PATHS = ("", "news/", "shop/item-{}", "a/b/{}.html", "?id={}&page=2", "search?q=x{}&lang=en&copy=1")
PATHS += ("~me/{}", "{}#top", "caf%C3%A9/{}", "p/{};v=1")
WORDS = ("Sale", "of the week", "Q1", "results", "are in", "again")


class Entry(NamedTuple):
    """The entries that a reader has to find."""

    loc: str
    changed_at: datetime | None


class Format(NamedTuple):
    """Names of a format's elements."""

    name: str
    root: str
    entry: str
    link: str
    date: str
    title: str
    other: str
    """Another element without elements inside."""


FORMATS = (
    Format("sitemap", "urlset", "url", "loc", "lastmod", "image:title", "changefreq"),
    Format("index", "sitemapindex", "sitemap", "loc", "lastmod", "x:note", "x:kind"),
    Format("rss", "rss", "item", "link", "pubDate", "title", "category"),
    Format("atom", "feed", "entry", "link", "updated", "title", "rights"),
)


@dataclass
class Document:
    """A document in parts: `head`, one part an entry, `tail`."""

    format: Format
    head: str
    parts: list[str]
    tail: str
    entries: list[Entry]
    encoding: str = "utf-8"
    prefix: bytes = b""
    """Bytes before the text."""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.head + "".join(self.parts) + self.tail

    def written(self) -> bytes:
        """Return the bytes."""
        return self.prefix + self.text.encode(self.encoding, "surrogateescape")


def document(of: Format, rng: Random) -> Document:
    """Return a well-formed document of 4 to 12 entries."""
    entries = [entry(rng, number) for number in range(rng.randint(4, 12))]
    parts = [part(of, each, rng) for each in entries]
    head, tail = frame(of)
    gap = rng.choice(["", "\n", "\n  "])
    return Document(of, head + gap, [each + gap for each in parts], tail, entries)


def entry(rng: Random, number: int) -> Entry:
    """Return an entry whose address no other entry has."""
    path = rng.choice(PATHS).format(f"{number}-{rng.randrange(10_000)}") or f"n{number}"
    day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(10_000_000))
    return Entry(f"{HOST}/{number}/{path}", day)


def part(of: Format, entry: Entry, rng: Random) -> str:
    """Return the markup of an entry."""
    title, loc = " ".join(rng.sample(WORDS, 3)), escape(entry.loc)
    date = written_date(entry.changed_at, rng, mail=of.name == "rss") if entry.changed_at else ""
    number = rng.randrange(10**6)
    if of.name == "rss":
        return (
            f"<item><title>{title}</title><category>news</category><link>{loc}</link>"
            f'<guid isPermaLink="false">id-{number}</guid>'
            f"<description>{title} &lt;b&gt;bold&lt;/b&gt;"
            f"</description><pubDate>{date}</pubDate></item>"
        )
    if of.name == "atom":
        return (
            f'<entry><title type="html">{title}</title><rights>free</rights>'
            f'<link rel="alternate" type="text/html" href="{loc}"/>'
            f"<id>tag:shop.example,{number}</id><updated>{date}</updated>"
            f'<summary type="html">{title} &lt;br&gt; more</summary></entry>'
        )
    if of.name == "index":
        return (
            f"<sitemap><x:note>{title}</x:note><x:kind>new</x:kind><loc>{loc}</loc>"
            f"<lastmod>{date}</lastmod></sitemap>"
        )
    return (
        f"<url><loc>{loc}</loc><lastmod>{date}</lastmod><changefreq>daily</changefreq>"
        f"<image:image><image:loc>https://img.example/{number}.png</image:loc><image:title>{title}"
        "</image:title></image:image></url>"
    )


def written_date(moment: datetime, rng: Random, *, mail: bool) -> str:
    """Return a date in one of the forms of its format."""
    if mail:
        return rng.choice(
            [
                f"{moment:%a, %d %b %Y %H:%M:%S} GMT",
                f"{moment:%a, %d %b %Y %H:%M:%S} +0000",
                f"{moment:%d %b %y %H:%M:%S} UT",
                f"{moment - timedelta(hours=5):%a, %d %b %Y %H:%M:%S} EST",
                f"{moment + timedelta(hours=2):%a, %d %b %Y %H:%M:%S} +0200",
            ]
        )
    return rng.choice(
        [
            f"{moment:%Y-%m-%dT%H:%M:%SZ}",
            f"{moment + timedelta(hours=2):%Y-%m-%dT%H:%M:%S}+02:00",
            f"{moment:%Y-%m-%dT%H:%M:%S}.000+00:00",
        ]
    )


def frame(of: Format) -> tuple[str, str]:
    """Return what stands before and after the entries."""
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    if of.name == "rss":
        channel = (
            "<title>Shop</title><link>https://shop.example/</link><description>News</description>"
        )
        return f'{head}<rss version="2.0"><channel>{channel}', "</channel></rss>"
    if of.name == "atom":
        feed = '<title>Shop</title><link href="https://shop.example/"/><id>urn:shop</id>'
        feed += "<updated>2026-05-01T00:00:00Z</updated>"
        return f'{head}<feed xmlns="http://www.w3.org/2005/Atom">{feed}', "</feed>"
    spaces = f'xmlns="{SITEMAPS}" xmlns:image="{IMAGES}" xmlns:x="https://x.example/"'
    return f"{head}<{of.root} {spaces}>", f"</{of.root}>"
