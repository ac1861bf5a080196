"""Pages as a collection: list of all, log of one."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from recrawl_client.wire.listing import LogAnswer, PagesAnswer
from recrawl_client.wire.pages import PageAnswer
from service.api import openapi
from service.api.admission import TheCaller
from service.api.assembly import Service, TheService
from service.api.cursors import (
    CursorParameter,
    LogPlace,
    PagesPlace,
    decode_cursor,
    encode_cursor,
    limit_of,
    next_link,
)
from service.api.examples import EXAMPLES
from service.api.requests.bodies import JSON, NDJSON
from service.api.requests.filters import PageParameters, with_filters
from service.api.requests.key_limits import check_urls
from service.api.responses import encode, tables
from service.api.responses.encode import (
    ARROW,
    INSTALL_ARROW,
    answer,
    answer_part,
    best_media,
    encode_entry,
)
from service.api.responses.tables import CSV, parts_ahead
from service.api.route import GUARDED, DirectRoute
from service.api.routes.pages import PageIdPath, find, page_response
from service.api.threads import iterated
from service.leases.listing import Selection, count, list_pages, shown
from service.model.arrays import UNIX_ZERO
from service.model.domain import Kind
from service.model.errors import Forbidden, InvalidField
from service.model.listing import ShownPages
from service.model.urls import normalise

router = APIRouter(tags=["pages"], route_class=DirectRoute, dependencies=GUARDED)

FIRST_BLOCK, BLOCK = 1_000, 10_000
"""Maximum pages of a stream that are read, encoded and sent at once: at first, and later."""
LIST_PATH = "/pages"
MICROSECOND = timedelta(microseconds=1)

Limit = Annotated[int, limit_of("pages of a part of JSON", 10_000)]
CountKind = Annotated[
    Literal["none", "estimate", "exact"],
    Query(
        description="Count of all pages that the filters select, in the part of JSON without "
        "`cursor`: `exact` up to a million candidates, else an estimate; refused where it would "
        "take more than 2 s"
    ),
]
OneUrl = Annotated[
    str | None,
    Query(
        description="URL of one page, which is shown as GET /pages/{page_id} does; without filters",
        examples=["https://example.com/news"],
    ),
]

LIST = """\
List pages, or show one page by its URL.

The pages are in ascending order of page_id. Follow `next_cursor` until it is null: a part may have
fewer items than `limit`, even none, and not be the last. A page that exists all the time is in
exactly one part, whatever others write meanwhile. `Accept: application/x-ndjson` streams all pages,
one a line; `text/csv` streams rows under a header, and `application/vnd.apache.arrow.stream` Arrow
record batches. `next_crawl_at` is as of now, the rates are those of the schedule in force.

With `url` the answer is that one page, as from GET /pages/{page_id}."""
"""Description of the call."""

RESPONSES = openapi.answers(
    PagesAnswer, EXAMPLES["listed_pages_answer"], 404, 406, 422, headers=openapi.LINK
)
RESPONSES[200]["content"][JSON]["schema"] = {
    "oneOf": [openapi.ref(PagesAnswer), openapi.ref(PageAnswer)]
}
RESPONSES[200]["content"] |= openapi.streams(EXAMPLES["listed_page"], NDJSON, CSV, ARROW)


@router.get("/pages", description=LIST, responses=RESPONSES)
@with_filters
def list_all_pages(
    request: Request,
    service: TheService,
    caller: TheCaller,
    filters: PageParameters,
    url: OneUrl = None,
    cursor: CursorParameter = None,
    limit: Limit = 1_000,
    count: CountKind = "none",
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Return a part of the list, a stream of it, or one page."""
    if url is not None:
        if cursor is not None or any(value is not None for value in filters):
            raise InvalidField("url", "url selects one page; leave filters and cursor out")
        check_urls(caller, [normalise(url)])
        with service.store.begin(write=False) as tx:
            return page_response(tx, service, find(tx, url))
    if caller.boundary is not None:
        raise Forbidden(f"a key that is limited to {caller.boundary} reads one page; send its url")
    media, selection = _media(accept), filters.selection()
    after = 0 if cursor is None else decode_cursor(cursor, PagesPlace, LIST_PATH).after
    if media != JSON:
        if count != "none":
            raise InvalidField("count", "a stream has no count; accept application/json")
        return _stream(service, selection, after, media)
    return _part(request, service, selection, after, limit, count if cursor is None else "none")


def _media(accept: str | None) -> str:
    offers = (JSON, NDJSON, CSV, ARROW) if encode.HAS_ARROW else (JSON, NDJSON, CSV)
    return best_media(accept, offers, INSTALL_ARROW)


def _part(
    request: Request, service: Service, selection: Selection, after: int, limit: int, kind: str
) -> Response:
    with service.store.begin(write=False) as tx:
        part = list_pages(tx, after, limit, selection, service.now())
        pages = shown(tx, part.pages, service.now())
    next_cursor = None if part.after is None else encode_cursor(PagesPlace(part.after))
    counted: dict[str, Any] = {}
    if kind != "none":
        begin = partial(service.store.begin, write=False)
        n, exact = count(begin, selection, service.now(), exact=kind == "exact")
        counted = {"count": n, "count_is": "exact" if exact else "estimate"}
    body = PagesAnswer(items=tables.listed(pages), next_cursor=next_cursor, **counted)
    return answer(body, headers=next_link(request, next_cursor) | {"Vary": "Accept"})


class ShownPart(NamedTuple):
    """Result of one reading of a list."""

    pages: ShownPages
    after: int | None


def _stream(service: Service, selection: Selection, after: int, media: str) -> Response:
    def read(after: int, limit: int = BLOCK) -> ShownPart:
        with service.store.begin(write=False) as tx:
            part = list_pages(tx, after, limit, selection, service.now())
            return ShownPart(shown(tx, part.pages, service.now()), part.after)

    parts = parts_ahead(read(after, FIRST_BLOCK), read, embedded=service.embedded)
    pages = (part.pages for part in parts)
    bodies = {NDJSON: tables.lines, CSV: tables.csv_rows, ARROW: tables.arrow_batches}
    body: Iterator[bytes] = bodies[media](pages)
    return StreamingResponse(iterated(body), headers={"Vary": "Accept"}, media_type=media)


@router.get(
    "/pages/{page_id}/observations",
    responses=openapi.answers(LogAnswer, EXAMPLES["log_answer"], 404, 422, headers=openapi.LINK),
)
def list_observations(
    request: Request,
    service: TheService,
    page_id: PageIdPath,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("entries of a part", 10_000)] = 1_000,
) -> Response:
    """Read the whole log of a page, newest entries first.

    The log has the crawls and pings that `RECRAWL_RETENTION_DAYS` keeps, and older ones that are in
    `RECRAWL_ARCHIVE`. Because a part reads a limited number of archived days, it may have fewer
    entries than `limit`, even none; the last part has no `next_cursor`.
    """
    path = f"/pages/{page_id}/observations"
    place = None if cursor is None else decode_cursor(cursor, LogPlace, path)
    before = None if place is None else (UNIX_ZERO + place.at * MICROSECOND, Kind(place.kind))
    with service.store.begin(write=False) as tx:
        tx.page(page_id)
        log, end = tx.whole_log(page_id, limit, before)
    following = None
    if end is not None:
        following = LogPlace((end[0] - UNIX_ZERO) // MICROSECOND, end[1].value)
    items = list(map(encode_entry, log))
    return answer_part(request, LogAnswer, items, following)
