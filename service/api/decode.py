"""From decoded items to the columns of use cases; what no schema can say is checked here."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import UNSET, UnsetType

from service.api.bodies import Batch
from service.api.schemas import Item, ObservationItem, PageItem, PingItem, Rejection
from service.domain import (
    EPOCH,
    INSTANT,
    KEY,
    UNSAID,
    CrawlColumns,
    Observability,
    PageColumns,
    PingColumns,
)
from service.errors import InvalidField
from service.ingest import Named
from service.urls import NormalUrl, normalise

FUTURE_ALLOWED = timedelta(minutes=5)
EARLIEST = datetime(1990, 1, 1, tzinfo=EPOCH.tzinfo)
"""Before the first web page."""
MICROSECOND = timedelta(microseconds=1)

NOT_TOLD = (
    "tell `changed`, or a `digest` to compare, or a `status` that says it (304, 404, 410, or a "
    "failure: 0, 4xx, 5xx)"
)
SPEAKING = {304, 404, 410}
"""Statuses that say of themselves whether the page changed."""
LOWEST_STATUS = 100
REDIRECTS = 300
"""From here on a status need not come with content."""

T = TypeVar("T")
ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """Columns of the good items, their positions in the request, and the bad items."""

    columns: T
    named: Named
    index: list[int]
    rejected: list[Rejection]


def decode_crawls(batch: Batch[ObservationItem], now: datetime) -> Decoded[CrawlColumns]:
    """Decode crawl results."""
    rows, index, rejected = _rows(batch, lambda item: _crawl(item, now))
    page, at, changed, digest, status = _columns(rows, 5)
    named = _named(page)
    columns = CrawlColumns(
        page_id=named.page_id,
        observed_at=np.array(at, np.int64).view(INSTANT),
        changed=np.array(changed, np.int16),
        digest=np.array(digest, np.int64),
        status=np.array(status, np.int16),
    )
    return Decoded(columns, named, index, rejected)


def decode_pings(batch: Batch[PingItem], now: datetime) -> Decoded[PingColumns]:
    """Decode change notices."""
    rows, index, rejected = _rows(
        batch, lambda item: (_page(item), _instant("changed_at", item.changed_at, now))
    )
    page, at = _columns(rows, 2)
    named = _named(page)
    changed_at = np.array(at, np.int64).view(INSTANT)
    return Decoded(
        PingColumns(page_id=named.page_id, changed_at=changed_at), named, index, rejected
    )


def decode_pages(batch: Batch[PageItem]) -> Decoded[PageColumns]:
    """Decode pages; of several items with one URL the last one counts."""
    rows, index, rejected = _rows(batch, lambda item: (normalise(item.url), _page_fields(item)))
    urls, given = _columns(rows, 2)
    named = _named(urls)
    last = dict(zip(named.row.tolist(), given, strict=True))
    said = np.array([last[row] for row in range(len(named.pages))], np.float64).reshape(-1, 4)
    pages = PageColumns(
        key=named.pages.key, url=named.pages.url, host=named.pages.host,
        importance=said[:, 0].copy(), observability=said[:, 1].astype(np.int16),
        min_crawl_rate=said[:, 2].copy(), max_crawl_rate=said[:, 3].copy(),
    )  # fmt: skip
    return Decoded(pages, named, index, rejected)


def _rows(
    batch: Batch[ItemT], decode: Callable[[ItemT], T]
) -> tuple[list[T], list[int], list[Rejection]]:
    """Decode each item; a bad one is rejected by its index and does not touch the others."""
    rows, index, rejected = [], [], list(batch.rejected)
    for i, item in zip(batch.index, batch.items, strict=True):
        try:
            rows.append(decode(item))
            index.append(i)
        except InvalidField as error:
            rejected.append(
                Rejection(index=i, code=error.code, detail=error.detail, field=error.field)
            )
    return rows, index, sorted(rejected, key=lambda r: r.index)


def _columns(rows: list[Any], n: int) -> tuple[Any, ...]:
    return tuple(zip(*rows, strict=True)) if rows else ((),) * n


def _crawl(item: ObservationItem, now: datetime) -> tuple[Any, ...]:
    page, at = _page(item), _instant("observed_at", item.observed_at, now)
    status = UNSAID if item.status is UNSET else item.status
    if 0 < status < LOWEST_STATUS:
        raise InvalidField("status", f"{status} is no HTTP status; send 100 to 599, or 0 for none")
    if item.changed is UNSET and item.digest is UNSET and not _speaks(status):
        raise InvalidField(
            "changed", f"this says nothing about a change; {NOT_TOLD}", "no_evidence"
        )
    changed = UNSAID if item.changed is UNSET else int(item.changed)
    digest = 0 if isinstance(item.digest, UnsetType) else _digest(item.digest)
    return page, at, changed, digest, status


def _speaks(status: int) -> bool:
    return status in SPEAKING or status == 0 or status >= REDIRECTS


def _digest(digest: str) -> int:
    """Keep 64 bits of the caller's digest; two versions of one page collide once in 2^64."""
    try:
        hashed = blake2b(digest.encode(), digest_size=8).digest()
    except UnicodeEncodeError as error:
        raise InvalidField(
            "digest", "the digest holds a lone surrogate; send valid Unicode"
        ) from error
    return int.from_bytes(hashed, "big", signed=True) or 1


def _page(item: ObservationItem | PingItem) -> NormalUrl | int:
    if (item.url is UNSET) == (item.page_id is UNSET):
        raise InvalidField("url", "name the page by either `url` or `page_id`", "page_not_named")
    return normalise(item.url) if not isinstance(item.url, UnsetType) else int(item.page_id)  # type: ignore[arg-type]


def _instant(field: str, moment: datetime, now: datetime) -> int:
    if moment - now > FUTURE_ALLOWED:
        raise InvalidField(
            field,
            f"{field} is over 5 minutes in the future; the service's clock says {now.isoformat()}",
            "future",
        )
    if moment < EARLIEST:
        raise InvalidField(field, f"{field} lies before 1990; check the unit and the zone", "past")
    return (moment - EPOCH) // MICROSECOND


def _page_fields(item: PageItem) -> tuple[float, ...]:
    low, high = _or_nan(item.min_crawl_rate), _or_nan(item.max_crawl_rate)
    check_bounds(low, high)
    observability = (
        UNSAID if isinstance(item.observability, UnsetType) else Observability[item.observability]
    )
    return _or_nan(item.importance), float(observability), low, high


def check_bounds(low: float | None, high: float | None) -> None:
    """Refuse a minimum above the maximum."""
    if low is not None and high is not None and low > high:
        raise InvalidField(
            "min_crawl_rate", f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}"
        )


def _or_nan(value: float | UnsetType) -> float:
    return float("nan") if isinstance(value, UnsetType) else float(value)


def _named(pages: tuple[NormalUrl | int, ...]) -> Named:
    """Tell ids from URLs, and give each distinct URL once."""
    urls: dict[bytes, NormalUrl] = {}
    rows: dict[bytes, int] = {}
    row = np.full(len(pages), -1, np.int64)
    page_id = np.zeros(len(pages), np.int64)
    for i, page in enumerate(pages):
        if isinstance(page, int):
            page_id[i] = page
        else:
            urls.setdefault(page.key, page)
            row[i] = rows.setdefault(page.key, len(rows))
    return Named(page_id, row, _described(list(urls.values())))


def _described(urls: list[NormalUrl]) -> PageColumns:
    n, unsaid = len(urls), np.full(len(urls), np.nan)
    return PageColumns(
        key=np.frombuffer(b"".join(url.key for url in urls), KEY),
        url=np.array([url.url for url in urls], object),
        host=np.array([url.host for url in urls], object),
        importance=unsaid, observability=np.full(n, UNSAID, np.int16),
        min_crawl_rate=unsaid, max_crawl_rate=unsaid,
    )  # fmt: skip
