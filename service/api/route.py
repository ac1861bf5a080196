"""Routes that FastAPI describes and that call their endpoints directly.

FastAPI reads the signature of an endpoint for the OpenAPI document. For a request, pydantic
validates all parameters at once, without a tree of dependencies. The decision and its
figures are in docs/decisions/0005-one-road-for-http.md.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints

import structlog
from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypedDict, override

from service.access.roles import right_of
from service.api import openapi
from service.api.admission import add_limits, enter, leave
from service.api.responses import problems
from service.api.threads import in_thread
from service.core.checks import CoreError
from service.model.errors import RecrawlError
from service.model.field_faults import expected, shown
from service.runtime.requests import ASK_EVERY_S, ask_again


def check_query(request: Request) -> None:
    """Refuse unknown and repeated parameters, because they would have no effect.

    Raises
    ------
    RequestValidationError
        Parameters are unknown, or stand twice; the error lists them, and the known ones.
    """
    if not request.scope["query_string"]:
        return
    parameters = request.scope["route"].parameters
    names = parameters.query_names
    if unknown := [name for name in request.query_params if name not in names]:
        route = request.scope["route"]
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": _no_parameter(route, name)} for name in unknown]
        )
    sent = Counter(name for name, _ in request.query_params.multi_items())
    if twice := [n for n, times in sent.items() if times > 1 and n not in parameters.repeated]:
        raise RequestValidationError(
            [
                {"loc": ("query", name), "msg": f"{name}: it stands more than once; send it once"}
                for name in twice
            ]
        )


def _no_parameter(route: "DirectRoute", name: str) -> str:
    """Return what is wrong with an unknown parameter, and what to do."""
    names, fields = route.parameters.query_names, route.fields
    if name in fields:
        return f"{name}: no such parameter; send it in the body, as a field of its JSON"
    many = "there is" if len(names) == 1 else "there are"
    available = f"{many} {', '.join(names)}" if names else "this path takes none"
    return f"{name}: no such parameter; remove it, {available}"


GUARDED = [Depends(check_query)]
"""Guards of every router with parameters of our own; the right of an operation is its route's."""


ANY_CASE = "/indexnow"
"""Path that counts in any case of its letters, because search engines write /IndexNow too."""
CONDITIONS = (RecrawlError, CoreError, ClientDisconnect)
"""Exceptions that may end a stream; all others are faults of the service."""
ANSWERED = (*CONDITIONS, RequestValidationError)
"""Exceptions that have a problem of their own."""

log = structlog.get_logger()


class DirectRoute(APIRoute):
    """A route that calls its endpoint without FastAPI's layers.

    An endpoint has parameters of the path, the query and the headers. A parameter `Depends(f)`
    has the value `f(request)`; `f` may be a coroutine function and must not block. The
    dependencies of a router are its guards: each guard receives the request first and may raise.
    Before the guards, the route checks the caller's right to its operation (`access.roles`).
    An endpoint that is no coroutine function runs in a thread. The endpoint's name is the
    operation_id in the OpenAPI document.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["operation_id"] = options.get("operation_id") or endpoint.__name__
        super().__init__(path, endpoint, **options)
        self.operation = str(self.operation_id)
        self.called = " ".join((*sorted(self.methods or ()), path))
        """Method and path, for sentences."""
        self.right = right_of(self.operation)
        needs = self.dependant.dependencies
        for need in needs:
            _check_need(need)
        self.guards = [need.call for need in needs if need.name is None and need.call]
        self.readers = [
            (need.name, need.call, inspect.iscoroutinefunction(need.call))
            for need in needs
            if need.name and need.call
        ]
        self.parameters = Parameters(endpoint, self.dependant)
        self.fields = openapi.body_fields(self.openapi_extra or {})
        """Names of the fields of the body, of an object or of the items of a list."""
        self.blocks = not inspect.iscoroutinefunction(endpoint)
        self.app = self.respond
        self.literal = path.partition("{")[0]
        self.fixed: frozenset[str] = frozenset()
        """Paths without parameters, such as /pages/recrawl, whose last part is no id."""

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # FastAPI's own check costs 3 us, and a request is compared with forty routes
        path = scope["path"]
        if not path.startswith(self.literal) or (path in self.fixed and path != self.literal):
            return Match.NONE, {}
        return super().matches(scope)

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer of the endpoint, or the problem of a named condition.

        A stream that fails stays unfinished, and the server closes its connection.
        """
        request = Request(scope, receive)
        try:
            try:
                await enter(request, self.called, self.right)
                response = await self.call(request)
            except ANSWERED as error:
                response = await problems.respond(request, error)
            add_limits(scope, response)
            await self.send(response, scope, receive, send)
        finally:
            leave(scope)

    async def send(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a response; a named condition, or the end of the caller's right, ends its stream."""
        try:
            if isinstance(response, StreamingResponse):
                await send_stream(response, scope, receive, send)
            else:
                await response(scope, receive, send)
        except CONDITIONS as error:
            reason = f"{type(error).__name__}: {error}"
            log.warning("a stream ended early", path=self.path, reason=reason)

    async def call(self, request: Request) -> Response:
        """Return what the endpoint returns."""
        for guard in self.guards:
            guard(request)
        values = self.parameters.read(request)
        for name, reader, is_async in self.readers:
            values[name] = await reader(request) if is_async else reader(request)
        if self.dependant.request_param_name:
            values[self.dependant.request_param_name] = request
        if self.blocks:
            return await in_thread(self.in_thread, values)
        response: Response = await self.endpoint(**values)
        return response

    def in_thread(self, values: dict[str, Any]) -> Response:
        """Return what the endpoint returns, unless the right has ended before a thread was free."""
        ask_again()
        response: Response = self.endpoint(**values)
        return response


async def send_stream(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a stream; raise as `ask_again` before each piece, and while the client does not read."""

    async def asked(message: Message) -> None:
        if message["type"] == "http.response.body":
            ask_again()
        await send(message)

    sending = asyncio.ensure_future(response(scope, receive, asked))
    try:
        while not (await asyncio.wait((sending,), timeout=ASK_EVERY_S))[0]:
            ask_again()
    except BaseException:
        sending.cancel()
        await asyncio.wait((sending,))
        raise
    await sending


class DirectMiddleware:
    """Middleware that finds direct routes in a table of methods and paths.

    FastAPI's router would compare a path with each route. That router only receives paths with
    parameters and requests without a route. A slash at the end of a path is ignored, because many
    clients of IndexNow follow no redirect.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[DirectRoute]) -> None:
        self.app = app
        routes = list(routes)
        self.routes = {
            (method, route.path): route
            for route in routes
            if route.literal == route.path
            for method in route.methods or ()
        }
        fixed = frozenset(path for _, path in self.routes)
        for route in routes:
            route.fixed = fixed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route = None
        if scope["type"] == "http":
            if len(scope["path"]) > 1:
                scope["path"] = scope["path"].removesuffix("/")
            if scope["path"].lower() == ANY_CASE:
                scope["path"] = ANY_CASE
            route = self.routes.get((scope["method"], scope["path"]))
        if route is None:
            await self.app(scope, receive, send)
        else:
            scope["route"] = route
            await route.respond(scope, receive, send)


class Parameters:
    """The parameters of an endpoint in the path, the query and the headers."""

    def __init__(self, endpoint: Callable[..., Any], dependant: Dependant) -> None:
        if dependant.body_params or dependant.cookie_params:
            raise TypeError(f"{endpoint.__name__} has a parameter of the body or of a cookie")
        hints = get_type_hints(endpoint, include_extras=True)
        defaults = inspect.signature(endpoint).parameters
        kinds = {
            field.name: hints[field.name]
            if defaults[field.name].default is inspect.Parameter.empty
            else NotRequired[hints[field.name]]
            for field in (*dependant.path_params, *dependant.query_params, *dependant.header_params)
        }
        self.adapter = TypeAdapter(TypedDict("Parameters", kinds))  # type: ignore[operator]
        self.validate = self.adapter.validator.validate_python
        self.path_names = [field.alias for field in dependant.path_params]
        self.query_names = [field.alias for field in dependant.query_params]
        self.repeated = {
            field.alias for field in dependant.query_params if _is_list(hints[field.name])
        }
        self.headers = {
            field.alias.lower().encode(): _alias(hints[field.name]) or field.name
            for field in dependant.header_params
        }

    def read(self, request: Request) -> dict[str, Any]:
        """Return the values by the names of the endpoint's parameters.

        Raises
        ------
        RequestValidationError
            A parameter is missing or invalid.
        """
        sent: dict[str, Any] = {name: request.path_params[name] for name in self.path_names}
        if request.scope["query_string"]:
            query = request.query_params
            sent |= {name: query[name] for name in self.query_names if name in query}
            sent |= {name: query.getlist(name) for name in self.repeated if name in query}
        if self.headers:
            for header, value in request.scope["headers"]:
                if name := self.headers.get(header):  # RFC 9110, section 5.3: lines are joined
                    text = value.decode("latin-1")
                    sent[name] = f"{sent[name]}, {text}" if name in sent else text
        try:
            values: dict[str, Any] = self.validate(sent)
        except ValidationError as error:
            raise RequestValidationError(self.faults(error)) from error
        return values

    def faults(self, error: ValidationError) -> list[dict[str, Any]]:
        """Return a sentence on each wrong parameter: its name, its value and the remedy."""
        schemas = self.adapter.json_schema()["properties"]
        return [
            {"loc": fault["loc"][:1], "msg": _fault(fault, schemas[str(fault["loc"][0])])}
            for fault in error.errors(include_url=False, include_context=False)
        ]


def _fault(fault: ErrorDetails, schema: dict[str, Any]) -> str:
    if "minItems" not in schema and "array" in _types(schema):  # a query repeats one value
        schema = {"description": schema.get("description", "")}
    name, remedy = fault["loc"][0], expected(schema)
    if fault["type"] == "missing":
        return f"{name} is missing; send {remedy}"
    return f"{name} is {shown(fault['input'])}; send {remedy}"


def _types(schema: dict[str, Any]) -> set[str | None]:
    return {each.get("type") for each in (schema, *schema.get("anyOf", ()))}


def _is_list(hint: Any) -> bool:
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return any(get_origin(each) is list for each in (plain, *get_args(plain)))


def _alias(hint: Any) -> str | None:
    return next(
        (mark.alias for mark in getattr(hint, "__metadata__", ()) if getattr(mark, "alias", None)),
        None,
    )


def _check_need(need: Dependant) -> None:
    parameters = (need.path_params, need.query_params, need.header_params, need.cookie_params)
    if any((*parameters, need.body_params, need.dependencies)):
        name = getattr(need.call, "__name__", need.call)
        raise TypeError(f"{name} must have one parameter, the request")
