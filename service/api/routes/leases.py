"""Leases: due crawls for workers."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import UnsetType
from starlette.requests import ClientDisconnect

from recrawl_client.wire.leases import LeaseAnswer, LeaseBody, Leased, LeasePatchBody
from recrawl_client.wire.listing import LeaseItem, LeasesAnswer
from service.api import examples, openapi
from service.api.cursors import (
    CursorParameter,
    LeasesPlace,
    decode_cursor,
    encode_cursor,
    next_link,
)
from service.api.requests.bodies import decode_object
from service.api.requests.decode import read_lease
from service.api.requests.stream import settled
from service.api.responses.encode import answer, encode_leased, shared
from service.api.route import GUARDED, DirectRoute
from service.api.service import TheBody, TheService
from service.batching.lease_requests import LeaseRequest
from service.leases.lease import WorkerRequest
from service.model.errors import InvalidField, LeaseNotHeld
from service.model.urls import normalise_host
from service.runtime.requests import waiting
from service.storage.queue import LeaseFilter

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

LeasePath = Annotated[
    str,
    Path(
        pattern="^[1-9][0-9]{0,17}-[0-7]?[0-9a-f]{1,15}$",
        description="Token of a lease, as POST /leases returned it",
    ),
]


@router.post(
    "/leases",
    responses=openapi.answers(
        Leased, examples.LEASES_ANSWER, *openapi.WRITES, headers=openapi.RETRY_AFTER
    ),
    openapi_extra=openapi.request_body(LeaseBody, examples.LEASE, batch=False),
)
async def post_leases(request: Request, service: TheService, body: TheBody) -> Response:
    """Take crawls that are due.

    Crawls that a ping requested come first, then the most overdue. Each crawl has a lease: until
    the lease ends, no other worker receives the crawl. Report the crawl with its `lease` through
    POST /observations, return it with DELETE, or let the lease expire. The service spaces the
    crawls of a host by its delay and concurrency. A worker that always sends the same `shard` and
    `shards` receives the same hosts, and can keep its connections. `wait_s` waits for a first
    crawl. An answer without items states when to ask again, in Retry-After too.
    """
    loop, wish = asyncio.get_running_loop(), decode_object(body, LeaseBody)
    if wish.shard >= wish.shards:
        detail = f"shard {wish.shard} is not one of {wish.shards}; they count from 0"
        raise InvalidField("shard", detail)
    hosts = tuple(sorted({normalise_host(host, "hosts") for host in wish.hosts}))
    of = LeaseFilter(hosts, wish.shard, wish.shards)
    ttl = service.lease_ttl if isinstance(wish.ttl_s, UnsetType) else timedelta(seconds=wish.ttl_s)
    deadline = loop.time() + wish.wait_s
    with service.lease_waiters.place() as freed:
        while True:
            lease_request = LeaseRequest(WorkerRequest(wish.worker, wish.count, ttl), of)
            served = await settled(service.lease_requests.submit(lease_request))
            if served.leased:
                items = [item for part in served.leased for item in encode_leased(part)]
                service.telemetry.count_leases("given", len(items))
                return answer(Leased(items=items))
            ahead_s = _ahead(served.next_ready_at, service.now())
            left_s = deadline - loop.time()
            if left_s <= 0 or service.watch.released:
                wait_s = min(max(ahead_s, 1.0), MAX_RETRY_S)
                retry_after = {"Retry-After": str(-int(-wait_s // 1))}
                return answer(Leased(items=[], retry_after_s=wait_s), headers=retry_after)
            pause_s = MIN_PAUSE_S if ahead_s > 0 else POLL_S  # ready crawls are not for this caller
            with waiting(request.scope):
                await service.lease_waiters.wait(freed, min(left_s, POLL_S, max(ahead_s, pause_s)))
            if await request.is_disconnected():
                raise ClientDisconnect


def _ahead(next_ready_at: datetime | None, now: datetime) -> float:
    return NOTHING_QUEUED_S if next_ready_at is None else (next_ready_at - now).total_seconds()


@router.get(
    "/leases",
    responses=openapi.answers(LeasesAnswer, examples.RUNNING_LEASES, 422, headers=openapi.LINK),
)
def list_leases(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[
        int, Query(ge=1, le=10_000, description="Maximum number of leases of a part")
    ] = 1_000,
) -> Response:
    """List the leases that run, by ascending page_id.

    The tokens of the leases are left out: only the worker that took a lease can end it.
    """
    after = 0 if cursor is None else decode_cursor(cursor, LeasesPlace, "/leases").after
    with service.store.begin(write=False) as tx:
        running, following = tx.running_leases(after, limit, tx.now())
    next_cursor = None if following is None else encode_cursor(LeasesPlace(following))
    items = [LeaseItem(**shared(LeaseItem, lease)) for lease in running]
    body = LeasesAnswer(items=items, next_cursor=next_cursor)
    return answer(body, headers=next_link(request, next_cursor))


@router.patch(
    "/leases/{lease}",
    responses=openapi.answers(LeaseAnswer, examples.LEASE_ANSWER, 404, *openapi.WRITES),
    openapi_extra=openapi.request_body(LeasePatchBody, examples.LEASE_PATCH, batch=False),
)
def patch_lease(service: TheService, lease: LeasePath, body: TheBody) -> Response:
    """Extend or shorten a lease that runs."""
    ttl_s = decode_object(body, LeasePatchBody).ttl_s
    page_id, token = read_lease(lease)
    with service.store.begin() as tx:
        now = tx.now()
        expires_at = now + timedelta(seconds=ttl_s)
        if not tx.extend_lease(page_id, token, now, expires_at):
            raise LeaseNotHeld
    return answer(LeaseAnswer(lease=lease, page_id=page_id, expires_at=expires_at))


@router.delete(
    "/leases/{lease}", status_code=204, responses=openapi.problems_of(*openapi.EVERYWHERE, 404, 422)
)
def delete_lease(service: TheService, lease: LeasePath) -> Response:
    """Return a crawl that was not done.

    The page is due as before; its host keeps its delay.
    """
    page_id, token = read_lease(lease)
    with service.store.begin() as tx:
        if not service.settler.release(tx, page_id, token, tx.now()):
            raise LeaseNotHeld
    service.telemetry.count_leases("given_back", 1)
    service.lease_waiters.wake(1)
    return Response(status_code=204)
