"""What orchestrators and Prometheus ask."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service import __version__
from service.api import examples, openapi
from service.api.encode import answer
from service.api.schemas import Health
from service.api.service import TheService

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", operation_id="healthz", responses=openapi.tells(Health, examples.HEALTH))
async def healthz() -> Response:
    """Tell that the process is alive; asks nobody, so it answers when all threads are busy."""
    return answer(Health(status="ok", version=__version__))


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", operation_id="readyz", responses=openapi.tells(Health, examples.HEALTH, 503))
def readyz(service: TheService) -> Response:
    """Tell that the database answers and has the schema this version needs."""
    service.store.check()
    return answer(Health(status="ok", version=__version__))


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
)
def metrics(service: TheService) -> Response:
    """Give the metrics in Prometheus's format."""
    return Response(generate_latest(service.telemetry.registry), media_type=CONTENT_TYPE_LATEST)
