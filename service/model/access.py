"""API keys, their roles and limits, and the audit of administrative acts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

Json = Mapping[str, Any]


class Role(IntEnum):
    """Rights of a caller; a role includes the lower ones."""

    read = 1
    """Read pages, hosts, epochs, the schedule and the feed of changes."""
    report = 2
    """Register pages; send crawls, pings and sitemaps."""
    crawl = 3
    """Take crawls under leases."""
    admin = 4
    """Change hosts, delete pages, request epochs, manage webhooks and keys, read the audit."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: the secret itself is not."""

    key_id: str
    """Public part of the key, by which lists, logs and the audit name the key."""
    digest: bytes = field(repr=False)
    """SHA-256 of the whole key."""
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    """Instant of a use within the last minute or so of its use; None for an unused key."""
    revoked_at: datetime | None = None
    items_per_s: float | None = None
    """Maximum rate of items, 1/second; None: no maximum."""
    hosts: tuple[str, ...] = ()
    """Hosts that the key is limited to; with `url_prefixes`, either of the two suffices."""
    url_prefixes: tuple[str, ...] = ()
    """Beginnings of the URLs that the key is limited to."""


class Actor(NamedTuple):
    """The author of an act."""

    key: str
    """Id of a key; `environment-N`, `jwt:SUBJECT`, `anyone`, `command-line` and `recrawl` for
    others."""
    request_id: str | None = None
    """Identifier of the request, as in the log."""


RECRAWL = Actor("recrawl")
"""The service itself, as author of what it does unasked."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An administrative act."""

    at: datetime
    key: str
    """Author of the act, as in `Actor`."""
    act: str
    """Kind of the object and verb, such as `host.change`."""
    object: str
    """Name of the object."""
    before: Json | None = None
    """Values before the act; None where there was nothing."""
    after: Json | None = None
    """Values after the act; None where nothing is left."""
    request_id: str | None = None
    entry: int = 0
    """Number of the entry; 0 before it is stored."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Conditions on entries of the audit; None selects every value."""

    key: str | None = None
    act: str | None = None
    object: str | None = None
    since: datetime | None = None
    """First instant."""
    until: datetime | None = None
    """First instant after the range."""


def role_names(roles: Collection[Role] = tuple(Role)) -> str:
    """Return the names of roles for a sentence.

    >>> role_names()
    'read, report, crawl, admin'
    """
    return ", ".join(role.name for role in roles)
