"""URL groups: the worth of their new pages, and rules of operators."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from recrawl_client.wire.url_groups import (
    MOST_GROUP,
    UrlGroupBody,
    UrlGroupItem,
    UrlGroupsAnswer,
)
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import TheBody, TheService
from service.api.cursors import CursorParameter, UrlGroupsPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.requests.items import decode_object
from service.api.responses.encode import answer, answer_part
from service.api.route import GUARDED, DirectRoute
from service.budget.admission import overrule
from service.budget.shown import ADMITTED, HELD, OPEN, STOPPED, UrlGroup, ladder_named, shown
from service.core import worth
from service.storage import Transaction

router = APIRouter(tags=["pages"], route_class=DirectRoute, dependencies=GUARDED)

RULES = {"admit": worth.ADMIT, "stop": worth.HOLD, None: worth.NO_RULE}
WORDS = {OPEN: "open", STOPPED: "stopped", ADMITTED: "admitted", HELD: "held"}


@router.get(
    "/url-groups",
    responses=openapi.answers(
        UrlGroupsAnswer, EXAMPLES["url_groups_answer"], 422, headers=openapi.LINK
    ),
)
def list_url_groups(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("URL groups of a part")] = 100,
    prefix: Annotated[
        str,
        Query(
            max_length=MOST_GROUP,
            pattern=r"^[^\x00]*$",
            description="First characters of the names",
        ),
    ] = "",
    stopped: Annotated[
        bool, Query(description="List only groups whose first crawls brought too little")
    ] = False,
) -> Response:
    """List URL groups: what their first crawls brought, and what waits.

    The order is that of the names. A new page belongs to its host, to its directories, and to the
    shape of its last segment.
    """
    after = "" if cursor is None else decode_cursor(cursor, UrlGroupsPlace, "/url-groups").after
    with service.store.begin(write=False) as tx:
        rows = tx.shown_levels(after, limit + 1, prefix, only_stopped=stopped)
        items = _items(tx, [row.level for row in rows[:limit]])
    place = UrlGroupsPlace(rows[limit - 1].name) if len(rows) > limit else None
    return answer_part(request, UrlGroupsAnswer, items, place)


@router.put(
    "/url-groups",
    responses=openapi.answers(UrlGroupItem, EXAMPLES["url_group_item"], *openapi.WRITES),
    openapi_extra=openapi.request_body(UrlGroupBody, EXAMPLES["url_group"], batch=False),
)
def put_url_group(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Admit or stop the new pages of a URL group.

    The rule holds for all groups below, and outlives verdicts; the nearest rule above a page
    decides. `stop` also holds the pages that may be crawled and were not; it changes nothing for
    pages that have been crawled. `null` ends the rule, so that what is learnt decides again.
    """
    wanted = decode_object(body, UrlGroupBody)
    with service.store.begin() as tx:
        names = ladder_named(tx, wanted.group)
        one = tx.of_host(names.names[0])
        level = names.levels[-1]
        before = [each.rule for each in one.levels_above(np.array([level])) if each.level == level]
        admitted = overrule(one, names, RULES[wanted.rule], service.now())
        service.settler.queue_pinged(one, admitted, service.now())
        words = {number: word for word, number in RULES.items()}
        write_audit(
            tx,
            actor,
            "url_group.change",
            names.names[-1],
            {"rule": words[before[0] if before else worth.NO_RULE]},
            {"rule": wanted.rule},
        )
        (item,) = _items(one, [level])
    return answer(item)


def _items(tx: Transaction, level: Sequence[int]) -> list[UrlGroupItem]:
    return [_item(group) for group in shown(tx, np.array(level, np.int64))]


def _item(group: UrlGroup) -> UrlGroupItem:
    return UrlGroupItem(
        group=group.level.name,
        state=WORDS[group.state],  # type: ignore[arg-type]
        share_new=group.share_new,
        n_first=group.level.n_first,
        n_new=group.level.n_new,
        n_waiting=group.n_waiting,
        n_in_flight=group.n_in_flight,
        since=group.level.since,
    )
