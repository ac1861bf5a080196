"""The client of all requests that the service makes: public hosts only, within limits.

The guard (`guarded_connections`) opens the connections, so the guard checks the host of every hop,
redirects included. The client ignores proxies of the environment, because a proxy
looks the name up again. Only where the operator states that the proxy refuses private addresses
(`Outgoing.proxy_guards`) do requests go through the proxy. An address that the operator has chosen
needs no guard: requests for the keys of an identity provider use the proxies in any case.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from ssl import SSLContext
from typing import Any, NamedTuple
from urllib.request import getproxies_environment, proxy_bypass

import httpcore
import httpx
from typing_extensions import override

from service import __version__
from service.connectors.addresses import LookUp, is_literal, is_public, look_up
from service.connectors.guarded_connections import Deadline, Guard, NotPublicHost
from service.connectors.inflating import AnswerTooLarge

DOCUMENTATION = "https://recrawl.github.io/recrawl/"
USER_AGENT = f"recrawl/{__version__} (+{DOCUMENTATION})"
"""Default User-Agent, with an address for complaints."""


class AddressNotPublic(httpx.ConnectError):
    """The host has an address that is not public."""


class Outgoing(NamedTuple):
    """Settings of the operator for all requests of a process."""

    user_agent: str = USER_AGENT
    proxy_guards: bool = False
    """True where the proxies of the environment refuse addresses of the operator's network."""

    def notice(self) -> str | None:
        """Return a sentence on proxies of the environment that are not used; None without any."""
        names = [f"{kind.upper()}_PROXY" for kind in ("http", "https", "all") if _proxy(kind)]
        if self.proxy_guards or not names:
            return None
        return (
            f"{' and '.join(names)} set a proxy that is not used, because a proxy looks names up "
            "itself (only the keys of an identity provider come through it); set "
            "RECRAWL_PROXY_GUARDS=true if it refuses addresses of your own network"
        )


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
    outgoing: Outgoing = Outgoing(),  # noqa: B008 - frozen
    tls: SSLContext | None = None,
) -> httpx.Client:
    """Return a client for one request at a time; `private` allows addresses that are not public.

    `remedy` is the option that sets `private`. `headers` replace those of `outgoing`. `tls` has the
    certificates to trust, by default those of httpx. Tests replace `look_up` and `network`.
    Refusals, missed deadlines and answers that are too large raise `httpx.TransportError`.
    """
    deadline = Deadline(bounds.seconds)
    network = network or httpcore.SyncBackend()
    guard = Guard(deadline, look_up, network, private=private, remedy=remedy)
    return httpx.Client(
        transport=GuardedTransport(
            guard, bounds.max_bytes, proxied=outgoing.proxy_guards, tls=tls or _tls()
        ),
        headers={"User-Agent": outgoing.user_agent, **(headers or {})},
        event_hooks=event_hooks,
        follow_redirects=bounds.max_redirects > 0,
        max_redirects=bounds.max_redirects,
        # a proxy of the environment would look the name up again, without the check
        trust_env=False,
    )


class GuardedTransport(httpx.BaseTransport):
    """Requests over guarded connections, with answers of a limited size."""

    def __init__(
        self, guard: Guard, max_bytes: int, *, tls: SSLContext, proxied: bool = False
    ) -> None:
        self.deadline = guard.deadline
        self.max_bytes = max_bytes
        self.proxied = proxied
        """True where requests go through the proxies of the environment."""
        self._guard = guard
        self._tls = tls
        self._direct = httpcore.ConnectionPool(ssl_context=tls, network_backend=guard)
        self._by_proxy: dict[str, httpcore.ConnectionPool] = {}

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
        pool = self._pool(url)
        with self._as_httpx():
            response = self._respond(pool, hop)
        answer = httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(self._read(response), response.close),
            extensions=response.extensions,
        )
        return _without_body(answer) if answer.has_redirect_location else answer

    @override
    def close(self) -> None:
        for pool in (self._direct, *self._by_proxy.values()):
            pool.close()

    def _pool(self, url: httpx.URL) -> httpcore.ConnectionPool:
        """Return the connections for an address: direct, or those of its proxy."""
        proxy = (_proxy(url.scheme) or _proxy("all")) if self.proxied else None
        if not proxy or proxy_bypass(url.host):
            return self._direct
        if not self._guard.private and is_literal(url.host) and not is_public(url.host):
            raise AddressNotPublic(
                f"{url.host} is not public; {self._guard.remedy} allows addresses of your own "
                "network"
            )
        if proxy not in self._by_proxy:
            self._by_proxy[proxy] = self._connections_of(proxy)
        return self._by_proxy[proxy]

    def _connections_of(self, proxy: str) -> httpcore.ConnectionPool:
        try:
            chosen = httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}")
        except (ValueError, httpx.InvalidURL) as error:
            raise httpx.ProxyError("the proxy of the environment is no http(s) address") from error
        if chosen.url.scheme not in ("http", "https"):
            raise httpx.ProxyError(
                f"proxies of the kind {chosen.url.scheme} are not supported; name one of http(s)"
            )
        guard = self._guard  # the operator has chosen the proxy, which may be on the own network
        return httpcore.HTTPProxy(
            httpcore.URL(
                scheme=chosen.url.raw_scheme,
                host=chosen.url.raw_host,
                port=chosen.url.port,
                target=chosen.url.raw_path,
            ),
            proxy_auth=chosen.raw_auth,
            ssl_context=self._tls,
            proxy_ssl_context=self._tls if chosen.url.scheme == "https" else None,
            network_backend=Guard(guard.deadline, guard.look_up, guard.network, private=True),
        )

    def _respond(self, pool: httpcore.ConnectionPool, hop: httpcore.Request) -> httpcore.Response:
        """Return the head of the answer; repeat a request whose connection had ended before."""
        try:
            response = pool.handle_request(hop)
        except (httpcore.NetworkError, httpcore.RemoteProtocolError):
            used = self.deadline.connection
            # a server may close an idle connection at the moment of the next request
            if used is None or used.n_read or not used.has_answered:
                raise
            response = pool.handle_request(hop)
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
        except NotPublicHost as error:
            raise AddressNotPublic(str(error)) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
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


def _proxy(kind: str) -> str | None:
    """Return the proxy of the environment for http, https or all."""
    return getproxies_environment().get(kind) or None


@cache
def _tls() -> SSLContext:
    # because its certificates take 20 ms and 1 MB to load
    return httpx.create_ssl_context()
