"""Plans of other bandwidths."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from recrawl_client.wire.plan import PlanAnswer
from service.api import openapi
from service.api.assembly import Service, TheService
from service.api.examples import EXAMPLES
from service.api.responses.encode import answer
from service.api.route import GUARDED, DirectRoute
from service.api.threads import in_thread
from service.epochs.bandwidth_plans import MOST_LISTED
from service.model.errors import Overloaded

router = APIRouter(tags=["epochs"], route_class=DirectRoute, dependencies=GUARDED)

MOST_BANDWIDTHS = 10
"""Maximum number of bandwidths of one request."""
WAIT_S = 20.0
"""Maximum time that a request waits for other plans, seconds."""
KEPT_S = 900.0
"""Time after a question for which the pages stay in memory, seconds."""

Bandwidth = Annotated[float, Field(ge=1e-9, le=1e15, allow_inf_nan=False)]


@router.get(
    "/plan",
    responses=openapi.answers(PlanAnswer, EXAMPLES["plan_answer"], 404, 422, 501, 503),
)
async def get_plan(
    service: TheService,
    bandwidth: Annotated[
        list[Bandwidth],
        Query(
            min_length=1,
            max_length=MOST_BANDWIDTHS,
            description="Crawls a day over all pages; repeat it for several plans",
            examples=[[2_000.0, 4_000.0]],
        ),
    ],
    limit: Annotated[
        int,
        Query(
            ge=0,
            le=MOST_LISTED,
            description="Maximum number of hosts, of tags and of starved pages of each plan",
        ),
    ] = 20,
) -> Response:
    """Show the plans of other bandwidths beside that in force.

    Each plan is what the next epoch would publish with its bandwidth, from the present evidence
    and the prior of the epoch in force. Nothing is published. The first plan after an epoch reads
    all pages and takes longer.
    """
    return answer(await read_plan(service, bandwidth, limit))


async def read_plan(service: Service, bandwidths: Sequence[float], limit: int) -> PlanAnswer:
    """Return the plans of some bandwidths, one request at a time.

    Raises
    ------
    Overloaded
        Other requests have been planning for `WAIT_S`.
    """
    try:
        async with asyncio.timeout(WAIT_S):
            await service.planning.acquire()
    except TimeoutError:
        raise Overloaded("other plans are being computed; send this again") from None
    try:
        return await in_thread(service.what_if.ask, bandwidths, limit)
    finally:
        service.planning.release()
        what_if = service.what_if
        asyncio.get_running_loop().call_later(KEPT_S, what_if.forget, what_if.n_questions)
