"""The wire format: one struct per item and answer, for decoding, encoding and OpenAPI."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

PageId = Annotated[int, Meta(ge=1, le=2**63 - 1, description="the service's number of the page")]
END = r"(?!\n)$"
"""The end of a text; `$` alone would let a line break through."""

Url = Annotated[
    str,
    Meta(
        min_length=1,
        description="an absolute http or https URL of at most 2,048 bytes",
        examples=["https://example.com/news"],
    ),
]
Moment = Annotated[
    datetime,
    Meta(
        tz=True,
        description="an RFC 3339 instant with a zone, such as 2026-05-01T12:00:00Z, "
        "at most 5 minutes ahead of the service's clock",
        examples=["2026-05-01T12:00:00Z"],
    ),
]
Importance = Annotated[
    float,
    Meta(
        ge=1e-9,
        le=1e9,
        description="a positive number: what a stale moment of this page costs, relative to others",
        examples=[1.0],
    ),
]
MinRate = Annotated[
    float,
    Meta(
        ge=0,
        le=1e6,
        description="a number of crawls a day that is never undercut, but by a complete page whose "
        "pings are fewer; it wins over a max_crawl_rate below it",
    ),
]
MaxRate = Annotated[
    float, Meta(ge=1e-9, le=1e6, description="a positive number of crawls a day, never exceeded")
]
Watched = Annotated[
    Literal["incomplete", "complete", "auto"],
    Meta(
        description="incomplete: changes are seen only by crawling; complete: every change is "
        "announced by a ping; auto: crawls teach how far the page's pings can be trusted"
    ),
]
Digest = Annotated[
    str, Meta(min_length=1, max_length=256, description="any string that changes with the content")
]
Status = Annotated[
    int,
    Meta(ge=0, le=599, description="the HTTP status of the crawl, or 0 when there was no answer"),
]


Lease = Annotated[
    str,
    Meta(
        pattern=rf"^[1-9][0-9]{{0,17}}-[0-7]?[0-9a-f]{{1,15}}{END}",
        description="the token of a lease, as POST /leases gave it",
        examples=["7-5f3a9c0b1d2e4f60"],
    ),
]


class Item(Struct, forbid_unknown_fields=True, kw_only=True):
    """One item of a batch; unknown fields are refused."""


class PageItem(Item, kw_only=True):
    """A page to register, or what to change of a known one."""

    url: Url
    importance: Importance | UnsetType = UNSET
    observability: Watched | UnsetType = UNSET
    min_crawl_rate: MinRate | UnsetType = UNSET
    max_crawl_rate: MaxRate | UnsetType = UNSET


class ObservationItem(Item, kw_only=True):
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


class PingItem(Item, kw_only=True):
    """A notice that a page has changed: name the page by `url` or `page_id`."""

    url: Url | UnsetType = UNSET
    page_id: PageId | UnsetType = UNSET
    changed_at: Moment


class PagePatchBody(Item, kw_only=True):
    """What to change of a page; null clears a bound."""

    importance: Importance | UnsetType = UNSET
    observability: Watched | UnsetType = UNSET
    min_crawl_rate: MinRate | UnsetType | None = UNSET
    max_crawl_rate: MaxRate | UnsetType | None = UNSET


Worker = Annotated[
    str,
    Meta(
        pattern=rf"^[^\x00-\x1f\x7f\ud800-\udfff]{{1,100}}{END}",
        description="a name of the worker, for people: 1 to 100 characters, no control characters",
    ),
]


class LeaseBody(Item, kw_only=True):
    """What a worker asks for."""

    worker: Worker = "worker"
    count: Annotated[int, Meta(ge=1, le=1_000, description="a number of crawls, 1 to 1,000")] = 10
    ttl_s: (
        Annotated[
            float, Meta(ge=1, le=86_400, description="a number of seconds that the leases run")
        ]
        | UnsetType
    ) = UNSET
    hosts: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=253)]],
        Meta(max_length=100, description="a list of host names; only their pages are wanted"),
    ] = []
    shard: Annotated[int, Meta(ge=0, le=9_999, description="a number below `shards`")] = 0
    shards: Annotated[
        int, Meta(ge=1, le=10_000, description="into how many parts the hosts are divided")
    ] = 1
    wait_s: Annotated[
        float, Meta(ge=0, le=30, description="a number of seconds to wait for the first crawl")
    ] = 0


class LeasePatchBody(Item, kw_only=True):
    """How long a lease is to run from now on."""

    ttl_s: Annotated[float, Meta(ge=1, le=86_400, description="a number of seconds")]


class Rejection(Struct, kw_only=True):
    """Why one item of a batch was not taken."""

    index: int
    code: str
    detail: str
    field: str | None = None


class BatchAnswer(Struct, kw_only=True):
    """What became of the items of a batch."""

    accepted: int
    duplicate: int
    late: int
    n_rejected: int
    rejected: list[Rejection]
    """All of them, in order; of NDJSON in several blocks and of sitemaps the first 1,000."""


class ObservationsAnswer(BatchAnswer, kw_only=True):
    """What became of the crawls of a batch."""

    leases_ended: int
    """Leases that these reports ended; a report under one that had ended before is evidence
    like any other."""


class LeasedCrawl(Struct, kw_only=True):
    """A page to crawl now, and the token to report it under."""

    lease: str
    page_id: int
    url: str
    host: str
    reason: Literal["due", "ping", "first"]
    due_at: datetime
    last_crawl_at: datetime | None
    overdue: float
    """(now - last crawl) x crawl rate: due at 1."""
    expires_at: datetime


class LeasesAnswer(Struct, kw_only=True):
    """Crawls handed out, the most overdue first."""

    items: list[LeasedCrawl]
    retry_after_s: float | UnsetType = UNSET
    """Only where nothing was due: when to come back."""


class LeaseAnswer(Struct, kw_only=True):
    """A lease that goes on."""

    lease: str
    page_id: int
    expires_at: datetime


class PagesAnswer(BatchAnswer, kw_only=True):
    """What became of the pages of a batch."""

    created: int
    page_ids: list[int | None]
    """By position in the request; null where the item was rejected."""


class Decision(Struct, kw_only=True):
    """Whether a ping leads to a crawl now, and why."""

    index: int
    page_id: int
    crawl: bool
    reason: str


class PingsAnswer(BatchAnswer, kw_only=True):
    """What became of the pings of a batch."""

    decisions: list[Decision]


class IndexNowBody(Struct, kw_only=True):
    """URLs of one host that have changed, as the IndexNow protocol names the fields."""

    host: str
    key: str
    urlList: list[str]  # noqa: N815 - the protocol's name
    keyLocation: str | None = None  # noqa: N815


class IndexNowAnswer(Struct, kw_only=True):
    """What became of a submission by IndexNow."""

    status: Literal["taken", "pending"]
    """pending: the site's key is being looked at; the URLs are taken once it has been found."""
    n_urls: int
    """Distinct URLs; while pending the number of URLs as sent."""
    n_taken: int
    """Distinct URLs taken as change notices of this moment."""


class SitemapChild(Struct, kw_only=True):
    """A sitemap that an index names, for you to fetch."""

    loc: str
    lastmod: datetime | None = None


class SitemapAnswer(BatchAnswer, kw_only=True):
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


class ScheduledPage(Struct):
    """One row of the published schedule, its due time as of now."""

    page_id: int
    url: str
    importance: float
    change_rate: float
    crawl_rate: float
    crawl_probability: float
    next_crawl_at: datetime | None


class ScheduleAnswer(Struct, kw_only=True):
    """A part of the schedule in force, by ascending page_id."""

    epoch: int | None
    published_at: datetime | None
    bandwidth: float | None
    items: list[ScheduledPage]
    removed: list[int] | UnsetType = UNSET
    """With `since_epoch`: the page_ids that are no longer scheduled."""
    next_cursor: str | None


class EpochAnswer(Struct, kw_only=True):
    """One run of the scheduler; what it has not come to yet is null."""

    epoch: int
    status: Literal["requested", "running", "published", "failed"]
    requested_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    bandwidth: float | None = None
    bandwidth_used: float | None = None
    multiplier: float | None = None
    harmonic_cost: float | None = None
    binary_cost: float | None = None
    kkt_residual: float | None = None
    passes: int | None = None
    n_pages: int | None = None
    haste: float | None = None
    prior: dict[str, float] | None = None
    seconds: dict[str, float] | None = None


class EpochsAnswer(Struct, kw_only=True):
    """Epochs, newest first."""

    items: list[EpochAnswer]
    next_before: int | None


class Problem(Struct, kw_only=True, omit_defaults=True):
    """RFC 9457: what went wrong and how to mend it."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list[Rejection] | UnsetType = UNSET
    accepted: int | UnsetType = UNSET
    duplicate: int | UnsetType = UNSET
    late: int | UnsetType = UNSET
    n_rejected: int | UnsetType = UNSET
    rejected: list[Rejection] | UnsetType = UNSET
    lines_taken: int | UnsetType = UNSET
    """Of NDJSON to POST /observations: so many lines, from the first, were dealt with for good."""
    check: Literal["connection", "schema", "writes"] | UnsetType = UNSET
    """Check of GET /readyz that failed."""


class Health(Struct, kw_only=True):
    """The process is alive, or ready."""

    status: Literal["ok"]
    version: str
