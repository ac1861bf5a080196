"""The schedule in force: whole or what changed of it, in pages or as one stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import UNSET, json
from starlette.concurrency import run_in_threadpool

from service.api import arrow, examples, openapi
from service.api.arrow import ARROW, arrow_stream
from service.api.bodies import JSON, NDJSON
from service.api.encode import (
    RemovedPage,
    answer,
    decode_cursor,
    encode_cursor,
    encode_schedule,
)
from service.api.hot import HotRoute
from service.api.negotiate import best
from service.api.routes.pages import find
from service.api.schemas import ScheduleAnswer
from service.api.service import Service, the_service
from service.api.watch import Watch
from service.columns import ScheduleChanges, SchedulePart
from service.domain import Epoch, Observability, ScheduleFilter
from service.errors import (
    BadCursor,
    EpochNotFound,
    InvalidField,
    NotAcceptable,
    PageNotFound,
)
from service.storage import Transaction
from service.urls import normalise_host

router = APIRouter(tags=["schedule"], route_class=HotRoute)

BLOCK = 10_000
"""Rows of a stream that are read, encoded and sent at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request asks of the schedule."""

    media: str
    etag: str | None
    place: tuple[int, int] | None
    limit: int
    since: int | None
    min_change: float
    host: str | None
    url: str | None
    observability: Observability | None
    due_before: datetime | None


RESPONSES = openapi.gives(ScheduleAnswer, examples.SCHEDULE_ANSWER, 406, 410, 422)
RESPONSES[200]["content"] |= openapi.streams(examples.SCHEDULE_ITEM, NDJSON, ARROW)


@router.get(
    "/schedule",
    operation_id="get_schedule",
    responses={
        **RESPONSES,
        304: {"description": "The epoch named by If-None-Match or since_epoch is still in force"},
    },
)
async def get_schedule(
    request: Request,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most rows per page")] = 1_000,
    host: Annotated[str | None, Query(description="Only pages of this host")] = None,
    url: Annotated[str | None, Query(description="Only the page with this URL")] = None,
    observability: Annotated[Literal["incomplete", "complete", "auto"] | None, Query()] = None,
    due_before: Annotated[
        datetime | None, Query(description="Only pages due before this instant (RFC 3339, zone)")
    ] = None,
    since_epoch: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Only what changed since this epoch")
    ] = None,
    min_change: Annotated[
        float,
        Query(ge=0, le=10, description="With since_epoch: 0.1 leaves out what moved by up to 10 %"),
    ] = 0.1,
    wait_s: Annotated[
        float, Query(ge=0, le=30, description="Wait so long for a newer epoch before a 304")
    ] = 0.0,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Give the schedule in force by ascending page_id.

    Follow `next_cursor` until it is null; a page may have fewer items than `limit`, even none,
    and not be the last. All pages of one chain belong to one epoch. With
    `Accept: application/x-ndjson` the whole is streamed, one page a line, with
    `application/vnd.apache.arrow.stream` as Arrow record batches. A stream that is cut off
    broke: start again.

    The ETag names the epoch: on a 304 rates and probabilities are what they were. With `wait_s`
    the 304 is held back until a newer epoch is published, which is then given.
    `next_crawl_at` moves with every reported crawl (last crawl + about 1/crawl_rate) and is told
    as of now; null means on a ping only.

    With `since_epoch`, the epoch you know, only pages come that are new or whose crawl rate or
    crawl probability moved by more than `min_change` since; `removed` names those that are no
    longer scheduled, in NDJSON as lines `{"page_id": 5, "removed": true}`. 304 while your epoch
    is in force; 410 when it is no longer kept: fetch the whole schedule.
    """
    service = the_service(request)
    asked = Asked(
        media=negotiated(accept, since_epoch),
        etag=if_none_match if due_before is None else None,
        place=None if cursor is None else decode_cursor(cursor),
        limit=limit,
        since=since_epoch,
        min_change=min_change,
        host=host,
        url=url,
        observability=Observability[observability] if observability else None,
        due_before=due_before,
    )
    check(asked)
    if asked.place is None and await unchanged(service.watch, asked, wait_s):
        return not_modified(service.watch.newest)
    async with service.readers:
        return await run_in_threadpool(give, service, asked)


def negotiated(accept: str | None, since: int | None) -> str:
    """Choose a media type; raises `NotAcceptable`."""
    offers = (JSON, NDJSON) if since or not arrow.INSTALLED else (JSON, NDJSON, ARROW)
    media = best(accept or "*/*", offers)
    if media is None:
        remedy = ""
        if ARROW in (accept or ""):
            remedy = (
                "; changes since an epoch come without Arrow"
                if since
                else "; for Arrow the server needs `pip install 'recrawl[arrow]'`"
            )
        raise NotAcceptable(f"this can be given: {', '.join(offers)}{remedy}")
    return media


def check(asked: Asked) -> None:
    """Refuse what does not go together."""
    if asked.due_before is not None and asked.due_before.tzinfo is None:
        raise InvalidField("due_before", "due_before must carry a zone, as in 2026-05-01T12:00:00Z")
    filters = (asked.host, asked.url, asked.observability, asked.due_before)
    if asked.since is not None and any(one is not None for one in filters):
        raise InvalidField("since_epoch", "since_epoch goes without host, url and other filters")


async def unchanged(watch: Watch, asked: Asked, wait_s: float) -> bool:
    """Whether what the client knows is in force, after waiting for what is newer."""
    known = watch.in_force
    if known is None or not (asked.since == known or matches(asked.etag, known)):
        return False
    if wait_s:
        await watch.newer(known, wait_s)
    return watch.in_force == known


def matches(if_none_match: str | None, epoch: int) -> bool:
    """Compare weakly, as RFC 9110 asks of If-None-Match."""
    given = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return "*" in given or f'"epoch-{epoch}"' in given


def headers(epoch: int) -> dict[str, str]:
    """Name the epoch, which is all that a stored answer depends on."""
    return {"ETag": f'W/"epoch-{epoch}"', "Cache-Control": "no-cache", "Vary": "Accept"}


def not_modified(epoch: int) -> Response:
    """Answer that the client's epoch is in force."""
    told = headers(epoch) | {"Vary": "Accept, Accept-Encoding"}
    return Response(status_code=304, headers=told)


def give(service: Service, asked: Asked) -> Response:
    """Read the first rows and answer with them, or go on from them in a stream."""
    streamed = asked.media != JSON
    with service.store.begin(write=False) as tx:
        number = tx.number_in_force() if asked.place is None else asked.place[0]
        if asked.place is None and not number:
            only(tx, asked)
            return nothing(asked.media)
        epoch = epoch_of(service.watch, tx, number)
        service.watch.saw(number)
        if matches(asked.etag, epoch.epoch) or asked.since == epoch.epoch:
            return not_modified(epoch.epoch)
        reading = Reading(
            service, epoch, BLOCK if streamed else asked.limit, asked, only(tx, asked)
        )
        part = reading.next(tx, 0 if asked.place is None else asked.place[1])
    if streamed:
        body = reading.lines(part) if asked.media == NDJSON else reading.batches(part)
        return StreamingResponse(body, headers=headers(epoch.epoch), media_type=asked.media)
    page = ScheduleAnswer(
        epoch=epoch.epoch,
        published_at=epoch.finished_at,
        bandwidth=None if epoch.certificate is None else epoch.certificate.bandwidth,
        items=encode_schedule(part.pages),
        removed=part.removed.tolist() if isinstance(part, ScheduleChanges) else UNSET,
        next_cursor=None if part.after is None else encode_cursor(epoch.epoch, part.after),
    )
    return answer(page, headers=headers(epoch.epoch))


@dataclass(frozen=True, slots=True)
class Reading:
    """One epoch's schedule, or what changed of it, read part by part."""

    service: Service
    epoch: Epoch
    limit: int
    asked: Asked
    only: ScheduleFilter

    def next(self, tx: Transaction, after: int) -> SchedulePart:
        """Read what comes after a page_id; raises `CursorExpired`, `EpochNotKept`."""
        epoch, asked = self.epoch.epoch, self.asked
        if asked.since is None:
            return tx.schedule(epoch, after, self.limit, self.only)
        return tx.schedule_changes(epoch, asked.since, asked.min_change, after, self.limit)

    def parts(self, part: SchedulePart) -> Iterator[SchedulePart]:
        """Give this part and the following ones, each read in a short transaction of its own.

        An epoch that is dropped meanwhile raises, which breaks the connection off: a client
        cannot take the half for the whole.
        """
        while True:
            yield part
            if part.after is None:
                return
            with self.service.store.begin(write=False) as tx:
                part = self.next(tx, part.after)

    def lines(self, part: SchedulePart) -> Iterator[bytes]:
        """Give one page a line."""
        encoder = json.Encoder()
        for each in self.parts(part):
            yield encoder.encode_lines(encode_schedule(each.pages))
            if isinstance(each, ScheduleChanges):
                yield encoder.encode_lines(list(map(RemovedPage, each.removed.tolist())))

    def batches(self, part: SchedulePart) -> Iterator[bytes]:
        """Give Arrow record batches."""
        return arrow_stream(self.epoch.epoch, (each.pages for each in self.parts(part)))


def nothing(media: str) -> Response:
    """Answer before the first epoch."""
    if media != JSON:
        content = b"" if media == NDJSON else b"".join(arrow_stream(0, ()))
        return Response(content, headers=headers(0), media_type=media)
    empty = ScheduleAnswer(
        epoch=None, published_at=None, bandwidth=None, items=[], next_cursor=None
    )
    return answer(empty, headers=headers(0))


def epoch_of(watch: Watch, tx: Transaction, epoch: int) -> Epoch:
    """Give a published epoch; raises `BadCursor` where none of that number ever was."""
    try:
        named = watch.epoch(tx, epoch)
    except EpochNotFound as error:
        raise BadCursor from error
    if named.certificate is None:
        raise BadCursor
    return named


def only(tx: Transaction, asked: Asked) -> ScheduleFilter:
    """Look up what the filters name; a page that is not known matches nothing."""
    try:
        return ScheduleFilter(
            host=None if asked.host is None else normalise_host(asked.host),
            page_id=None if asked.url is None else find(tx, asked.url),
            observability=asked.observability,
            due_before=asked.due_before,
        )
    except PageNotFound:
        return ScheduleFilter(page_id=0)
