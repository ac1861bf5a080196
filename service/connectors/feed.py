"""Feeds as hubs send them: bytes in, entries out; nothing is fetched."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from service.connectors.dates import read_date
from service.connectors.entries import FEEDS, FIRST_YEAR, SitemapEntry
from service.connectors.sitemap import Sitemap
from service.model.errors import RequestError

MAX_INFLATED = 50_000_000
"""Maximum inflated size of a feed, bytes; a larger one is no feed."""


def read_feed(content: bytes, topic: str, now: datetime) -> Iterator[SitemapEntry]:
    r"""Yield the page of each entry and its date; `now` replaces a missing or impossible date.

    The content is RSS, Atom or JSON Feed, plain or gzip. An entry without a link stands for the
    topic. A document that is no feed, or an empty feed, stands for the topic too. A feed that
    breaks off yields the entries before the break.

    Examples
    --------
    >>> from datetime import UTC
    >>> now = datetime(2026, 5, 1, tzinfo=UTC)
    >>> atom = b"<feed><entry><link href='/a'/><updated>2026-04-30</updated></entry></feed>"
    >>> [(e.loc, e.lastmod) for e in read_feed(atom, "https://example.com/feed", now)]
    [('https://example.com/a', '2026-04-30T00:00:00+00:00')]
    >>> [(e.loc, e.lastmod) for e in read_feed(b"<p>Hello", "https://example.com/", now)]
    [('https://example.com/', '2026-05-01T00:00:00+00:00')]
    """
    n_entries = 0
    with suppress(RequestError):
        feed = Sitemap(content, MAX_INFLATED, topic)
        for entry in feed:
            if feed.kind not in FEEDS:
                break
            date = read_date(entry.lastmod or "")
            is_real = date is not None and date.begins.year >= FIRST_YEAR
            changed_at = min(date.begins, now) if date and is_real else now
            yield entry._replace(loc=entry.loc or topic, lastmod=changed_at.isoformat())
            n_entries += 1
    if not n_entries:
        yield SitemapEntry(0, topic, now.isoformat(), is_child=False)
