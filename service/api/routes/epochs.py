"""Epochs: asked for, listed, shown."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from recrawl_client.wire import schedule as wire
from recrawl_client.wire.schedule import EpochsAnswer
from service.api import examples, openapi
from service.api.responses.encode import answer, encode_epoch
from service.api.route import GUARDED, DirectRoute
from service.api.service import Service, TheService
from service.model.domain import Epoch
from service.model.errors import EpochNotFound
from service.runtime.requests import waiting

router = APIRouter(tags=["epochs"], route_class=DirectRoute, dependencies=GUARDED)


@router.get("/epochs", responses=openapi.answers(EpochsAnswer, examples.EPOCHS_ANSWER, 422))
def list_epochs(
    service: TheService,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next_before`")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
) -> Response:
    """List epochs, newest first, failed ones with their reason."""
    with service.store.begin(write=False) as tx:
        listed = tx.epochs(before, limit)
    service.watch.note(listed)
    next_before = listed[-1].epoch if len(listed) == limit else None
    return answer(EpochsAnswer(items=[encode_epoch(e) for e in listed], next_before=next_before))


@router.get(
    "/epochs/latest", responses=openapi.answers(wire.Epoch, examples.EPOCH_ANSWER, 404, 422)
)
def get_latest_epoch(service: TheService) -> Response:
    """Show the epoch in force, with the certificate of its optimality."""
    with service.store.begin(write=False) as tx:
        epoch = tx.epoch_in_force()
    if epoch is None:
        raise EpochNotFound("no epoch has been published yet; ask for one with POST /epochs")
    service.watch.note([epoch])
    return answer(encode_epoch(epoch))


@router.get(
    "/epochs/{epoch}", responses=openapi.answers(wire.Epoch, examples.EPOCH_ANSWER, 404, 422)
)
def get_epoch(service: TheService, epoch: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show one epoch, whatever became of it."""
    run = read_epoch(service, epoch)
    service.watch.note([run])
    return answer(encode_epoch(run))


@router.post(
    "/epochs",
    status_code=202,
    responses=openapi.answers(wire.Epoch, examples.REQUESTED, 422, 507, status=202),
)
async def post_epoch(
    request: Request,
    service: TheService,
    wait_s: Annotated[
        float, Query(ge=0, le=30, description="Seconds to wait until the epoch is in force")
    ] = 0.0,
) -> Response:
    """Ask for an epoch now; if one is already waiting to start, that one is meant."""
    epoch = await run_in_threadpool(request_epoch, service)
    if wait_s:
        with waiting(request.scope):
            await service.watch.newer(epoch.epoch - 1, wait_s)
        epoch = await run_in_threadpool(read_epoch, service, epoch.epoch)
    return answer(encode_epoch(epoch), 202, {"Location": f"/epochs/{epoch.epoch}"})


def request_epoch(service: Service) -> Epoch:
    """Return the epoch that is to start now, and wake the runner of this process."""
    with service.store.begin() as tx:
        epoch = tx.request_epoch(service.now())
    service.runner.wake()
    return epoch


def read_epoch(service: Service, number: int) -> Epoch:
    """Return one epoch as the database has it."""
    with service.store.begin(write=False) as tx:
        return tx.epoch(number)
