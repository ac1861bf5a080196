"""The transport of a connection: it joins the head of an answer with the body."""

import asyncio
from typing import Any

STATUS = b"HTTP/"
"""Start of the head of an answer."""
HEAD_END = b"\r\n\r\n"


class JoiningTransport:
    """A transport that sends the head of an answer together with the first bytes of the body.

    uvicorn writes both apart, and uvloop would send two packets by two system calls. A head whose
    body is not there at the loop's next turn is sent alone. After the client has gone, bytes are
    dropped, because uvloop would raise.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self.loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, or keep a head until the next bytes or the loop's next turn."""
        if self.transport.is_closing():
            return
        if self._head:
            head, self._head = self._head, b""
            self.transport.writelines((head, data))
        elif data.startswith(STATUS) and data.endswith(HEAD_END):
            self._head = data
            self.loop.call_soon(self._flush)
        else:
            self.transport.write(data)

    def close(self) -> None:
        """Close the connection after all that was written."""
        self._flush()
        self.transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self.transport.is_closing():
            self.transport.write(head)
