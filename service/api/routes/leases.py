"""Leases: due crawls for workers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from msgspec import UnsetType
from starlette.requests import ClientDisconnect

from recrawl_client.wire.evidence import Observation
from recrawl_client.wire.leases import LeaseAnswer, LeaseBody, Leased, LeasePatchBody
from recrawl_client.wire.listing import (
    LeaseItem,
    LeasesAnswer,
    ReturnedLeases,
    WorkerItem,
    WorkersAnswer,
)
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor, TheCaller
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import CursorParameter, LeasesPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.holds.leases import explain_leases
from service.api.requests.blocks import beside, record_report
from service.api.requests.items import decode_object, decode_with_items
from service.api.requests.key_limits import (
    admitted,
    charge,
    check_hosts,
    check_ttl,
    check_unlimited,
)
from service.api.requests.lease_calls import CallKey, LeaseCall, encode_answer
from service.api.requests.posts import Post
from service.api.requests.rules import read_lease
from service.api.requests.settling import settled
from service.api.responses.encode import answer, answer_part, json_answer, shared
from service.api.route import GUARDED, DirectRoute
from service.api.routes.observations import Register
from service.batching.lease_requests import LeaseRequest
from service.leases.dealt import WorkerRequest
from service.leases.open_due import lease_end
from service.leases.returning import return_leases_of
from service.model.errors import InvalidField, LeaseNotHeld
from service.model.urls import normalise_host
from service.runtime.requests import waiting
from service.storage import Transaction
from service.storage.queue.columns import LeaseFilter
from service.storage.queue.signs import LEASES as LEASES_ASKED

router = APIRouter(tags=["leases"], route_class=DirectRoute, dependencies=GUARDED)

NOTHING_QUEUED_S = 60.0
"""Retry-After when no page has a due time, seconds."""
MAX_RETRY_S = 3_600.0
"""Maximum Retry-After, seconds."""
POLL_S = 1.0
"""Maximum pause between two looks of a waiting request, seconds.

A lease that ends in another process does not wake the request."""
MIN_PAUSE_S = 0.02
"""Minimum pause before the next look, where a crawl is ready soon, seconds."""

WORKER = r"^[^\x00-\x1f\x7f]{1,100}$"
"""Names of workers, as `wire.leases.Worker`."""

LeasePath = Annotated[
    str,
    Path(
        pattern="^[1-9][0-9]{0,17}-[0-7]?[0-9a-f]{1,15}$",
        description="Token of a lease, as POST /leases returned it",
    ),
]


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="A text that is new for each request, such as a UUID. A request that is sent "
        "again with its key within two minutes receives the same leases",
        examples=["8f14e45f-ceea-467f-9575-1c2b1a8a1f3d"],
    ),
]

LEASES = """\
Take crawls that are due.

Crawls that a ping requested come first, then the most overdue. Each crawl has a lease: until the
lease ends, no other worker receives the crawl. Report the crawl with its `lease` in `report` of the
next request or through POST /observations, return it with DELETE, or let the lease expire. The
service spaces the crawls of a host by its delay and concurrency. A worker that always sends the
same `slice` and `slices` receives the same hosts, and can keep its connections. `wait_s` waits for
a first crawl. An answer without items states when to ask again, in Retry-After too. So does one
that the budget of the day leaves no crawl for, and one in a pause of all hosts.

`report` has crawls as in POST /observations. One commit records them and leases the next pages,
which saves a request and a commit for each crawl. The report is committed before a wait, and
whether or not pages are due. `reported` counts the outcomes. Each crawl succeeds or fails alone;
even a report whose crawls are all rejected does not prevent leases.

If an answer is lost, send the request again with the same `Idempotency-Key`. It receives the same
answer, from any replica, for two minutes after the leases were written. Without leases in the first
answer, nothing is kept, and the repeated request may receive some. Otherwise a key that comes again
with another body is refused with status 422, and that body has no effect."""
"""Description of the call."""


@router.post(
    "/leases",
    description=LEASES,
    responses=openapi.answers(
        Leased, EXAMPLES["leases_answer"], *openapi.WRITES, headers=openapi.RETRY_AFTER
    ),
    openapi_extra=openapi.request_body(LeaseBody, EXAMPLES["lease"], batch=False),
)
async def post_leases(
    request: Request,
    service: TheService,
    caller: TheCaller,
    body: TheBody,
    register: Register = True,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Return leases as soon as a page is due, after the report is committed."""
    loop = asyncio.get_running_loop()

    def decode() -> tuple[LeaseBody, Post | None]:
        wish, batch = decode_with_items(body, LeaseBody, "report", Observation, service.max_items)
        if batch is None:
            return wish, None
        return wish, Post(admitted(batch, caller, service.store), register)

    wish, post = await beside(body.content, caller, decode)
    key = None
    if idempotency_key is not None:
        of_caller = f"{caller.name}\0{idempotency_key}"
        key = CallKey.of(of_caller, body.content, b"register" if register else b"")
    check_ttl(caller, wish.ttl_s, service.lease_ttl)
    leases = lease_request(wish, service.lease_ttl)
    check_hosts(caller, leases.kind.hosts)
    call = LeaseCall(leases, post, key)
    if post is not None and service.divided:
        counts = await record_report(service, caller, body.content, post)
        call = replace(call, post=None, counts=counts)
    deadline = loop.time() + wish.wait_s

    with service.lease_waiters.place() as freed:
        while True:
            reply = await settled(service.lease_calls.submit(call))
            if call.post is not None and reply.counts is not None:
                service.lease_waiters.wake(reply.counts["leases_ended"])
            if not reply.is_empty:
                _note(service, leases)
                n_leased = len(reply.items)
                service.telemetry.count_leases("granted", n_leased)
                charge(caller, n_leased)
                return json_answer(reply.answer or encode_answer(reply))
            ahead_s = _ahead(reply.next_ready_at, service.now())
            left_s = deadline - loop.time()
            if left_s <= 0 or service.watch.released:
                paused_until = service.keeper.pause_in_force()
                # an operator may end the pause of all hosts soon
                most_s = MAX_RETRY_S if paused_until is None else NOTHING_QUEUED_S
                wait_s = min(max(ahead_s, 1.0), most_s)
                _note(service, leases, wait_s)
                retry_after = {"Retry-After": str(-int(-wait_s // 1))}
                empty = encode_answer(reply, wait_s, paused_until)
                return json_answer(empty, headers=retry_after)
            call = replace(call, post=None, counts=reply.counts)
            pause_s = MIN_PAUSE_S if ahead_s > 0 else POLL_S  # ready crawls are not for this caller
            with waiting(request.scope):
                await service.lease_waiters.wait(freed, min(left_s, POLL_S, max(ahead_s, pause_s)))
            if await request.is_disconnected():
                raise ClientDisconnect


def _note(service: Service, request: LeaseRequest, wait_s: float = 0.0) -> None:
    """Note a request for pages; a reader of feeds is no crawler."""
    if not request.kind.feeds:
        service.asked.note(LEASES_ASKED, service.now(), wait_s)
        service.asked.note_filter(request.kind, service.now(), wait_s)


def lease_request(wish: LeaseBody, default_ttl: timedelta) -> LeaseRequest:
    """Return the request of a worker; raise `InvalidField` for a slice that does not exist."""
    of = reach_of(wish.hosts, wish.slice, wish.slices, feeds=wish.kind == "feed")
    ttl = default_ttl if isinstance(wish.ttl_s, UnsetType) else timedelta(seconds=wish.ttl_s)
    return LeaseRequest(WorkerRequest(wish.worker, wish.count, ttl), of)


def reach_of(hosts: Sequence[str], number: int, slices: int, *, feeds: bool = False) -> LeaseFilter:
    """Return the filter of a request; raise `InvalidField` for a slice that does not exist."""
    if number >= slices:
        detail = f"slice {number} is not one of {slices}; they count from 0"
        raise InvalidField("slice", detail)
    names = sorted({normalise_host(host, "hosts") for host in hosts})
    return LeaseFilter(tuple(names), number, slices, feeds=feeds)


def _ahead(next_ready_at: datetime | None, now: datetime) -> float:
    return NOTHING_QUEUED_S if next_ready_at is None else (next_ready_at - now).total_seconds()


@router.get(
    "/leases",
    responses=openapi.answers(
        LeasesAnswer, EXAMPLES["running_leases"], 403, 422, headers=openapi.LINK
    ),
)
def list_leases(
    request: Request,
    service: TheService,
    caller: TheCaller,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("leases of a part", 10_000)] = 1_000,
    explain: Annotated[
        bool,
        Query(
            description="Whether to explain what a request for leases gets, in place of the list"
        ),
    ] = False,
    hosts: Annotated[
        list[str] | None,
        Query(
            max_length=100,
            description="The name of a host, repeated for several; only with `explain`",
        ),
    ] = None,
    slice: Annotated[  # noqa: A002 - the name in POST /leases
        int, Query(ge=0, le=9_999, description="A number of a slice; only with `explain`")
    ] = 0,
    slices: Annotated[
        int, Query(ge=1, le=10_000, description="A number of slices; only with `explain`")
    ] = 1,
) -> Response:
    """List the leases that run, or explain why nothing is leased.

    The list has the leases by ascending page_id.

    The tokens of the leases are left out: only the worker that took a lease can end it. With
    `explain=true` the answer counts the due pages within reach of a POST /leases with the same
    `hosts`, `slice` and `slices`, by what holds them. A key that is limited to hosts may ask this
    for its hosts only.
    """
    if explain:
        reach = reach_of(hosts or (), slice, slices)
        check_hosts(caller, reach.hosts)
        with service.store.begin(write=False) as tx:
            why = explain_leases(tx, service, reach)
        return answer(LeasesAnswer(items=[], next_cursor=None, explanation=why))
    check_unlimited(caller)
    after = 0 if cursor is None else decode_cursor(cursor, LeasesPlace, "/leases").after
    with service.store.begin(write=False) as tx:
        running, following = tx.running_leases(after, limit, tx.now())
    place = None if following is None else LeasesPlace(following)
    items = [LeaseItem(**shared(LeaseItem, lease)) for lease in running]
    return answer_part(request, LeasesAnswer, items, place)


@router.get(
    "/leases/workers",
    responses=openapi.answers(WorkersAnswer, EXAMPLES["workers_answer"], 422),
)
def list_workers(
    service: TheService, limit: Annotated[int, limit_of("workers", 1_000)] = 100
) -> Response:
    """List the workers with leases, those first that lost most of them.

    A lost lease expired, was returned, or got a report that was refused by item. It counts until
    any report of its page is accepted, or another worker takes the page.
    """
    with service.store.begin(write=False) as tx:
        workers = tx.workers(tx.now(), limit)
    items = [
        WorkerItem(
            worker=each.worker,
            running=each.n_running,
            lost=each.n_lost,
            expired=each.n_expired,
            returned=each.n_returned,
            refused=each.n_refused,
        )
        for each in workers
    ]
    return answer(WorkersAnswer(items=items))


@router.patch(
    "/leases/{lease}",
    responses=openapi.answers(LeaseAnswer, EXAMPLES["lease_answer"], 404, *openapi.WRITES),
    openapi_extra=openapi.request_body(LeasePatchBody, EXAMPLES["lease_patch"], batch=False),
)
def patch_lease(
    service: TheService, caller: TheCaller, lease: LeasePath, body: TheBody
) -> Response:
    """Extend or shorten a lease that runs.

    It ends by the closing of its host's window at the latest.
    """
    ttl_s = decode_object(body, LeasePatchBody).ttl_s
    check_ttl(caller, ttl_s, service.lease_ttl)
    page_id, token = read_lease(lease)
    with service.store.begin() as tx:
        now = tx.now()
        expires_at = lease_end(tx, page_id, now + timedelta(seconds=ttl_s), now)
        if not tx.extend_lease(page_id, token, now, expires_at):
            raise LeaseNotHeld
    return answer(LeaseAnswer(lease=lease, page_id=page_id, expires_at=expires_at))


@router.delete(
    "/leases",
    responses=openapi.answers(ReturnedLeases, EXAMPLES["returned_leases"], 403, 422),
)
def delete_leases(
    service: TheService,
    caller: TheCaller,
    actor: TheActor,
    worker: Annotated[
        str,
        Query(
            pattern=WORKER,
            description="Name of the worker, as in POST /leases",
            examples=["crawler-1"],
        ),
    ],
    dry_run: Annotated[bool, Query(description="Count the leases, and change nothing")] = False,
) -> Response:
    """Return all running leases of a worker that is gone.

    Their pages are due at once the first time. A limited key ends the leases on pages within its
    limits. The worker must not run: if it still crawls, two workers may fetch a page at once.
    """

    def may_name(url: str) -> bool:
        return caller.boundary is None or caller.boundary.allows_text(url)

    def note(tx: Transaction, n_ended: int) -> None:
        write_audit(tx, actor, "leases.return", worker, after={"n_ended": n_ended})

    ended = return_leases_of(
        service.store, service.settler, worker, may_name, note, dry_run=dry_run
    )
    if not dry_run:
        service.telemetry.count_leases("returned", ended)
        service.lease_waiters.wake(ended)
    return answer(ReturnedLeases(worker=worker, dry_run=dry_run, ended=ended))


@router.delete("/leases/{lease}", **openapi.no_content(404, 422))
def delete_lease(service: TheService, lease: LeasePath) -> Response:
    """Return a crawl that was not done.

    The page is due at once the first time; after further leases in a row without a report it waits.
    Its host keeps its delay. A lease of today goes back to the budget.
    """
    page_id, token = read_lease(lease)
    with service.store.begin() as tx:
        returned = service.settler.release(tx, page_id, token, tx.now())
        if returned is None:
            raise LeaseNotHeld
    service.keeper.count_returned(returned.token, returned.leased_at, first=returned.first)
    service.telemetry.count_leases("returned", 1)
    service.lease_waiters.wake(1)
    return Response(status_code=204)
