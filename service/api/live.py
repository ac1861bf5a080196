"""A real server in a thread of this process, for the demo and for tests."""

import asyncio
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from service.api.app import served
from service.api.service import Service
from service.api.wire import Connection

START_TIMEOUT_S = 20.0
ABORT_AFTER_S = 4.0
"""Time for requests that wait for the database when the server ends, seconds; then it is 503."""
GRACEFUL_S = 6
"""Time for all requests when the server ends, seconds; threads follow, and 10 s end it all."""


def no_fault(record: logging.LogRecord) -> bool:
    """Leave out requests that were cut off because the server ends; uvicorn counts them."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class Announced(uvicorn.Server):
    """A server that says where it listens, and ends without those who only wait."""

    def __init__(
        self, config: uvicorn.Config, service: Service, say: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(no_fault)
        self.service = service
        self.say = say

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests that wait for a new epoch, then end as ever."""
        self.service.watch.release()
        impatience = threading.Timer(ABORT_AFTER_S, self.service.store.abort)
        impatience.daemon = True
        impatience.start()
        await super().shutdown(sockets)
        impatience.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening and say so."""
        await super().startup(sockets)
        open_connections = self.server_state.connections
        self.service.telemetry.watch(
            "recrawl_connections", "Open connections", lambda: len(open_connections)
        )
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.say(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


@contextmanager
def running(service: Service) -> Iterator[str]:
    """Serve on a free loopback port until the block is left; gives the base URL."""
    said: queue.Queue[str] = queue.Queue()
    config = uvicorn.Config(
        served(service), port=0, log_level="warning", access_log=False, http=Connection
    )
    server = Announced(config, service, said.put)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    try:
        yield said.get(timeout=START_TIMEOUT_S)
    finally:
        server.should_exit = True
        thread.join()
