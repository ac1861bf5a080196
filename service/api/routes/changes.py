"""The feed of changes: in parts, by long polls, or as a stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import json
from starlette.requests import ClientDisconnect

from recrawl_client.wire.changes import ChangesAnswer, ChangesPlace
from service.api import openapi
from service.api.assembly import Service, TheService
from service.api.cursors import FeedCursor, decode_cursor, encode_cursor, limit_of, next_link
from service.api.examples import EXAMPLES
from service.api.requests.bodies import JSON, NDJSON
from service.api.requests.filters import TAG
from service.api.requests.rules import check_zone
from service.api.responses.encode import answer, best_media
from service.api.route import GUARDED, DirectRoute
from service.api.threads import in_thread, read_in_thread
from service.events.encoding import encode_changes
from service.events.reading import Changes, check_place, read
from service.model.arrays import instant
from service.model.changes import ChangeFilter, ChangeKind, FeedPlace
from service.model.errors import InvalidField
from service.model.urls import normalise_host
from service.runtime.requests import waiting

router = APIRouter(tags=["changes"], route_class=DirectRoute, dependencies=GUARDED)

BLOCK = 5_000
"""Changes of a stream that are read, encoded and sent at once."""
PRESENT_S = 1.0
"""Time between two checks that the client of a waiting request is there, seconds."""
FIRST_NUMBER = 1
"""Lowest number of a block; an empty feed begins, and has its newest change, at 0."""
KIND = "|".join(kind.name for kind in ChangeKind)

Kinds = Annotated[
    str | None,
    Query(
        pattern=f"^({KIND})(,({KIND}))*$",
        description="Wanted kinds, separated by commas: new, changed, gone, back, moved, deleted",
        examples=["new,changed,back"],
    ),
]
Since = Annotated[
    datetime | None,
    Query(
        description="Instant from whose commits on changes are wanted, RFC 3339 with a zone; an "
        "instant ahead counts as now; not with `cursor`"
    ),
]
MinWeight = Annotated[
    float | None,
    Query(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Minimum `weight` of the wanted changes, 0 to 1",
        examples=[0.5],
    ),
]
CHANGES = """\
Read the feed of changes.

A change stands in the feed for ever at the same place, and every new one comes behind all others.
So a reader that keeps `next_cursor`, after it has handled the items, misses nothing. After a crash
the reader may receive changes again; their `id` is the same. Changes of a page are in the order of
its crawls. `deleted` is the last change of a page, and its earlier ones are left out from then on.
Without `cursor` and `since` the feed begins at its oldest change.

`more` is false at the present end. With `wait_s` the service then waits for a change before it
answers. A part may be empty, and carries a cursor too. `Accept: application/x-ndjson` streams the
feed up to its end, and for `wait_s` seconds beyond, a change a line. Lines
`{"next_cursor": "…"}` in between name the place up to there.

The filters of a reader may differ from request to request. Tags are those that the page has at the
time of the request, in the items and in the filter; a deleted page has those of its end. The feed
is kept for `RECRAWL_CHANGES_DAYS`. 410 means that changes after the cursor may be missing; the
detail has the reason."""
"""Description of the call."""

RESPONSES = openapi.answers(
    ChangesAnswer, EXAMPLES["changes_answer"], 406, 410, 422, headers=openapi.LINK
)
RESPONSES[200]["content"] |= openapi.streams(EXAMPLES["change"], NDJSON)


@dataclass(frozen=True, slots=True)
class ChangesReader:
    """The reader of one request."""

    service: Service
    place: FeedPlace
    limit: int
    only: ChangeFilter
    same_feed: bool

    def next(self) -> Changes:
        """Return the next changes; raise `CursorExpired`."""
        with self.service.store.begin(write=False) as tx:
            part = read(tx, self.place, self.limit, self.only)
            check_place(self.place, tx.feed_bounds(), same_feed=self.same_feed)
        return part

    def cursor(self, part: Changes) -> str:
        """Return the cursor after a part."""
        return encode_cursor(FeedCursor(self.service.feed.feed_id, *part.after))

    async def part(self) -> Changes:
        """Return the next changes, read in a thread."""
        return await read_in_thread(self.service.readers, self.next)


@router.get("/changes", description=CHANGES, responses=RESPONSES)
async def get_changes(
    request: Request,
    service: TheService,
    cursor: Annotated[
        str | None, Query(description="`next_cursor` of an earlier part; left out, the oldest")
    ] = None,
    since: Since = None,
    limit: Annotated[int, limit_of("changes of a part of JSON", 10_000)] = 1_000,
    host: Annotated[str | None, Query(description="Name of the host whose changes are wanted")] = (
        None
    ),
    prefix: Annotated[
        str | None,
        Query(
            pattern=r"^[^\x00-\x20\x7f]{1,2048}$",
            description="Start of the normalised URLs whose changes are wanted",
            examples=["https://example.com/docs/"],
        ),
    ] = None,
    tag: Annotated[
        str | None,
        Query(
            pattern=TAG, description="Tag of the pages whose changes are wanted", examples=["docs"]
        ),
    ] = None,
    kind: Kinds = None,
    min_weight: MinWeight = None,
    wait_s: Annotated[
        float, Query(ge=0, le=30, description="Maximum wait for a first change, seconds")
    ] = 0.0,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Return a part of the feed, or a stream of it."""
    media = best_media(accept, (JSON, NDJSON))
    only = change_filter(kind, host, prefix, tag, min_weight)
    place, same_feed = await in_thread(start, service, cursor, since)
    streamed = media == NDJSON
    reader = ChangesReader(service, place, BLOCK if streamed else limit, only, same_feed)
    deadline = asyncio.get_running_loop().time() + wait_s
    if streamed:
        first = await reader.part()
        stream = lines(request, reader, first, deadline)
        return StreamingResponse(stream, headers={"Vary": "Accept"}, media_type=NDJSON)
    part = await reader.part()
    while not len(part.changes):
        if part.whole and not await more(request, service, part.after, deadline):
            break
        reader = replace(reader, place=part.after)
        part = await reader.part()
        if asyncio.get_running_loop().time() > deadline:
            break
    next_cursor = reader.cursor(part)
    body = ChangesAnswer(
        items=encode_changes(part.changes), more=not part.whole, next_cursor=next_cursor
    )
    headers = {"Cache-Control": "no-cache", "Vary": "Accept"}
    return answer(body, headers=headers | next_link(request, next_cursor))


async def more(request: Request, service: Service, place: FeedPlace, deadline: float) -> bool:
    """Return whether the feed goes on beyond a place, after a wait."""
    loop, feed = asyncio.get_running_loop(), service.feed
    next_number = max(place.seq, FIRST_NUMBER)
    while (left_s := deadline - loop.time()) > 0 and not feed.released:
        with waiting(request.scope):
            ended = await feed.reached(next_number, min(left_s, PRESENT_S))
        # the wait ends at once too if too many requests wait already
        if ended or feed.newest >= next_number:
            return feed.newest >= next_number
        if await request.is_disconnected():
            raise ClientDisconnect
    return False


async def lines(
    request: Request, reader: ChangesReader, part: Changes, deadline: float
) -> AsyncIterator[bytes]:
    """Yield the changes of a part and of the following ones, a cursor after each part."""
    encoder = json.Encoder()
    while True:
        place = ChangesPlace(next_cursor=reader.cursor(part))
        yield encoder.encode_lines([*encode_changes(part.changes), place])
        if part.whole and not await more(request, reader.service, part.after, deadline):
            return
        reader = replace(reader, place=part.after)
        part = await reader.part()


def start(service: Service, cursor: str | None, since: datetime | None) -> tuple[FeedPlace, bool]:
    """Return the place where a reader starts, and whether the cursor is one of this database."""
    if cursor is None:
        with service.store.begin(write=False) as tx:
            bounds = tx.feed_bounds()
        if since is None:
            return FeedPlace(bounds.cut), True
        check_zone("since", since)
        seq = int(instant(since).astype(int))
        return FeedPlace(min(max(seq, bounds.cut), bounds.latest + 1)), True
    if since is not None:
        raise InvalidField("since", "since excludes cursor; leave either out")
    place = decode_cursor(cursor, FeedCursor, "/changes")
    return FeedPlace(place.seq, place.offset), place.feed == service.feed.feed_id


def change_filter(
    kind: str | None,
    host: str | None,
    prefix: str | None,
    tag: str | None,
    min_weight: float | None = None,
) -> ChangeFilter:
    """Return the filter of a request."""
    return ChangeFilter(
        kinds=None if kind is None else frozenset(ChangeKind[name] for name in kind.split(",")),
        host=None if host is None else normalise_host(host),
        prefix=prefix,
        tag=tag,
        min_weight=min_weight,
    )
