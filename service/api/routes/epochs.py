"""Epochs: what each run of the scheduler did, and asking for one."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from recrawl_client.wire.schedule import Epoch, EpochsAnswer
from service.api.guards import GUARDED
from service.api.responses.encode import answer, encode_epoch
from service.api.route import DirectRoute
from service.api.schemas import examples, openapi
from service.api.service import TheService
from service.model.errors import EpochNotFound

router = APIRouter(tags=["epochs"], route_class=DirectRoute, dependencies=GUARDED)


@router.get(
    "/epochs",
    operation_id="list_epochs",
    responses=openapi.answers(EpochsAnswer, examples.EPOCHS_ANSWER, 422),
)
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
    "/epochs/latest",
    operation_id="get_latest_epoch",
    responses=openapi.answers(Epoch, examples.EPOCH_ANSWER, 404, 422),
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
    "/epochs/{epoch}",
    operation_id="get_epoch",
    responses=openapi.answers(Epoch, examples.EPOCH_ANSWER, 404, 422),
)
def get_epoch(service: TheService, epoch: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show one epoch, whatever became of it."""
    with service.store.begin(write=False) as tx:
        run = tx.epoch(epoch)
    service.watch.note([run])
    return answer(encode_epoch(run))


@router.post(
    "/epochs",
    operation_id="post_epoch",
    status_code=202,
    responses=openapi.answers(Epoch, examples.REQUESTED, 422, 507, status=202),
)
def post_epoch(service: TheService) -> Response:
    """Ask for an epoch now; if one is already waiting to start, that one is meant."""
    with service.store.begin() as tx:
        epoch = tx.request_epoch(service.now())
    service.runner.wake()
    return answer(encode_epoch(epoch), 202, {"Location": f"/epochs/{epoch.epoch}"})
