"""Hosts and groups of hosts: how they want to be crawled, and how they are."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from msgspec import UNSET, structs

from service.api import examples, openapi
from service.api.bodies import decode_object
from service.api.encode import answer
from service.api.host_schemas import (
    GROUP_PATTERN,
    MOST_MEMBERS,
    FeedAnswer,
    GroupAnswer,
    GroupBody,
    HostAnswer,
    HostBody,
    HostItem,
    HostsAnswer,
    LaneAnswer,
)
from service.api.service import Service, TheBody, TheService
from service.arrays import EPOCH
from service.constraints import CONSTRAINED
from service.domain import Host, Lane
from service.errors import InvalidField
from service.hosts import feed_of, in_force
from service.storage import HostTransaction
from service.urls import normalise_host

router = APIRouter(tags=["hosts"])

HostPath = Annotated[str, Path(max_length=2_000, description="A host name")]
GroupPath = Annotated[str, Path(pattern=GROUP_PATTERN, description="A name of your own")]
EARLIEST, LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
SETTINGS = ("min_delay_s", "robots_delay_s", "max_concurrency", "max_crawl_rate")


@router.get(
    "/hosts",
    operation_id="list_hosts",
    responses=openapi.gives(HostsAnswer, examples.HOSTS_ANSWER, 422),
)
def list_hosts(
    service: TheService,
    cursor: Annotated[
        str | None, Query(pattern=r"^[0-9]{1,18}$", description="`next_cursor` of the last part")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """List hosts in the order they came."""
    with service.store.begin(write=False) as tx:
        listed = tx.hosts(int(cursor or 0), limit)
    next_cursor = str(listed[-1].host_id) if len(listed) == limit else None
    items = [HostItem(**_host(service, host)) for host in listed]
    return answer(HostsAnswer(items=items, next_cursor=next_cursor))


@router.get(
    "/hosts/{host}",
    operation_id="get_host",
    responses=openapi.gives(HostAnswer, examples.HOST_ANSWER, 404, 422),
)
def get_host(service: TheService, host: HostPath) -> Response:
    """Show how a host is crawled: settings, politeness in force, state, rates and feed."""
    with service.store.begin(write=False) as tx:
        return _answer_host(service, tx, normalise_host(host))


@router.put(
    "/hosts/{host}",
    operation_id="put_host",
    responses=openapi.gives(HostAnswer, examples.HOST_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.takes(HostBody, examples.HOST, batch=False),
)
def put_host(service: TheService, host: HostPath, body: TheBody) -> Response:
    """Set how a host is crawled, before or after its first page; fields left out are set back.

    Only `blocked_until` stays as it is unless it is sent. A host in a group is crawled by the
    delay and concurrency of its group, and blocking one blocks all that share its server.
    """
    given = decode_object(body, HostBody)
    return _change_host(service, host, structs.asdict(given), whole=True)


@router.patch(
    "/hosts/{host}",
    operation_id="patch_host",
    responses=openapi.gives(HostAnswer, examples.HOST_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.takes(HostBody, examples.HOST_PATCH, batch=False),
)
def patch_host(service: TheService, host: HostPath, body: TheBody) -> Response:
    """Change how a host is crawled, before or after its first page; fields left out stay."""
    given = decode_object(body, HostBody)
    return _change_host(service, host, structs.asdict(given), whole=False)


@router.get(
    "/groups/{group}",
    operation_id="get_group",
    responses=openapi.gives(GroupAnswer, examples.GROUP_ANSWER, 404, 422),
)
def get_group(service: TheService, group: GroupPath) -> Response:
    """Show how hosts that share a server are crawled."""
    with service.store.begin(write=False) as tx:
        return _answer_group(service, tx, group)


@router.put(
    "/groups/{group}",
    operation_id="put_group",
    responses=openapi.gives(GroupAnswer, examples.GROUP_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.takes(GroupBody, examples.GROUP, batch=False),
)
def put_group(service: TheService, group: GroupPath, body: TheBody) -> Response:
    """Set how hosts that share a server are crawled, and which they are.

    Settings left out are set back; `members` and `blocked_until` stay unless they are sent.
    """
    given = structs.asdict(decode_object(body, GroupBody))
    told = given.pop("members")
    members = None if told is UNSET else [normalise_host(host, "members") for host in told]
    settings = _settings(service, given, whole=True)
    with service.store.begin() as tx:
        tx.change_group(group, settings, members, service.now(), service.desk.polite.delay_s)
        return _answer_group(service, tx, group)


def _change_host(service: Service, host: str, given: dict[str, Any], *, whole: bool) -> Response:
    name, settings = normalise_host(host), _settings(service, given, whole=whole)
    if not whole and not settings:
        known = ", ".join(HostBody.__struct_fields__)
        raise InvalidField("min_delay_s", f"nothing to change; send one of {known}")
    with service.store.begin() as tx:
        tx.change_host(name, settings, service.now(), service.desk.polite.delay_s)
        return _answer_host(service, tx, name)


def _settings(service: Service, given: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """Give what was said; of a whole, what was not said is none."""
    said = {name: value for name, value in given.items() if value is not UNSET}
    until = said.get("blocked_until")
    if until is not None and not EARLIEST <= until <= LATEST:
        raise InvalidField("blocked_until", "blocked_until lies before 1990 or after 9000")
    if said.get("max_crawl_rate") is not None and service.plan.objective != CONSTRAINED:
        raise InvalidField(
            "max_crawl_rate",
            f"the objective {service.plan.objective} keeps no caps of hosts; set "
            f"RECRAWL_OBJECTIVE={CONSTRAINED} or leave max_crawl_rate out",
        )
    unsaid = set(given) - {"blocked_until"} if whole else set()
    return dict.fromkeys(unsaid) | said


def _answer_host(service: Service, tx: HostTransaction, name: str) -> Response:
    host, now = tx.host(name), service.now()
    pages = tx.host_pages(host, now)
    counts = {n: getattr(pages, n) for n in ("n_pages", "n_queued", "n_leased", "crawl_rate")}
    feed = feed_of(pages, now)
    told = None
    if feed is not None:
        values = {name: getattr(feed, name) for name in feed.__dataclass_fields__}
        told = FeedAnswer(**values, false=1.0 - feed.real)
    return answer(HostAnswer(**_host(service, host), **counts, feed=told))


def _answer_group(service: Service, tx: HostTransaction, name: str) -> Response:
    group = tx.group(name)
    own = {n: getattr(group.lane, n) for n in SETTINGS if n != "max_crawl_rate"}
    return answer(
        GroupAnswer(
            group=name, max_crawl_rate=group.max_crawl_rate, lane=_lane(service, group.lane),
            n_members=group.n_members, members=tx.members(group.group_id, MOST_MEMBERS), **own,
        )
    )  # fmt: skip


def _host(service: Service, host: Host) -> dict[str, Any]:
    own = {name: getattr(host, name) for name in ("host", "group", *SETTINGS)}
    return {**own, "lane": _lane(service, host.lane)}


def _lane(service: Service, lane: Lane) -> LaneAnswer:
    polite = in_force(lane, service.leasing.polite)
    next_at = service.now() if lane.next_at == EPOCH else lane.next_at
    return LaneAnswer(
        delay_s=polite.delay_s, concurrency=polite.concurrency or None, n_failures=lane.n_failures,
        blocked_until=lane.blocked_until, ready_at=lane.ready_at, next_at=next_at,
    )  # fmt: skip
