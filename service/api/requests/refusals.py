"""Refused items: the reason, and as much of the lease and of the page as can be read.

A refused report may be the only one on its crawl. So a refusal keeps what names the crawl.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from recrawl_client.wire.common import Lease, PageId, Rejection, Url
from service.api.requests.rules import read_lease
from service.model.arrays import NO_TIME, UNSPECIFIED, Ints, instant
from service.model.columns import CrawlColumns
from service.model.domain import ItemVerdict
from service.model.errors import InvalidUrl
from service.model.lenient_json import Contradiction
from service.model.urls import NormalUrl, normalise

NOT_ALLOWED = "not_allowed"
"""Code of a refusal for lack of right, which ends no lease."""
UNREADABLE = (msgspec.ValidationError, UnicodeEncodeError)


class RefusedItem(NamedTuple):
    """A refused item; fields that the item lacks, or that cannot be read, are 0 or None."""

    rejection: Rejection
    leased_page_id: int = 0
    """Page of the item's lease."""
    token: int = 0
    """Token of the item's lease."""
    page_id: int = 0
    """Page that the item names by its number."""
    url: NormalUrl | None = None
    """Page that the item names by its URL."""


class _Names(msgspec.Struct):
    """Fields that name a crawl."""

    lease: Lease | UnsetType = UNSET
    page_id: PageId | UnsetType = UNSET
    url: Url | UnsetType = UNSET


def refuse(rejection: Rejection, item: Any) -> RefusedItem:
    """Return the refusal of an item, which is a struct or any value of JSON."""
    names = _names(item.clear if isinstance(item, Contradiction) else item)
    lease, page_id, url = (getattr(names, name, UNSET) for name in _Names.__struct_fields__)
    leased_page_id, token = (0, 0) if lease is UNSET else read_lease(lease)
    page_id = 0 if page_id is UNSET else page_id
    return RefusedItem(rejection, leased_page_id, token, page_id, _normal(url))


def _names(item: Any) -> Any:
    """Return an object whose attributes are the fields that can be read."""
    if not isinstance(item, dict):
        return item
    with suppress(*UNREADABLE):
        return msgspec.convert(item, _Names)
    names = _Names()
    for name in filter(item.__contains__, _Names.__struct_fields__):
        with suppress(*UNREADABLE):
            own = msgspec.convert({name: item[name]}, _Names)
            setattr(names, name, getattr(own, name))
    return names


def _normal(url: str | UnsetType) -> NormalUrl | None:
    try:
        return None if isinstance(url, UnsetType) else normalise(url)
    except InvalidUrl:
        return None


def lease_ends(refusals: Sequence[RefusedItem], now: datetime) -> tuple[Ints, CrawlColumns]:
    """Return the positions of the refused items that end a lease, and the ends as columns.

    A report under a lease in force never leaves the lease behind. Only a refusal for lack of right
    ends none.
    """
    ends = [each for each in refusals if each.token and each.rejection.code != NOT_ALLOWED]
    if not ends:
        return np.zeros(0, np.int64), CrawlColumns.empty()
    n, page_id = len(ends), np.array([each.leased_page_id for each in ends], np.int64)
    none, unstated = np.zeros(n, np.int64), np.full(n, UNSPECIFIED, np.int16)
    columns = CrawlColumns(
        page_id=page_id,
        observed_at=np.full(n, instant(now)),
        changed=unstated,
        digest=none,
        status=unstated,
        leased_page_id=page_id,
        token=np.array([each.token for each in ends], np.int64),
        retry_after_s=np.full(n, np.nan),
        redirects_to=none,
        leads=np.zeros(n, np.int16),
        last_modified=np.full(n, NO_TIME),
        verdict=np.full(n, ItemVerdict.refused, np.int16),
    )
    return np.array([each.rejection.index for each in ends], np.int64), columns
