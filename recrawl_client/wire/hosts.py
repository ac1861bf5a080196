"""The wire format of hosts and groups of hosts."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import END, Item

MOST_MEMBERS = 1_000

Delay = Annotated[
    float,
    Meta(ge=0, le=86_400, description="a number of seconds from one crawl to the next, 0 to 86400"),
]
Concurrency = Annotated[
    int, Meta(ge=1, le=10_000, description="a number of leases that may run at a time, 1 to 10000")
]
Cap = Annotated[
    float,
    Meta(
        ge=1e-9,
        le=1e9,
        description="a positive number of crawls a day, over all pages; to stop crawls altogether, "
        "send blocked_until",
    ),
]
Until = Annotated[
    datetime,
    Meta(tz=True, description="an RFC 3339 instant with a zone, such as 2026-05-01T12:00:00Z"),
]
GROUP_PATTERN = "^[A-Za-z0-9._:-]{1,100}$"
GroupName = Annotated[
    str,
    Meta(
        pattern=GROUP_PATTERN.removesuffix("$") + END,
        description="1 to 100 letters, digits and . _ : -",
    ),
]


class HostBody(Item, frozen=True, kw_only=True):
    """How a host wants to be crawled; null sets a field back to its default."""

    min_delay_s: Delay | UnsetType | None = UNSET
    robots_delay_s: Delay | UnsetType | None = UNSET
    """What Crawl-delay or Request-rate of robots.txt ask of this crawler."""
    max_concurrency: Concurrency | UnsetType | None = UNSET
    max_crawl_rate: Cap | UnsetType | None = UNSET
    group: GroupName | UnsetType | None = UNSET
    """The hosts that share a server with this one; created on first use, null leaves it."""
    blocked_until: Until | UnsetType | None = UNSET
    """No crawl of its host queue before; null unblocks."""


class GroupBody(Item, frozen=True, kw_only=True):
    """How hosts that share a server want to be crawled; null sets a field back."""

    min_delay_s: Delay | UnsetType | None = UNSET
    max_concurrency: Concurrency | UnsetType | None = UNSET
    max_crawl_rate: Cap | UnsetType | None = UNSET
    blocked_until: Until | UnsetType | None = UNSET
    members: (
        Annotated[
            list[str],
            Meta(
                max_length=MOST_MEMBERS,
                description="a list of host names: these and no others are members; left out, "
                "nobody joins or leaves",
            ),
        ]
        | UnsetType
    ) = UNSET


class HostQueueAnswer(Struct, frozen=True, kw_only=True):
    """What holds for the crawls of a host, or of a group of hosts that share a server."""

    delay_s: float
    """Seconds from one crawl to the next."""
    concurrency: int | None = None
    """Leases that may run at a time; null: any number."""
    blocked_until: datetime | None = None
    ready_at: datetime | None = None
    """The delay after the last crawl is over."""
    next_at: datetime | None = None
    """Nothing can be leased before; null: nothing is queued."""
    n_failures: int
    """Reports of trouble in a row."""


class FeedAnswer(Struct, frozen=True, kw_only=True):
    """The pings of a host's `auto` pages, and what they are worth."""

    n_pages: int
    """Pages that have had one."""
    n_pings: int
    ping_rate: float
    """Pings a day."""
    real: float
    """Share of the pings that announce a change."""
    false: float
    """Share of the pings that do not."""
    trust: float
    """Mean log-likelihood ratio of "pings announce nearly all changes"; 4.6 settles it."""
    last_ping_at: datetime
    silent_days: float
    silent: bool
    """So long a silence is too improbable: pages are crawled as if they had no pings."""


class HostItem(Struct, frozen=True, kw_only=True):
    """A host: what was set, and the host queue it is crawled in."""

    host: str
    group: str | None = None
    min_delay_s: float | None = None
    robots_delay_s: float | None = None
    max_concurrency: int | None = None
    max_crawl_rate: float | None = None
    host_queue: HostQueueAnswer
    """Of a host in a group that of its group."""


class HostAnswer(HostItem, frozen=True, kw_only=True):
    """A host: what was set, the host queue it is crawled in, and what its pages add up to."""

    n_pages: int
    n_queued: int
    """Pages due soon and not leased."""
    n_leased: int
    crawl_rate: float | None = None
    """Crawls a day as scheduled now, to hold against the cap; null over a million pages."""
    feed: FeedAnswer | None = None
    """Null where no `auto` page has had a ping of a change since it was registered."""


class HostsAnswer(Struct, frozen=True, kw_only=True):
    """Hosts in the order they came."""

    items: list[HostItem]
    next_cursor: str | None


class GroupAnswer(Struct, frozen=True, kw_only=True):
    """Hosts that share a server: one host queue, one cap."""

    group: str
    min_delay_s: float | None = None
    robots_delay_s: float | None = None
    """The longest of its members'."""
    max_concurrency: int | None = None
    max_crawl_rate: float | None = None
    host_queue: HostQueueAnswer
    n_members: int
    members: list[str]
    """The first 1,000 by name."""
