"""The schedule in force, in pages or as one stream."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from msgspec import json

from service.api import examples, openapi
from service.api.bodies import NDJSON
from service.api.encode import answer, decode_cursor, encode_cursor, encode_schedule
from service.api.routes.pages import find
from service.api.schemas import ScheduleAnswer
from service.api.service import Service, TheService
from service.domain import Epoch, Observability, ScheduleFilter, SchedulePart
from service.errors import BadCursor, EpochNotFound, InvalidField, InvalidUrl, PageNotFound
from service.storage import Transaction
from service.urls import normalise

router = APIRouter(tags=["schedule"])

BLOCK = 10_000


@router.get(
    "/schedule",
    operation_id="get_schedule",
    responses={
        **openapi.gives(ScheduleAnswer, examples.SCHEDULE_ANSWER, 410, 422),
        304: {"description": "The epoch named by If-None-Match is still in force"},
    },
)
def get_schedule(
    service: TheService,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Rows per page")] = 1_000,
    host: Annotated[str | None, Query(description="Only pages of this host")] = None,
    url: Annotated[str | None, Query(description="Only the page with this URL")] = None,
    observability: Annotated[Literal["incomplete", "complete", "auto"] | None, Query()] = None,
    due_before: Annotated[
        datetime | None, Query(description="Only pages due before this instant (RFC 3339, zone)")
    ] = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Give the schedule in force by ascending page_id.

    All pages that one chain of cursors gives belong to one epoch. The ETag names the epoch: on a
    304 rates and probabilities are what they were. `next_crawl_at` moves with every reported
    crawl (last crawl + about 1/crawl_rate) and is told as of now; null means on a ping only.
    With `Accept: application/x-ndjson` the whole schedule is streamed, one page a line.
    """
    if due_before is not None and due_before.tzinfo is None:
        raise InvalidField("due_before", "due_before must carry a zone, as in 2026-05-01T12:00:00Z")
    place = None if cursor is None else decode_cursor(cursor)
    with service.store.begin(write=False) as tx:
        in_force = tx.epoch_in_force()
        epoch = in_force if place is None else epoch_of(tx, place[0])
        if epoch is None or epoch.certificate is None:
            return answer(nothing())
        etag = f'W/"epoch-{epoch.epoch}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept"}
        if due_before is None and matches(if_none_match, etag):
            return Response(status_code=304, headers=headers)
        try:
            only = ScheduleFilter(
                host=normal_host(host) if host else None,
                page_id=find(tx, url) if url else None,
                observability=Observability[observability] if observability else None,
                due_before=due_before,
            )
        except PageNotFound:
            only = ScheduleFilter(page_id=0)
        after = 0 if place is None else place[1]
        streamed = NDJSON in (accept or "")
        part = tx.schedule(epoch.epoch, after, BLOCK if streamed else limit, only)
    if streamed:
        lines = stream(service, epoch.epoch, part, only)
        return StreamingResponse(lines, headers=headers, media_type=NDJSON)
    page = ScheduleAnswer(
        epoch=epoch.epoch,
        published_at=epoch.finished_at,
        bandwidth=epoch.certificate.bandwidth,
        items=encode_schedule(part.pages),
        next_cursor=None if part.after is None else encode_cursor(epoch.epoch, part.after),
    )
    return answer(page, headers=headers)


def nothing() -> ScheduleAnswer:
    """Answer before the first epoch."""
    return ScheduleAnswer(epoch=None, published_at=None, bandwidth=None, items=[], next_cursor=None)


def matches(if_none_match: str | None, etag: str) -> bool:
    """Compare weakly, as RFC 9110 asks of If-None-Match."""
    given = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return "*" in given or etag.removeprefix("W/") in given


def epoch_of(tx: Transaction, epoch: int) -> Epoch:
    """Give the epoch that a cursor names; raises `BadCursor` where none was ever published."""
    try:
        named = tx.epoch(epoch)
    except EpochNotFound as error:
        raise BadCursor from error
    if named.certificate is None:
        raise BadCursor
    return named


def normal_host(host: str) -> str:
    """Give a host as pages have it: lower case, international names in ASCII."""
    try:
        return normalise(f"http://{host}/").host
    except InvalidUrl as error:
        raise InvalidField("host", "this is no host; send a name such as example.com") from error


def stream(
    service: Service, epoch: int, part: SchedulePart, only: ScheduleFilter
) -> Iterator[bytes]:
    """Give the schedule line by line from `part` on, in blocks of one short transaction each."""
    encoder = json.Encoder()
    while True:
        yield encoder.encode_lines(encode_schedule(part.pages))
        if part.after is None:
            return
        with service.store.begin(write=False) as tx:
            part = tx.schedule(epoch, part.after, BLOCK, only)
