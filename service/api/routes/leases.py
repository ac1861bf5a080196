"""Leases: crawls handed out to workers."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from msgspec import UnsetType
from starlette.requests import ClientDisconnect

from service import crawls
from service.api import examples, openapi
from service.api.bodies import decode_object, read_body
from service.api.decode import read_lease
from service.api.encode import answer, encode_leased
from service.api.hot import HotRoute
from service.api.schemas import LeaseAnswer, LeaseBody, LeasePatchBody, LeasesAnswer
from service.api.service import TheBody, TheService, the_service
from service.api.stream import settled
from service.crawls import Ask
from service.errors import InvalidField, LeaseNotHeld
from service.leasing import Request as LeaseRequest
from service.storage.queue import Reach
from service.urls import normalise_host

router = APIRouter(tags=["leases"])

NOTHING_QUEUED_S = 60.0
"""When to come back where nothing is known to fall due."""
LONGEST_S = 3_600.0
LOOK_S = 1.0
"""A request that waits looks again at least so often: others may queue at any time."""
SOON_S = 0.02

LeasePath = Annotated[
    str, Path(pattern="^[1-9][0-9]{0,17}-[0-7]?[0-9a-f]{1,15}$", description="The token of a lease")
]


async def post_leases(request: Request) -> Response:
    """Take crawls that are due: those that a ping asked for, then the most overdue.

    Each is handed out under a lease, and to nobody else before that ends: report it with its
    `lease` through POST /observations, give it back with DELETE, or let it expire. Hosts are left
    alone for as long as their politeness says. Workers that each ask for a `shard` of so many
    `shards` always get the same hosts, and can keep their connections. `wait_s` waits for a first
    crawl; an answer without items tells when to come back, in Retry-After too.
    """
    service, loop = the_service(request), asyncio.get_running_loop()
    body = decode_object(await read_body(request), LeaseBody)
    if body.shard >= body.shards:
        detail = f"shard {body.shard} is not one of {body.shards}; they count from 0"
        raise InvalidField("shard", detail)
    hosts = tuple(sorted({normalise_host(host, "hosts") for host in body.hosts}))
    of = Reach(hosts, body.shard, body.shards)
    ttl = service.lease_ttl if isinstance(body.ttl_s, UnsetType) else timedelta(seconds=body.ttl_s)
    deadline = loop.time() + body.wait_s
    while True:
        asked = LeaseRequest(Ask(body.worker, body.count, ttl), of)
        served = await settled(service.leasing.submit(asked))
        if served.leased:
            items = [item for part in served.leased for item in encode_leased(part)]
            service.telemetry.count_leases("given", len(items))
            return answer(LeasesAnswer(items=items))
        ahead_s = _ahead(served.next_ready_at, service.now())
        left_s = deadline - loop.time()
        if left_s <= 0 or service.watch.released:
            wait_s = min(max(ahead_s, 1.0), LONGEST_S)
            told = {"Retry-After": str(-int(-wait_s // 1))}
            return answer(LeasesAnswer(items=[], retry_after_s=wait_s), headers=told)
        soon_s = SOON_S if ahead_s > 0 else LOOK_S  # what is ready has nothing for who asks
        await asyncio.sleep(min(left_s, LOOK_S, max(ahead_s, soon_s)))
        if await request.is_disconnected():
            raise ClientDisconnect  # and lease nothing to nobody


def _ahead(next_ready_at: datetime | None, now: datetime) -> float:
    return NOTHING_QUEUED_S if next_ready_at is None else (next_ready_at - now).total_seconds()


router.add_api_route(
    "/leases",
    post_leases,
    methods=["POST"],
    operation_id="post_leases",
    responses=openapi.gives(LeasesAnswer, examples.LEASES_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.takes(LeaseBody, examples.LEASE, batch=False),
    route_class_override=HotRoute,
)


@router.patch(
    "/leases/{lease}",
    operation_id="patch_lease",
    responses=openapi.gives(LeaseAnswer, examples.LEASE_ANSWER, 404, *openapi.WRITES),
    openapi_extra=openapi.takes(LeasePatchBody, examples.LEASE_PATCH, batch=False),
)
def patch_lease(service: TheService, lease: LeasePath, body: TheBody) -> Response:
    """Let a lease that runs end so many seconds from now."""
    ttl_s = decode_object(body, LeasePatchBody).ttl_s
    page_id, token = read_lease(lease)
    with service.store.begin() as tx:
        now = tx.now()
        expires_at = now + timedelta(seconds=ttl_s)
        if not tx.extend_lease(page_id, token, now, expires_at):
            raise LeaseNotHeld
    return answer(LeaseAnswer(lease=lease, page_id=page_id, expires_at=expires_at))


@router.delete(
    "/leases/{lease}",
    operation_id="delete_lease",
    status_code=204,
    responses=openapi.refuses(*openapi.EVERYWHERE, 404, 422),
)
def delete_lease(service: TheService, lease: LeasePath) -> Response:
    """Give a crawl back that was not done; the page is due as before, its host keeps its delay."""
    page_id, token = read_lease(lease)
    with service.store.begin() as tx:
        if not crawls.release(tx, page_id, token, service.desk, tx.now()):
            raise LeaseNotHeld
    service.telemetry.count_leases("given_back", 1)
    return Response(status_code=204)
