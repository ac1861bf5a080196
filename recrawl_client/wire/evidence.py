"""Evidence: observations, pings and sitemaps, and their outcomes."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from recrawl_client.wire.common import (
    END,
    Counts,
    Instant,
    Item,
    Lease,
    Moment,
    Note,
    PageId,
    Rejection,
    Url,
)

Digest = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="any string of 1 to 256 characters that changes with the content",
    ),
]

Status = Annotated[
    int,
    Meta(
        ge=0,
        le=2**31 - 1,
        description="the HTTP status of the crawl, or 0 when there was no answer",
    ),
]


ChangeWeight = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="a number from 0, a change that does not matter, to 1, such as 0.25",
        examples=[0.25],
    ),
]


class Observation(Item, frozen=True, kw_only=True):
    """The result of one crawl: a page (url, page_id or lease) and its change, digest or status."""

    url: Url | UnsetType = UNSET
    """URL of the page; leave `page_id` and `lease` out then, or send a lease on the same page."""
    page_id: PageId | UnsetType = UNSET
    """The service's number of the page."""
    observed_at: Moment | UnsetType = UNSET
    """Instant at which the crawler sent its request, at most 5 minutes ahead of the service's
    clock. With `lease` it may be left out: the start of the lease then counts."""
    changed: (
        Annotated[
            bool, Meta(description="true or false: did the page change since its last crawl?")
        ]
        | UnsetType
    ) = UNSET
    """True if the page has changed since its last crawl."""
    change_weight: ChangeWeight | UnsetType = UNSET
    """Weight of the change by a comparison of your own, 0 to 1; 1 if it is left out. It counts
    where `changed` or the digest shows a change, and is ignored elsewhere."""
    digest: Digest | UnsetType = UNSET
    """Digest of the content; another digest than that of the last crawl means a change."""
    status: Status | UnsetType = UNSET
    """HTTP status of the crawl; 0 when there was no answer."""
    robots_denied: (
        Annotated[
            bool,
            Meta(description="true if robots.txt forbids the page, so that nobody asked for it"),
        ]
        | UnsetType
    ) = UNSET
    """True if robots.txt forbids the page. Nobody asked for it, so of the other values only the
    `note` counts."""
    lease: Lease | UnsetType = UNSET
    """Token of the lease of this crawl; the report ends the lease."""
    retry_after_s: (
        Annotated[
            float, Meta(ge=0, le=1e300, description="a number of seconds from 0, as in Retry-After")
        ]
        | UnsetType
    ) = UNSET
    """Retry-After of the answer, seconds; without content the service pauses the host for this
    long."""
    last_modified: (
        Annotated[
            datetime,
            Meta(
                tz=True,
                description="an RFC 3339 instant with a zone, such as 2026-05-01T09:30:00Z",
                examples=["2026-05-01T09:30:00Z"],
            ),
        ]
        | UnsetType
    ) = UNSET
    """Instant of the last change as the site states it. A date in the form of HTTP counts too; any
    other text, and an implausible instant, are no evidence. The next lease returns the instant, for
    If-Modified-Since."""
    etag: str | UnsetType = UNSET
    """ETag of the answer; the next lease returns it, for If-None-Match. One that is not 1 to 512
    printable ASCII characters is dropped."""
    note: Note = UNSET
    """Note of the crawler, any JSON value of at most 1,024 bytes, which leases return; null removes
    the stored note."""
    bytes: (
        Annotated[float, Meta(ge=0, le=1e15, description="a number of bytes from 0, as in 48213")]
        | UnsetType
    ) = UNSET
    """Bytes that the crawl transferred, with a budget of bytes. Like the next two, a wrong value is
    left out, and the rest of the item counts."""
    seconds: (
        Annotated[float, Meta(ge=0, le=1e9, description="a number of seconds from 0, as in 0.8")]
        | UnsetType
    ) = UNSET
    """Seconds that the crawl took: its cost with a budget of time, and the latency of its host with
    a `latency_factor`."""
    price: (
        Annotated[
            float,
            Meta(ge=0, le=1e9, description="a price such as USD 0.01, or a number from 0"),
        ]
        | Annotated[
            str,
            Meta(
                pattern=r"^([A-Za-z]{3} ?[0-9]+(\.[0-9]+)?|[0-9]+(\.[0-9]+)? ?[A-Za-z]{3})"
                rf"{END}",
                description="a price such as USD 0.01, or a number from 0",
                examples=["USD 0.01"],
            ),
        ]
        | UnsetType
    ) = UNSET
    """Price of the crawl, with a budget of money: what was paid, such as `crawler-charged`. With
    status 402 it is what the site asks, such as `crawler-price`. A number is in the currency of the
    budget."""
    redirect_url: (
        Annotated[
            str,
            Meta(
                description="the absolute URL that the page redirects to, with a status of 300 to "
                "399 other than 304",
            ),
        ]
        | UnsetType
    ) = UNSET
    """Target of the redirect, with a status of 300 to 399. With 2xx or without a status, the
    crawler has followed the redirect, and `changed` and `digest` do not count for this page. A
    target with another status or 304, and one that is no http or https URL, are dropped."""


class Ping(Item, frozen=True, kw_only=True):
    """A ping announces that a page has changed; name the page by `url` or `page_id`."""

    url: Url | UnsetType = UNSET
    """URL of the page."""
    page_id: PageId | UnsetType = UNSET
    """The service's number of the page."""
    changed_at: Moment
    """Instant of the change, at most 5 minutes ahead of the service's clock."""


class Reported(Counts, frozen=True, kw_only=True, omit_defaults=True):
    """Outcomes of the crawls of a batch."""

    leases_ended: int
    """Number of leases that these reports ended; a report after the end of its lease is evidence
    too."""
    left_out: list[Rejection] = field(default_factory=list)
    """Costs with a wrong value, which were left out; the rest of each item counts. Absent without
    any; several blocks of NDJSON list the first 1,000."""


class Decision(Struct, frozen=True, kw_only=True):
    """The decision about a ping: crawl the page now or not, and the reason."""

    index: int
    """Position of the ping in the request, from 0."""
    page_id: int
    """The service's number of the page."""
    crawl: bool
    """True if the page is to be crawled now."""
    reason: str
    """Reason to crawl (`never_crawled`, `credit`, `unscheduled`, `may_be_back`) or not to crawl now
    (`held`, `window_closed`, `later`, `saving`, `crawled_since`, `not_trusted`, `not_newer`)."""


class Pinged(Counts, frozen=True, kw_only=True):
    """Outcomes of the pings of a batch."""

    decisions: list[Decision]
    """One decision for each ping that was not rejected, in their order."""


class SitemapChild(Struct, frozen=True, kw_only=True):
    """A sitemap that an index names, for you to fetch."""

    loc: str
    """URL of the sitemap."""
    lastmod: Instant | None = None
    """Instant of the sitemap's last change by the index; null when there is none."""


class SitemapRead(Counts, frozen=True, kw_only=True):
    """Outcomes of the entries of a sitemap."""

    kind: Literal["urlset", "index", "text", "rss", "atom", "json"]
    """Kind of the document."""
    created: int
    """Number of pages that are new to the service."""
    n_crawl_now: int
    """Number of pages to crawl as soon as the budget and their hosts allow: new pages, and pages
    whose ping led to a crawl."""
    n_not_trusted: int
    """Number of pages whose ping led to no crawl, because pings of the page are not trusted: crawls
    have not shown so far that they announce changes."""
    children: list[SitemapChild]
    """Sitemaps of an index, to fetch and send next; Recrawl fetches nothing."""
    warnings: list[str]
    """Faults of the document as a whole, such as an early end."""
    complete: bool
    """True if all entries count now. If false, send the same document again later: the document
    broke off, or a `lastmod` lies up to a day ahead."""
    n_entries: int
    """Number of entries that were read."""
    n_lines: int
    """Number of lines that were read."""
    n_repaired: int
    """Number of faults that were repaired, such as a raw `&` or a missing end tag."""
    n_undated: int
    """Number of dates that were ignored: unreadable, before 1990, or in the future."""
    broke_off: str | None
    """Place and reason where the document breaks off; null if it was read to its end."""
