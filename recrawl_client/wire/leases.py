"""Leases: due crawls for workers."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from recrawl_client.wire.common import END, Instant, Item
from recrawl_client.wire.evidence import Observation, Reported
from recrawl_client.wire.pages import Kind

Worker = Annotated[
    str,
    Meta(
        pattern=rf"^[^\x00-\x1f\x7f\ud800-\udfff]{{1,100}}{END}",
        description="a name of the worker, 1 to 100 characters without control characters",
    ),
]


class LeaseBody(Item, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's request for crawls; every field may be left out."""

    worker: Worker = "worker"
    """Name of the worker, for people; `worker` by default."""
    count: Annotated[
        int, Meta(ge=1, le=1_000, description="a whole number of crawls, 1 to 1,000")
    ] = 10
    """Maximum number of crawls, 10 by default."""
    ttl_s: (
        Annotated[
            float,
            Meta(ge=1, le=86_400, description="the duration of a lease in seconds, 1 to 86,400"),
        ]
        | UnsetType
    ) = UNSET
    """Duration of the leases, seconds; `RECRAWL_LEASE_TTL_S` by default."""
    hosts: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=253)]],
        Meta(
            max_length=100,
            description="a list of at most 100 host names, each of 1 to 253 characters",
        ),
    ] = field(default_factory=list)
    """Hosts whose pages are wanted; an empty list, the default, means all hosts."""
    slice: Annotated[
        int, Meta(ge=0, le=9_999, description="a whole number from 0, below `slices`")
    ] = 0
    """Number of this worker's slice of the hosts, 0 by default."""
    slices: Annotated[
        int, Meta(ge=1, le=10_000, description="a whole number of slices, 1 to 10,000")
    ] = 1
    """Number of slices that the hosts are divided into, 1 by default."""
    kind: Kind = "page"
    """Kind of the pages: `page`, the default, or `feed` for feeds alone."""
    wait_s: Annotated[float, Meta(ge=0, le=30, description="a number of seconds, 0 to 30")] = 0
    """Maximum wait for the first crawl, seconds; 0 by default."""
    report: list[Observation] = field(default_factory=list)
    """Crawls to report first, in the same commit; each succeeds or fails alone."""


class LeasePatchBody(Item, frozen=True, kw_only=True):
    """A new end of a lease."""

    ttl_s: Annotated[
        float, Meta(ge=1, le=86_400, description="a number of seconds from now, 1 to 86,400")
    ]
    """Duration of the lease from now on, seconds."""


Reason = Literal["due", "ping", "request", "first"]


class Crawl(Struct, frozen=True, omit_defaults=True):
    """A page to crawl now, and the token to report the crawl with."""

    lease: str
    """Token to report the crawl with."""
    page_id: int
    """The service's number of the page."""
    url: str
    """URL to crawl."""
    host: str
    """Host of the URL."""
    reason: Reason
    """Reason of the crawl: `due` by the schedule, a `ping`, a `request` of an operator, or the
    `first` crawl of the page. A URL that is named again counts as a ping of its page."""
    due_at: Instant
    """Instant since which the page is due."""
    last_crawl_at: Instant | None
    """Instant of the page's last crawl; null before the first."""
    overdue: float
    """Days since the last crawl times the crawl rate, without a unit: 1 means due just now. A page
    whose last crawl had no content counts by its wait in place of its interval."""
    expires_at: Instant
    """Instant at which the lease ends unless the crawl is reported or the lease extended."""
    etag: str | None = None
    """ETag of the page's last answer with content, for If-None-Match; absent without one."""
    last_modified: Instant | None = None
    """Last-Modified of that answer, for If-Modified-Since; absent without one."""
    note: Any = None
    """Note of the crawler; absent without one."""
    max_price: str | None = None
    """Highest price to pay for the crawl, such as `USD 0.01`, to be sent as `crawler-max-price`;
    absent for a page whose price is not known."""


class Leased(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Leased crawls, the most overdue first."""

    items: list[Crawl]
    """Crawls; empty when none is due."""
    retry_after_s: float | None = None
    """Recommended wait before the next request, seconds; absent when there are items."""
    paused_until: Instant | None = None
    """End of the pause of all hosts; absent without one."""
    held_by: Literal["budget", "income"] | None = None
    """Reason for no items that holds for every page: `budget`, today's is spent; `income`, its
    income so far is. Absent for others, which `GET /leases?explain=true` states."""
    reported: Reported | None = None
    """Outcomes of the crawls in `report`; absent without them."""


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """A running lease with its new end."""

    lease: str
    """Token of the lease."""
    page_id: int
    """The service's number of the page."""
    expires_at: Instant
    """Instant at which the lease ends now."""
