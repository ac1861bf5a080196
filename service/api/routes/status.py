"""The state of the service, and what needs somebody."""

from fastapi import APIRouter, Response

from recrawl_client.wire.status import StatusAnswer
from service.api import openapi
from service.api.assembly import TheService
from service.api.examples import EXAMPLES
from service.api.responses.encode import answer
from service.api.responses.status import encode_state
from service.api.route import GUARDED, DirectRoute

router = APIRouter(tags=["status"], route_class=DirectRoute, dependencies=GUARDED)


@router.get("/status", responses=openapi.answers(StatusAnswer, EXAMPLES["status_answer"]))
def get_status(service: TheService) -> Response:
    """Show the state of the service, and what needs you.

    Up to 20,000 pages are counted at the request. Numbers of more pages are those of the last step
    of the history; `counted` names the way. `needs_you` is judged at the request. The health of
    the process is apart: `GET /readyz` has it.
    """
    return answer(encode_state(service.state.read(), service))
