"""The epochs that published the schedules: request, list and show them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from recrawl_client.wire.schedule import Epoch, EpochsAnswer
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheService
from service.api.cursors import CursorParameter, EpochsPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.responses.encode import answer, answer_part, encode_epoch
from service.api.route import GUARDED, DirectRoute
from service.api.threads import in_thread
from service.api.waiting import reach
from service.history.reading import calibrations_of
from service.model import domain
from service.model.access import Actor
from service.model.errors import EpochNotFound

router = APIRouter(tags=["epochs"], route_class=DirectRoute, dependencies=GUARDED)


EpochPath = Annotated[int, Path(ge=1, le=2**63 - 1, description="Number of an epoch")]


@router.get(
    "/epochs",
    responses=openapi.answers(EpochsAnswer, EXAMPLES["epochs_answer"], 422, headers=openapi.LINK),
)
def list_epochs(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("epochs of a part")] = 50,
) -> Response:
    """List epochs, newest first.

    A failed epoch has a `reason`.
    """
    before = None if cursor is None else decode_cursor(cursor, EpochsPlace, "/epochs").before
    with service.store.begin(write=False) as tx:
        listed = tx.epochs(before, limit)
    service.watch.note(listed)
    place = EpochsPlace(listed[-1].epoch) if len(listed) == limit else None
    return answer_part(request, EpochsAnswer, list(map(encode_epoch, listed)), place)


@router.get("/epochs/latest", responses=openapi.answers(Epoch, EXAMPLES["epoch_answer"], 404, 422))
def get_latest_epoch(service: TheService) -> Response:
    """Show the epoch in force.

    Its residual and its gap show how far its schedule is from the optimum.
    """
    with service.store.begin(write=False) as tx:
        epoch = tx.epoch_in_force()
        compared = {} if epoch is None else calibrations_of(tx, epoch.epoch)
    if epoch is None:
        raise EpochNotFound("no epoch has been published yet; ask for one with POST /epochs")
    service.watch.note([epoch])
    return answer(encode_epoch(epoch, compared))


@router.get("/epochs/{epoch}", responses=openapi.answers(Epoch, EXAMPLES["epoch_answer"], 404, 422))
def get_epoch(service: TheService, epoch: EpochPath) -> Response:
    """Show one epoch, whatever its state."""
    with service.store.begin(write=False) as tx:
        run, compared = tx.epoch(epoch), calibrations_of(tx, epoch)
    service.watch.note([run])
    return answer(encode_epoch(run, compared))


@router.post(
    "/epochs",
    status_code=202,
    responses=openapi.answers(
        Epoch, EXAMPLES["requested"], 422, 507, status=202, headers=openapi.LOCATION
    ),
)
async def post_epoch(
    request: Request,
    service: TheService,
    actor: TheActor,
    wait_s: Annotated[
        float, Query(ge=0, le=30, description="Maximum wait until the epoch is in force, seconds")
    ] = 0.0,
) -> Response:
    """Request an epoch now.

    If an epoch already waits to start, the answer is that epoch.
    """
    epoch = await in_thread(request_epoch, service, actor)
    if wait_s:
        await reach(request.scope, service.watch, epoch.epoch, wait_s)
        epoch = await in_thread(read_epoch, service, epoch.epoch)
    return answer(encode_epoch(epoch), 202, {"Location": f"/epochs/{epoch.epoch}"})


def request_epoch(service: Service, actor: Actor) -> domain.Epoch:
    """Return the requested epoch, and wake the runner of this process."""
    with service.store.begin() as tx:
        epoch = tx.request_epoch(service.now())
        write_audit(tx, actor, "epoch.request", str(epoch.epoch))
    service.runner.wake()
    return epoch


def read_epoch(service: Service, number: int) -> domain.Epoch:
    """Return one epoch as the database has it."""
    with service.store.begin(write=False) as tx:
        return tx.epoch(number)
