"""IndexNow: change notices from content management systems, as indexnow.org has it."""

from collections.abc import AsyncIterator
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response

from service import ingest
from service.api import examples, openapi
from service.api.bodies import Body, read_body, read_within
from service.api.decode import instants, name_pages
from service.api.encode import answer, batch_counts
from service.api.indexnow_bodies import REMEDY, Sent, many_urls, one_url
from service.api.keyline import Outcome, Waiting
from service.api.schemas import IndexNowAnswer, IndexNowBody
from service.api.service import Service, TheService, authorised, the_service
from service.api.strangers import MAX_BYTES, peer
from service.columns import PingColumns
from service.commits import Done, Job
from service.errors import (
    KeyNotShown,
    MalformedBody,
    Overloaded,
    RequestError,
    TooManyRequests,
    Unauthorized,
)
from service.ingest import Answered
from service.sources.indexnow import Submission

PingJob = Job[PingColumns, Answered]


def allowed(request: Request) -> None:
    """Ask for an API key where sites are not asked for theirs."""
    if the_service(request).key_checks is None:
        authorised(request)


router = APIRouter(tags=["evidence"], dependencies=[Depends(allowed)])

RESPONSES = {
    **openapi.gives(IndexNowAnswer, examples.INDEXNOW_ANSWER, *openapi.WRITES, 403, 429),
    202: openapi.gives(IndexNowAnswer, examples.INDEXNOW_PENDING, status=202)[202],
}


async def read_indexnow(request: Request) -> AsyncIterator[Body]:
    """Read a body: a stranger's, whose key will be checked, within narrower bounds."""
    service = the_service(request)
    if service.key_checks is None or _shows_api_key(request):
        yield await read_body(request)
        return
    with service.key_checks.bodies.held(peer(request)) as hold:
        yield await read_within(request, min(MAX_BYTES, service.max_body_bytes), hold)


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
        raise MalformedBody(f"{'url' if url is None else 'key'} is missing{REMEDY}")
    return _take(request, service, one_url(url, key, key_location))


@router.post(
    "/indexnow",
    operation_id="post_indexnow",
    responses=RESPONSES,
    openapi_extra=openapi.takes(IndexNowBody, examples.INDEXNOW, batch=False),
)
def post_indexnow(
    request: Request, service: TheService, body: Annotated[Body, Depends(read_indexnow)]
) -> Response:
    """Announce that up to 10,000 pages of one host have changed now, by the IndexNow protocol.

    All or none are taken. Answers as for GET.
    """
    return _take(request, service, many_urls(body.content))


def _take(request: Request, service: Service, sent: Sent) -> Response:
    """Ping the pages, once the caller may: by an API key, or by the site's where that is checked.

    A caller without an API key, where there are some, pings known pages and registers none.
    """
    checks, trusted = service.key_checks, _shows_api_key(request)
    register = trusted or not service.key_hashes
    try:
        if checks is not None and not trusted:
            claim, then = sent.claim(), partial(_later, service, sent, register, service.now())
            verdict = checks.ask(Waiting(claim, peer(request), sent.n_bytes, then))
            if verdict is None:
                pending = IndexNowAnswer(status="pending", n_urls=sent.n_urls, n_taken=0)
                return answer(pending, 202)
            if not verdict:
                raise KeyNotShown(f"{claim.location[:300]} does not show the key; put it there")
        job = _job(sent.submission(), register, service.now())
        done = service.commits.submit(job).result()
    except Overloaded as error:
        raise TooManyRequests(error.detail) from error
    n_taken = _count(service, job, done.made)
    return answer(IndexNowAnswer(status="taken", n_urls=len(job), n_taken=n_taken))


def _shows_api_key(request: Request) -> bool:
    """Return whether there are API keys and the caller shows one."""
    try:
        authorised(request)
    except Unauthorized:
        return False
    return bool(the_service(request).key_hashes)


def _job(submission: Submission, register: bool, now: datetime) -> PingJob:
    urls = list({url.key: url for url in submission.urls}.values())
    named = name_pages(np.zeros(len(urls), np.int64), urls)
    at = instants([now] * len(urls))
    columns = PingColumns(page_id=named.page_id, changed_at=at, changed_by=at)
    return Job(ingest.ping, columns, named, register, now)


def _later(service: Service, sent: Sent, register: bool, now: datetime, outcome: Outcome) -> None:
    """Ping what waited for its key, which counts from now on, or count what is lost."""
    if outcome != "believed":
        service.telemetry.count_lost("indexnow", outcome, sent.n_urls)
        return
    try:
        job = _job(sent.submission(), register, now)
        service.commits.submit(job).add_done_callback(partial(_settle, service, job))
    except RequestError:
        service.telemetry.count_lost("indexnow", "rejected", sent.n_urls)
    except Overloaded:
        service.telemetry.count_lost("indexnow", "dropped", sent.n_urls)


def _settle(service: Service, job: PingJob, done: Future[Done[Answered]]) -> None:
    if done.cancelled() or done.exception() is not None:
        service.telemetry.count_lost("indexnow", "dropped", len(job))
    else:
        _count(service, job, done.result().made)


def _count(service: Service, job: PingJob, made: Answered) -> int:
    named = job.named
    counts = batch_counts(made.verdict, np.arange(len(named.row)), named.page_id, [])
    service.telemetry.count_items("indexnow", counts)
    return int(counts["accepted"])
