"""A real server in a thread of this process, for the demo and for tests."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from service.api.app import create_app
from service.api.service import Service

START_TIMEOUT_S = 20.0


class _Announced(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening and say so."""
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def running(service: Service) -> Iterator[str]:
    """Serve on a free loopback port until the block is left; gives the base URL."""
    config = uvicorn.Config(create_app(service), port=0, log_level="warning", access_log=False)
    server = _Announced(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="server", daemon=True)
        thread.start()
        if not server.listening.wait(START_TIMEOUT_S):
            raise RuntimeError("the server did not start")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
