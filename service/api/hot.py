"""Routes that are called thousands of times a second: described by FastAPI, run without it.

FastAPI reads the signature of an endpoint for the OpenAPI document as ever. A call goes
straight to the endpoint, on the event loop: the key is checked, the query is validated at
once by pydantic, and neither dependencies are solved nor a thread is asked for.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NotRequired, get_type_hints

from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from service.api.service import authorised


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

        async def handle(request: Request) -> Response:
            authorised(request)
            try:
                given = query.validate_python(dict(request.query_params))
            except ValidationError as error:
                raise RequestValidationError(error.errors()) from error
            told = {name: request.headers.get(header) for name, header in headers.items()}
            return await endpoint(request, **given, **told)

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
