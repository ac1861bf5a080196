"""Evidence: observations, pings and sitemaps, and what became of them."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import Counts, Item, Moment, PageId, Url
from recrawl_client.wire.leases import Lease

Digest = Annotated[
    str, Meta(min_length=1, max_length=256, description="any string that changes with the content")
]

Status = Annotated[
    int,
    Meta(ge=0, le=599, description="the HTTP status of the crawl, or 0 when there was no answer"),
]


class Observation(Item, frozen=True, kw_only=True):
    """What a crawl saw: of a page (url, page_id or lease) its change, digest or status."""

    url: Url | UnsetType = UNSET
    page_id: PageId | UnsetType = UNSET
    observed_at: Moment
    changed: (
        Annotated[bool, Meta(description="true or false: did it change since the last crawl?")]
        | UnsetType
    ) = UNSET
    digest: Digest | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    lease: Lease | UnsetType = UNSET
    retry_after_s: (
        Annotated[
            float,
            Meta(ge=0, le=1e7, description="a number of seconds, from the answer's Retry-After"),
        ]
        | UnsetType
    ) = UNSET
    last_modified: (
        Annotated[
            datetime,
            Meta(
                tz=True,
                description="when the site says that the page was last modified, as an RFC 3339 "
                "instant with a zone; dates that cannot be true are not used",
                examples=["2026-05-01T09:30:00Z"],
            ),
        ]
        | UnsetType
    ) = UNSET
    redirect_url: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="the absolute URL that the page redirects to, with a status 3xx other "
                "than 304",
            ),
        ]
        | UnsetType
    ) = UNSET


class Ping(Item, frozen=True, kw_only=True):
    """A notice that a page has changed: name the page by `url` or `page_id`."""

    url: Url | UnsetType = UNSET
    page_id: PageId | UnsetType = UNSET
    changed_at: Moment


class Reported(Counts, frozen=True, kw_only=True):
    """What became of the crawls of a batch."""

    leases_ended: int
    """Leases that these reports ended; a report under one that had ended before is evidence
    like any other."""


class Decision(Struct, frozen=True, kw_only=True):
    """Whether a ping leads to a crawl now, and why."""

    index: int
    page_id: int
    crawl: bool
    reason: str


class Pinged(Counts, frozen=True, kw_only=True):
    """What became of the pings of a batch."""

    decisions: list[Decision]


class SitemapChild(Struct, frozen=True, kw_only=True):
    """A sitemap that an index names, for you to fetch."""

    loc: str
    lastmod: datetime | None = None


class SitemapRead(Counts, frozen=True, kw_only=True):
    """What became of the entries of a sitemap."""

    kind: Literal["urlset", "index", "text"]
    created: int
    """Pages not known before."""
    n_crawl_now: int
    """Pages to be crawled now: new ones, and those whose change notice is worth a crawl."""
    children: list[SitemapChild]
    """Of an index: what to fetch and send here next; Recrawl fetches nothing."""
    warnings: list[str]
    """What was wrong with the document as a whole, such as that it was cut short."""
    complete: bool
    """Whether all of it counts now. If not, it broke off, or a lastmod lies up to a day ahead:
    send it again, as it is, even if the site does not change it."""
