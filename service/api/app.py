"""The HTTP application."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from anyio import to_thread
from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline

from service import __version__
from service.api import openapi, problems
from service.api.compress import CompressMiddleware
from service.api.hot import HotPaths, HotRoute
from service.api.queries import known_query
from service.api.routes import (
    epochs,
    health,
    hosts,
    indexnow,
    leases,
    observations,
    pages,
    schedule,
    sitemaps,
    websub,
)
from service.api.service import MOST_THREADS, Service, authorised, keep_for_good, start_runner
from service.opening import joined
from service.telemetry import MetricsMiddleware

DESCRIPTION = """\
Recrawl decides when to crawl which page again. Register pages, report what your crawlers saw,
pass on change notices; poll the schedule. Rates are per day, intervals are days, instants are
RFC 3339 with a zone. Batches are JSON arrays or NDJSON, plain or compressed (gzip, zstd); each
item succeeds or fails alone; one that holds a key twice with different values is rejected.
Errors are RFC 9457 problems. A head that takes over 10 s, or a body that comes at under 1 KB/s, is
answered 408; a Transfer-Encoding other than chunked 501; one connection too many 503.
"""

GRACE_S, ABORTED_S = 2.5, 1.0
"""Time for threads to end what they are at, and then to notice that it failed, seconds."""

log = structlog.get_logger()

PARTS = (
    pages.router, observations.router, leases.router, sitemaps.router, websub.router,
    schedule.router, epochs.router, hosts.router,
)  # fmt: skip
"""What asks for a key."""


def served(service: Service) -> HotPaths:
    """Give what a server runs: the application, and its hot paths before it."""
    hot = (route for part in PARTS for route in part.routes if isinstance(route, HotRoute))
    return HotPaths(create_app(service), hot, service.telemetry)


def create_app(service: Service | None = None) -> FastAPI:
    """Build the application; without a service it can only describe itself."""
    app = FastAPIOffline(
        title="Recrawl", version=__version__, description=DESCRIPTION, lifespan=lifespan
    )
    app.state.service = service
    for part in PARTS:
        app.include_router(part, dependencies=[Depends(authorised), Depends(known_query)])
    app.include_router(indexnow.router)  # a site's own key may stand for an API key
    app.include_router(websub.callbacks)  # hubs have no key but the address they were told
    app.include_router(health.router)
    problems.install(app)
    openapi.install(app)
    app.add_middleware(CompressMiddleware)
    if service is not None:
        app.add_middleware(MetricsMiddleware, telemetry=service.telemetry)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the writers, and epochs where they are this process's part; close the store."""
    service: Service = app.state.service
    to_thread.current_default_thread_limiter().total_tokens = MOST_THREADS
    service.commits.start()
    service.leasing.start()
    runner, watching = start_runner(service), service.watch.start()
    keep_for_good()
    try:
        yield
    finally:
        if service.key_checks is not None:
            service.key_checks.stop()
        end(service, [watching] if runner is None else [watching, runner])
        service.store.close()


def end(service: Service, threads: list[threading.Thread]) -> None:
    """End the service's threads in order; those that take too long lose the database."""
    service.runner.stop()
    service.watch.stopped.set()
    threads = [*service.leasing.finish(), *service.commits.finish(), *threads]
    if joined(threads, GRACE_S):
        return
    service.store.abort()
    if not joined(threads, ABORTED_S):
        log.warning("threads did not end in time", names=[t.name for t in threads if t.is_alive()])
