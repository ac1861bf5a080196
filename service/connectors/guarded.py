"""An HTTP client for addresses from untrusted input: public hosts only, within limits.

The guard opens the connections, so the guard checks the host of every hop, redirects included.
The guard looks a name up once and connects to exactly the address that was checked. Host, SNI and
certificate stay those of the name. The client ignores proxies of the environment, because a proxy
would look the name up again.
"""

import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from ssl import SSLContext
from typing import Any, NamedTuple

import httpcore
import httpx
from typing_extensions import override

from service.connectors.addresses import LookUp, is_public, look_up

PIECE = 65_536
"""Maximum size of an inflated piece, bytes."""
WRITTEN_AT_ONCE = 16_384
"""Bytes that are sent between two looks at the deadline."""
MAX_HEAD = 262_144
"""Maximum size of the heads of an answer, those of 1xx included, bytes."""
GZIP = ("gzip", "x-gzip")


class AnswerTooLarge(httpx.TransportError):
    """The answer has more bytes than allowed."""


class FetchLimits(NamedTuple):
    """Limits of each request."""

    seconds: float
    """Time for each hop, from the name look-up to the last byte."""
    max_bytes: int
    """Maximum size of an answer as it is sent, bytes."""
    max_redirects: int = 0


def guarded_client(
    bounds: FetchLimits,
    *,
    private: bool = False,
    headers: Mapping[str, str] | None = None,
    event_hooks: Mapping[str, list[Callable[..., Any]]] | None = None,
    look_up: LookUp = look_up,
    network: httpcore.NetworkBackend | None = None,
    remedy: str = "--private",
) -> httpx.Client:
    """Return a client for one request at a time; `private` allows addresses that are not public.

    `remedy` is the option that sets `private`. Tests replace `look_up` and `network`. Refusals,
    missed deadlines and answers that are too large raise `httpx.TransportError`.
    """
    deadline = Deadline(bounds.seconds)
    network = network or httpcore.SyncBackend()
    guard = Guard(deadline, look_up, network, private=private, remedy=remedy)
    return httpx.Client(
        transport=GuardedTransport(guard, bounds.max_bytes),
        headers=headers,
        event_hooks=event_hooks,
        follow_redirects=bounds.max_redirects > 0,
        max_redirects=bounds.max_redirects,
        # a proxy of the environment would look the name up again, without the check
        trust_env=False,
    )


class Deadline:
    """The deadline of the current request."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.connection: Timed | None = None
        """Connection of the request; None before its first byte."""
        self._at = 0.0

    def restart(self) -> None:
        """Set the deadline of a new request."""
        self._at = time.monotonic() + self.seconds
        self.connection = None

    def left(self) -> float:
        """Return the seconds left; raise `httpcore.ReadTimeout` at the end."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left


class Guard(httpcore.NetworkBackend):
    """Connections to hosts; every address is checked before the connection opens."""

    def __init__(
        self,
        deadline: Deadline,
        look_up: LookUp,
        network: httpcore.NetworkBackend,
        *,
        private: bool,
        remedy: str = "--private",
    ) -> None:
        self.deadline = deadline
        self.remedy = remedy
        self.private = private
        self.look_up = look_up
        self.network = network

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in self._addresses(host):
            try:
                stream = self.network.connect_tcp(
                    address, port, self.deadline.left(), local_address, socket_options
                )
            except httpcore.ConnectError as error:
                failure = error
            else:
                return Timed(stream, self.deadline)
        raise failure

    def _addresses(self, host: str) -> list[str]:
        try:
            addresses = self.look_up(host, self.deadline.left())
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(f"{host} has no address: {error}") from error
        # one private address refuses the host, whatever address would be used
        for address in () if self.private else addresses:
            if not is_public(address):
                place = host if host == address else f"{address}, an address of {host},"
                raise httpcore.ConnectError(
                    f"{place} is not public; {self.remedy} allows addresses of your own network"
                )
        return addresses


class Timed(httpcore.NetworkStream):
    """A connection whose every step ends at the deadline, even when bytes arrive slowly."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self.stream = stream
        self.deadline = deadline
        self.n_read = 0
        """Bytes that arrived since the last byte of the request."""
        self.in_head = False
        """True from the request to the end of the answer's head."""
        self.has_answered = False
        """True after the first answer."""

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        part = self.stream.read(max_bytes, self.deadline.left())
        self.n_read += len(part)
        if self.in_head and self.n_read > MAX_HEAD:
            raise httpcore.RemoteProtocolError(f"its head has over {MAX_HEAD} bytes")
        return part

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.n_read, self.in_head, self.deadline.connection = 0, True, self
        # in pieces, because a receiver that reads slowly would get a new timeout for each segment
        for start in range(0, len(buffer), WRITTEN_AT_ONCE):
            self.stream.write(buffer[start : start + WRITTEN_AT_ONCE], self.deadline.left())

    @override
    def close(self) -> None:
        self.stream.close()

    @override
    def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self.deadline.left()
        return Timed(self.stream.start_tls(ssl_context, server_hostname, left), self.deadline)

    @override
    def get_extra_info(self, info: str) -> Any:
        return self.stream.get_extra_info(info)


class GuardedTransport(httpx.BaseTransport):
    """Requests over guarded connections, with answers of a limited size."""

    def __init__(self, guard: Guard, max_bytes: int) -> None:
        self.deadline = guard.deadline
        self.max_bytes = max_bytes
        self._pool = httpcore.ConnectionPool(ssl_context=_tls(), network_backend=guard)

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.deadline.restart()
        url = request.url
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        hop = httpcore.Request(
            request.method, target, headers=request.headers.raw, content=request.stream
        )
        with self._as_httpx():
            response = self._respond(hop)
        answer = httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(self._read(response), response.close),
            extensions=response.extensions,
        )
        return _without_body(answer) if answer.has_redirect_location else answer

    @override
    def close(self) -> None:
        self._pool.close()

    def _respond(self, hop: httpcore.Request) -> httpcore.Response:
        """Return the head of the answer; repeat a request whose connection had ended before."""
        try:
            response = self._pool.handle_request(hop)
        except (httpcore.NetworkError, httpcore.RemoteProtocolError):
            used = self.deadline.connection
            # a server may close an idle connection at the moment of the next request
            if used is None or used.n_read or not used.has_answered:
                raise
            response = self._pool.handle_request(hop)
        used = self.deadline.connection
        if used is not None:
            used.in_head, used.has_answered = False, True
            if not used.n_read:
                response.close()
                used.close()
                raise httpcore.RemoteProtocolError("it came before the request")
        return response

    def _read(self, response: httpcore.Response) -> Iterator[bytes]:
        size = 0
        with self._as_httpx():
            for part in response.iter_stream():
                size += len(part)
                if size > self.max_bytes:
                    raise AnswerTooLarge(f"it has over {self.max_bytes} bytes")
                yield part
        used = self.deadline.connection
        if used is not None and used.n_read > _usual_size(response, size):
            used.close()  # what follows the answer would begin the next answer

    @contextmanager
    def _as_httpx(self) -> Iterator[None]:
        """Raise an error of httpcore as the error of httpx with the same name."""
        try:
            yield
        except httpcore.TimeoutException as error:
            kind = getattr(httpx, type(error).__name__, httpx.ReadTimeout)
            raise kind(f"no complete answer after {self.deadline.seconds:g} s") from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise getattr(httpx, type(error).__name__, httpx.NetworkError)(str(error)) from error
        except httpcore.UnsupportedProtocol as error:
            raise httpx.UnsupportedProtocol(str(error)) from error


class _Body(httpx.SyncByteStream):
    def __init__(self, parts: Iterator[bytes], close: Callable[[], None]) -> None:
        self._parts = parts
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._close()


def _usual_size(response: httpcore.Response, size: int) -> float:
    """Return the bytes of an answer with a body of `size` bytes as servers usually write it.

    Chunks have no usual size.
    """
    if any(name.lower() == b"transfer-encoding" for name, _ in response.headers):
        return math.inf
    head = len(b"HTTP/1.1 200 \r\n\r\n") + len(response.extensions["reason_phrase"])
    return head + sum(len(name) + len(value) + 4 for name, value in response.headers) + size


def _without_body(redirect: httpx.Response) -> httpx.Response:
    """Return a redirect without its body, because httpx would inflate the whole body."""
    redirect.close()
    headers = [(k, v) for k, v in redirect.headers.raw if k.lower() != b"content-encoding"]
    return httpx.Response(
        redirect.status_code,
        headers=headers,
        stream=httpx.ByteStream(b""),  # which can be read, unlike an answer without a stream
        extensions=redirect.extensions,
    )


def gunzipped(response: httpx.Response) -> Iterator[bytes]:
    """Return the inflated body in pieces of bounded size; raise for any coding but gzip."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        yield from response.iter_raw()
        return
    if coding not in GZIP:
        raise httpx.DecodingError(f"its Content-Encoding {coding[:40]} was not requested")
    inflater = zlib.decompressobj(wbits=31)
    try:
        for part in response.iter_raw():
            rest = part
            while rest:
                yield inflater.decompress(rest, PIECE)
                rest = inflater.unconsumed_tail
    except zlib.error as error:
        raise httpx.DecodingError(f"it is not gzip: {error}") from error


@cache
def _tls() -> SSLContext:
    # because its certificates take 20 ms and 1 MB to load
    return httpx.create_ssl_context()
