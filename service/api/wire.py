"""HTTP/1.1 as uvicorn speaks it, with an end to what stands before a body, and whole answers."""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 262_144
"""A request line with its headers, or what follows a body, has about as many bytes at the most."""


CONNECT = b"CONNECT"

STALLED_S = 300.0
"""Who does not take one byte of an answer for so long has gone."""


class Connection(HttpToolsProtocol):
    """A connection that sends answers whole, and is closed with 400 when a head goes on and on.

    The parser keeps what it has read of a line until the line ends, so without a limit any caller
    could fill the memory before a key is asked for. A block of an answer is kept until it is read;
    so a connection whose other end reads nothing is given up.
    """

    ignoring = False
    """Whether what was read last is a head that asks for another protocol."""

    n_unread = 0
    """Bytes since a head, a part of a body or a request last came to its end."""

    stalled: asyncio.TimerHandle | None = None
    """While an answer waits to be read: when to see whether it is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; what is written goes through `Joining`."""
        self.parser = Staying(self)  # type: ignore[assignment]
        super().connection_made(transport)
        self.transport = Joining(transport, self.loop)  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Read on, unless nothing has come of too much."""
        self.n_unread += len(data)
        super().data_received(data)
        if self.n_unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has over {MAX_HEAD_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Begin to count anew."""
        self.n_unread = 0
        self.ignoring = self.parser.should_upgrade() and self.parser.get_method() != CONNECT
        if not self.ignoring:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Begin to count anew."""
        self.n_unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Begin to count anew."""
        self.n_unread = 0
        if not self.ignoring:
            super().on_message_complete()

    def plain_head(self) -> bytes:
        """Give the head that was read without its wish for another protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def pause_writing(self) -> None:
        """Let the other end read first."""
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        """Go on."""
        self._look_no_more()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._look_no_more()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        left = self.transport.get_write_buffer_size()
        self.stalled = self.loop.call_later(STALLED_S, self._look, left)

    def _look(self, left: int) -> None:
        if self.transport.get_write_buffer_size() < left:
            self._look_later()
        else:
            self.transport.abort()

    def _look_no_more(self) -> None:
        if self.stalled is not None:
            self.stalled.cancel()


class Staying:
    """A parser for which requests that would rather speak another protocol are like any others.

    A server may ignore `Upgrade` (RFC 9110, section 7.8). The parser would take the head for the
    whole of such a request and leave the body unread, though clients that would like HTTP/2 send
    the header with every request.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.parser = self._new()

    def _new(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self.connection)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return parser

    def __getattr__(self, name: str) -> Any:
        """Be the parser in all else."""
        return getattr(self.parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse on; raises what the parser does."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self.connection.ignoring:
                raise
            head = self.connection.plain_head()
            self.parser = self._new()
            self.parser.feed_data(head)
            self.feed_data(data[upgrade.args[0] :])


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
