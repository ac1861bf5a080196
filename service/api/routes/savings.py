"""Savings: what the fleet gained against crawling every page equally often."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime

from recrawl_client.wire.savings import SavingsAnswer
from service.api import openapi
from service.api.assembly import Service, TheService
from service.api.examples import EXAMPLES
from service.api.responses.encode import answer
from service.api.responses.savings import encode_savings
from service.api.route import GUARDED, DirectRoute
from service.api.threads import in_thread
from service.history.savings import WINDOW, Savings
from service.model.errors import InvalidField, Overloaded

router = APIRouter(tags=["history"], route_class=DirectRoute, dependencies=GUARDED)

WAIT_S = 20.0
"""Maximum time that a request waits for others that read the log, seconds."""
SHORTEST = timedelta(hours=1)
LONGEST = timedelta(days=3_650)
"""Shortest and longest window."""


@router.get(
    "/savings", responses=openapi.answers(SavingsAnswer, EXAMPLES["savings_answer"], 422, 503)
)
async def get_savings(
    service: TheService,
    since: Annotated[
        AwareDatetime | None,
        Query(description="Start of the window, an RFC 3339 instant with a zone; default 90 days"),
    ] = None,
) -> Response:
    """Show what this fleet gained against crawling every page equally often.

    The fleet's crawls in the log are compared with uniform crawling of the same pages in the same
    time. Both spend the same amount, and keep the delays, windows and caps of hosts. The log shows
    between which crawls pages changed, and the estimated change rates fill in the rest. `missing`
    states what a log lacks that is too short. An answer is given again for ten minutes. A sample of
    20,000 pages is read where there are more.
    """
    return answer(encode_savings(await read(service, since)))


async def read(service: Service, since: datetime | None = None) -> Savings:
    """Return the savings since an instant, one request at a time.

    Raises
    ------
    InvalidField
        The window is shorter than an hour, or longer than ten years.
    Overloaded
        Other requests have read the log for `WAIT_S`.
    """
    now = service.now()
    since = now - WINDOW if since is None else since
    if not SHORTEST <= now - since <= LONGEST:
        raise InvalidField(
            "since", f"since is {since.isoformat()}; choose an instant an hour to ten years ago"
        )
    try:
        async with asyncio.timeout(WAIT_S):
            await service.comparing.acquire()
    except TimeoutError:
        raise Overloaded("other savings are being computed; send this again") from None
    try:
        return await in_thread(service.savings.ask, since)
    finally:
        service.comparing.release()
