"""HTTP/1.1 by uvicorn, with limits on the time and memory that a client may use."""

import asyncio
import heapq
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api.cross_origin import ORIGINS, origins_of, readable
from service.api.responses.problems import problem
from service.api.transport import JoiningTransport
from service.runtime.requests import PLAIN_HEADERS

HEAD_S = 10.0
"""Maximum time for a head, from the opening of its connection or from its first byte, seconds."""

BODY_GRACE_S = 10.0
"""Time before the rate of a body counts, seconds."""

BODY_RATE = 1_000
"""Minimum rate of a body, bytes per second."""

MAX_PAUSE_S = 60.0
"""Maximum pause in a body, even of a body that was fast before, seconds."""

RECHECK_S = 1.0
"""Delay before a missed deadline counts, seconds, because a busy process reads bytes late."""


class Stage(Enum):
    """The part of a request that a connection reads."""

    HEAD = 1
    BODY = 2
    NOTHING = 3


class Arrival:
    """The part of a request that arrives now, and the deadline of that part.

    Instants are seconds of the event loop's clock. Every byte of a body moves its deadline by
    1 / BODY_RATE.

    >>> arrival = Arrival(now=0)
    >>> arrival.begin(Stage.BODY)
    >>> arrival.progress(20 * BODY_RATE)
    >>> arrival.left(now=5)
    25.0
    """

    __slots__ = ("deadline", "now", "stage")
    deadline: float
    now: float
    stage: Stage

    def __init__(self, now: float) -> None:
        self.now = now
        self.begin(Stage.HEAD)

    def receive(self, now: float) -> None:
        """Set the instant of the next bytes; a first byte begins a head."""
        self.now = now
        if self.stage is Stage.NOTHING:
            self.stage, self.deadline = Stage.HEAD, now + HEAD_S

    def begin(self, stage: Stage) -> None:
        """Start the deadline of a part."""
        self.stage = stage
        self.deadline = self.now + (BODY_GRACE_S if stage is Stage.BODY else HEAD_S)

    def progress(self, n_bytes: int) -> None:
        """Move the deadline of a body by the number of received bytes."""
        self.deadline = min(self.deadline + n_bytes / BODY_RATE, self.now + MAX_PAUSE_S)

    def excuse(self, now: float) -> None:
        """Start the deadline again, after a delay that the client did not cause."""
        before, self.now = self.deadline, now
        self.begin(self.stage)
        self.deadline = max(before, self.deadline)

    def left(self, now: float) -> float:
        """Return the seconds until the next check, zero or less where the deadline is missed."""
        return HEAD_S if self.stage is Stage.NOTHING else self.deadline - now


HEALTH = ("/healthz", "/readyz")
"""Paths that are served while there are too many connections."""

CHUNKED = b"chunked"


def transfer_fault(codings: Sequence[bytes], version: str) -> ASGIApp | None:
    """Return the refusal of Transfer-Encoding headers, None where the server reads such a body."""
    coding = b", ".join(codings)
    if version == "1.0":
        detail = "HTTP/1.0 has no Transfer-Encoding; send HTTP/1.1 or a Content-Length"
        return refusal(400, "BadRequest", detail)
    if coding.strip().lower() == CHUNKED:
        return None
    words = coding.decode("latin-1")[:40]
    detail = f"Transfer-Encoding {words!r} is not supported; send chunked, or a Content-Length"
    return refusal(501, "NotImplemented", f"{detail}; compress by Content-Encoding")


def refusal(status: int, name: str, detail: str) -> ASGIApp:
    """Return an application that answers each request with one problem and closes."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        response = problem(status, name, detail)
        response.headers["Connection"] = "close"
        response.raw_headers += PLAIN_HEADERS
        response.raw_headers += readable(origins_of(scope), scope["headers"])
        await response(scope, receive, send)

    return refuse


def only_health(app: ASGIApp, n_connections: int) -> ASGIApp:
    """Return the application of a connection that is reserved for probes of health."""
    full = refusal(
        503,
        "TooManyConnections",
        f"the server serves {n_connections} connections at a time; try again after Retry-After",
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["path"] in HEALTH else full)(scope, receive, send)

    return serve


MAX_HEAD_BYTES = 262_144
"""Maximum size of a request line with its headers, or of the trailers of a body, bytes."""

CONNECT = b"CONNECT"
TRANSFER_ENCODING = b"transfer-encoding"
AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
"""Scheme and authority of a target in absolute form."""

STALLED_S = 300.0
"""Maximum time in which a client reads nothing before its connection is aborted, seconds."""

SPARE = 8
"""Number of connections beyond the limit that are reserved for probes of health."""

SHED = 32
"""Divisor of the number of connections that are closed when all are in use."""


class ExcusingFlow(FlowControl):
    """Flow control that does not count time in which the server does not read."""

    def __init__(
        self, transport: asyncio.Transport, arrival: Arrival, clock: Callable[[], float]
    ) -> None:
        super().__init__(transport)
        self.arrival = arrival
        self.clock = clock

    @override
    def resume_reading(self) -> None:
        if self.read_paused:
            self.arrival.excuse(self.clock())
            super().resume_reading()


class BoundedConnection(HttpToolsProtocol):
    """A connection with limits on time and memory.

    The parser buffers a line until its end. Because of this, a limit on the head protects the
    memory before the key is checked. A late head or body is answered 408. A block of an answer
    stays in memory until the client reads the block, so a client that reads nothing is aborted.
    When all connections are in use, the server closes those that have been idle longest.
    """

    ignoring = False
    """True where the last head requests another protocol."""

    n_unread = 0
    """Number of bytes since the end of the last head, part of a body, or request."""

    stalled: asyncio.TimerHandle | None = None
    """Timer of the next check that the client reads a waiting answer."""

    overdue = False
    """True where the deadline was missed at the last check."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_connections = self.limit_concurrency
        self.limit_concurrency = None  # uvicorn would refuse in plain text, even health checks

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.parser = UpgradeIgnoringParser(self)  # type: ignore[assignment]
        super().connection_made(transport)
        self.arrival = Arrival(self.loop.time())
        self.flow = ExcusingFlow(transport, self.arrival, self.loop.time)
        self.transport = JoiningTransport(transport, self.loop)  # type: ignore[assignment]
        self.check = self.loop.call_later(HEAD_S, self._check)
        if self.max_connections is not None and len(self.connections) > self.max_connections:
            self._make_room(self.max_connections)

    @override
    def data_received(self, data: bytes) -> None:
        self.n_unread += len(data)
        self.arrival.receive(self.loop.time())
        super().data_received(data)
        if self.n_unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has over {MAX_HEAD_BYTES} bytes.")
            self.transport.close()

    @override
    def on_headers_complete(self) -> None:
        self.n_unread = 0
        self.ignoring = self.parser.should_upgrade() and self.parser.get_method() != CONNECT
        if not self.ignoring:
            codings = [value for name, value in self.headers if name == TRANSFER_ENCODING]
            absolute = AUTHORITY.match(self.url)
            if absolute:  # the target counts, not the Host header (RFC 9112, section 3.2.2)
                others = [header for header in self.headers if header[0] != b"host"]
                self.headers[:] = [(b"host", absolute[1]), *others]
            if codings:
                fault = transfer_fault(codings, self.parser.get_http_version())
                self.app = fault or self.app
            super().on_headers_complete()
            self.arrival.begin(Stage.BODY)

    @override
    def on_body(self, body: bytes) -> None:
        self.n_unread = 0
        self.arrival.progress(len(body))
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self.n_unread = 0
        if not self.ignoring:
            self.arrival.stage = Stage.NOTHING
            super().on_message_complete()

    def waits(self) -> bool:
        """Return whether this connection runs no request."""
        return self.cycle is None or self.cycle.response_complete

    @override
    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "BadRequest", msg)

    def refuse(self, status: int, name: str, detail: str) -> None:
        """Close the connection after a problem, or after the current answer."""
        in_body, at_work = self.arrival.stage is Stage.BODY, not self.waits()
        if at_work and not in_body:
            self.flow.pause_reading()
            self.cycle.keep_alive = False
            return
        has_answer = in_body and (not at_work or self.pipeline or self.cycle.response_started)
        if not (has_answer or self.transport.is_closing()):
            response = problem(status, name, detail)
            headers = [
                *self.server_state.default_headers,
                *response.raw_headers,
                *PLAIN_HEADERS,
                *readable(self.app_state.get(ORIGINS, ()), self.headers or ()),
            ]
            lines = [b"%s: %s\r\n" % header for header in headers]
            head = b"".join([STATUS_LINE[status], *lines, b"connection: close\r\n\r\n"])
            self.transport.write(head + bytes(response.body))
        self.transport.close()

    def _check(self) -> None:
        """Close the connection if its deadline is missed, or check again later."""
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
        self.check = self.loop.call_later(left if left > 0 else RECHECK_S, self._check)

    def _delayed(self) -> bool:
        """Return whether the client is waiting for the server."""
        if self.arrival.stage is Stage.HEAD:
            return not self.waits()
        held_back = not self.waits() and self.cycle.waiting_for_100_continue
        return self.flow.read_paused or held_back

    def _refuse_slow(self) -> None:
        if self.arrival.stage is Stage.BODY:
            detail = (
                f"the body comes at less than {BODY_RATE} bytes a second; send smaller "
                "bodies; sending stored lines again changes nothing"
            )
        elif self.n_unread or self.cycle:
            detail = f"the head was not complete in {HEAD_S:g} s; send it at once"
        else:
            self.transport.close()
            return
        self.refuse(408, "RequestTimeout", detail)

    def _make_room(self, n_allowed: int) -> None:
        """Close the longest idle connections; without idle ones, serve only health on this one."""
        others = [c for c in self.connections if c is not self and isinstance(c, BoundedConnection)]
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
        """Return the last head without its Upgrade header."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later()

    @override
    def resume_writing(self) -> None:
        self._look_no_more()
        super().resume_writing()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.check.cancel()
        self._look_no_more()
        super().connection_lost(exc)
        # uvicorn leaves a reset connection in a timer of five seconds, and in a circle with its
        # waiting requests; `cycle` is the last of them
        self._unset_keepalive_if_required()
        if self.pipeline:
            self.pipeline.clear()
            self.cycle = None  # type: ignore[assignment]

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


class UpgradeIgnoringParser:
    """A parser that ignores `Upgrade`, as a server may (RFC 9110, section 7.8).

    httptools ends such a request after its head and leaves the body unread. Clients that prefer
    HTTP/2 send the header with every request.
    """

    def __init__(self, connection: BoundedConnection) -> None:
        self.connection = connection
        self.parser = self._new()

    def _new(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self.connection)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse the next bytes; raise what the parser raises."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self.connection.ignoring:
                raise
            head = self.connection.plain_head()
            self.parser = self._new()
            self.parser.feed_data(head)
            self.feed_data(data[upgrade.args[0] :])
