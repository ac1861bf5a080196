"""The HTTP application."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from anyio import to_thread
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline

from service import __version__
from service.api import cross_origin, document
from service.api.admission import Documents
from service.api.assembly import MAX_THREADS, Service, keep_for_good, start_runner
from service.api.encodings import CompressMiddleware
from service.api.prefix import PrefixMiddleware
from service.api.responses import problems
from service.api.route import DirectMiddleware, DirectRoute
from service.api.routes import (
    access,
    bulk,
    changes,
    epochs,
    freshness,
    groups,
    health,
    history,
    hosts,
    indexnow,
    leases,
    listing,
    needs,
    observations,
    orders,
    pages,
    plan,
    savings,
    schedule,
    sitemaps,
    status,
    url_groups,
    webhooks,
    websub,
    websub_callbacks,
)
from service.runtime.bootstrap import joined
from service.runtime.requests import RequestMiddleware

DESCRIPTION = """\
Recrawl decides when to crawl which page again. Register pages, take crawls under leases, report
their results, pass on pings, and read the schedule.

- Rates are per day, intervals are days. A name that ends in `_s` is in seconds. Instants are RFC
  3339 with a zone.
- A batch is a JSON array or NDJSON, plain or compressed (gzip, zstd). Each item succeeds or fails
  alone. An item that holds a key twice with different values is rejected.
- A list returns `next_cursor`, and the same URL in the header `Link` (rel=next). Send it as
  `cursor` for the next part; null is the end. Cursors are opaque.
- Errors are RFC 9457 problems. A Transfer-Encoding other than chunked is answered 501, and one
  connection too many 503.
- A path may end in a slash. Each answer has an `X-Request-ID`: that of the request, or a new one.
"""

GRACE_S, ABORTED_S = 2.5, 1.0
"""Maximum time for threads to finish, and to fail once the store is closed, seconds."""

log = structlog.get_logger()

ROUTERS = (
    pages.router,
    listing.router,
    bulk.router,
    url_groups.router,
    freshness.router,
    observations.router,
    leases.router,
    sitemaps.router,
    websub.router,
    schedule.router,
    changes.router,
    webhooks.router,
    epochs.router,
    history.router,
    savings.router,
    status.router,
    needs.router,
    plan.router,
    orders.router,
    hosts.router,
    groups.router,
    access.router,
    indexnow.router,
    websub_callbacks.router,
    health.router,
)
"""Routers in the order of the OpenAPI document."""


NO_PAGE = ""
"""Path of the page to which an OAuth2 provider redirects: callers send keys, so there is none."""


def create_app(service: Service | None = None) -> FastAPI:
    """Return the application; without a service it only describes itself."""
    app = FastAPIOffline(
        title="Recrawl",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # DirectMiddleware accepts both spellings of a path
        telemetry={"tracing": False, "metrics": False, "logs": False},  # a fifth of a 304's time
        swagger_ui_oauth2_redirect_url=NO_PAGE,
    )
    app.router.routes = [route for route in app.routes if getattr(route, "path", None) != NO_PAGE]
    app.state.service = service
    # `include_router` would wrap each route in FastAPI's layers again
    routes = [route for router in ROUTERS for route in router.routes]
    app.router.routes[:0] = routes
    problems.install(app)
    document.install(app)
    direct = [route for route in routes if isinstance(route, DirectRoute)]
    for page in app.routes:
        if not isinstance(page, DirectRoute):
            guarded: Any = page
            guarded.app = Documents(guarded.app)
    app.add_middleware(DirectMiddleware, routes=direct)
    app.add_middleware(CompressMiddleware)
    if service is not None:
        app.add_middleware(
            RequestMiddleware,
            telemetry=service.telemetry,
            slow_s=service.slow_request_s,
            log_all=service.log_requests,
        )
        if service.cors_origins:
            app.add_middleware(
                CORSMiddleware,
                allow_origins=service.cors_origins,
                allow_methods=cross_origin.METHODS,
                allow_headers=cross_origin.SENT,
                expose_headers=cross_origin.SHOWN,
            )
        if service.tracing is not None:
            from service.api.tracing import trace

            trace(app, direct, service.tracing)
        if service.root_path:
            app.add_middleware(PrefixMiddleware, root_path=service.root_path)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Run the writers, and epochs if they run in this process; then close the store.

    Yield the state that each request has.
    """
    service: Service = app.state.service
    to_thread.current_default_thread_limiter().total_tokens = MAX_THREADS
    for batcher in service.batchers:
        batcher.start()
    runners = start_runner(service)
    followers = [service.watch.start(), service.feed.start(), *service.gate.start()]
    followers += service.telemetry.start()
    keep_for_good()
    try:
        yield {cross_origin.ORIGINS: service.cors_origins}
    finally:
        if service.key_checks is not None:
            service.key_checks.stop()
        end(service, [*followers, *runners])
        service.keeper.close()
        service.store.close()
        if service.tracing is not None:
            service.tracing.stop()


def end(service: Service, threads: list[threading.Thread]) -> None:
    """End the threads in order; abort the store when they take too long."""
    service.runner.stop()
    service.courier.stop()
    service.archivist.stop()
    service.renewer.stop()
    service.watch.stopped.set()
    service.feed.stopped.set()
    service.gate.stop()
    service.telemetry.stopped.set()
    threads = [*service.asked.writing, *threads]
    for batcher in service.batchers:
        threads = [*batcher.finish(), *threads]
    if joined(threads, GRACE_S):
        return
    service.store.abort()
    if not joined(threads, ABORTED_S):
        log.warning("threads did not end in time", names=[t.name for t in threads if t.is_alive()])
