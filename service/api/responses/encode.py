"""Answers: conversion of columns, verdicts and values to structs, and to JSON or Arrow."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
from fastapi import Request
from fastapi.responses import Response
from msgspec import Raw, json

from recrawl_client.wire import schedule as wire
from recrawl_client.wire.change_hours import ChangeHoursAnswer
from recrawl_client.wire.leases import Crawl
from recrawl_client.wire.pages import (
    CrawlAnswer,
    EstimateAnswer,
    Interval,
    PageAnswer,
    PageScheduleAnswer,
    RedirectAnswer,
    WhyAnswer,
)
from recrawl_client.wire.schedule import ScheduledPage
from service.api.cursors import ListPlace, encode_cursor, next_link
from service.api.encodings import best
from service.api.holds.facts import PageNow
from service.api.responses.change_hours import shift_of
from service.api.responses.history import encode_calibrations
from service.api.responses.unfinished import encode_unfinished
from service.core.division import reserved
from service.estimation.page_estimate import PageEstimate
from service.leases import due
from service.leases.conditional import distrusted_until
from service.leases.dealt import LeasedPages
from service.leases.unfinished import UnfinishedPage
from service.model.amounts import CRAWLS, Amount
from service.model.arrays import Floats, instant, moments
from service.model.assumed_rates import assumed
from service.model.columns import ScheduledPages
from service.model.domain import Epoch, LogEntry, Page
from service.model.errors import NotAcceptable
from service.model.history import Calibrations
from service.storage.pages.validators import ValidatorColumns
from service.storage.queue.columns import DuePages


class RemovedPage(msgspec.Struct):
    """A line of a stream of changes: a page that is no longer scheduled."""

    page_id: int
    removed: bool = True


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response of JSON."""
    return Response(json.encode(body), status, headers, media_type="application/json")


def answer_part(
    request: Request,
    kind: Callable[..., msgspec.Struct],
    items: Sequence[msgspec.Struct],
    place: ListPlace | None,
    **fields: Any,
) -> Response:
    """Return a part of a list, with the cursor and the link of the next one at `place`."""
    next_cursor = None if place is None else encode_cursor(place)
    part = kind(items=items, next_cursor=next_cursor, **fields)
    return answer(part, headers=next_link(request, next_cursor))


def json_answer(content: str, headers: dict[str, str] | None = None) -> Response:
    """Return a response of JSON that is encoded."""
    return Response(content, 200, headers, media_type="application/json")


def encode_schedule(
    pages: ScheduledPages, now: datetime, stored: ValidatorColumns | None = None
) -> list[ScheduledPage]:
    """Return the rows of columns, with the validators of those of the pages that have any."""
    columns: list[list[Any]] = [getattr(pages, name).tolist() for name in SCHEDULED]
    columns.append(moments(due.next_at(pages, instant(now))))
    if stored is not None and len(stored):
        row = np.searchsorted(pages.page_id, stored.page_id)
        for values in encode_validators(stored):
            column = np.full(len(pages), None, object)
            column[row] = values
            columns.append(column.tolist())
    return list(map(ScheduledPage, *columns))


SCHEDULED = ScheduledPage.__struct_fields__[
    : ScheduledPage.__struct_fields__.index("next_crawl_at")
]
"""Fields of a row that are columns of the schedule."""


def encode_validators(
    columns: ValidatorColumns | DuePages,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return etags, last modifications and notes; None where there is none."""
    etags, notes = columns.etag.tolist(), columns.note.tolist()
    if not any(etags) and not any(notes) and np.isnat(columns.last_modified).all():
        return [None] * len(etags), [None] * len(etags), [None] * len(etags)
    return (
        [etag or None for etag in etags],
        moments(columns.last_modified),
        [encode_note(note) for note in notes],
    )


def encode_note(note: str | None) -> Raw | None:
    """Return the JSON of a note for an answer."""
    return Raw(note.encode()) if note else None


def max_prices(cost: Floats, unit: str) -> list[str | None]:
    """Return the prices up to which crawls may be paid, None without one; `unit` of the budget.

    >>> max_prices(np.array([0.01, 0.0]), "USD"), max_prices(np.array([5.0]), "bytes")
    (['USD 0.01', None], [None])
    """
    if not Amount(0.0, unit).is_money:
        return [None] * len(cost)
    return [f"{unit} {price:.12f}".rstrip("0").rstrip(".") if price else None for price in cost]


def encode_leased(leased: LeasedPages, unit: str = CRAWLS) -> list[Crawl]:
    """Return the crawls of columns; `unit` is that of the budget."""
    pages, leases = leased.pages, leased.leases
    page_ids, last_crawls = pages.page_id.tolist(), moments(pages.last_crawl_at)
    tokens = leases.token.tolist()
    requests = zip(leased.asked.tolist(), leased.requested.tolist(), last_crawls, strict=True)
    columns = (  # in the order of the fields of `Crawl`
        [f"{page_id}-{token:x}" for page_id, token in zip(page_ids, tokens, strict=True)],
        page_ids,
        pages.url.tolist(),
        pages.host.tolist(),
        [
            "request" if asked else "ping" if requested else "first" if last is None else "due"
            for asked, requested, last in requests
        ],
        moments(leased.due_at),
        last_crawls,
        leased.overdue.tolist(),
        moments(leases.expires_at),
        *encode_validators(pages),
        max_prices(pages.cost, unit),
    )
    return list(map(Crawl, *columns))


def shared(kind: type[msgspec.Struct], *sources: object) -> dict[str, Any]:
    """Return the fields of a struct that sources have under the same names; the first source wins.

    >>> from datetime import date
    >>> class Month(msgspec.Struct):
    ...     year: int
    ...     month: int
    >>> shared(Month, date(2026, 5, 1))
    {'year': 2026, 'month': 5}
    """
    return {
        name: getattr(source, name)
        for name in kind.__struct_fields__
        for source in reversed(sources)
        if hasattr(source, name)
    }


def encode_epoch(epoch: Epoch, calibrations: Calibrations | None = None) -> wire.Epoch:
    """Return one run, with the fields of its certificate."""
    fields = shared(wire.Epoch, epoch, epoch.certificate)
    compared = None if calibrations is None else encode_calibrations(calibrations)
    own = {"status": epoch.status.value, "calibration": compared, "reserved": _reserved(epoch)}
    return wire.Epoch(**{**fields, **own})


def _reserved(epoch: Epoch) -> float | None:
    """Return the part of an epoch's bandwidth for first crawls; None without a bandwidth."""
    own = epoch.certificate
    if own is None or own.planned is None or own.first_crawls is None:
        return None
    return reserved(own.bandwidth, own.planned, own.overhead)


def encode_page(
    page: Page,
    log: list[LogEntry],
    epoch: Epoch | None,
    estimate: PageEstimate,
    change_hours: ChangeHoursAnswer | None,
    tags: list[str],
    now: datetime,
    unfinished: UnfinishedPage | None,
    why: WhyAnswer,
    around: PageNow,
) -> PageAnswer:
    """Return one page with its estimate, its schedule and why it is crawled when it is.

    `epoch` is the one in force, if it has scheduled the page.
    """
    scheduled = target = None
    next_at = around.due_at if page.hours is None else due.next_crawl_at(page, now)
    next_at = next_at if unfinished is None else unfinished.next_crawl_at
    if epoch is not None:
        scheduled = PageScheduleAnswer(
            epoch=epoch.epoch,
            change_rate=page.change_rate or 0.0,
            crawl_rate=page.crawl_rate or 0.0,
            crawl_probability=page.crawl_probability or 0.0,
            urgency=page.urgency or 1.0,
            shift_s=None if (shift := shift_of(page, epoch)) is None else shift.total_seconds(),
            next_crawl_at=next_at,
        )
    if page.redirects_to is not None:
        target = RedirectAnswer(page_id=page.redirects_to, url=page.redirects_to_url)
    bounds = estimate.interval and Interval(low=estimate.interval[0], high=estimate.interval[1])
    estimated = shared(EstimateAnswer, estimate, page) | {"assumed": bool(assumed(page))}
    fields = {
        "observability": page.observability.name,
        "tags": tags,
        "kind": "feed" if page.feed else "page",
        "retired": around.retired,
        "redirects_to": target,
        "note": encode_note(page.note),
        **known_validators(page, now),
        "estimate": EstimateAnswer(**estimated, credible_interval=bounds),
        "schedule": scheduled,
        "unfinished": None if unfinished is None else encode_unfinished(unfinished),
        "why": why,
        "change_hours": change_hours,
        "last_crawls": list(map(encode_entry, log)),
    }
    return PageAnswer(**{**shared(PageAnswer, page), **fields})


def known_validators(page: Page, now: datetime) -> dict[str, Any]:
    """Return the validators of a page for a conditional request; None in doubt."""
    doubted = page.doubted or distrusted_until(page.false_304_at, now) is not None
    named = {"etag": page.etag, "last_modified": page.last_modified}
    return dict.fromkeys(named) if doubted else named


def encode_entry(entry: LogEntry) -> CrawlAnswer:
    """Return one entry of a page's log; a crawl that robots.txt forbade has no HTTP status."""
    own = {"kind": entry.kind.name} | ({"status": None} if entry.robots_denied else {})
    return CrawlAnswer(**{**shared(CrawlAnswer, entry), **own})


ARROW = "application/vnd.apache.arrow.stream"
HAS_ARROW = find_spec("pyarrow") is not None
INSTALL_ARROW = "for Arrow the server needs `pip install 'recrawl[arrow]'`"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def best_media(accept: str | None, offers: tuple[str, ...], no_arrow: str = "") -> str:
    """Return the media type of an answer.

    Raises
    ------
    NotAcceptable
        The client accepts none of them; `no_arrow` is the reason for one that accepts Arrow.
    """
    media = best(accept or "*/*", offers)
    if media is None:
        reason = f"; {no_arrow}" if no_arrow and ARROW in (accept or "") else ""
        raise NotAcceptable(f"accept one of {', '.join(offers)}{reason}")
    return media


def arrow_stream(epoch: int, parts: Iterable[ScheduledPages], now: datetime) -> Iterator[bytes]:
    """Yield the schema with the number of the epoch, a record batch for each part, and the end."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("page_id", pa.int64()),
            ("url", pa.string()),
            ("importance", pa.float64()),
            ("change_rate", pa.float64()),
            ("crawl_rate", pa.float64()),
            ("crawl_probability", pa.float64()),
            ("next_crawl_at", pa.timestamp("us", tz="UTC")),
        ],
        metadata={"epoch": str(epoch)},
    )

    def message(pages: ScheduledPages) -> Any:
        columns = [getattr(pages, name) for name in schema.names[:-1]]
        columns.append(due.next_at(pages, instant(now)))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.record_batch(arrays, schema=schema).serialize()

    yield schema.serialize().to_pybytes()
    for pages in parts:
        if len(pages):
            yield message(pages).to_pybytes()
    yield END_OF_STREAM
