"""IndexNow (indexnow.org): pings from content management systems."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Request, Response

from service.access.callers import ANYONE
from service.api import openapi
from service.api.admission import the_caller
from service.api.assembly import Service, TheService
from service.api.examples import EXAMPLES
from service.api.openapi import IndexNowAnswer, IndexNowBody
from service.api.origins import customer
from service.api.requests.bodies import Body, read_body, read_within
from service.api.requests.decode import name_pages
from service.api.requests.fields import instants
from service.api.requests.key_limits import charge, check_urls
from service.api.responses.encode import answer
from service.api.responses.outcomes import batch_counts
from service.api.route import DirectRoute
from service.api.threads import in_thread
from service.batching.reports import PingReport
from service.connectors.indexnow import MAX_URLS, KeyClaim, Submission, claimed, submission
from service.connectors.indexnow_keys import MAX_BYTES, Outcome, Waiting
from service.ingest.record import PingOutcome
from service.model import lenient_json
from service.model.columns import PingColumns
from service.model.errors import (
    KeyNotShown,
    MalformedBody,
    Overloaded,
    RequestError,
    TooManyRequests,
)
from service.model.field_faults import fault_of
from service.model.lenient_json import Contradiction
from service.model.words import counted

REMEDY = "; send url and key, or POST host, key and urlList"
FIRST = re.compile(rb'\[\s*("(?:[^"\\]|\\.)*+")')
"""The first string of a JSON array."""
EMPTY = re.compile(rb"\[\s*\]")

DecodedT = TypeVar("DecodedT")


class Sent(NamedTuple):
    """A submission before it is decoded."""

    claim: Callable[[], KeyClaim]
    """Function that checks the key against the first URL; raises as `claimed`."""
    submission: Callable[[], Submission]
    """Function that checks and decodes all URLs; raises as `submission`."""
    n_urls: int
    """Number of URLs as sent."""
    n_bytes: int


class Head(msgspec.Struct):
    """The fields of `IndexNowBody`, with the list of URLs as it was sent."""

    host: str
    key: str
    urlList: msgspec.Raw  # noqa: N815 - the protocol's name
    keyLocation: str | None = None  # noqa: N815


def one_url(url: str, key: str, key_location: str | None) -> Sent:
    """Return the submission of one URL by GET."""
    return Sent(
        partial(claimed, key, "url", url, None, key_location),
        partial(submission, key, [url], None, key_location),
        n_urls=1,
        n_bytes=len(url) + len(key) + len(key_location or ""),
    )


def many_urls(content: bytes) -> Sent:
    """Return the submission of a body.

    Raises
    ------
    MalformedBody
        The body is not IndexNow, or does not have 1 to `MAX_URLS` URLs.
    """
    content = content.removeprefix(BOM_UTF8)
    head = _decode(content, Head)
    n_urls = _n_strings(bytes(head.urlList))
    _check_number(n_urls)
    return Sent(partial(_claim, content), partial(_submission, content), n_urls, len(content))


def _claim(content: bytes) -> KeyClaim:
    head = _decode(content, Head)
    first = FIRST.match(bytes(head.urlList))
    if first is None:
        raise MalformedBody("urlList must be a list of URLs, each a string")
    return claimed(head.key, "urlList[0]", _decode(first[1], str), head.host, head.keyLocation)


def _submission(content: bytes) -> Submission:
    body = _decode(content, IndexNowBody)
    if isinstance(contradiction := lenient_json.parse(content), Contradiction):
        raise MalformedBody(f"the body is not IndexNow: {contradiction}")
    _check_number(len(body.urlList))
    return submission(body.key, body.urlList, body.host, body.keyLocation)


def _n_strings(array: bytes) -> int:
    """Return the number of strings in a JSON array without decoding; 1 for any other JSON."""
    n_quotes = array.count(b'"') - array.count(b'\\"')
    return n_quotes // 2 if n_quotes or EMPTY.fullmatch(array) else 1


def _check_number(n_urls: int) -> None:
    if not 0 < n_urls <= MAX_URLS:
        raise MalformedBody(f"urlList has {counted(n_urls, 'URL')}; send 1 to {MAX_URLS}")


def _decode(content: bytes, kind: type[DecodedT]) -> DecodedT:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedBody(f"the body is not IndexNow: {_fault(error)}{REMEDY}") from error


def _fault(error: Exception) -> str:
    if not isinstance(error, msgspec.ValidationError):
        at = re.search(r"\(byte (\d+)\)", str(error))
        return f"it is not JSON at byte {at[1]}" if at else "it is not JSON"
    fault = fault_of(error)
    if fault.field is None:
        return "it is not an object"
    if fault.kind == "missing":
        return f"{fault.field} is missing"
    is_list = fault.field == "urlList" and fault.entry is None
    return f"{fault.place} is no {'list of strings' if is_list else 'string'}"


def peer(request: Request) -> str:
    """Return the address of a caller, as `customer`."""
    return customer(request.client.host if request.client else "")


router = APIRouter(tags=["evidence"], route_class=DirectRoute)

RESPONSES = {
    **openapi.answers(IndexNowAnswer, EXAMPLES["indexnow_answer"], *openapi.WRITES),
    202: openapi.answers(IndexNowAnswer, EXAMPLES["indexnow_pending"], status=202)[202],
}


@router.get("/indexnow", responses=RESPONSES)
def get_indexnow(
    request: Request,
    service: TheService,
    url: Annotated[
        str | None,
        Query(description="URL of the page that has changed", examples=["https://example.com/"]),
    ] = None,
    key: Annotated[
        str | None, Query(description="Key of the site", examples=["0123abcd-4567-ef89"])
    ] = None,
    key_location: Annotated[
        str | None, Query(alias="keyLocation", description="URL of the key file on the site")
    ] = None,
) -> Response:
    """Announce a change of one page by IndexNow.

    With `RECRAWL_INDEXNOW_CHECK` the site must show the key in a file. The key then replaces an
    API key. The answer is 202 until the file has been fetched, and 403 if the file does not hold
    the key.
    """
    if url is None or key is None:
        raise MalformedBody(f"{'url' if url is None else 'key'} is missing{REMEDY}")
    return _take(request, service, one_url(url, key, key_location))


@router.post(
    "/indexnow",
    responses=RESPONSES,
    openapi_extra=openapi.request_body(IndexNowBody, EXAMPLES["indexnow"], batch=False),
)
async def post_indexnow(request: Request, service: TheService) -> Response:
    """Announce changes of up to 10,000 pages of one host by IndexNow.

    Either all URLs count or none. The answers are those of GET.
    """
    if service.key_checks is None or the_caller(request).known:
        body = await read_body(request)
        return await in_thread(_take_many, request, service, body)
    with service.key_checks.bodies.held(peer(request)) as hold:  # a body without an API key
        body = await read_within(request, min(MAX_BYTES, service.max_body_bytes), hold)
        return await in_thread(_take_many, request, service, body)


def _take_many(request: Request, service: Service, body: Body) -> Response:
    return _take(request, service, many_urls(body.content))


def _take(request: Request, service: Service, sent: Sent) -> Response:
    """Ping the pages of a caller with an API key or, where it is checked, with the site's key.

    If API keys are set, a caller without one registers no new pages.
    """
    checks, caller = service.key_checks, the_caller(request)
    trusted, register = caller.known, caller.known or caller is ANYONE
    try:
        if checks is not None and not trusted:
            claim, then = sent.claim(), partial(_later, service, sent, register, service.now())
            verdict = checks.ask(Waiting(claim, peer(request), sent.n_bytes, then))
            if verdict is None:
                pending = IndexNowAnswer(status="pending", n_urls=sent.n_urls, n_taken=0)
                return answer(pending, 202)
            if not verdict:
                raise KeyNotShown(checks.refusal(claim))
        urls = sent.submission()
        check_urls(caller, urls.urls)
        charge(caller, len(urls.urls))
        report = _report(urls, register, service.now())
        committed = service.ping_reports.submit(report).result()
    except Overloaded as error:
        raise TooManyRequests(error.detail) from error
    n_taken = _count(service, report, committed)
    return answer(IndexNowAnswer(status="taken", n_urls=report.size, n_taken=n_taken))


def _report(submission: Submission, register: bool, now: datetime) -> PingReport:
    urls = list({url.key: url for url in submission.urls}.values())
    named = name_pages(np.zeros(len(urls), np.int64), urls)
    at = instants([now] * len(urls))
    columns = PingColumns(page_id=named.page_id, changed_at=at, changed_by=at)
    return PingReport(columns, named, register, now)


def _later(service: Service, sent: Sent, register: bool, now: datetime, outcome: Outcome) -> None:
    """Ping the URLs of a submission whose key was accepted, or count the lost URLs."""
    if outcome != "believed":
        service.telemetry.count_lost("indexnow", outcome, sent.n_urls)
        return
    try:
        report = _report(sent.submission(), register, now)
        done = service.ping_reports.submit(report)
        done.add_done_callback(partial(_settle, service, report))
    except RequestError:
        service.telemetry.count_lost("indexnow", "rejected", sent.n_urls)
    except Overloaded:
        service.telemetry.count_lost("indexnow", "dropped", sent.n_urls)


def _settle(service: Service, report: PingReport, done: Future[PingOutcome]) -> None:
    if done.cancelled() or done.exception() is not None:
        service.telemetry.count_lost("indexnow", "dropped", report.size)
    else:
        _count(service, report, done.result())


def _count(service: Service, report: PingReport, committed: PingOutcome) -> int:
    names = report.names
    counts = batch_counts(committed.verdict, np.arange(len(names.row)), names.page_id, [])
    service.telemetry.count_items("indexnow", counts)
    return int(counts["accepted"])
