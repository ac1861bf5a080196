"""Routes that are called thousands of times a second: described by FastAPI, run without it.

FastAPI reads the signature of an endpoint for the OpenAPI document as ever. A call goes
straight to the endpoint, on the event loop: `HotPaths` finds it by one look-up before the
application and its layers, the key is checked, the query is validated at once by pydantic, and
neither dependencies are solved nor a thread is asked for.
"""

import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NotRequired, get_type_hints
from urllib.parse import parse_qsl

import structlog
from fastapi import FastAPI, Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from service.api.compress import compressed
from service.api.queries import refuse_unknown
from service.api.service import authorised
from service.telemetry import Telemetry

log = structlog.get_logger()


class HotRoute(APIRoute):
    """A route whose endpoint is `async def endpoint(request, parameters…) -> Response`.

    Parameters are annotated with `Query` (validated, refused as on any other route) or
    `Header` (a string or None). The endpoint must not block: it hands work to a thread.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give what FastAPI runs for a request of this route."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        if not inspect.iscoroutinefunction(endpoint):
            raise TypeError(f"{endpoint.__name__} must be async to be a hot route")
        query, headers = parameters(endpoint)
        names = [parameter.alias for parameter in self.dependant.query_params]

        async def handle(request: Request) -> Response:
            authorised(request)
            asked = request.scope["query_string"].decode("latin-1")
            told = dict(parse_qsl(asked, keep_blank_values=True))
            refuse_unknown(told, names)
            try:
                given = query.validate_python(told)
            except ValidationError as error:
                raise RequestValidationError(error.errors()) from error
            heard = {name: _heard(request, header) for name, header in headers.items()}
            return await endpoint(request, **given, **heard)

        return handle


def parameters(
    endpoint: Callable[..., Any],
) -> tuple[TypeAdapter[dict[str, Any]], dict[str, str]]:
    """Give what validates an endpoint's query, and the header behind each other parameter."""
    hints = get_type_hints(endpoint, include_extras=True)
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for name, parameter in list(inspect.signature(endpoint).parameters.items())[1:]:
        said = getattr(hints[name], "__metadata__", ())
        if any(isinstance(one, params.Header) for one in said):
            headers[name] = name.replace("_", "-")
        elif any(isinstance(one, params.Query) for one in said):
            required = parameter.default is parameter.empty
            query[name] = hints[name] if required else NotRequired[hints[name]]
        else:
            raise TypeError(f"{name} of {endpoint.__name__} is neither a Query nor a Header")
    return TypeAdapter(TypedDict("Query", query)), headers  # type: ignore[operator]


def _heard(request: Request, header: str) -> str | None:
    """Give a header, which may come in several lines (RFC 9110, section 5.3)."""
    lines = request.headers.getlist(header)
    return ", ".join(lines) if lines else None


class HotPaths:
    """Serve hot routes, and hand all else to the application; plain ASGI, the outermost layer."""

    def __init__(self, app: FastAPI, routes: Iterable[HotRoute], telemetry: Telemetry) -> None:
        self.app = app
        self.telemetry = telemetry
        self.hot = {
            (method, route.path): (route, route.get_route_handler())
            for route in routes
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, and write down how it went; raises what no answer has a name for.

        A stream that cannot go on is left unfinished, and the server breaks the connection off.
        """
        found = None
        if scope["type"] == "http":
            found = self.hot.get((scope["method"], scope["path"]))
        if found is None:
            await self.app(scope, receive, send)
            return
        route, handle = found
        scope["app"], fault = self.app, None
        started, status = time.perf_counter(), 500
        request = Request(scope, receive)
        try:
            try:
                response = await handle(request)
            except Exception as error:  # noqa: BLE001 - answered by its name, or raised again
                response, fault = await self._answered(request, error)
            status = response.status_code
            try:
                await response(scope, receive, compressed(response, scope, send))
            except Exception as error:
                if self._kind(error) is Exception:
                    raise
                reason = f"{type(error).__name__}: {error}"
                log.warning("a stream was broken off", path=route.path, reason=reason)
        finally:
            seconds = time.perf_counter() - started
            self.telemetry.count_request(scope["method"], route.path, status, seconds)
        if fault is not None:
            raise fault

    async def _answered(
        self, request: Request, error: Exception
    ) -> tuple[Response, Exception | None]:
        """Answer a condition by the application's table; a fault is for the server to log, too."""
        kind = self._kind(error)
        answered: Response = await self.app.exception_handlers[kind](request, error)  # type: ignore[misc]
        return answered, error if kind is Exception else None

    def _kind(self, error: Exception) -> type[Exception]:
        """Give the condition that the application has an answer to; `Exception` for a fault."""
        handlers = self.app.exception_handlers
        return next(kind for kind in type(error).__mro__ if kind in handlers)
