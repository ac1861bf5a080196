"""Cursors: places in lists, opaque to clients, and the Link header that names the next part.

A cursor is MessagePack in base64url: the list and the version of its cursors, then the place.
"""

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

import msgspec
from fastapi import Query, Request
from msgspec import Meta, Struct

from service.model.arrays import FIRST_US, LAST_US
from service.model.errors import BadCursor
from service.model.field_faults import shown

MOST_OFFSET = 2**15 - 1
"""Maximum place of a change among those of its block, which files of the archive keep in 16 bits.
"""
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
CursorParameter = Annotated[
    str | None, Query(description="`next_cursor` of the part before; left out, the first part")
]


class ListPlace(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A place in a list."""


class SchedulePlace(ListPlace, tag="schedule1", frozen=True):
    """A place in the schedule of an epoch."""

    epoch: Number
    after: Number
    """Last page_id before the place."""


class EpochsPlace(ListPlace, tag="epochs1", frozen=True):
    """A place in the list of epochs, newest first."""

    before: Number
    """Last epoch before the place."""


class HostsPlace(ListPlace, tag="hosts1", frozen=True):
    """A place in the list of hosts in an order."""

    order: Literal["host_id", "-host_id", "host", "-host"]
    after: Number | Annotated[str, Meta(max_length=300, pattern=r"^[^\x00]*$")]
    """Last host_id or name before the place."""


class HostLoadsPlace(ListPlace, tag="hostloads1", frozen=True):
    """A place in the list of hosts in the order of a load."""

    order: Literal["n_pages", "-n_pages", "n_overdue", "-n_overdue", "asked_rate", "-asked_rate"]
    measured_at: Annotated[int, Meta(ge=0, le=2**57)]
    """Instant of the measurement, microseconds since 1970; 0: none."""
    row: Annotated[int, Meta(ge=0, le=2**40)]
    """Number of measured hosts before the place."""
    after: Number
    """Last host_id before the place among the other hosts."""


class PagesPlace(ListPlace, tag="pages1", frozen=True):
    """A place in the list of pages."""

    after: Number
    """Last page_id before the place."""


class LogPlace(ListPlace, tag="log1", frozen=True):
    """A place in the log of a page, newest entries first."""

    at: Annotated[int, Meta(ge=FIRST_US, le=LAST_US)]
    """Time of the last entry before the place, microseconds since 1970."""
    kind: Annotated[int, Meta(ge=0, le=1)]


class LeasesPlace(ListPlace, tag="leases1", frozen=True):
    """A place in the list of running leases."""

    after: Number
    """Last page_id before the place."""


class GroupsPlace(ListPlace, tag="groups1", frozen=True):
    """A place in the list of groups."""

    after: Number
    """Last group_id before the place."""


class UrlGroupsPlace(ListPlace, tag="urlgroups1", frozen=True):
    """A place in the list of URL groups."""

    after: Annotated[str, Meta(max_length=2_048, pattern=r"^[^\x00]*$")]
    """Last name before the place."""


class SubscriptionsPlace(ListPlace, tag="websub1", frozen=True):
    """A place in the list of subscriptions."""

    after: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{22}$")]
    """Last id before the place."""


class FeedCursor(ListPlace, tag="changes1", frozen=True):
    """A place in the feed of changes."""

    feed: Annotated[str, Meta(max_length=32)]
    """Id of the database's feed."""
    seq: Number
    offset: Annotated[int, Meta(ge=0, le=MOST_OFFSET)]


class WebhooksPlace(ListPlace, tag="webhooks1", frozen=True):
    """A place in the list of webhooks."""

    after: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{22}$")]
    """Last id before the place."""


class DeliveriesPlace(ListPlace, tag="deliveries1", frozen=True):
    """A place in the list of a webhook's deliveries, newest first."""

    before: Number
    """Last number before the place."""


class HistoryPlace(ListPlace, tag="history1", frozen=True):
    """A place in the history."""

    at: Annotated[int, Meta(ge=0, le=2**37)]
    """Start of the next row, seconds since 1970."""

    @classmethod
    def of(cls, moment: datetime) -> "HistoryPlace":
        """Return the place of a row."""
        return cls(int(moment.timestamp()))

    @property
    def moment(self) -> datetime:
        """Start of the next row."""
        return datetime.fromtimestamp(self.at, UTC)


class KeysPlace(ListPlace, tag="keys1", frozen=True):
    """A place in the list of keys."""

    after: Annotated[str, Meta(pattern="^[0-9a-f]{10}$")]
    """Last key_id before the place."""


class AuditPlace(ListPlace, tag="audit1", frozen=True):
    """A place in the audit, newest first."""

    before: Number
    """Last entry before the place."""


PlaceT = TypeVar("PlaceT", bound=ListPlace)


def limit_of(items: str, most: int = 1_000) -> Any:
    """Return the parameter of a query that limits the items of a part."""
    return Query(ge=1, le=most, description=f"Maximum number of {items}")


def encode_cursor(place: ListPlace) -> str:
    """Return the cursor of a place.

    >>> encode_cursor(PagesPlace(17))
    'kqZwYWdlczER'
    """
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str, kind: type[PlaceT], path: str) -> PlaceT:
    """Return the place of a cursor; raise `BadCursor` for what the list at `path` never returned.

    >>> decode_cursor("kqZwYWdlczER", PagesPlace, "/pages").after
    17
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        content = base64.b64decode(padded, altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(content, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise refused(cursor, path) from error


def refused(cursor: str, path: str) -> BadCursor:
    """Return the refusal of a cursor that the list at `path` never returned."""
    detail = f"{shown(cursor)} is no cursor of GET {path}; start again without cursor"
    return BadCursor(detail, field="cursor")


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """Return the Link header of a part; none for the last part."""
    if cursor is None:
        return {}
    query = urlencode({**request.query_params, "cursor": cursor})
    return {"Link": f'<{request.scope["path"]}?{query}>; rel="next"'}
