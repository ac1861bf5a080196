"""From decoded items to the columns of use cases; what no schema can say is checked here.

Items become arrays, and masks find what may be wrong; only such an item is looked at by itself,
to say what is wrong with it. Of a few items each is looked at: cheaper than the masks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from service.api.bodies import Batch
from service.api.schemas import Item, ObservationItem, PageItem, PingItem, Rejection
from service.arrays import (
    EPOCH,
    INSTANT,
    KEY,
    NEVER,
    UNSAID,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    instant,
)
from service.columns import CrawlColumns, PageColumns, PingColumns
from service.domain import Observability
from service.errors import InvalidField, InvalidUrl
from service.ingest import Named
from service.urls import NormalUrl, normalise

FUTURE_ALLOWED = timedelta(minutes=5)
EARLIEST = datetime(1990, 1, 1, tzinfo=EPOCH.tzinfo)
"""Before the first web page."""

NOT_TOLD = (
    "tell `changed`, or a `digest` to compare, or a `status` that says it (304, 404, 410, or a "
    "failure: 0, 4xx, 5xx)"
)
LOWEST_STATUS = 100
NOT_MODIFIED = 304
REDIRECTS = 300
FAILURES = 400
"""From here on a status speaks for itself: it need not come with content."""

FEW = 16

OBSERVABILITY: dict[Any, int] = {
    UNSET: UNSAID,
    **{known.name: known.value for known in Observability},
}

NO_PAGES = PageColumns.empty()

T = TypeVar("T")
EvidenceT = TypeVar("EvidenceT", CrawlColumns, PingColumns)
ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """Columns of the good items, their positions in the request, and the bad items."""

    columns: T
    named: Named
    index: Ints
    rejected: list[Rejection]

    @property
    def n_items(self) -> int:
        """All items, good and bad."""
        return len(self.index) + len(self.rejected)


def decode_crawls(batch: Batch[ObservationItem], now: datetime) -> Decoded[CrawlColumns]:
    """Decode crawl results."""
    items = batch.items
    page_id, urls = _page_ids(items), _urls(items)
    leased_page_id, token, page_id = _leases(items, page_id)
    at = instants([item.observed_at for item in items])
    status = _codes([item.status for item in items])
    changed = _codes([item.changed for item in items])
    told = [item.digest for item in items]
    digest = np.array([0 if one is UNSET else _digest(one) for one in told], np.int64)
    doubtful = None
    if len(items) > FEW:
        speaks = (status == 0) | (status >= REDIRECTS)
        doubtful = _unnamed(items, page_id, urls) | _far(at, now)
        doubtful |= (leased_page_id > 0) & (page_id > 0) & (leased_page_id != page_id)
        doubtful |= (status > 0) & (status < LOWEST_STATUS)
        doubtful |= (changed == UNSAID) & (digest == 0) & ~speaks
        doubtful |= (digest == 0) & np.array([one is not UNSET for one in told], np.bool_)
        doubtful |= np.array([item.redirect_url is not UNSET for item in items], np.bool_)
    kept, rejected = _judged(batch, doubtful, lambda item: _check_crawl(item, now))
    columns = CrawlColumns(
        page_id=page_id, observed_at=at, changed=changed, digest=digest, status=status,
        leased_page_id=leased_page_id, token=token,
        retry_after_s=_numbers([item.retry_after_s for item in items]),
        redirects_to=np.zeros(len(items), np.int64), last_modified=_dates(items),
    )  # fmt: skip
    return _kept(columns, urls, batch.index, kept, rejected, _targets(items))


def decode_pings(batch: Batch[PingItem], now: datetime) -> Decoded[PingColumns]:
    """Decode change notices."""
    items = batch.items
    page_id, urls = _page_ids(items), _urls(items)
    at = instants([item.changed_at for item in items])
    doubtful = None
    if len(items) > FEW:
        doubtful = _unnamed(items, page_id, urls) | _far(at, now)
    kept, rejected = _judged(batch, doubtful, lambda item: _check_ping(item, now))
    columns = PingColumns(page_id=page_id, changed_at=at, changed_by=at)
    return _kept(columns, urls, batch.index, kept, rejected)


def _kept(
    columns: EvidenceT,
    urls: list[NormalUrl | None],
    index: Ints,
    kept: Ints,
    rejected: list[Rejection],
    targets: Sequence[NormalUrl | None] = (),
) -> Decoded[EvidenceT]:
    """Leave out what was rejected, if anything was."""
    if len(kept) < len(columns):
        columns, index = columns.take(kept), index[kept]
        urls = [urls[i] for i in kept.tolist()]
        targets = [targets[i] for i in kept.tolist()] if targets else ()
    return Decoded(columns, name_pages(columns.page_id, urls, targets), index, rejected)


def decode_pages(batch: Batch[PageItem]) -> Decoded[PageColumns]:
    """Decode pages; of several items with one URL each field counts as it was said last."""
    urls = _urls(batch.items)
    low = _numbers([item.min_crawl_rate for item in batch.items])
    high = _numbers([item.max_crawl_rate for item in batch.items])
    doubtful = np.array([url is None for url in urls], np.bool_) | (low > high)
    kept, rejected = _judged(batch, doubtful, _check_page)
    named = name_pages(np.zeros(len(kept), np.int64), [urls[i] for i in kept.tolist()])
    items = [batch.items[i] for i in kept.tolist()]
    watched = np.array([OBSERVABILITY[item.observability] for item in items], np.int16)
    columns: dict[str, NDArray[Any]] = {
        "importance": _numbers([item.importance for item in items]),
        "min_crawl_rate": low[kept], "max_crawl_rate": high[kept], "observability": watched,
    }  # fmt: skip
    said = {name: _last_said(column, named) for name, column in columns.items()}
    return Decoded(replace(named.pages, **said), named, batch.index[kept], rejected)


def _last_said(column: NDArray[Any], named: Named) -> NDArray[Any]:
    """Give of each URL the last of its items' values that say something."""
    unsaid = np.isnan(column) if column.dtype.kind == "f" else column == UNSAID
    last = np.full(len(named.pages), UNSAID if column.dtype.kind == "i" else np.nan, column.dtype)
    last[named.row[~unsaid]] = column[~unsaid]
    return last


# -- columns: what cannot be taken as it is gets a value that a mask finds


def _page_ids(items: Sequence[ObservationItem | PingItem]) -> Ints:
    """Give the ids, 0 where there is none."""
    return np.array([0 if item.page_id is UNSET else item.page_id for item in items], np.int64)


def _urls(items: Sequence[ObservationItem | PingItem | PageItem]) -> list[NormalUrl | None]:
    """Give the normal form of each URL, None where there is none."""
    return [None if isinstance(item.url, UnsetType) else _normal(item.url) for item in items]


def _targets(items: Sequence[ObservationItem]) -> list[NormalUrl | None]:
    """Give the normal form of each redirect's URL; nothing where no item redirects."""
    said = [item.redirect_url for item in items]
    if all(url is UNSET for url in said):
        return []
    return [None if isinstance(url, UnsetType) else _normal(url) for url in said]


def _normal(url: str) -> NormalUrl | None:
    try:
        return normalise(url)
    except InvalidUrl:
        return None


def instants(moments: list[datetime]) -> Instants:
    """Give instants to the microsecond."""
    since = [moment - EPOCH for moment in moments]
    seconds = np.array([86_400 * delta.days + delta.seconds for delta in since], np.int64)
    us = np.array([delta.microseconds for delta in since], np.int64)
    return (1_000_000 * seconds + us).view(INSTANT)


def _dates(items: Sequence[ObservationItem]) -> Instants:
    """Give the date that each site gives its page, NaT where it gives none."""
    said = [item.last_modified for item in items]
    if all(date is UNSET for date in said):
        return np.full(len(said), NEVER)
    dated = instants([EPOCH if isinstance(date, UnsetType) else date for date in said])
    dated[[date is UNSET for date in said]] = NEVER
    return dated


def _codes(given: list[Any]) -> Codes:
    return np.array([UNSAID if code is UNSET else code for code in given], np.int16)


def _numbers(given: list[Any]) -> Floats:
    return np.array([np.nan if number is UNSET else number for number in given], np.float64)


def _digest(digest: Any) -> int:
    """Keep 64 bits of the caller's digest; two versions of one page collide once in 2^64.

    0 stands for none, and for what is no valid Unicode.
    """
    try:
        hashed = blake2b(digest.encode(), digest_size=8).digest()
    except UnicodeEncodeError:
        return 0
    return int.from_bytes(hashed, "big", signed=True) or 1


def read_lease(lease: str) -> tuple[int, int]:
    """Give the page and the token that a lease is made of.

    >>> read_lease("7-ff")
    (7, 255)
    """
    page_id, _, token = lease.partition("-")
    return int(page_id), int(token, 16)


def _leases(items: Sequence[ObservationItem], page_id: Ints) -> tuple[Ints, Ints, Ints]:
    """Give the leased page and token of each item, 0 where there is none, and its own page."""
    if all(item.lease is UNSET for item in items):
        none = np.zeros(len(items), np.int64)
        return none, none, page_id
    pairs = [(0, 0) if item.lease is UNSET else read_lease(item.lease) for item in items]
    leased, token = np.array(pairs, np.int64).T
    by_lease = (page_id == 0) & np.array([item.url is UNSET for item in items], np.bool_)
    return leased, token, np.where(by_lease, leased, page_id)


def name_pages(
    page_id: Ints, urls: Sequence[NormalUrl | None], targets: Sequence[NormalUrl | None] = ()
) -> Named:
    """Tell ids from URLs, and give each distinct URL once; `targets` are those of redirects."""
    if targets:
        named = name_pages(np.append(page_id, np.zeros_like(page_id)), [*urls, *targets])
        row, target = named.row.reshape(2, -1)
        return Named(page_id, row, named.pages, target)
    if not any(urls):
        return Named(page_id, np.full(len(page_id), -1, np.int64), _described([]))
    distinct = {url.key: url for url in urls if url is not None}
    rows = dict(zip(distinct, range(len(distinct)), strict=True))
    row = np.array([-1 if url is None else rows[url.key] for url in urls], np.int64)
    return Named(page_id, row, _described(list(distinct.values())))


# -- masks of what may be wrong, and the words for what is


def _unnamed(
    items: Sequence[ObservationItem | PingItem], page_id: Ints, urls: list[NormalUrl | None]
) -> Bools:
    """Find items that name no page, or two, or one by a URL that cannot be."""
    by_url = np.array([item.url is not UNSET for item in items], np.bool_)
    no_url = np.array([url is None for url in urls], np.bool_)
    unnamed: Bools = ((page_id > 0) == by_url) | (by_url & no_url)
    return unnamed


def _far(at: Instants, now: datetime) -> Bools:
    far: Bools = (at > instant(now + FUTURE_ALLOWED)) | (at < instant(EARLIEST))
    return far


def _judged(
    batch: Batch[ItemT], doubtful: Bools | None, check: Callable[[ItemT], None]
) -> tuple[Ints, list[Rejection]]:
    """Give the items to keep, and why the others cannot be; one does not touch the others."""
    n = len(batch.items)
    keep = np.zeros(n, np.bool_) if doubtful is None else ~doubtful
    rejected = list(batch.rejected)
    for i in range(n) if doubtful is None else np.flatnonzero(doubtful).tolist():
        try:
            check(batch.items[i])
        except InvalidField as error:
            index = int(batch.index[i])
            rejected.append(
                Rejection(index=index, code=error.code, detail=error.detail, field=error.field)
            )
        else:
            keep[i] = True
    return np.flatnonzero(keep), sorted(rejected, key=lambda r: r.index)


def _check_page(item: PageItem) -> None:
    normalise(item.url)
    check_bounds(_or_nan(item.min_crawl_rate), _or_nan(item.max_crawl_rate))


def _check_crawl(item: ObservationItem, now: datetime) -> None:
    if isinstance(item.lease, UnsetType):
        _check_name(item)
    else:
        _check_lease(item, item.lease)
    _check_instant("observed_at", item.observed_at, now)
    status = UNSAID if item.status is UNSET else item.status
    if 0 < status < LOWEST_STATUS:
        raise InvalidField("status", f"{status} is no HTTP status; send 100 to 599, or 0 for none")
    if item.digest is not UNSET and not _digest(item.digest):
        raise InvalidField("digest", "the digest holds a lone surrogate; send valid Unicode")
    if not isinstance(item.redirect_url, UnsetType):
        _check_redirect(item.redirect_url, status)
    speaks = item.changed is not UNSET or item.digest is not UNSET
    if not speaks and status != 0 and status < REDIRECTS:
        detail = f"this says nothing about a change; {NOT_TOLD}"
        raise InvalidField("changed", detail, "no_evidence")


def _check_redirect(url: str, status: int) -> None:
    if status == NOT_MODIFIED or not REDIRECTS <= status < FAILURES:
        said = "no status" if status == UNSAID else f"status {status}"
        detail = f"{said} is no redirect; send a status of 300 to 399 other than 304 with it"
        raise InvalidField("redirect_url", detail)
    try:
        normalise(url)
    except InvalidUrl as error:
        raise InvalidField("redirect_url", error.detail, error.code) from error


def _check_ping(item: PingItem, now: datetime) -> None:
    _check_name(item)
    _check_instant("changed_at", item.changed_at, now)


def _check_name(item: ObservationItem | PingItem) -> None:
    if (item.url is UNSET) == (item.page_id is UNSET):
        raise InvalidField("url", "name the page by either `url` or `page_id`", "page_not_named")
    if not isinstance(item.url, UnsetType):
        normalise(item.url)


def _check_lease(item: ObservationItem, lease: str) -> None:
    if not isinstance(item.url, UnsetType):
        normalise(item.url)
        if item.page_id is not UNSET:
            _check_name(item)
    elif item.page_id not in (UNSET, read_lease(lease)[0]):
        detail = f"the lease is on another page than {item.page_id}; leave `page_id` out"
        raise InvalidField("lease", detail, "lease_mismatch")


def _check_instant(field: str, moment: datetime, now: datetime) -> None:
    if moment - now > FUTURE_ALLOWED:
        raise InvalidField(
            field,
            f"{field} is over 5 minutes in the future; the service's clock says {now.isoformat()}",
            "future",
        )
    if moment < EARLIEST:
        raise InvalidField(field, f"{field} lies before 1990; check the unit and the zone", "past")


def check_bounds(low: float | None, high: float | None) -> None:
    """Refuse a minimum above the maximum."""
    if low is not None and high is not None and low > high:
        raise InvalidField(
            "min_crawl_rate", f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}"
        )


def _or_nan(value: float | UnsetType) -> float:
    return float("nan") if isinstance(value, UnsetType) else float(value)


def _described(urls: list[NormalUrl]) -> PageColumns:
    if not urls:
        return NO_PAGES
    n, unsaid = len(urls), np.full(len(urls), np.nan)
    return PageColumns(
        key=np.frombuffer(b"".join(url.key for url in urls), KEY),
        url=np.array([url.url for url in urls], object),
        host=np.array([url.host for url in urls], object),
        importance=unsaid, observability=np.full(n, UNSAID, np.int16),
        min_crawl_rate=unsaid, max_crawl_rate=unsaid,
    )  # fmt: skip
