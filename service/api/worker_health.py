"""The HTTP server of a worker: its health and its metrics, on a port of its own."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from service.access.gate import Gate
from service.api.assembly import Monitored
from service.api.protocol import BoundedConnection
from service.api.responses import problems
from service.api.route import DirectMiddleware, DirectRoute
from service.api.routes import health
from service.api.server import address_of, no_fault
from service.runtime.bootstrap import Opened
from service.runtime.metrics import Telemetry
from service.runtime.requests import RequestMiddleware
from service.status.asked import LastAsked
from service.status.state import StateReader

MAX_CONNECTIONS = 64
"""Maximum number of connections; scrapers and probes need few."""
ENDS_WITHIN_S = 1
"""Maximum time for requests at the end of the worker, seconds."""


def worker_app(worker: Monitored, telemetry: Telemetry, slow_s: float) -> FastAPI:
    """Return an application with the routes of health and metrics, behind the keys of the API."""
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = worker
    direct = [route for route in health.router.routes if isinstance(route, DirectRoute)]
    app.router.routes[:0] = direct
    problems.install(app)
    app.add_middleware(DirectMiddleware, routes=direct)
    app.add_middleware(RequestMiddleware, telemetry=telemetry, slow_s=slow_s)
    return app


@contextmanager
def serving(base: Opened, gate: Gate, slow_s: float, sockets: list[socket.socket]) -> Iterator[str]:
    """Serve a worker on bound sockets, in a thread until the end of the block; yield the address.

    The thread is a daemon, and the block of the worker's loop ends without it.
    """
    store = base.store
    telemetry = Telemetry(store, store.clock, base.runner.interval, base.plan.estimator.name)
    state = StateReader(
        store,
        base.plan.estimator,
        base.runner.interval,
        lambda: base.budget.terms,
        LastAsked(store),
        delay_s=base.plan.host_delay_s,
    )
    telemetry.watch_needs(state.needs)
    worker = Monitored(store=store, gate=gate, monitor=telemetry)
    logging.getLogger("uvicorn.error").addFilter(no_fault)
    config = uvicorn.Config(
        worker_app(worker, telemetry, slow_s),
        access_log=False,
        log_level="warning",
        http=BoundedConnection,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=ENDS_WITHIN_S,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=(sockets,), name="metrics", daemon=True)
    gate.start()
    thread.start()
    try:
        yield address_of(sockets[0])
    finally:
        gate.stop()
        server.should_exit = True
        thread.join(2 * ENDS_WITHIN_S)
