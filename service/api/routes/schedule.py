"""The schedule in force, whole or only its changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import UNSET, json
from starlette.types import Scope

from recrawl_client.wire.schedule import ScheduleAnswer, ScheduledPage
from service.api import openapi
from service.api.assembly import Service, TheService
from service.api.cursors import (
    CursorParameter,
    SchedulePlace,
    decode_cursor,
    encode_cursor,
    limit_of,
    next_link,
    refused,
)
from service.api.examples import EXAMPLES
from service.api.requests.bodies import JSON, NDJSON
from service.api.requests.rules import check_zone
from service.api.responses import encode
from service.api.responses.encode import (
    ARROW,
    INSTALL_ARROW,
    RemovedPage,
    answer,
    arrow_stream,
    best_media,
    encode_schedule,
)
from service.api.responses.tables import parts_ahead
from service.api.route import GUARDED, DirectRoute
from service.api.routes.pages import find
from service.api.threads import iterated, read_in_thread
from service.api.waiting import reach
from service.epochs.watch import Watch
from service.leases import due
from service.leases.conditional import handed_out
from service.model.arrays import UNIX_ZERO, instant
from service.model.columns import ScheduleChanges, SchedulePart
from service.model.domain import Epoch, Observability, ScheduleFilter
from service.model.errors import CursorExpired, EpochNotFound, InvalidField, PageNotFound
from service.model.incarnations import is_lost_epoch
from service.model.urls import normalise_host
from service.storage import Transaction
from service.storage.queue.signs import SCHEDULE as SCHEDULE_READ

router = APIRouter(tags=["schedule"], route_class=DirectRoute, dependencies=GUARDED)

BLOCK = 10_000
"""Number of rows of a stream that are read, encoded and sent at once."""
LOST_EPOCH = (
    "the database was restored from a copy that is older than the epoch of this cursor; start "
    "again without cursor"
)
BEFORE_THE_FIRST = 0
"""Number that stands for the epoch in force before the first epoch."""


class ScheduleQuery(NamedTuple):
    """The parameters of one request for the schedule."""

    media: str
    etag: str | None
    place: SchedulePlace | None
    limit: int
    since: int | None
    min_change: float
    validators: bool
    host: str | None
    url: str | None
    observability: Observability | None
    due_before: datetime | None
    cursor: str = ""
    """The cursor of the place as sent."""


ETAG = {
    "ETag": openapi.header(
        "Number of the epoch and name of the database's incarnation, for If-None-Match",
        'W/"epoch-7-1f0c93ab"',
    )
}
RESPONSES = openapi.answers(
    ScheduleAnswer, EXAMPLES["schedule_answer"], 406, 410, 422, headers={**ETAG, **openapi.LINK}
)
RESPONSES[200]["content"] |= openapi.streams(EXAMPLES["schedule_item"], NDJSON, ARROW)


Limit = Annotated[int, limit_of("rows of a part of JSON", 10_000)]
HostFilter = Annotated[str | None, Query(description="Name of the host whose pages are wanted")]
UrlFilter = Annotated[str | None, Query(description="URL of the only page that is wanted")]
Watched = Annotated[
    Literal["incomplete", "complete", "auto"] | None,
    Query(description="Source of changes of the pages that are wanted"),
]
DueBefore = Annotated[
    datetime | None,
    Query(description="Instant before which the wanted pages are due, RFC 3339 with a zone"),
]
SinceEpoch = Annotated[
    int | None,
    Query(ge=1, le=2**63 - 1, description="Number of an epoch; only changes since are wanted"),
]
MinChange = Annotated[
    float,
    Query(
        ge=0,
        le=10,
        description="Smallest relative change to return with `since_epoch`; 0.1 is 10 %",
    ),
]
WithValidators = Annotated[
    bool,
    Query(description="True to return `etag`, `last_modified` and `note` of pages that have them"),
]
Wait = Annotated[
    float,
    Query(ge=0, le=30, description="Maximum wait for a newer epoch, or the first, seconds"),
]

SCHEDULE = """\
Read the schedule in force.

The rows are in ascending order of page_id. Follow `next_cursor` until it is null: a part may have
fewer items than `limit`, even none, and not be the last. All parts of one chain belong to one
epoch. `Accept: application/x-ndjson` streams the whole schedule, one page a line.
`Accept: application/vnd.apache.arrow.stream` streams Arrow record batches. If a stream breaks off,
start again.

The ETag names the epoch and the database. After a 304, rates and probabilities are unchanged. With
`wait_s` the service waits for a newer epoch, or the first one, before it answers. `validators` adds
the present ETag, Last-Modified and note of each page for conditional requests; the ETag of the
schedule does not cover them. `next_crawl_at` is as of now:
every reported crawl moves it to the last crawl plus about 1/crawl_rate. Null means that only a ping
leads to a crawl.

`since_epoch` takes the number of the epoch that you have. The answer holds new pages, and pages
whose crawl rate or crawl probability moved by more than `min_change`. `removed` lists pages that
are no longer scheduled; in NDJSON these are lines `{"page_id": 5, "removed": true}`. The answer is
304 while your epoch is in force. It is 410 when your epoch is no longer kept: read the whole
schedule then."""
"""Description of the call."""


@router.get(
    "/schedule",
    description=SCHEDULE,
    responses={
        **RESPONSES,
        304: {
            "description": "The epoch in If-None-Match or since_epoch is still in force",
            "headers": ETAG,
        },
    },
)
async def get_schedule(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Limit = 1_000,
    host: HostFilter = None,
    url: UrlFilter = None,
    observability: Watched = None,
    due_before: DueBefore = None,
    since_epoch: SinceEpoch = None,
    min_change: MinChange = 0.1,
    validators: WithValidators = False,
    wait_s: Wait = 0.0,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    if_none_match: Annotated[
        str | None,
        Header(description="ETag of the schedule that you have", examples=['W/"epoch-7-1f0c93ab"']),
    ] = None,
) -> Response:
    """Return the schedule, a stream of it, or a 304."""
    query = ScheduleQuery(
        media=media_type_of(accept, since_epoch),
        etag=if_none_match if due_before is None else None,
        place=None if cursor is None else decode_cursor(cursor, SchedulePlace, "/schedule"),
        cursor=cursor or "",
        limit=limit,
        since=since_epoch,
        min_change=min_change,
        validators=validators,
        host=host,
        url=url,
        observability=Observability[observability] if observability else None,
        due_before=due_before,
    )
    check(query)
    if query.place is None and await unchanged(service.watch, query, wait_s, request.scope):
        answer = not_modified(service.watch.newest, service.watch.incarnation)
    else:
        answer = await read_in_thread(service.readers, first_rows, request, service, query)
    service.asked.note(SCHEDULE_READ, service.now())  # a request that is refused is no reading
    return answer


def media_type_of(accept: str | None, since: int | None) -> str:
    """Return the media type of the answer; raise `NotAcceptable`."""
    offers = (JSON, NDJSON) if since or not encode.HAS_ARROW else (JSON, NDJSON, ARROW)
    reason = "changes since an epoch come without Arrow" if since else INSTALL_ARROW
    return best_media(accept, offers, reason)


def check(query: ScheduleQuery) -> None:
    """Raise `InvalidField` for parameters that exclude each other."""
    check_zone("due_before", query.due_before)
    if query.validators and query.media == ARROW:
        detail = "Arrow batches have no validators; accept application/x-ndjson, or leave it out"
        raise InvalidField("validators", detail)
    filters = (query.host, query.url, query.observability, query.due_before)
    if query.since is not None and any(one is not None for one in filters):
        raise InvalidField("since_epoch", "since_epoch excludes filters; leave either out")


async def unchanged(watch: Watch, query: ScheduleQuery, wait_s: float, scope: Scope) -> bool:
    """Return whether the client's epoch is in force, after a wait for a newer or the first one."""
    epoch = watch.in_force
    if epoch is None:
        return False
    is_current = query.since == epoch or matches(query.etag, epoch, watch.incarnation)
    if wait_s and (is_current or epoch == BEFORE_THE_FIRST):
        await reach(scope, watch, epoch + 1, wait_s)
    return is_current and watch.in_force == epoch


def tag_of(epoch: int, incarnation: str) -> str:
    """Return the opaque tag of an epoch, which a restored database does not use again."""
    return f'"epoch-{epoch}-{incarnation}"'


def matches(if_none_match: str | None, epoch: int, incarnation: str) -> bool:
    """Return whether If-None-Match names an epoch, by the weak comparison of RFC 9110."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return "*" in tags or tag_of(epoch, incarnation) in tags


def headers(epoch: int, incarnation: str) -> dict[str, str]:
    """Return the headers of an answer; the epoch and Accept identify a stored answer."""
    etag = f"W/{tag_of(epoch, incarnation)}"
    return {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept"}


@lru_cache(maxsize=1)
def not_modified(epoch: int, incarnation: str) -> Response:
    """Return the 304 of an epoch, the same one for all requests."""
    own = headers(epoch, incarnation) | {"Vary": "Accept, Accept-Encoding"}
    return Response(status_code=304, headers=own)


def first_rows(request: Request, service: Service, query: ScheduleQuery) -> Response:
    """Return the first rows, or a stream that begins with them."""
    streamed = query.media != JSON
    with service.store.begin(write=False) as tx:
        number = tx.number_in_force() if query.place is None else query.place.epoch
        incarnation = service.watch.incarnation or tx.incarnation()
        if query.place is None and not number:
            filter_of(tx, query)
            return empty_schedule(query.media, headers(0, incarnation))
        epoch = epoch_of(service.watch, tx, number, query.cursor)
        service.watch.note_newest(number)
        if matches(query.etag, epoch.epoch, incarnation) or query.since == epoch.epoch:
            return not_modified(epoch.epoch, incarnation)
        reader = ScheduleReader(
            service, epoch, BLOCK if streamed else query.limit, query, filter_of(tx, query)
        )
        part = reader.next(tx, 0 if query.place is None else query.place.after)
    own = headers(epoch.epoch, incarnation)
    if streamed:
        body = reader.lines(part) if query.media == NDJSON else reader.batches(part)
        return StreamingResponse(iterated(body), headers=own, media_type=query.media)
    place = None if part.after is None else SchedulePlace(epoch.epoch, part.after)
    next_cursor = None if place is None else encode_cursor(place)
    page = ScheduleAnswer(
        epoch=epoch.epoch,
        published_at=epoch.finished_at,
        bandwidth=None if epoch.certificate is None else epoch.certificate.bandwidth,
        items=reader.encoded(part),
        removed=part.removed.tolist() if isinstance(part, ScheduleChanges) else UNSET,
        next_cursor=next_cursor,
    )
    return answer(page, headers=own | next_link(request, next_cursor))


@dataclass(frozen=True, slots=True)
class ScheduleReader:
    """Reader of one epoch's schedule, or of its changes, in parts."""

    service: Service
    epoch: Epoch
    limit: int
    query: ScheduleQuery
    rows: ScheduleFilter

    def next(self, tx: Transaction, after: int) -> SchedulePart:
        """Return the rows after a page_id; raise `CursorExpired` or `EpochNotKept`."""
        epoch, query = self.epoch.epoch, self.query
        if query.since is not None:
            return tx.schedule_changes(epoch, query.since, query.min_change, after, self.limit)
        if query.due_before is not None:
            return due.due_before(tx, epoch, after, self.limit, self.rows, query.due_before)
        return tx.schedule(epoch, after, self.limit, self.rows)

    def parts(self, part: SchedulePart) -> Iterator[SchedulePart]:
        """Yield this part and the following ones, each from a short transaction of its own.

        An error follows where the epoch is dropped meanwhile, and the connection breaks off. This
        avoids that a client mistakes a part of the schedule for the whole.
        """
        return parts_ahead(part, self.read, embedded=self.service.embedded)

    def read(self, after: int) -> SchedulePart:
        """Return the rows after a page_id in a transaction of their own."""
        with self.service.store.begin(write=False) as tx:
            return self.next(tx, after)

    def encoded(self, part: SchedulePart) -> list[ScheduledPage]:
        """Return the rows of a part, with their validators if the query wants them.

        As in leases, a few rows have none (`leases.conditional`).
        """
        if not self.query.validators:
            return encode_schedule(part.pages, self.service.now())
        with self.service.store.begin(write=False) as tx:
            stored = tx.validators(part.pages.page_id)
        now = self.service.now()
        some = handed_out(stored, instant(now), self.service.rng)
        return encode_schedule(part.pages, now, some)

    def lines(self, part: SchedulePart) -> Iterator[bytes]:
        """Yield one page a line."""
        encoder = json.Encoder()
        for each in self.parts(part):
            yield encoder.encode_lines(self.encoded(each))
            if isinstance(each, ScheduleChanges):
                yield encoder.encode_lines(list(map(RemovedPage, each.removed.tolist())))

    def batches(self, part: SchedulePart) -> Iterator[bytes]:
        """Yield Arrow record batches."""
        parts = (each.pages for each in self.parts(part))
        return arrow_stream(self.epoch.epoch, parts, self.service.now())


def empty_schedule(media: str, headers: dict[str, str]) -> Response:
    """Return the empty schedule before the first epoch."""
    if media != JSON:
        content = b"" if media == NDJSON else b"".join(arrow_stream(0, (), UNIX_ZERO))
        return Response(content, headers=headers, media_type=media)
    empty = ScheduleAnswer(
        epoch=None, published_at=None, bandwidth=None, items=[], next_cursor=None
    )
    return answer(empty, headers=headers)


def epoch_of(watch: Watch, tx: Transaction, epoch: int, cursor: str) -> Epoch:
    """Return a published epoch; raise `BadCursor` for a number that no epoch had.

    Raise `CursorExpired` for an epoch that a restore of the database has lost.
    """
    try:
        published = watch.epoch(tx, epoch)
    except EpochNotFound as error:
        if is_lost_epoch(epoch, tx.incarnations()):
            raise CursorExpired(LOST_EPOCH) from error
        raise refused(cursor, "/schedule") from error
    if published.certificate is None:
        raise refused(cursor, "/schedule")
    return published


def filter_of(tx: Transaction, query: ScheduleQuery) -> ScheduleFilter:
    """Return the filter of a query; an unknown page matches nothing."""
    try:
        return ScheduleFilter(
            host=None if query.host is None else normalise_host(query.host),
            page_id=None if query.url is None else find(tx, query.url),
            observability=query.observability,
        )
    except PageNotFound:
        return ScheduleFilter(page_id=0)
