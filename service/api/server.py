"""A server within the limit of open files, that announces its address and ends in order."""

import asyncio
import logging
import queue
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
import uvicorn

from service.api.app import create_app
from service.api.protocol import SPARE, BoundedConnection
from service.api.service import Service

MAX_CONNECTIONS = 16_384
"""Maximum number of connections, however many descriptors there are."""

KEPT = 64
"""Number of descriptors kept for the database and files, at most two thirds of those free."""

FEW = 1_024
"""Number of descriptors below which the log has a warning."""

USEFUL = MAX_CONNECTIONS + SPARE + KEPT + FEW
"""Number of descriptors above which a further one has no use."""

OPEN_FILES = Path("/dev/fd")

log = structlog.get_logger()


def raise_limit() -> int:
    """Raise the soft limit of open files as far as it is of use, and return it."""
    soft, hard = map(_finite, resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < min(hard, USEFUL):
        with suppress(ValueError, OSError):  # a system may allow less than the hard limit
            hard_as_set = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, USEFUL), hard_as_set))
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _finite(limit: int) -> int:
    return USEFUL if limit == resource.RLIM_INFINITY else limit


def max_connections() -> int:
    """Return how many connections a server may have, and warn where these are few."""
    limit = raise_limit()
    n = connections_within(limit, len([*OPEN_FILES.iterdir()]))
    if limit < FEW:
        log.warning("few file descriptors", limit=limit, connections=n, remedy="raise ulimit -n")
    return n


def connections_within(limit: int, n_open: int) -> int:
    """Return how many connections a limit of open files allows, at least one.

    >>> connections_within(limit=1_024, n_open=24)
    928
    >>> connections_within(limit=64, n_open=19)
    7
    """
    free = limit - n_open
    n = max(free - KEPT, free // 3) - SPARE
    return max(1, min(n, MAX_CONNECTIONS))


START_TIMEOUT_S = 20.0
ABORT_AFTER_S = 4.0
"""Time for requests that wait for the database when the server ends, seconds; then 503."""
GRACEFUL_S = 6
"""Time for all requests when the server ends, seconds; threads follow, within 10 s in all."""


def no_fault(record: logging.LogRecord) -> bool:
    """Return False for requests that the end of the server cut off; uvicorn counts them."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class GracefulServer(uvicorn.Server):
    """A server that announces its address, and at its end releases requests that wait."""

    def __init__(
        self, config: uvicorn.Config, service: Service, announce: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(no_fault)
        self.service = service
        self.announce = announce

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests that wait for a new epoch, then end."""
        self.service.watch.release()
        timer = threading.Timer(ABORT_AFTER_S, self.service.store.abort)
        timer.daemon = True
        timer.start()
        await super().shutdown(sockets)
        timer.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and announce the address."""
        await super().startup(sockets)
        open_connections = self.server_state.connections
        self.service.telemetry.watch(
            "recrawl_connections", "Open connections", lambda: len(open_connections)
        )
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


@contextmanager
def running(service: Service) -> Iterator[str]:
    """Serve on a free loopback port until the block ends; yield the base URL."""
    addresses: queue.Queue[str] = queue.Queue()
    config = uvicorn.Config(
        create_app(service), port=0, log_level="warning", access_log=False, http=BoundedConnection
    )
    server = GracefulServer(config, service, addresses.put)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    try:
        yield addresses.get(timeout=START_TIMEOUT_S)
    finally:
        server.should_exit = True
        thread.join()
