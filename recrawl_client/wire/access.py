"""The wire format of API keys and of the audit."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import END, Instant, Item

RoleName = Literal["read", "report", "crawl", "admin"]
"""Name of a role; a role includes those before it."""

MAX_GRACE_S = 90 * 86_400
"""Maximum grace of a rotation, seconds."""

KeyName = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f\ud800-\udfff]{1,100}" + END,
        description="1 to 100 characters without control characters",
        examples=["crawler fleet"],
    ),
]
Host = Annotated[str, Meta(min_length=1, max_length=253, description="the name of a host")]
UrlPrefix = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2_000,
        description="the beginning of a URL with its whole host, such as https://example.com/blog/",
    ),
]
Expiry = Annotated[
    Instant, Meta(description="an RFC 3339 instant with a zone, such as 2027-05-01T12:00:00Z")
]
ItemRate = Annotated[
    float, Meta(ge=0.001, le=1_000_000, description="a number from 0.001 to 1,000,000")
]
Grace = Annotated[
    float, Meta(ge=0, le=MAX_GRACE_S, description=f"a number of seconds from 0 to {MAX_GRACE_S}")
]


class KeyBody(Item, frozen=True, kw_only=True):
    """A key to create."""

    name: KeyName
    """Name of the key for people."""
    role: RoleName
    """Role of the key. `read`: pages, hosts, epochs, the schedule. `report`: also crawls, pings,
    sitemaps and pages. `crawl`: also leases. `admin`: also hosts, deletions, epochs and keys."""
    expires_at: Expiry | UnsetType = UNSET
    """Instant at which the key expires; left out, never."""
    items_per_s: ItemRate | UnsetType = UNSET
    """Maximum rate of items, 1/second, for each server; left out, no maximum. A burst may have
    ten seconds' worth of items."""
    hosts: list[Host] | UnsetType = UNSET
    """Hosts that the key is limited to; left out, all. A limited key of role `report` sends pings,
    sitemaps and new pages; one of role `crawl` also crawls, and leases of its hosts."""
    url_prefixes: list[UrlPrefix] | UnsetType = UNSET
    """Beginnings of URLs that the key is limited to, beside `hosts`."""


class KeyItem(Struct, frozen=True, kw_only=True):
    """A key without its secret."""

    key_id: str
    """Public part of the key, by which the audit names the key."""
    name: str
    """Name of the key for people."""
    role: RoleName
    """Role of the key."""
    created_at: Instant
    """Instant at which the key was created."""
    expires_at: Instant | None
    """Instant at which the key expires; null: never."""
    last_used_at: Instant | None
    """Instant of the last use, at most about a minute behind; null for an unused key."""
    revoked_at: Instant | None
    """Instant at which the key was revoked; null for a key that was not."""
    items_per_s: float | None
    """Maximum rate of items, 1/second, for each server; null: no maximum."""
    hosts: list[str]
    """Hosts that the key is limited to; empty with empty `url_prefixes`: all."""
    url_prefixes: list[str]
    """Beginnings of URLs that the key is limited to."""


class CreatedKey(KeyItem, frozen=True, kw_only=True):
    """A new key with its text, which is not shown again."""

    key: str
    """The key itself, for the header `Authorization: Bearer KEY`. The service keeps its hash
    only."""


class KeysAnswer(Struct, frozen=True, kw_only=True):
    """Keys by their id, ended keys too."""

    items: list[KeyItem]
    """Keys of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class RotationBody(Item, frozen=True, kw_only=True):
    """The rotation of a key."""

    grace_s: Grace
    """Time for which the old key still works, seconds."""


class AuditItem(Struct, frozen=True, kw_only=True):
    """An administrative act."""

    entry: int
    """Number of the entry; later entries have higher numbers."""
    at: Instant
    """Instant of the act."""
    key: str
    """Author: the id of a key, `environment-N`, `jwt:SUBJECT`, `anyone` (a service without keys),
    `command-line`, or `recrawl` for the service itself."""
    act: str
    """Kind of the object and verb, such as `host.change`."""
    object: str
    """Name of the object, such as a host or a URL."""
    before: dict[str, Any] | None
    """Values before the act, of a change the changed ones; null where there was nothing."""
    after: dict[str, Any] | None
    """Values after the act, of a change the changed ones; null where nothing is left."""
    request_id: str | None
    """`X-Request-ID` of the request; null for an act by a command."""


class AuditAnswer(Struct, frozen=True, kw_only=True):
    """Administrative acts, newest first."""

    items: list[AuditItem]
    """Entries of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
