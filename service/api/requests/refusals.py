"""Refused items: the reason, and as much of the lease and of the page as can be read.

A refused report may be the only one on its crawl. So a refusal keeps what names the crawl.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from recrawl_client.wire.common import Lease, PageId, Rejection, Url
from service.api.requests.rules import read_lease
from service.model.errors import InvalidUrl
from service.model.lenient_json import Contradiction
from service.model.urls import NormalUrl, normalise


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


def refuse(rejection: Rejection, item: Any) -> RefusedItem:
    """Return the refusal of an item, which is a struct or any value of JSON."""
    lease, page_id, url = (_read(item, *field) for field in NAMING)
    leased_page_id, token = read_lease(lease) if lease else (0, 0)
    return RefusedItem(rejection, leased_page_id, token, page_id or 0, _normal(url))


NAMING: tuple[tuple[str, Any], ...] = (("lease", Lease), ("page_id", PageId), ("url", Url))
"""Fields that name a crawl, with their types."""


def _read(item: Any, name: str, kind: Any) -> Any:
    """Return a field, None where it is absent or wrong."""
    if isinstance(item, Contradiction):
        item = item.clear
    value = item.get(name, UNSET) if isinstance(item, dict) else getattr(item, name, UNSET)
    try:
        return None if value is UNSET else msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None


def _normal(url: str | None) -> NormalUrl | None:
    try:
        return normalise(url) if url else None
    except InvalidUrl:
        return None
