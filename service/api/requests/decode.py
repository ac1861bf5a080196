"""Conversion of decoded items to columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from recrawl_client.wire.common import Item, Rejection
from recrawl_client.wire.evidence import Observation, Ping
from recrawl_client.wire.pages import Page
from service.api.requests.fields import (
    all_unset,
    codes_of,
    dates_of,
    digest_of,
    etags_of,
    instants,
    leases_of,
    notes_of,
    numbers_of,
    optional_numbers,
    page_ids,
    read_urls,
    stated_instants,
    statuses_of,
    texts_of,
    weights_of,
)
from service.api.requests.items import Batch
from service.api.requests.refusals import RefusedItem, lease_ends, refuse
from service.api.requests.rules import (
    FUTURE_ALLOWED,
    ReadUrl,
    check_note,
    check_observation,
    check_page,
    check_ping,
    leads_away,
)
from service.batching.reports import Report
from service.ingest.page_names import PageNames
from service.model.amounts import BYTES, CRAWLS, Amount, price_in
from service.model.arrays import (
    KEY,
    UNSPECIFIED,
    Ints,
    Numbers,
)
from service.model.columns import CrawlColumns, PageColumns, PingColumns
from service.model.domain import Observability
from service.model.errors import InvalidField, InvalidUrl
from service.model.outcomes import OFFERED, PAYMENT
from service.model.urls import NormalUrl
from service.storage.pages.kinds import FEED, KindRows
from service.storage.pages.noting import NotedRows
from service.storage.pages.tagging import TaggedRows

OBSERVABILITY: dict[Any, int] = {
    UNSET: UNSPECIFIED,
    **{observability.name: observability.value for observability in Observability},
}

NO_PAGES = PageColumns.empty()

T = TypeVar("T")
EvidenceT = TypeVar("EvidenceT", CrawlColumns, PingColumns)
ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """Columns of the good items, their positions in the request, and the refused items.

    Columns of crawls end with those of the refused items that end a lease.
    """

    columns: T
    named: PageNames
    index: Ints
    refusals: list[RefusedItem]
    tags: TaggedRows | None = None
    """Tags of registered pages; None: no item states tags."""
    notes: NotedRows | None = None
    """Notes of registered pages; None: no item states a note."""
    kinds: KindRows | None = None
    """Kinds of registered pages; None: no item states a kind."""
    n_ends: int = 0
    """Number of refused items that end a lease."""
    left_out: Sequence[Rejection] = ()
    """Fields of good items that were left out."""

    @property
    def n_items(self) -> int:
        """All items, good and bad."""
        return len(self.index) - self.n_ends + len(self.refusals)

    def report(self: "Decoded[EvidenceT]", now: datetime, *, register: bool) -> Report[EvidenceT]:
        """Return the good items as a job of a batcher."""
        return Report(self.columns, self.named, register, now)


def decode_crawls(
    batch: Batch[Observation], now: datetime, unit: str = CRAWLS
) -> Decoded[CrawlColumns]:
    """Return the columns of observations; their costs are in the `unit` of the budget."""
    items = batch.items
    urls, targets = (
        read_urls([item.url for item in items]),
        read_urls([item.redirect_url for item in items]),
    )
    digest = [0 if item.digest is UNSET else digest_of(item.digest) for item in items]
    notes = notes_of(items)
    latest = now + FUTURE_ALLOWED

    def check(i: int, item: Observation) -> None:
        check_observation(item, urls[i], digest[i], latest)
        if notes:
            check_note(notes[i])

    good, refusals = judged(batch, check)
    leased_page_id, token, page_id = leases_of(items, page_ids(items))
    cost, wrong = costs_of(items, unit)
    status = statuses_of(items)
    if cost is not None and Amount(0.0, unit).is_money:
        status[(status == PAYMENT) & ~np.isnan(cost)] = OFFERED
    columns = CrawlColumns(
        page_id=page_id,
        observed_at=stated_instants([item.observed_at for item in items]),
        changed=codes_of([item.changed for item in items]),
        digest=np.array(digest, np.int64),
        status=status,
        leased_page_id=leased_page_id,
        token=token,
        retry_after_s=numbers_of([item.retry_after_s for item in items]),
        redirects_to=np.zeros(len(items), np.int64),
        leads=np.zeros(len(items), np.int16),
        last_modified=dates_of([item.last_modified for item in items]),
        etag=etags_of([item.etag for item in items]),
        note=texts_of(notes),
        own_hosts=batch.own_hosts,
        cost=cost,
        seconds=optional_numbers([item.seconds for item in items]),
        weight=weights_of([item.change_weight for item in items]),
    )
    # a site may lead anywhere, such as to mailto:; its crawl counts as one without a target
    if any(targets):
        targets = [
            target if _leads_away(item) and not isinstance(target, InvalidUrl) else None
            for item, target in zip(items, targets, strict=True)
        ]
    targets = targets if any(targets) else []
    decoded = _taken(columns, urls, batch.index, good, refusals, targets)
    left_out = [*batch.left_out]
    for i in filter(set(good.tolist()).__contains__, wrong):
        index = int(batch.index[i])
        left_out.append(Rejection(index=index, code="left_out", field="price", detail=wrong[i]))
    if left_out:
        decoded = replace(decoded, left_out=left_out)
    return with_ends(decoded, now)


def costs_of(items: Sequence[Observation], unit: str) -> tuple[Numbers, dict[int, str]]:
    """Return the costs of crawls in the unit of the budget, and what is wrong with prices.

    The costs are None if no item has any. The second value goes by the position of the item.
    """
    if unit == CRAWLS:
        return None, {}
    if not Amount(0.0, unit).is_money:
        stated = [item.bytes if unit == BYTES else item.seconds for item in items]
        return optional_numbers(stated), {}
    prices = [item.price for item in items]
    if all_unset(prices):
        return None, {}
    cost, wrong = np.full(len(items), np.nan), {}
    for i, price in enumerate(prices):
        if isinstance(price, UnsetType):
            continue
        try:
            cost[i] = price_in(price, unit)
        except ValueError as error:
            wrong[i] = f"price is {error}"
    return cost, wrong


def with_ends(decoded: Decoded[CrawlColumns], now: datetime) -> Decoded[CrawlColumns]:
    """Return crawls, followed by the ends of leases whose reports were refused."""
    if not decoded.refusals:
        return decoded
    index, ends = lease_ends(decoded.refusals, now)
    if not len(ends):
        return decoded
    named, nowhere = decoded.named, np.full(len(ends), -1, np.int64)
    page_id, row = np.append(named.page_id, ends.page_id), np.append(named.row, nowhere)
    target = None if named.target is None else np.append(named.target, nowhere)
    return replace(
        decoded,
        columns=CrawlColumns.concatenate([decoded.columns, ends]),
        named=PageNames(page_id, row, named.pages, target),
        index=np.append(decoded.index, index),
        n_ends=len(ends),
    )


def decode_pings(batch: Batch[Ping], now: datetime) -> Decoded[PingColumns]:
    """Return the columns of pings."""
    items = batch.items
    urls, latest = read_urls([item.url for item in items]), now + FUTURE_ALLOWED
    good, refusals = judged(batch, lambda i, item: check_ping(item, urls[i], latest))
    at = instants([item.changed_at for item in items])
    columns = PingColumns(page_id=page_ids(items), changed_at=at, changed_by=at)
    return _taken(columns, urls, batch.index, good, refusals)


def decode_pages(batch: Batch[Page]) -> Decoded[PageColumns]:
    """Return the columns of pages; a URL has the last value of each field that its items state."""
    urls = read_urls([item.url for item in batch.items])
    notes = notes_of(batch.items)

    def check(i: int, item: Page) -> None:
        check_page(item, urls[i])
        if notes:
            check_note(notes[i])

    good, refusals = judged(batch, check)
    items = [batch.items[i] for i in good.tolist()]
    named = name_pages(np.zeros(len(good), np.int64), _normals(urls, good))
    observability = [OBSERVABILITY[item.observability] for item in items]
    columns: dict[str, NDArray[Any]] = {
        "importance": numbers_of([item.importance for item in items]),
        "min_crawl_rate": numbers_of([item.min_crawl_rate for item in items]),
        "max_crawl_rate": numbers_of([item.max_crawl_rate for item in items]),
        "observability": np.array(observability, np.int16),
    }
    fields = {name: _last_stated(column, named) for name, column in columns.items()}
    columns_of_pages = replace(named.pages, **fields)
    noted = _notes([notes[i] for i in good.tolist()], items, named) if notes else None
    return Decoded(
        columns_of_pages,
        named,
        batch.index[good],
        refusals,
        _tags(items, named),
        noted,
        _kinds(items, named),
    )


def _kinds(items: Sequence[Page], named: PageNames) -> KindRows | None:
    """Return the kind that the last item of each URL with a kind states."""
    stated = {
        row: item.kind == FEED
        for row, item in zip(named.row.tolist(), items, strict=True)
        if item.kind is not UNSET
    }
    return KindRows.of(stated) if stated else None


def _tags(items: Sequence[Page], named: PageNames) -> TaggedRows | None:
    """Return the tags that the last item of each URL with tags states."""
    stated = {
        row: item.tags
        for row, item in zip(named.row.tolist(), items, strict=True)
        if not isinstance(item.tags, UnsetType)
    }
    return TaggedRows.of(stated) if stated else None


def _notes(
    notes: Sequence[str | UnsetType], items: Sequence[Page], named: PageNames
) -> NotedRows | None:
    """Return the last note that the items of each URL state; one for new pages replaces none."""
    stated: dict[int, tuple[str, bool]] = {}
    for row, note, item in zip(named.row.tolist(), notes, items, strict=True):
        if not isinstance(note, UnsetType) and not (item.note_if_new and row in stated):
            stated[row] = note, item.note_if_new is True
    return NotedRows.of(stated) if stated else None


def judged(
    batch: Batch[ItemT], check: Callable[[int, ItemT], None]
) -> tuple[Ints, list[RefusedItem]]:
    """Return the positions of the good items, and the refusals of the others."""
    keep, refusals = np.ones(len(batch.items), np.bool_), list(batch.refusals)
    for i, item in enumerate(batch.items):
        try:
            check(i, item)
        except InvalidField as error:
            error.__traceback__ = None  # it would hold the whole batch in a cycle
            keep[i], index = False, int(batch.index[i])
            rejection = Rejection(
                index=index, code=error.code, detail=error.detail, field=error.field
            )
            refusals.append(refuse(rejection, item))
    return np.flatnonzero(keep), sorted(refusals, key=lambda each: each.rejection.index)


def _taken(
    columns: EvidenceT,
    urls: Sequence[ReadUrl],
    index: Ints,
    good: Ints,
    refusals: list[RefusedItem],
    targets: Sequence[ReadUrl] = (),
) -> Decoded[EvidenceT]:
    """Return the good items alone."""
    if len(good) < len(columns):
        columns, index = columns.take(good), index[good]
    named = name_pages(
        columns.page_id, _normals(urls, good), _normals(targets, good) if targets else ()
    )
    return Decoded(columns, named, index, refusals)


def normal_url(url: ReadUrl) -> NormalUrl | None:
    """Return a URL that was checked to be valid."""
    return cast("NormalUrl | None", url)


def _normals(urls: Sequence[ReadUrl], good: Ints) -> list[NormalUrl | None]:
    """Return the URLs of good items, which are valid."""
    if len(good) < len(urls):
        urls = [urls[i] for i in good.tolist()]
    return cast("list[NormalUrl | None]", urls)


def _last_stated(column: NDArray[Any], named: PageNames) -> NDArray[Any]:
    """Return the last value that the items of each URL state."""
    unstated = np.isnan(column) if column.dtype.kind == "f" else column == UNSPECIFIED
    last = np.full(
        len(named.pages), UNSPECIFIED if column.dtype.kind == "i" else np.nan, column.dtype
    )
    last[named.row[~unstated]] = column[~unstated]
    return last


def _leads_away(item: Observation) -> bool:
    return item.robots_denied is not True and leads_away(item.status)


def name_pages(
    page_id: Ints, urls: Sequence[NormalUrl | None], targets: Sequence[NormalUrl | None] = ()
) -> PageNames:
    """Return ids and distinct URLs separately; `targets` are the URLs of redirects."""
    if targets:
        named = name_pages(np.append(page_id, np.zeros_like(page_id)), [*urls, *targets])
        row, target = named.row.reshape(2, -1)
        return PageNames(page_id, row, named.pages, target)
    if not any(urls):
        return PageNames(page_id, np.full(len(page_id), -1, np.int64), _described([]))
    distinct = {url.key: url for url in urls if url is not None}
    rows = dict(zip(distinct, range(len(distinct)), strict=True))
    row = np.array([-1 if url is None else rows[url.key] for url in urls], np.int64)
    return PageNames(page_id, row, _described(list(distinct.values())))


def _described(urls: list[NormalUrl]) -> PageColumns:
    if not urls:
        return NO_PAGES
    n, unstated = len(urls), np.full(len(urls), np.nan)
    return PageColumns(
        key=np.frombuffer(b"".join(url.key for url in urls), KEY),
        url=np.array([url.url for url in urls], object),
        host=np.array([url.host for url in urls], object),
        importance=unstated,
        observability=np.full(n, UNSPECIFIED, np.int16),
        min_crawl_rate=unstated,
        max_crawl_rate=unstated,
    )
