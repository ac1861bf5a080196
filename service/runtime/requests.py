"""Requests for operators: identifier, duration, intended wait and line in the log."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from random import getrandbits

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from service.runtime.metrics import METHODS, Telemetry

REQUEST_ID = "X-Request-ID"
HEADER = REQUEST_ID.lower().encode()
MAX_ID_LENGTH = 128
"""Maximum length of the identifier of a request, characters."""
WAITED_S = "waited_s"
"""Key of a scope: time that the request has waited on purpose, seconds."""
SLOTS = "slots"
"""Key of a scope: the places of the caller's key; the request has one."""
BODY = "body"
"""Key of a scope: the memory that the request's body holds."""
SECURITY = "content_security_policy"
"""Key of a scope: the Content-Security-Policy of a page."""
POLICY = b"default-src 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of answers that are no pages."""
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every answer, by which a browser does less with it."""
PLAIN_HEADERS = (*SECURITY_HEADERS, (b"content-security-policy", POLICY))
"""Headers of answers that bypass `RequestMiddleware`."""

QUESTION: ContextVar[Callable[[], object] | None] = ContextVar("question", default=None)
"""Function that raises once the caller's right has ended; of the request in work."""
ASK_EVERY_S = 1.0
"""Time between two questions while a request waits, seconds."""

log = structlog.get_logger()


def ask_again() -> None:
    """Ask again whether the caller has its right; in any thread of the request.

    A key is revoked, expires or is replaced while its requests run. So a request asks again before
    each block that it writes or sends, and after each wait.

    Raises
    ------
    Unauthorized, Forbidden, AccessUnavailable
        The right has ended, or cannot be checked now.
    """
    question = QUESTION.get()
    if question is not None:
        question()


def identifier(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the X-Request-ID of a request, or a new one where the log cannot show it.

    >>> identifier([(b"x-request-id", b"job 7")])
    'job 7'
    >>> len(identifier([(b"x-request-id", b"x" * 129)]))
    16
    """
    for name, value in headers:
        if name == HEADER and 0 < len(value) <= MAX_ID_LENGTH and value.isascii():
            text = value.decode()
            if text.isprintable():
                return text
    return f"{getrandbits(64):016x}"


@contextmanager
def waiting(scope: Scope) -> Iterator[None]:
    """Count the time of the block as intended wait of the request, which is not in work.

    Raise as `ask_again` after the block.
    """
    started, slots = time.perf_counter(), scope.get(SLOTS)
    if slots is not None:
        slots.leave()
    try:
        yield
    finally:
        if slots is not None:
            slots.retake()
        waited_s = time.perf_counter() - started
        scope[WAITED_S] = scope.get(WAITED_S, 0.0) + waited_s
    ask_again()


class RequestMiddleware:
    """Plain ASGI middleware that counts, times and logs each request, at a few microseconds.

    A line of the log has only the path of the route. Queries contain keys of sites, and paths
    contain tokens of leases and subscriptions.
    """

    def __init__(
        self, app: ASGIApp, telemetry: Telemetry, slow_s: float, *, log_all: bool = False
    ) -> None:
        self.app = app
        self.telemetry = telemetry
        self.slow_s = slow_s
        self.log_all = log_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        scope["request_id"] = request_id = identifier(scope["headers"])
        bind_contextvars(request_id=request_id)
        header = (HEADER, request_id.encode())

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                policy = (b"content-security-policy", scope.get(SECURITY, POLICY))
                headers = [*message["headers"], header, policy, *SECURITY_HEADERS]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            self._end(scope, status, time.perf_counter() - started)

    def _end(self, scope: Scope, status: int, total_s: float) -> None:
        """Count an answered request; log failed and slow requests."""
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in METHODS else "other"
        waited_s = scope.get(WAITED_S, 0.0)
        seconds = max(total_s - waited_s, 0.0)
        self.telemetry.count_request(method, route, status, seconds, waited_s)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            write, event = log.warning, "request failed"
        elif seconds >= self.slow_s:
            write, event = log.info, "slow request"
        elif self.log_all:
            write, event = log.debug, "request"
        else:
            return
        write(
            event,
            request_id=scope["request_id"],
            method=method,
            route=route,
            status=status,
            seconds=round(seconds, 6),
            waited_s=round(waited_s, 6),
        )
