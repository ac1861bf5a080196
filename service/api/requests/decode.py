"""Conversion of decoded items to columns."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any, Generic, TypeVar, cast

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from recrawl_client.wire.common import Item, Rejection
from recrawl_client.wire.evidence import Observation, Ping
from recrawl_client.wire.pages import Page
from service.api.requests.bodies import Batch
from service.api.requests.refusals import RefusedItem, lease_ends, refuse
from service.api.requests.rules import (
    FUTURE_ALLOWED,
    ReadUrl,
    check_note,
    check_observation,
    check_page,
    check_ping,
    leads_away,
    read_lease,
    read_note,
)
from service.batching.reports import Report
from service.ingest.page_names import PageNames
from service.model.amounts import BYTES, CRAWLS, Amount, price_in
from service.model.arrays import (
    INSTANT,
    KEY,
    NO_TIME,
    UNIX_ZERO,
    UNSPECIFIED,
    Codes,
    Floats,
    Instants,
    Ints,
    Numbers,
    Texts,
    plausible,
)
from service.model.columns import CrawlColumns, PageColumns, PingColumns
from service.model.domain import Observability
from service.model.errors import InvalidField, InvalidUrl
from service.model.outcomes import INVENTED, OFFERED, PAYMENT, ROBOTS_DENIED
from service.model.urls import NormalUrl, normalise
from service.storage.pages.tagging import TaggedRows

OBSERVABILITY: dict[Any, int] = {
    UNSET: UNSPECIFIED,
    **{observability.name: observability.value for observability in Observability},
}

ETAG = re.compile(r"[\x20-\x7e]{1,512}")
"""ETags that a request may repeat."""

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
    digest = [0 if item.digest is UNSET else _digest(item.digest) for item in items]
    notes = _notes(items)
    latest = now + FUTURE_ALLOWED

    def check(i: int, item: Observation) -> None:
        check_observation(item, urls[i], digest[i], latest)
        if notes:
            check_note(notes[i])

    good, refusals = judged(batch, check)
    leased_page_id, token, page_id = _leases(items, _page_ids(items))
    cost, wrong = costs_of(items, unit)
    status = _statuses(items)
    if cost is not None and Amount(0.0, unit).is_money:
        status[(status == PAYMENT) & ~np.isnan(cost)] = OFFERED
    columns = CrawlColumns(
        page_id=page_id,
        observed_at=_stated([item.observed_at for item in items]),
        changed=_codes([item.changed for item in items]),
        digest=np.array(digest, np.int64),
        status=status,
        leased_page_id=leased_page_id,
        token=token,
        retry_after_s=_numbers([item.retry_after_s for item in items]),
        redirects_to=np.zeros(len(items), np.int64),
        leads=np.zeros(len(items), np.int16),
        last_modified=plausible(_stated([item.last_modified for item in items])),
        etag=_etags([item.etag for item in items]),
        note=_texts(notes),
        own_hosts=batch.own_hosts,
        cost=cost,
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
    return with_ends(replace(decoded, left_out=left_out), now)


def costs_of(items: Sequence[Observation], unit: str) -> tuple[Numbers, dict[int, str]]:
    """Return the costs of crawls in the unit of the budget, and what is wrong with prices.

    The costs are None if no item has any. The second value goes by the position of the item.
    """
    if unit == CRAWLS:
        return None, {}
    if not Amount(0.0, unit).is_money:
        stated = [item.bytes if unit == BYTES else item.seconds for item in items]
        return (None if _all_unset(stated) else _numbers(stated)), {}
    prices = [item.price for item in items]
    if _all_unset(prices):
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
    columns = PingColumns(page_id=_page_ids(items), changed_at=at, changed_by=at)
    return _taken(columns, urls, batch.index, good, refusals)


def decode_pages(batch: Batch[Page]) -> Decoded[PageColumns]:
    """Return the columns of pages; a URL has the last value of each field that its items state."""
    urls = read_urls([item.url for item in batch.items])
    good, refusals = judged(batch, lambda i, item: check_page(item, urls[i]))
    items = [batch.items[i] for i in good.tolist()]
    named = name_pages(np.zeros(len(good), np.int64), _normals(urls, good))
    observability = [OBSERVABILITY[item.observability] for item in items]
    columns: dict[str, NDArray[Any]] = {
        "importance": _numbers([item.importance for item in items]),
        "min_crawl_rate": _numbers([item.min_crawl_rate for item in items]),
        "max_crawl_rate": _numbers([item.max_crawl_rate for item in items]),
        "observability": np.array(observability, np.int16),
    }
    fields = {name: _last_stated(column, named) for name, column in columns.items()}
    columns_of_pages = replace(named.pages, **fields)
    return Decoded(columns_of_pages, named, batch.index[good], refusals, _tags(items, named))


def _tags(items: Sequence[Page], named: PageNames) -> TaggedRows | None:
    """Return the tags that the last item of each URL with tags states."""
    stated = {
        row: item.tags
        for row, item in zip(named.row.tolist(), items, strict=True)
        if not isinstance(item.tags, UnsetType)
    }
    return TaggedRows.of(stated) if stated else None


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


# -- columns


def _page_ids(items: Sequence[Observation | Ping]) -> Ints:
    """Return the ids, 0 where there is none."""
    return _column([item.page_id for item in items], 0, np.int64)


def _column(values: list[Any], absent: float, kind: type[np.generic]) -> NDArray[Any]:
    """Return values of items, `absent` where an item has none."""
    return np.array([absent if value is UNSET else value for value in values], kind)


def read_urls(texts: list[str | UnsetType]) -> list[ReadUrl]:
    """Return the normal form or the fault of each URL; None where there is no URL."""
    if _all_unset(texts):
        return [None] * len(texts)
    return [None if isinstance(text, UnsetType) else _normal(text) for text in texts]


def _normal(url: str) -> ReadUrl:
    try:
        return normalise(url)
    except InvalidUrl as error:
        return error


def instants(moments: list[datetime]) -> Instants:
    """Return instants to the microsecond."""
    since = [moment - UNIX_ZERO for moment in moments]
    seconds = np.array([86_400 * delta.days + delta.seconds for delta in since], np.int64)
    us = np.array([delta.microseconds for delta in since], np.int64)
    return (1_000_000 * seconds + us).view(INSTANT)


def _stated(moments: list[datetime | UnsetType]) -> Instants:
    """Return instants that items state, NaT where there is none."""
    n_unset = moments.count(UNSET)
    if n_unset == len(moments):
        return np.full(len(moments), NO_TIME)
    if not n_unset:
        return instants(cast("list[datetime]", moments))
    stated = instants([UNIX_ZERO if isinstance(at, UnsetType) else at for at in moments])
    stated[[at is UNSET for at in moments]] = NO_TIME
    return stated


def _texts(texts: list[str | UnsetType]) -> Texts:
    """Return texts, "" where there is none; None without any."""
    if _all_unset(texts):
        return None
    return np.array(["" if text is UNSET else text for text in texts], object)


def _notes(items: Sequence[Observation]) -> list[str | UnsetType]:
    """Return the JSON of each note; an empty list if no item has a note."""
    notes = [item.note for item in items]
    if _all_unset(notes):
        return []
    return [UNSET if note is UNSET else read_note(note) for note in notes]


def _leads_away(item: Observation) -> bool:
    return item.robots_denied is not True and leads_away(item.status)


def _statuses(items: Sequence[Observation]) -> Codes:
    """Return statuses of three digits, or `ROBOTS_DENIED`; a site may send any number."""
    stated = _column([item.status for item in items], UNSPECIFIED, np.int64)
    statuses: Codes = np.minimum(stated, INVENTED).astype(np.int16)
    denied = [item.robots_denied for item in items]
    if True in denied:
        statuses[[each is True for each in denied]] = ROBOTS_DENIED
    return statuses


def _etags(etags: list[str | UnsetType]) -> Texts:
    """Return the ETags that a request may repeat, "" for any other."""
    if _all_unset(etags):
        return None
    return _texts([etag if etag is not UNSET and ETAG.fullmatch(etag) else UNSET for etag in etags])


def _all_unset(values: Sequence[Any]) -> bool:
    """Return whether no item has a value; four times as fast as a generator for `all`."""
    return values.count(UNSET) == len(values)


def _codes(codes: list[Any]) -> Codes:
    return _column(codes, UNSPECIFIED, np.int16)


def _numbers(numbers: list[Any]) -> Floats:
    return _column(numbers, np.nan, np.float64)


def _digest(digest: Any) -> int:
    """Return 64 bits of the caller's digest; two versions of one page collide once in 2^64.

    0 stands for none, and for what is no valid Unicode.
    """
    try:
        hashed = blake2b(digest.encode(), digest_size=8).digest()
    except UnicodeEncodeError:
        return 0
    return int.from_bytes(hashed, "big", signed=True) or 1


def _leases(items: Sequence[Observation], page_id: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the leased page and token of each item, 0 where there is none, and its own page."""
    if _all_unset([item.lease for item in items]):
        none = np.zeros(len(items), np.int64)
        return none, none, page_id
    pairs = [(0, 0) if item.lease is UNSET else read_lease(item.lease) for item in items]
    leased, token = np.array(pairs, np.int64).T
    by_lease = (page_id == 0) & np.array([item.url is UNSET for item in items], np.bool_)
    return leased, token, np.where(by_lease, leased, page_id)


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
