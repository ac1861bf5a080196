"""IndexNow: change notices from content management systems, as indexnow.org has it."""

from codecs import BOM_UTF8
from contextlib import suppress
from functools import partial
from typing import Annotated

import msgspec
import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response

from service import ingest
from service.api import examples, openapi
from service.api.decode import instants, name_pages
from service.api.encode import answer, batch_counts
from service.api.schemas import IndexNowAnswer, IndexNowBody
from service.api.service import Service, TheBody, TheService, authorised, the_service
from service.columns import PingColumns
from service.commits import Job
from service.errors import KeyNotShown, MalformedBody, Overloaded, TooManyRequests, Unauthorized
from service.ingest import Answered
from service.sources.indexnow import MAX_URLS, Submission, submission


def allowed(request: Request) -> None:
    """Ask for an API key where sites are not asked for theirs."""
    if the_service(request).key_checks is None:
        authorised(request)


router = APIRouter(tags=["evidence"], dependencies=[Depends(allowed)])

RESPONSES = {
    **openapi.gives(IndexNowAnswer, examples.INDEXNOW_ANSWER, *openapi.WRITES, 403, 429),
    202: openapi.gives(IndexNowAnswer, examples.INDEXNOW_PENDING, status=202)[202],
}
MISSING = "; send url and key, or POST host, key and urlList"


@router.get("/indexnow", operation_id="get_indexnow", responses=RESPONSES)
def get_indexnow(
    request: Request,
    service: TheService,
    url: Annotated[
        str | None, Query(description="The page that changed", examples=["https://example.com/"])
    ] = None,
    key: Annotated[
        str | None, Query(description="The site's key", examples=["0123abcd-4567-ef89"])
    ] = None,
    key_location: Annotated[
        str | None, Query(alias="keyLocation", description="Where the key file lies on the site")
    ] = None,
) -> Response:
    """Announce that one page has changed now, by the IndexNow protocol.

    With `RECRAWL_INDEXNOW_CHECK` the site must show the key in a file, which then stands for an
    API key: 202 until it has been looked at, 403 if it does not hold the key.
    """
    if url is None or key is None:
        raise MalformedBody(f"{'url' if url is None else 'key'} is missing{MISSING}")
    return _take(request, service, submission(key, [url], None, key_location))


@router.post(
    "/indexnow",
    operation_id="post_indexnow",
    responses=RESPONSES,
    openapi_extra=openapi.takes(IndexNowBody, examples.INDEXNOW, batch=False),
)
def post_indexnow(request: Request, service: TheService, body: TheBody) -> Response:
    """Announce that up to 10,000 pages of one host have changed now, by the IndexNow protocol.

    All or none are taken. Answers as for GET.
    """
    try:
        content = body.content.removeprefix(BOM_UTF8)
        given = msgspec.json.decode(content, type=IndexNowBody)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedBody(f"the body is not IndexNow: {str(error)[:300]}{MISSING}") from error
    if not 0 < len(given.urlList) <= MAX_URLS:
        raise MalformedBody(f"urlList has {len(given.urlList)} URLs; send 1 to {MAX_URLS}")
    return _take(
        request, service, submission(given.key, given.urlList, given.host, given.keyLocation)
    )


def _take(request: Request, service: Service, given: Submission) -> Response:
    """Ping the pages, once the caller may: by an API key, or by the site's where that is checked.

    Who has shown no API key where there are some pings pages that are known, and registers none.
    """
    known, checks = _known(request), service.key_checks
    urls = list({url.key: url for url in given.urls}.values())
    named = name_pages(np.zeros(len(urls), np.int64), urls)
    now = service.now()
    at = instants([now] * len(urls))
    columns = PingColumns(page_id=named.page_id, changed_at=at, changed_by=at)
    job = Job(ingest.ping, columns, named, known, now)
    try:
        shown = known and service.key_hashes
        held = checks.ask(given, partial(_later, service, job)) if checks and not shown else True
        if held is None:
            return answer(IndexNowAnswer(status="pending", n_urls=len(urls), n_taken=0), 202)
        if not held:
            raise KeyNotShown(f"{given.key_location[:300]} does not show the key; put it there")
        done = service.commits.submit(job).result()
    except Overloaded as error:
        raise TooManyRequests(error.detail) from error
    n_taken = _count(service, job, done.made)
    return answer(IndexNowAnswer(status="taken", n_urls=len(urls), n_taken=n_taken))


def _known(request: Request) -> bool:
    try:
        authorised(request)
    except Unauthorized:
        return False
    return True


def _later(service: Service, job: Job[PingColumns, Answered]) -> None:
    """Ping what waited for its key; when there is no room for it, it is lost."""
    with suppress(Overloaded):
        service.commits.submit(job).add_done_callback(
            lambda done: done.exception() or _count(service, job, done.result().made)
        )


def _count(service: Service, job: Job[PingColumns, Answered], made: Answered) -> int:
    named = job.named
    counts = batch_counts(made.verdict, np.arange(len(named.row)), named.page_id, [])
    service.telemetry.count_items("indexnow", counts)
    return int(counts["accepted"])
