"""Limits of the caller's key on a batch: its items a second, and the pages that it may name."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import numpy as np
from msgspec import UNSET, UnsetType, structs

from recrawl_client.wire.common import Item, Rejection
from recrawl_client.wire.evidence import Observation
from service.access.boundary import Boundary
from service.access.callers import Caller
from service.api.requests.items import Batch
from service.api.requests.refusals import NOT_ALLOWED, RefusedItem, refuse
from service.api.requests.rules import read_lease
from service.model.arrays import distinct
from service.model.changes import ChangeFilter
from service.model.errors import Forbidden, InvalidField, InvalidUrl
from service.model.urls import NormalUrl, normalise
from service.storage import Store

SETTINGS = ("importance", "observability", "min_crawl_rate", "max_crawl_rate", "tags", "kind")
"""Settings of a page that a limited key may not choose, because all pages share one budget.

Operators act on pages by their tags, so tags lead to importance."""

ItemT = TypeVar("ItemT", bound=Item)


def admitted(batch: Batch[ItemT], caller: Caller, store: Store) -> Batch[ItemT]:
    """Return the items that the caller's key may send, and charge the key for all items.

    The pages of a limited key's leases are read from the store, so call this in a thread then. A
    redirect to a page that the key may not name is recorded without its target, because no crawler
    can choose where a site leads.
    """
    charge(caller, batch.n_items)
    boundary = caller.boundary
    if boundary is None:
        return batch
    leased = _leased_urls(batch, boundary, store)
    urls = [_url(item, leased) for item in batch.items]
    faults = [
        fault(item, url, boundary) or _foreign_lease(item, leased, boundary)
        for item, url in zip(batch.items, urls, strict=True)
    ]
    good, refusals = [], [_without_lease(each, leased, boundary) for each in batch.refusals]
    for i, (index, wrong) in enumerate(zip(batch.index.tolist(), faults, strict=True)):
        if wrong is None:
            good.append(i)
        else:
            rejection = Rejection(index=index, code=NOT_ALLOWED, field=wrong[0], detail=wrong[1])
            refusals.append(refuse(rejection, batch.items[i]))
    own_hosts = np.full(len(good), "", object)
    for row, i in enumerate(good):
        own_hosts[row] = _own_hosts(urls[i], boundary)
    return Batch(
        [_without_target(batch.items[i], boundary) for i in good],
        batch.index[np.array(good, np.int64)],
        sorted(refusals, key=lambda each: each.rejection.index),
        own_hosts,
        _of_items(batch, good),
    )


def _of_items(batch: Batch[ItemT], good: list[int]) -> tuple[Rejection, ...]:
    """Return the fields of the good items that were left out."""
    if not batch.left_out:
        return ()
    kept = set(batch.index[np.array(good, np.int64)].tolist())
    return tuple(each for each in batch.left_out if each.index in kept)


def _own_hosts(url: str | UnsetType, boundary: Boundary) -> frozenset[str]:
    """Return the hosts that a report may pause: none for a page of a host that is not the key's."""
    try:
        own = not isinstance(url, UnsetType) and normalise(url).host in boundary.hosts
    except InvalidUrl:
        own = False
    return boundary.hosts if own else frozenset()


def charge(caller: Caller, n_items: int) -> None:
    """Charge the caller's key for the items of a request; its admission has paid for one item."""
    if caller.bucket is not None:
        caller.bucket.charge(max(n_items - 1, 0))


def _leased_urls(batch: Batch[ItemT], boundary: Boundary, store: Store) -> dict[int, str]:
    """Return the URLs of leased pages by page_id; unknown pages have none.

    Leases of items that name a URL beyond the boundary are left out, because these are refused.
    """
    own = (item for item in batch.items if _inside(getattr(item, "url", UNSET), boundary))
    leased = {page_id for item in own if (page_id := _leased(item))}
    leased |= {each.leased_page_id for each in batch.refusals if each.token}
    if not leased:
        return {}
    with store.begin(write=False) as tx:
        pages = tx.page_urls(distinct(np.array([*leased])), ChangeFilter())
    return dict(zip(pages.page_id.tolist(), pages.url.tolist(), strict=True))


def _leased(item: Item) -> int:
    """Return the page of an item's lease; 0 without a lease."""
    lease = item.lease if isinstance(item, Observation) else UNSET
    return 0 if isinstance(lease, UnsetType) else read_lease(lease)[0]


def _url(item: Item, leased: dict[int, str]) -> str | UnsetType:
    """Return the URL of an item's page; "" for the lease of an unknown page."""
    url: str | UnsetType = getattr(item, "url", UNSET)
    if url is getattr(item, "page_id", UNSET) is UNSET and (page_id := _leased(item)):
        return leased.get(page_id, "")
    return url


def _foreign_lease(
    item: Item, leased: dict[int, str], boundary: Boundary
) -> tuple[str, str] | None:
    """Return the field and the reason, if the lease of an item is on a page of others."""
    url = leased.get(_leased(item))
    if url is None or _inside(url, boundary):
        return None
    return "lease", outside("the page of this lease", boundary)


def _without_lease(refused: RefusedItem, leased: dict[int, str], boundary: Boundary) -> RefusedItem:
    """Return a refused item, without a lease on a page that the key may not name."""
    url = leased.get(refused.leased_page_id)
    if url is None or _inside(url, boundary):
        return refused
    return refused._replace(leased_page_id=0, token=0)


def fault(item: Item, url: str | UnsetType, boundary: Boundary) -> tuple[str, str] | None:
    """Return the field of an item that a limited key may not send, and the reason."""
    if isinstance(url, UnsetType):
        return "url", f"a key that is limited to {boundary} names pages by url; send the url"
    if not _inside(url, boundary):
        if getattr(item, "url", UNSET) is UNSET:
            return "lease", outside("the page of this lease", boundary)
        return "url", outside(url[:200], boundary)
    for name in SETTINGS:
        if getattr(item, name, UNSET) is not UNSET:
            return name, f"a key that is limited to {boundary} cannot set {name}; leave it out"
    return None


def _without_target(item: ItemT, boundary: Boundary) -> ItemT:
    target = getattr(item, "redirect_url", UNSET)
    if isinstance(target, UnsetType) or _inside(target, boundary):
        return item
    return structs.replace(item, redirect_url=UNSET)


def _inside(url: str | UnsetType, boundary: Boundary) -> bool:
    """Return whether a key may name a URL; an invalid URL, or none, has an error of its own."""
    if isinstance(url, UnsetType):
        return True
    try:
        return boundary.allows(normalise(url))
    except InvalidUrl:
        return True


def check_ttl(caller: Caller, ttl_s: float | UnsetType, default: timedelta) -> None:
    """Raise `InvalidField` for a lease of a limited key that is longer than the default.

    A lease takes a place in the concurrency of its host, and of all hosts of its group.
    """
    most_s = default.total_seconds()
    if caller.boundary is not None and not isinstance(ttl_s, UnsetType) and ttl_s > most_s:
        raise InvalidField(
            "ttl_s",
            f"ttl_s is {ttl_s:g}; a key that is limited to {caller.boundary} has leases of at most "
            f"{most_s:g} s (RECRAWL_LEASE_TTL_S); send less, and extend the lease with PATCH while "
            "the crawl runs",
        )


def outside(page: str, boundary: Boundary) -> str:
    """Return the sentence on a page outside of a key's limits."""
    return f"{page} is outside of the limits of this key, {boundary}; use another key"


def check_urls(caller: Caller, urls: Sequence[NormalUrl]) -> None:
    """Raise `Forbidden` for the first URL that the caller's key may not name."""
    if caller.boundary is None:
        return
    for url in urls:
        if not caller.boundary.allows(url):
            raise Forbidden(outside(url.url[:200], caller.boundary))


def check_unlimited(caller: Caller) -> None:
    """Raise `Forbidden` for a key that is limited to hosts or URLs."""
    if caller.boundary is not None:
        raise Forbidden(
            f"this key is limited to {caller.boundary}; use a key without limits to list leases, "
            "or send explain=true with hosts of these"
        )


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
