"""Leases: crawls handed out to workers."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from recrawl_client.wire.common import END, Item

Lease = Annotated[
    str,
    Meta(
        pattern=rf"^[1-9][0-9]{{0,17}}-[0-7]?[0-9a-f]{{1,15}}{END}",
        description="the token of a lease, as POST /leases gave it",
        examples=["7-5f3a9c0b1d2e4f60"],
    ),
]

Worker = Annotated[
    str,
    Meta(
        pattern=rf"^[^\x00-\x1f\x7f\ud800-\udfff]{{1,100}}{END}",
        description="a name of the worker, for people: 1 to 100 characters, no control characters",
    ),
]


class LeaseBody(Item, frozen=True, kw_only=True):
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
    ] = field(default_factory=list)
    shard: Annotated[int, Meta(ge=0, le=9_999, description="a number below `shards`")] = 0
    shards: Annotated[
        int, Meta(ge=1, le=10_000, description="into how many parts the hosts are divided")
    ] = 1
    wait_s: Annotated[
        float, Meta(ge=0, le=30, description="a number of seconds to wait for the first crawl")
    ] = 0


class LeasePatchBody(Item, frozen=True, kw_only=True):
    """How long a lease is to run from now on."""

    ttl_s: Annotated[float, Meta(ge=1, le=86_400, description="a number of seconds")]


class Crawl(Struct, frozen=True, kw_only=True):
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


class Leased(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Crawls handed out, the most overdue first."""

    items: list[Crawl]
    retry_after_s: float | None = None
    """Only where nothing was due: when to come back."""


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """A lease that goes on."""

    lease: str
    page_id: int
    expires_at: datetime
