"""Health and metrics, answered on the event loop even while the database is away."""

from contextlib import suppress
from functools import partial

import structlog
from fastapi import APIRouter, Request, Response
from msgspec import UNSET
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from service import __version__
from service.api import openapi
from service.api.assembly import WITHIN_S, TheMonitored
from service.api.encodings import best
from service.api.examples import EXAMPLES
from service.api.openapi import Health
from service.api.responses import problems
from service.api.responses.encode import answer
from service.api.route import DirectRoute
from service.model.errors import RecrawlError, StoreUnavailable
from service.runtime.metrics import Encoder

router = APIRouter(tags=["health"], route_class=DirectRoute)
log = structlog.get_logger()


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", responses=openapi.open_answers(Health, EXAMPLES["health"]))
async def healthz() -> Response:
    """Check that the process is alive.

    This asks neither the database nor a thread, so a busy service answers too.
    """
    return answer(Health(status="ok", version=__version__))


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=openapi.open_answers(Health, EXAMPLES["health"], 503))
async def readyz(service: TheMonitored) -> Response:
    """Check that the database answers, has the right schema and takes writes.

    The answer comes within 2 s. `check` of a problem names the failure: `connection`, `schema` or
    `writes`. A full disk, a read-only database and a locked table fail `writes`. A service over
    several databases is ready while the coordinator is, and `away` names the others that are not.
    """
    try:
        away = await service.readiness.run(service.store.check_ready)
    except TimeoutError:
        sentence = f"the database did not answer within {WITHIN_S:g} s; try again"
        return not_ready(StoreUnavailable(sentence, check="connection"))
    except RecrawlError as error:
        return not_ready(error)
    incarnation = service.incarnation() or UNSET
    if away:
        log.warning("databases are away", away=list(away))
        health = Health(
            status="degraded", version=__version__, away=list(away), incarnation=incarnation
        )
        return answer(health)
    return answer(Health(status="ok", version=__version__, incarnation=incarnation))


def not_ready(error: RecrawlError) -> Response:
    """Return a 503 for each condition: a full database is not ready either."""
    log.warning("not ready", error=type(error).__name__, detail=error.detail, **error.extra)
    return problems.problem(503, type(error).__name__, error.detail, **error.extra)


TEXT, OPENMETRICS = "text/plain", "application/openmetrics-text"
FORMATS: dict[str, tuple[Encoder, str]] = {
    # Prometheus before 3.0, and other scrapers, refuse the version 1.0.0 of the text
    TEXT: (generate_latest, f"{TEXT}; version=0.0.4; charset=utf-8"),
    OPENMETRICS: (openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST),
}
"""Formats of metrics, each with its content type."""


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text",
            "content": {kind: {"schema": {"type": "string"}} for kind in FORMATS},
        },
        **openapi.problems_of(*openapi.EVERYWHERE),
    },
)
async def metrics(request: Request, service: TheMonitored) -> Response:
    """Read the metrics in Prometheus's format, or in OpenMetrics.

    The header Accept chooses; the text of version 0.0.4 is the default.
    Callers on other machines need a key, unless `RECRAWL_PUBLIC` names `metrics`. The answer comes
    within 2 s. While the database does not answer, `recrawl_up` is 0 and the metrics from the
    database are those of its last answer.
    """
    accepted = ", ".join(request.headers.getlist("accept"))
    encode, content_type = FORMATS[best(accepted, tuple(FORMATS)) or TEXT]
    with suppress(TimeoutError):
        await service.counting.run(service.monitor.count)
    try:
        text = await service.scraping.run(partial(service.monitor.scrape, encode))
    except TimeoutError:
        text = service.monitor.scrape_process(encode)
    return Response(text, headers={"Content-Type": content_type, "Vary": "Accept"})
