"""Other readers of sitemaps and feeds, by the same names."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from warnings import catch_warnings, simplefilter

from benchmarks.documents.score import Case, cases, moment, ours, score
from benchmarks.documents.written import BASE, Entry

Reader = Callable[[bytes], Iterable[Entry]]


def by_feedparser(content: bytes) -> list[Entry]:
    """Return what feedparser finds in a feed."""
    import feedparser

    with catch_warnings():
        simplefilter("ignore")
        found = feedparser.parse(content, response_headers={"content-location": BASE})
    return [Entry(each.get("link", ""), _parsed(each)) for each in found.entries]


def by_scrapy(content: bytes) -> list[Entry]:
    """Return what Scrapy's reader of sitemaps finds."""
    from scrapy.utils.sitemap import Sitemap

    return [Entry(each["loc"], moment(each.get("lastmod"))) for each in Sitemap(content)]


def by_ultimate_sitemap_parser(content: bytes) -> list[Entry]:
    """Return the pages that ultimate-sitemap-parser finds in a sitemap."""
    from usp.fetch_parse import XMLSitemapParser
    from usp.objects.sitemap import InvalidSitemap

    text = content.decode("utf-8-sig", "replace")
    parser = XMLSitemapParser(
        url=BASE, content=text, recursion_level=0, web_client=None, parent_urls=set()
    )
    tree = parser.sitemap()
    if isinstance(tree, InvalidSitemap):
        return []
    return [Entry(page.url, _in_utc(page.last_modified)) for page in tree.all_pages()]


def _parsed(entry: dict[str, tuple[int, ...]]) -> datetime | None:
    date = entry.get("updated_parsed") or entry.get("published_parsed")
    return datetime(*date[:6], tzinfo=UTC) if date else None


def _in_utc(date: datetime | None) -> datetime | None:
    return date and (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)


READERS: dict[str, dict[str, Reader]] = {
    "sitemap": {"scrapy": by_scrapy, "ultimate-sitemap-parser": by_ultimate_sitemap_parser},
    "index": {"scrapy": by_scrapy},
    "rss": {"feedparser": by_feedparser, "ultimate-sitemap-parser": by_ultimate_sitemap_parser},
    "atom": {"feedparser": by_feedparser, "ultimate-sitemap-parser": by_ultimate_sitemap_parser},
}
"""Other readers of each format."""


def compared(n_rounds: int, seed: int = 1) -> Iterator[tuple[Case, dict[str, float]]]:
    """Yield broken documents with the scores of all readers of their format, by addresses alone."""
    for case in cases(n_rounds, seed):
        meant = [Entry(entry.loc, None) for entry in case.entries]
        readers = {"ours": ours, **READERS[case.format]}
        yield case, {name: score(meant, _read(by, case.content)) for name, by in readers.items()}


def _read(reader: Reader, content: bytes) -> list[Entry]:
    try:
        return [Entry(entry.loc, None) for entry in reader(content)]
    except Exception:  # noqa: BLE001 - any error of theirs means that nothing was read
        return []
