"""Hosts and groups of hosts: their settings, their politeness in force and their state."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Annotated, Any, cast

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response

from recrawl_client.wire.hosts import (
    GROUP_PATTERN,
    MOST_MEMBERS,
    FeedAnswer,
    GroupAnswer,
    GroupBody,
    HostAnswer,
    HostBody,
    HostLoad,
    HostOrder,
    HostQueueAnswer,
    HostsAnswer,
    ListedHost,
)
from recrawl_client.wire.listing import GroupItem, GroupsAnswer
from service.access.audit import write_audit
from service.access.roles import ADMIN
from service.api import openapi
from service.api.admission import TheActor, TheCaller
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import (
    CursorParameter,
    GroupsPlace,
    HostLoadsPlace,
    HostsPlace,
    ListPlace,
    decode_cursor,
    limit_of,
    refused,
)
from service.api.examples import EXAMPLES
from service.api.requests.bodies import decode_changes, decode_object, sent_fields
from service.api.requests.key_limits import check_hosts
from service.api.requests.rules import EARLIEST
from service.api.responses.change_hours import encode_change_hours
from service.api.responses.encode import answer, answer_part, shared
from service.api.responses.incidents import incident_answer
from service.api.route import GUARDED, DirectRoute
from service.core.waits import LONGEST_DELAY_S
from service.epochs.constraints import CONSTRAINED
from service.history.loads import LoadPlace, hosts_by_load
from service.leases.host_settings import (
    change_group,
    change_host,
    delete_group,
    delete_host,
    feed_of,
    group_settings,
    host_settings,
    in_force,
)
from service.model.access import Actor
from service.model.arrays import LATEST, UNIX_ZERO
from service.model.domain import Host, HostQueue
from service.model.errors import BadCursor, InvalidField
from service.model.host_loads import LOADS, LoadOrder, MeasuredLoads
from service.model.urls import normalise_host
from service.storage import Transaction
from service.storage.pages.listing import NameOrder

router = APIRouter(tags=["hosts"], route_class=DirectRoute, dependencies=GUARDED)

HostPath = Annotated[str, Path(max_length=2_000, description="Name of a host")]
ROBOTS = "robots_delay_s"
"""Setting that crawlers change, too."""

GroupPath = Annotated[
    str,
    Path(
        pattern=GROUP_PATTERN,
        description="Name of a group: 1 to 100 letters, digits and . _ : -",
    ),
]


@router.get(
    "/hosts",
    responses=openapi.answers(HostsAnswer, EXAMPLES["hosts_answer"], 422, headers=openapi.LINK),
)
def list_hosts(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("hosts of a part")] = 100,
    blocked: Annotated[
        bool,
        Query(description="List only hosts that are blocked now, by an operator or after trouble"),
    ] = False,
    sort: Annotated[
        HostOrder,
        Query(
            description="Order: `host_id` is that of registration, `host` that of names; "
            "`n_pages`, `n_overdue` and `asked_rate` are loads. A minus means descending"
        ),
    ] = "host_id",
) -> Response:
    """List hosts, all of them or the blocked ones.

    `sort` is the order. A part of the blocked hosts may have fewer items than `limit`, even none,
    and not be the last.

    Loads are measured every ten minutes, and after each epoch of few pages. A list in the order of
    a load keeps the measurement of its first part; a cursor is valid for an hour. Hosts that had no
    page at the measurement come last.
    """
    at = service.now() if blocked else None
    with service.store.begin(write=False) as tx:
        place: ListPlace | None
        if sort.removeprefix("-") in LOADS:
            by_load = cast("LoadOrder", sort)
            listed, place, measured = _by_load(tx, by_load, cursor, limit, at)
        else:
            by_name = cast("NameOrder", sort)
            after = None if cursor is None else _after(cursor, by_name)
            listed, following = tx.hosts_in_order(by_name, after, limit, at)
            place = None if following is None else HostsPlace(by_name, following)
            measured = tx.host_loads()
    host_queues = _host_queues(service, [host.host_queue for host in listed])
    own = zip(listed, host_queues, _loads(listed, measured), strict=True)
    now = service.now()
    items = [
        ListedHost(
            **{
                **shared(ListedHost, host),
                "host_queue": queue,
                "load": load,
                "incident": incident_answer(host.incident, now),
            }
        )
        for host, queue, load in own
    ]
    return answer_part(request, HostsAnswer, items, place)


def _by_load(
    tx: Transaction, sort: LoadOrder, cursor: str | None, limit: int, blocked_at: datetime | None
) -> tuple[list[Host], ListPlace | None, MeasuredLoads | None]:
    """Return the next hosts in the order of a load, the place behind them, and the loads."""
    if cursor is None:
        measured = tx.host_loads()
        place = LoadPlace()
    else:
        token = decode_cursor(cursor, HostLoadsPlace, "/hosts")
        if token.order != sort:
            raise refused(cursor, f"/hosts?sort={sort}")
        measured = tx.host_loads(UNIX_ZERO + timedelta(microseconds=token.measured_at))
        if measured is None and token.measured_at:
            raise BadCursor(
                "the order of this cursor was measured more than an hour ago; start again without "
                "cursor",
                field="cursor",
            )
        place = LoadPlace(token.row, token.after)
    load, down = sort.removeprefix("-"), sort.startswith("-")
    hosts, following = hosts_by_load(tx, measured, load, place, limit, blocked_at, down=down)
    if following is None:
        return hosts, None, measured
    at = 0 if measured is None else (measured.measured_at - UNIX_ZERO) // timedelta(microseconds=1)
    return hosts, HostLoadsPlace(sort, at, *following), measured


def _loads(hosts: Sequence[Host], measured: MeasuredLoads | None) -> list[HostLoad | None]:
    """Return the measured load of each host; None for a host that was not measured."""
    if measured is None:
        return [None] * len(hosts)
    rows = measured.loads.rows([host.host_id for host in hosts])
    return [
        None
        if row is None
        else HostLoad(**row, measured_at=measured.measured_at, sampled_share=measured.sampled_share)
        for row in rows
    ]


def _after(cursor: str, sort: NameOrder) -> int | str:
    """Return the host_id or name before a place; raise `BadCursor` for another order."""
    place = decode_cursor(cursor, HostsPlace, "/hosts")
    if place.order != sort or isinstance(place.after, str) != sort.endswith("host"):
        raise refused(cursor, f"/hosts?sort={sort}")
    return place.after


@router.get(
    "/hosts/{host}", responses=openapi.answers(HostAnswer, EXAMPLES["host_answer"], 404, 422)
)
def get_host(service: TheService, caller: TheCaller, host: HostPath) -> Response:
    """Show how a host is crawled.

    The answer has the settings, the politeness in force, the state, the rates, the pings and the
    hours at which the pages change.
    """
    name = normalise_host(host)
    check_hosts(caller, [name])
    with service.store.begin(write=False) as tx:
        return _answer_host(service, tx, name)


@router.put(
    "/hosts/{host}",
    responses=openapi.answers(HostAnswer, EXAMPLES["host_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(HostBody, EXAMPLES["host"], batch=False),
)
def put_host(service: TheService, actor: TheActor, host: HostPath, body: TheBody) -> Response:
    """Set how a host is crawled.

    The host may have no page yet. Fields left out go back to their defaults; only `blocked_until`
    and `false_304_at` keep their values. A host in a group follows the delay and the concurrency of
    its group. A pause of one host is a pause of all hosts of its group.
    """
    return _change_host(service, actor, host, _whole(decode_object(body, HostBody)))


@router.patch(
    "/hosts/{host}",
    responses=openapi.answers(HostAnswer, EXAMPLES["host_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(HostBody, EXAMPLES["host_patch"], batch=False),
)
def patch_host(
    service: TheService, caller: TheCaller, actor: TheActor, host: HostPath, body: TheBody
) -> Response:
    """Change how a host is crawled.

    The host may have no page yet. Fields left out keep their values. A key of role `crawl` may
    change `robots_delay_s` only, because crawlers read robots.txt.
    """
    changes = decode_changes(body, HostBody)
    if changes.keys() - {ROBOTS}:
        caller.check(ADMIN, "patch_host with other fields than robots_delay_s")
    return _change_host(service, actor, host, changes)


@router.delete("/hosts/{host}", **openapi.no_content(404, 409, 422))
def delete_host_by_name(service: TheService, actor: TheActor, host: HostPath) -> Response:
    """Delete a host that has no pages, with its settings.

    Delete the pages first: DELETE /pages?host=….
    """
    name = normalise_host(host)
    with service.store.begin() as tx:
        tx.hold_settings(name)
        before = host_settings(tx, name)
        delete_host(tx, name, service.now(), service.settler.polite)
        write_audit(tx, actor, "host.delete", name, before)
    return Response(status_code=204)


@router.get(
    "/groups",
    responses=openapi.answers(GroupsAnswer, EXAMPLES["groups_answer"], 422, headers=openapi.LINK),
)
def list_groups(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("groups of a part")] = 100,
) -> Response:
    """List groups of hosts in the order of their creation."""
    after = 0 if cursor is None else decode_cursor(cursor, GroupsPlace, "/groups").after
    with service.store.begin(write=False) as tx:
        listed = tx.groups(after, limit)
    place = GroupsPlace(listed[-1].group_id) if len(listed) == limit else None
    host_queues = _host_queues(service, [group.host_queue for group in listed])
    items = [
        GroupItem(**{**shared(GroupItem, group, group.host_queue), "host_queue": host_queue})
        for group, host_queue in zip(listed, host_queues, strict=True)
    ]
    return answer_part(request, GroupsAnswer, items, place)


@router.delete("/groups/{group}", **openapi.no_content(404, 422))
def delete_group_by_name(service: TheService, actor: TheActor, group: GroupPath) -> Response:
    """Delete a group of hosts.

    Its hosts stay, and are crawled by their own settings again.
    """
    with service.store.begin() as tx:
        tx.hold_settings(group)
        before = group_settings(tx, group)
        delete_group(tx, group, service.now(), service.settler.polite)
        write_audit(tx, actor, "group.delete", group, before)
    return Response(status_code=204)


@router.get(
    "/groups/{group}", responses=openapi.answers(GroupAnswer, EXAMPLES["group_answer"], 404, 422)
)
def get_group(service: TheService, group: GroupPath) -> Response:
    """Show how a group of hosts is crawled."""
    with service.store.begin(write=False) as tx:
        return _answer_group(service, tx, group)


@router.put(
    "/groups/{group}",
    responses=openapi.answers(GroupAnswer, EXAMPLES["group_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(GroupBody, EXAMPLES["group"], batch=False),
)
def put_group(service: TheService, actor: TheActor, group: GroupPath, body: TheBody) -> Response:
    """Set how a group of hosts is crawled, and its members.

    Settings left out go back to their defaults; `members` and `blocked_until` keep their values.
    """
    settings = _whole(decode_object(body, GroupBody))
    names = settings.pop("members", None)
    members = None if names is None else [normalise_host(name, "members") for name in names]
    _check(service, settings)
    with service.store.begin() as tx:
        tx.hold_settings(group)
        before = group_settings(tx, group)
        change_group(tx, group, settings, members, service.now(), service.settler.polite)
        write_audit(tx, actor, "group.change", group, before, group_settings(tx, group))
        return _answer_group(service, tx, group)


def _change_host(service: Service, actor: Actor, host: str, settings: dict[str, Any]) -> Response:
    name = normalise_host(host)
    _check(service, settings)
    with service.store.begin() as tx:
        tx.hold_settings(name)
        before = host_settings(tx, name)
        if before is not None and settings.items() <= {(ROBOTS, before[ROBOTS])}:
            # crawlers report a delay each day, and it seldom changes
            return _answer_host(service, tx, name)
        change_host(tx, name, settings, service.now(), service.settler.polite)
        write_audit(tx, actor, "host.change", name, before, host_settings(tx, name))
        return _answer_host(service, tx, name)


def _whole(body: HostBody | GroupBody) -> dict[str, Any]:
    """Return the settings of a PUT; those left out become None.

    A pause, the doubt about 304 answers, and members stay.
    """
    cleared = set(body.__struct_fields__) - {"blocked_until", "false_304_at", "members"}
    return dict.fromkeys(cleared) | sent_fields(body)


def _check(service: Service, settings: dict[str, Any]) -> None:
    """Raise `InvalidField` for a value out of range; cut a delay of robots.txt at a day."""
    for name in ("blocked_until", "false_304_at"):
        at = settings.get(name)
        if at is not None and not EARLIEST <= at <= LATEST:
            raise InvalidField(name, f"{name} lies before 1990 or after 9000; send another instant")
    if settings.get("max_crawl_rate") is not None and service.plan.objective != CONSTRAINED:
        raise InvalidField(
            "max_crawl_rate",
            f"the objective {service.plan.objective} keeps no caps of hosts; set "
            f"RECRAWL_OBJECTIVE={CONSTRAINED} or leave max_crawl_rate out",
        )
    if settings.get(ROBOTS) is not None:
        if not isfinite(settings[ROBOTS]):
            raise InvalidField(ROBOTS, f"{ROBOTS} is no finite number; send seconds, 0 or more")
        settings[ROBOTS] = min(settings[ROBOTS], LONGEST_DELAY_S)


def _answer_host(service: Service, tx: Transaction, name: str) -> Response:
    host, now = tx.host(name), service.now()
    pages = tx.host_pages(host, now)
    feed = feed_of(pages, now)
    fields = {
        "host_queue": _host_queues(service, [host.host_queue])[0],
        "feed": feed and FeedAnswer(**shared(FeedAnswer, feed), false=1.0 - feed.real),
        "change_hours": encode_change_hours(tx.change_hours(np.array([host.host_id]))),
        "incident": incident_answer(host.incident, now),
    }
    return answer(HostAnswer(**{**shared(HostAnswer, host, pages), **fields}))


def _answer_group(service: Service, tx: Transaction, name: str) -> Response:
    group = tx.group(name)
    fields = {
        "group": name,
        "host_queue": _host_queues(service, [group.host_queue])[0],
        "members": tx.members(group.group_id, MOST_MEMBERS),
    }
    return answer(GroupAnswer(**{**shared(GroupAnswer, group, group.host_queue), **fields}))


def _host_queues(service: Service, host_queues: Sequence[HostQueue]) -> list[HostQueueAnswer]:
    now = service.now()
    pairs = zip(host_queues, in_force(host_queues, service.settler.polite), strict=True)
    return [
        HostQueueAnswer(
            **{**shared(HostQueueAnswer, host_queue), "next_at": _next_at(host_queue, now)},
            delay_s=polite.delay_s,
            concurrency=polite.concurrency or None,
        )
        for host_queue, polite in pairs
    ]


def _next_at(host_queue: HostQueue, now: datetime) -> datetime | None:
    """Return the time of the next crawl; requested pages are queued a century early."""
    return now if host_queue.next_at and host_queue.next_at <= UNIX_ZERO else host_queue.next_at
