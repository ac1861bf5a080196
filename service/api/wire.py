"""HTTP/1.1 as uvicorn speaks it, with limits to what a client may hold, and whole answers."""

import asyncio
import heapq
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api import deadlines
from service.api.admission import only_health, transfer_fault
from service.api.deadlines import Arrival, Stage
from service.api.descriptors import SPARE
from service.api.problems import problem
from service.api.transport import ExcusingFlow, Joining

MAX_HEAD_BYTES = 262_144
"""A request line with its headers, or what follows a body, has about as many bytes at the most."""


CONNECT = b"CONNECT"
TRANSFER_ENCODING = b"transfer-encoding"

STALLED_S = 300.0
"""Who does not take one byte of an answer for so long has gone."""

SHED = 32
"""Part of the connections that are closed together to make room: one in this many."""


class Connection(HttpToolsProtocol):
    """A connection that sends answers whole, and that no client can hold without a request.

    The parser keeps what it has read of a line until the line ends, so without a limit any caller
    could fill the memory before a key is asked for. A head or body that does not come in time is
    answered 408. A block of an answer is kept until it is read; so a connection whose other end
    reads nothing is given up. Where all connections are taken, those that wait the longest for a
    request are closed.
    """

    ignoring = False
    """Whether what was read last is a head that asks for another protocol."""

    n_unread = 0
    """Bytes since a head, a part of a body or a request last came to its end."""

    stalled: asyncio.TimerHandle | None = None
    """While an answer waits to be read: when to see whether it is."""

    overdue = False
    """Whether the last check found a deadline missed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_connections = self.limit_concurrency
        self.limit_concurrency = None  # uvicorn would refuse in plain text, and health too

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; what is written goes through `Joining`."""
        self.parser = Staying(self)  # type: ignore[assignment]
        super().connection_made(transport)
        self.arrival = Arrival(self.loop.time())
        self.flow = ExcusingFlow(transport, self._excuse)
        self.transport = Joining(transport, self.loop)  # type: ignore[assignment]
        self.check = self.loop.call_later(deadlines.HEAD_S, self._check)
        if self.max_connections is not None and len(self.connections) > self.max_connections:
            self._make_room(self.max_connections)

    def data_received(self, data: bytes) -> None:
        """Read on, unless nothing has come of too much."""
        self.n_unread += len(data)
        self.arrival.receive(self.loop.time())
        super().data_received(data)
        if self.n_unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has over {MAX_HEAD_BYTES} bytes.")
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Begin to count anew."""
        self.n_unread = 0
        self.ignoring = self.parser.should_upgrade() and self.parser.get_method() != CONNECT
        if not self.ignoring:
            self.arrival.begin(Stage.BODY)
            codings = [value for name, value in self.headers if name == TRANSFER_ENCODING]
            if codings:
                fault = transfer_fault(codings, self.parser.get_http_version())
                self.app = fault or self.app
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Begin to count anew."""
        self.n_unread = 0
        self.arrival.progress(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Begin to count anew."""
        self.n_unread = 0
        if not self.ignoring:
            self.arrival.stage = Stage.NOTHING
            super().on_message_complete()

    def waits(self) -> bool:
        """Return whether no request of this connection is at work."""
        return self.cycle is None or self.cycle.response_complete

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self.refuse(400, "BadRequest", msg)

    def refuse(self, status: int, name: str, detail: str) -> None:
        """Close, after a problem or after the answer that is under way."""
        in_body, at_work = self.arrival.stage is Stage.BODY, not self.waits()
        if at_work and not in_body:
            self.flow.pause_reading()
            self.cycle.keep_alive = False
            return
        answered = in_body and (not at_work or self.pipeline or self.cycle.response_started)
        if not (answered or self.transport.is_closing()):
            response = problem(status, name, detail)
            headers = [*self.server_state.default_headers, *response.raw_headers]
            lines = [b"%s: %s\r\n" % header for header in headers]
            head = b"".join([STATUS_LINE[status], *lines, b"connection: close\r\n\r\n"])
            self.transport.write(head + bytes(response.body))
        self.transport.close()

    def _check(self) -> None:
        """Close the connection where a deadline is missed, or look again when it may be."""
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._delayed():
            self.arrival.excuse(now)
        left = self.arrival.left(now)
        if left <= 0 and self.overdue:
            self._refuse_slow()
            return
        self.overdue = left <= 0
        self.check = self.loop.call_later(left if left > 0 else deadlines.RECHECK_S, self._check)

    def _delayed(self) -> bool:
        """Return whether the client waits for the server: to be read, or to be answered."""
        if self.arrival.stage is Stage.HEAD:
            return not self.waits()
        held_back = not self.waits() and self.cycle.waiting_for_100_continue
        return self.flow.read_paused or held_back

    def _excuse(self) -> None:
        self.arrival.excuse(self.loop.time())

    def _refuse_slow(self) -> None:
        if self.arrival.stage is Stage.BODY:
            detail = (
                f"the body comes at less than {deadlines.BODY_RATE} bytes a second; send smaller "
                "bodies; to send lines again that were kept changes nothing"
            )
        elif self.n_unread or self.cycle:
            detail = f"the head was not complete in {deadlines.HEAD_S:g} s; send it at once"
        else:
            self.transport.close()
            return
        self.refuse(408, "RequestTimeout", detail)

    def _make_room(self, n_allowed: int) -> None:
        """Close those that wait the longest; without any, serve this one no more than health."""
        others = [c for c in self.connections if c is not self and isinstance(c, Connection)]
        waiting = [c for c in others if c.waits() and not c.transport.is_closing()]
        n_to_close = max(len(self.connections) - n_allowed, n_allowed // SHED)
        oldest = heapq.nsmallest(n_to_close, waiting, key=lambda c: c.arrival.deadline)
        for connection in oldest:
            connection.transport.close()
        n_left = len(self.connections) - len(oldest)
        if n_left > n_allowed + SPARE:
            self.refuse(503, "TooManyConnections", f"the server has {n_left} connections")
        elif n_left > n_allowed:
            self.app = only_health(self.app, n_allowed)

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
        self.check.cancel()
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
