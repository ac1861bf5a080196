"""Limits of the caller's key on a batch: its items a second, and the pages that it may name."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from msgspec import UNSET, UnsetType

from recrawl_client.wire.common import Item, Rejection
from service.access.boundary import Boundary
from service.access.callers import Caller
from service.api.requests.bodies import Batch
from service.model.errors import Forbidden, InvalidUrl
from service.model.urls import NormalUrl, normalise

SETTINGS = ("importance", "observability", "min_crawl_rate", "max_crawl_rate")
"""Settings of a page that a limited key may not choose, because all pages share one budget."""

ItemT = TypeVar("ItemT", bound=Item)


def admitted(batch: Batch[ItemT], caller: Caller) -> Batch[ItemT]:
    """Return the items that the caller's key may send, and charge the key for all items."""
    charge(caller, len(batch.items) + len(batch.rejected))
    if caller.boundary is None:
        return batch
    faults = [fault(item, caller.boundary) for item in batch.items]
    if not any(faults):
        return batch
    good = [i for i, each in enumerate(faults) if each is None]
    refused = [
        Rejection(index=int(index), code="not_allowed", field=each[0], detail=each[1])
        for index, each in zip(batch.index, faults, strict=True)
        if each is not None
    ]
    return Batch(
        [batch.items[i] for i in good],
        batch.index[np.array(good, np.int64)],
        sorted([*batch.rejected, *refused], key=lambda each: each.index),
    )


def charge(caller: Caller, n_items: int) -> None:
    """Charge the caller's key for the items of a request; its admission has paid for one item."""
    if caller.bucket is not None:
        caller.bucket.charge(max(n_items - 1, 0))


def fault(item: Item, boundary: Boundary) -> tuple[str, str] | None:
    """Return the field of an item that a limited key may not send, and the reason."""
    url = getattr(item, "url", UNSET)
    if isinstance(url, UnsetType):
        return "url", f"a key that is limited to {boundary} names pages by url; send the url"
    for field in ("url", "redirect_url"):
        text = getattr(item, field, UNSET)
        if isinstance(text, str) and not _inside(text, boundary):
            return field, outside(text, boundary)
    for name in SETTINGS:
        if getattr(item, name, UNSET) is not UNSET:
            return name, f"a key that is limited to {boundary} cannot set {name}; leave it out"
    return None


def _inside(url: str, boundary: Boundary) -> bool:
    """Return whether a key may name a URL; an invalid URL has an error of its own later."""
    try:
        return boundary.allows(normalise(url))
    except InvalidUrl:
        return True


def outside(url: str, boundary: Boundary) -> str:
    """Return the sentence on a URL outside of a key's limits."""
    return f"{url[:200]} is outside of the limits of this key, {boundary}; use another key"


def check_urls(caller: Caller, urls: Sequence[NormalUrl]) -> None:
    """Raise `Forbidden` for the first URL that the caller's key may not name."""
    if caller.boundary is None:
        return
    for url in urls:
        if not caller.boundary.allows(url):
            raise Forbidden(outside(url.url, caller.boundary))


def check_hosts(caller: Caller, hosts: Sequence[str]) -> None:
    """Raise `Forbidden` unless a limited key names hosts, and only hosts of its own.

    A limit to URLs below a host does not suffice.
    """
    if caller.boundary is None:
        return
    allowed = caller.boundary.hosts
    if not hosts or not allowed.issuperset(hosts):
        raise Forbidden(
            f"this key is limited to {caller.boundary}; name hosts of these only, or use another "
            "key"
        )
