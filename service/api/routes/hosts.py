"""Hosts: their settings, their politeness in force and their state."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import to_builtins

from recrawl_client.wire.hosts import (
    FeedAnswer,
    HostAnswer,
    HostBody,
    HostLoad,
    HostOrder,
    HostsAnswer,
    ListedHost,
    OpenHoursAnswer,
)
from recrawl_client.wire.orders import PauseBody
from service.access.audit import write_audit
from service.access.roles import ADMIN
from service.api import openapi
from service.api.admission import TheActor, TheCaller
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import (
    CursorParameter,
    HostLoadsPlace,
    HostsPlace,
    ListPlace,
    decode_cursor,
    limit_of,
    refused,
)
from service.api.examples import EXAMPLES
from service.api.requests.host_settings import (
    ROBOTS,
    all_settings,
    check_hours,
    check_settings,
)
from service.api.requests.items import decode_changes, decode_object
from service.api.requests.key_limits import check_hosts
from service.api.requests.pauses import end_of
from service.api.responses.change_hours import encode_change_hours, own_hours
from service.api.responses.encode import answer, answer_part, shared
from service.api.responses.host_queues import host_queue_answers
from service.api.responses.incidents import incident_answer
from service.api.responses.open_hours import OPEN, open_hours_answer
from service.api.route import GUARDED, DirectRoute
from service.api.routes.orders import follow_hours_now, replan_hours
from service.batching.apart import look_again
from service.history.loads import LoadPlace, hosts_by_load
from service.ingest.doubts import end_incident
from service.leases.host_settings import (
    BLOCK,
    HOURS,
    PAUSE,
    change_host,
    delete_host,
    feed_of,
    host_settings,
    rules_of_host,
)
from service.model.access import Actor
from service.model.arrays import UNIX_ZERO
from service.model.domain import Host
from service.model.errors import BadCursor, HostNotFound
from service.model.host_loads import LOADS, LoadOrder, MeasuredLoads
from service.model.urls import normalise_host
from service.storage import Transaction
from service.storage.pages.listing import NameOrder

router = APIRouter(tags=["hosts"], route_class=DirectRoute, dependencies=GUARDED)

HostPath = Annotated[str, Path(max_length=2_000, description="Name of a host")]


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
        host_queues = host_queue_answers(tx, service, listed)
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


@router.get(
    "/hosts/{host}/open-hours",
    responses=openapi.answers(OpenHoursAnswer, EXAMPLES["open_hours"], 422),
)
def get_open_hours(service: TheService, caller: TheCaller, host: HostPath) -> Response:
    """Show when a host may be crawled.

    The host may have no page yet: then the windows and blackouts of all hosts hold for it.
    """
    name = normalise_host(host)
    check_hosts(caller, [name])
    with service.store.begin(write=False) as tx:
        try:
            rules = rules_of_host(tx.host(name), tx.calendars.of_all)
        except HostNotFound:
            rules = tx.calendars.of_all
    return answer(open_hours_answer(rules, service.now()) or OPEN)


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
    return _change_host(service, actor, host, all_settings(decode_object(body, HostBody)))


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


@router.post(
    "/hosts/{host}/pause",
    responses=openapi.answers(HostAnswer, EXAMPLES["host_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(PauseBody, EXAMPLES["pause"], batch=False),
)
def pause_host(service: TheService, actor: TheActor, host: HostPath, body: TheBody) -> Response:
    """Pause a host, and all hosts of its group, until an instant.

    The host may have no page yet. Leases that run may be reported; no report ends the pause. It is
    the field `blocked_until`, and apart from the pause that the site asks for, `paused_until`.
    """
    until = end_of(decode_object(body, PauseBody), service.now())
    return _change_host(service, actor, host, {BLOCK: until}, "host.pause")


@router.delete(
    "/hosts/{host}/pause",
    responses=openapi.answers(HostAnswer, EXAMPLES["host_answer"], 404, 422),
)
def resume_host(
    service: TheService,
    actor: TheActor,
    host: HostPath,
    site: Annotated[
        bool, Query(description="End the pause that the site asked for, too; it may be busy still")
    ] = False,
) -> Response:
    """End the operator's pause of a host, and of all hosts of its group."""
    name = normalise_host(host)
    with service.store.begin(write=False) as tx:
        tx.host(name)  # a name that is mistyped makes no host
    ends: dict[str, Any] = {BLOCK: None} | ({PAUSE: None} if site else {})
    return _change_host(service, actor, name, ends, "host.resume")


@router.delete(
    "/hosts/{host}/incident",
    responses=openapi.answers(HostAnswer, EXAMPLES["host_answer"], 404, 422),
)
def end_host_incident(service: TheService, actor: TheActor, host: HostPath) -> Response:
    """End the incident of a host, and the pause that the site asked for.

    Use it once the site shows its own pages again. The next crawl of each page counts. Pages that
    were found gone in the incident are crawled again. The same sign begins no incident for an hour.
    Without an incident nothing changes.
    """
    name = normalise_host(host)
    with service.store.begin() as tx:
        tx.hold_settings(name)
        before = tx.host(name)
        incident = incident_answer(before.incident, service.now())
        was_in_force, lost = end_incident(tx, before.host_id, service.now())
        if was_in_force:
            change_host(tx, name, {PAUSE: None}, service.now(), service.settler.polite)
            ended = {"incident": incident, PAUSE: before.host_queue.paused_until}
            write_audit(tx, actor, "host.end_incident", name, to_builtins(ended))
        shown = _answer_host(service, tx, name)
    look_again(service.store, service.settler, lost, service.now())
    return shown


def _change_host(
    service: Service, actor: Actor, host: str, settings: dict[str, Any], act: str = "host.change"
) -> Response:
    name = normalise_host(host)
    check_settings(service, settings)
    with service.store.begin() as tx:
        tx.hold_settings(name)
        before = host_settings(tx, name)
        if before is not None and settings.items() <= {(ROBOTS, before[ROBOTS])}:
            # crawlers report a delay each day, and it seldom changes
            return _answer_host(service, tx, name)
        change_host(tx, name, settings, service.now(), service.settler.polite)
        check_hours(rules_of_host(tx.host(name), tx.calendars.of_all), settings, service.now())
        after = host_settings(tx, name)
        write_audit(tx, actor, act, name, before, after)
        replan_hours(tx, before, after, service.now())
        shown = _answer_host(service, tx, name)
    if settings.keys() & {"group", *HOURS}:
        follow_hours_now(service)
    return shown


def _answer_host(service: Service, tx: Transaction, name: str) -> Response:
    host, now = tx.host(name), service.now()
    pages = tx.host_pages(host, now)
    feed = feed_of(pages, host.host_id, service.rules.of(tx).feeds, now)
    fields = {
        "host_queue": host_queue_answers(tx, service, [host])[0],
        "feed": feed and FeedAnswer(**shared(FeedAnswer, feed), false=1.0 - feed.real),
        "change_hours": encode_change_hours(tx.change_hours(np.array([host.host_id]))),
        "url_group_hours": own_hours(tx, host.host_id),
        "incident": incident_answer(host.incident, now),
        "open_hours": open_hours_answer(rules_of_host(host, tx.calendars.of_all), now),
    }
    return answer(HostAnswer(**{**shared(HostAnswer, host, pages), **fields}))
