"""Traces of requests; `service.runtime.tracing` has the rest of each trace."""

from collections.abc import Iterable
from http import HTTPStatus

from fastapi import FastAPI
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.route import DirectRoute
from service.runtime.metrics import METHODS
from service.runtime.tracing import Tracing


def trace(app: FastAPI, routes: Iterable[DirectRoute], tracing: Tracing) -> None:
    """Put requests and endpoints into spans."""
    for route in routes:
        tracing.enter(route, route.operation)
    app.add_middleware(TraceMiddleware, tracing=tracing)


class TraceMiddleware:
    """Plain ASGI middleware with a span for each request, a child of the caller's span.

    The span has only the path of the route. Queries contain keys of sites and URLs of pages, and
    paths contain tokens of leases and subscriptions.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self.app = app
        self.tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        attributes = {"http.request.method": method, "url.scheme": scope["scheme"]}
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self.tracing.span(
            method, context=extract(headers), kind=SpanKind.SERVER, attributes=attributes
        ) as span:
            try:
                await self.app(scope, receive, watched)
            finally:
                route = getattr(scope.get("route"), "path", "unknown")
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                span.set_attribute("recrawl.request_id", scope.get("request_id", ""))
                if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    span.set_status(StatusCode.ERROR)
