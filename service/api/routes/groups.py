"""Groups of hosts: their members, their settings and their politeness in force."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from recrawl_client.wire.hosts import GROUP_PATTERN, MOST_MEMBERS, GroupAnswer, GroupBody
from recrawl_client.wire.listing import GroupItem, GroupsAnswer
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import CursorParameter, GroupsPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.requests.host_settings import all_settings, check_hours, check_settings
from service.api.requests.items import decode_changes, decode_object
from service.api.responses.encode import answer, answer_part, shared
from service.api.responses.host_queues import host_queue_answers
from service.api.responses.open_hours import open_hours_answer
from service.api.route import GUARDED, DirectRoute
from service.api.routes.orders import follow_hours_now, replan_hours
from service.leases.host_settings import (
    change_group,
    delete_group,
    group_settings,
    rules_of_group,
)
from service.model.access import Actor
from service.model.urls import normalise_host
from service.storage import Transaction

router = APIRouter(tags=["hosts"], route_class=DirectRoute, dependencies=GUARDED)

GroupPath = Annotated[
    str,
    Path(
        pattern=GROUP_PATTERN,
        description="Name of a group: 1 to 100 letters, digits and . _ : -",
    ),
]


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
        host_queues = host_queue_answers(tx, service, listed)
    place = GroupsPlace(listed[-1].group_id) if len(listed) == limit else None
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
    follow_hours_now(service)
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

    The group may be new. Settings left out go back to their defaults; `members` and `blocked_until`
    keep their values.
    """
    return _change_group(service, actor, group, all_settings(decode_object(body, GroupBody)))


@router.patch(
    "/groups/{group}",
    responses=openapi.answers(GroupAnswer, EXAMPLES["group_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(GroupBody, EXAMPLES["group_patch"], batch=False),
)
def patch_group(service: TheService, actor: TheActor, group: GroupPath, body: TheBody) -> Response:
    """Change how a group of hosts is crawled, and its members.

    The group may be new. Fields left out keep their values.
    """
    return _change_group(service, actor, group, decode_changes(body, GroupBody))


def _change_group(service: Service, actor: Actor, group: str, settings: dict[str, Any]) -> Response:
    names = settings.pop("members", None)
    members = None if names is None else [normalise_host(name, "members") for name in names]
    check_settings(service, settings)
    with service.store.begin() as tx:
        tx.hold_settings(group)
        before = group_settings(tx, group)
        change_group(tx, group, settings, members, service.now(), service.settler.polite)
        rules = rules_of_group(tx.group(group).host_queue, tx.calendars.of_all)
        check_hours(rules, settings, service.now())
        after = group_settings(tx, group)
        write_audit(tx, actor, "group.change", group, before, after)
        replan_hours(tx, before, after, service.now())
        shown = _answer_group(service, tx, group)
    follow_hours_now(service)
    return shown


def _answer_group(service: Service, tx: Transaction, name: str) -> Response:
    group = tx.group(name)
    fields = {
        "group": name,
        "host_queue": host_queue_answers(tx, service, [group])[0],
        "members": tx.members(group.group_id, MOST_MEMBERS),
        "open_hours": open_hours_answer(
            rules_of_group(group.host_queue, tx.calendars.of_all), service.now()
        ),
    }
    return answer(GroupAnswer(**{**shared(GroupAnswer, group, group.host_queue), **fields}))
