"""What lies between a connection and its socket: fewer system calls, pauses that do not count."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class ExcusingFlow(FlowControl):
    """Flow control that does not count time in which the server does not read."""

    def __init__(self, transport: asyncio.Transport, excuse: Callable[[], None]) -> None:
        super().__init__(transport)
        self.excuse = excuse

    def resume_reading(self) -> None:
        """Read on."""
        if self.read_paused:
            self.excuse()
            super().resume_reading()


class Joining:
    """A transport that sends two parts of an answer at once where the second follows the first.

    uvicorn writes the head of an answer, then its body: two system calls, each of which wakes the
    client. A part that nothing follows goes out on the event loop's next turn.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self.loop = loop
        self.held = b""

    def __getattr__(self, name: str) -> Any:
        """Be the transport in all else."""
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        """Send this with what is held, or hold it until the next part or the loop's next turn."""
        if self.held:
            head, self.held = self.held, b""
            if not self.transport.is_closing():  # uvloop raises where the other end has gone
                self.transport.writelines((head, data))
        elif data:
            self.held = data
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what is held."""
        if self.held and not self.transport.is_closing():
            self.transport.write(self.held)
        self.held = b""

    def close(self) -> None:
        """Send what is held, and end."""
        self.flush()
        self.transport.close()
