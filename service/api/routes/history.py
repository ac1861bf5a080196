"""The history: what was achieved."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime

from recrawl_client.wire.history import HistoryAnswer
from service.api import openapi
from service.api.assembly import TheService
from service.api.cursors import CursorParameter, HistoryPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.responses.encode import answer_part
from service.api.responses.history import encode_row
from service.api.route import GUARDED, DirectRoute
from service.history.reading import read_rows
from service.model.arrays import LATEST, UNIX_ZERO
from service.model.history import ALL_HOSTS, STEP
from service.model.urls import normalise_host

router = APIRouter(tags=["history"], route_class=DirectRoute, dependencies=GUARDED)

STEP_S = int(STEP.total_seconds())
LONGEST_S = 30 * 86_400
"""Maximum length of a row, seconds."""
USUAL = timedelta(days=1)
"""Range without `since`."""

Moment = Annotated[AwareDatetime | None, Query(description="An RFC 3339 instant with a zone")]


@router.get(
    "/history",
    responses=openapi.answers(
        HistoryAnswer, EXAMPLES["history_answer"], 404, 422, headers=openapi.LINK
    ),
)
def get_history(
    request: Request,
    service: TheService,
    since: Moment = None,
    until: Moment = None,
    step_s: Annotated[
        int,
        Query(
            ge=STEP_S,
            le=LONGEST_S,
            multiple_of=STEP_S,
            description="Length of a row, seconds: a multiple of 600",
        ),
    ] = STEP_S,
    host: Annotated[
        str | None, Query(max_length=300, description="A host, such as example.com")
    ] = None,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("rows of a part")] = 200,
) -> Response:
    """Show what was achieved, oldest row first.

    Each row has the leases, crawls, changes and pings of ten minutes. It also has the expected
    freshness of all copies at its end, by last crawls and change rates in force, not by the plan.
    `calibration` compares predicted changes with crawls. Longer rows have sums, and the gauges of
    their last step. The range begins at `since`, at a multiple of `step_s`,
    by default a day before its end. `until` is the first instant after the range. A host has rows
    for the steps in which it was among the 1,000 busiest. The row that is not over is not
    `complete`.
    """
    step = timedelta(seconds=step_s)
    end = min(until or service.now() + timedelta(microseconds=1), LATEST)
    begin = max(since or max(end, UNIX_ZERO + 2 * USUAL) - USUAL, UNIX_ZERO)
    if cursor is not None:
        begin = max(begin, decode_cursor(cursor, HistoryPlace, "/history").moment)
    name = None if host is None else normalise_host(host)
    with service.store.begin(write=False) as tx:
        host_id = ALL_HOSTS if name is None else tx.host(name).host_id
        rows, following = read_rows(tx, host_id, begin, end, step, limit)
        unit_since = tx.pace_unit_since()
    place = None if following is None else HistoryPlace.of(following)
    unit = service.budget.unit
    items = [encode_row(row, unit, unit_since) for row in rows]
    return answer_part(request, HistoryAnswer, items, place, step_s=step_s, host=name, unit=unit)
