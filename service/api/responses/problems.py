"""Problems (RFC 9457): one table with the answer to every condition.

The handlers are async, because Starlette would run others in a thread, at a higher cost.
"""

import math
import re
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from msgspec import json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from recrawl_client.wire.common import Problem, Rejection
from service.api.cross_origin import origins_of, readable
from service.core.checks import CoreError
from service.model import errors
from service.runtime.requests import PLAIN_HEADERS, REQUEST_ID

log = structlog.get_logger()

STATUS: dict[type[Exception], int] = {
    errors.MalformedBody: 400,
    errors.BodyTooLarge: 413,
    errors.TooManyItems: 413,
    errors.UnsupportedMediaType: 415,
    errors.NotAcceptable: 406,
    errors.BatchRejected: 422,
    errors.StreamRefused: 422,
    errors.InvalidField: 422,
    errors.InvalidUrl: 422,
    errors.BadCursor: 422,
    errors.CursorExpired: 410,
    errors.EpochNotKept: 410,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.KeyNotFound: 404,
    errors.KeyEnded: 409,
    errors.RateLimited: 429,
    errors.KeyNotShown: 403,
    errors.TooManyRequests: 429,
    errors.PageNotFound: 404,
    errors.HostNotFound: 404,
    errors.GroupNotFound: 404,
    errors.EpochNotFound: 404,
    errors.LeaseNotHeld: 404,
    errors.KeyReused: 422,
    errors.AnswerTaken: 409,
    errors.SubscriptionNotFound: 404,
    errors.NeedNotFound: 404,
    errors.WebhookNotFound: 404,
    errors.SubscriptionGone: 410,
    errors.EpochRunning: 409,
    errors.PlanTooLarge: 501,
    errors.AccessUnavailable: 503,
    errors.ProviderUnavailable: 503,
    errors.HostHasPages: 409,
    errors.BudgetUnitChanges: 409,
    errors.GroupDivided: 409,
    errors.Overloaded: 503,
    errors.StoreUnavailable: 503,
    errors.AllotmentOver: 503,
    errors.RowLocked: 503,
    errors.TablesChanged: 503,
    errors.ShardUnavailable: 503,
    errors.ShardMoved: 503,
    errors.NoDatabase: 503,
    errors.SchemaBehind: 503,
    errors.SchemaDiffers: 503,
    errors.SchemaAhead: 503,
    errors.StoreFull: 507,
    errors.ArchiveUnavailable: 503,
    errors.ArchiveDamaged: 503,
    CoreError: 422,
}
TYPES = "https://github.com/recrawl/recrawl/blob/main/docs/reference/problems.md#"
"""Start of the type of every problem: the page that `tools/reference.py` writes."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
RETRY_AFTER_S = 5
HEADERS: dict[int, dict[str, str]] = {
    503: {"Retry-After": str(RETRY_AFTER_S)},
    507: {"Retry-After": "60"},
    429: {"Retry-After": "1"},
    401: {"WWW-Authenticate": "Bearer"},
    413: {"Connection": "close"},  # the server does not read the rest
    500: {"Connection": "close"},  # uvicorn closes it after a fault
}


BEARER = "bearer "
CHALLENGES: dict[type[Exception], str] = {
    errors.Unauthorized: "invalid_token",
    errors.Forbidden: "insufficient_scope",
}
"""Error code of RFC 6750 for each refusal of a key or token."""
OUTSIDE = re.compile(r"[^\x20-\x7e]")
"""Character that an `error_description` may not have, beside quotes and backslashes."""
MAX_DESCRIPTION = 500
"""Maximum length of an `error_description`, characters."""


def words(name: str) -> str:
    """Return the name of a condition in words.

    >>> words("LeaseNotHeld")
    'lease not held'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def slug(name: str) -> str:
    """Return the anchor of a condition on the page of the problems.

    >>> slug("LeaseNotHeld")
    'lease-not-held'
    """
    return words(name).replace(" ", "-")


def problem(status: int, name: str, detail: str, **extra: Any) -> Response:
    """Return a problem; its type is the address of the condition's documentation."""
    body = Problem(
        type=f"{TYPES}{slug(name)}",
        title=words(name).capitalize(),
        status=status,
        detail=detail,
        **extra,
    )
    return Response(
        json.encode(body), status, HEADERS.get(status), media_type="application/problem+json"
    )


def challenge(request: Request, response: Response, code: str, detail: str) -> None:
    """Add the reason of a refusal to a request that shows a key or token (RFC 6750, 3)."""
    if request.headers.get("Authorization", "")[: len(BEARER)].lower() == BEARER:
        description = OUTSIDE.sub("?", detail.replace('"', "'").replace("\\", "/"))
        response.headers["WWW-Authenticate"] = (
            f'Bearer error="{code}", error_description="{description[:MAX_DESCRIPTION]}"'
        )


async def answer(request: Request, error: Exception) -> Response:
    """Return the problem of a named condition."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    detail = getattr(error, "detail", str(error))
    extra = dict(getattr(error, "extra", {}))
    response = problem(status, type(error).__name__, detail, **extra)
    if code := CHALLENGES.get(type(error)):
        challenge(request, response, code, detail)
    if isinstance(error, errors.RateLimited):
        response.headers["Retry-After"] = str(math.ceil(extra["retry_after_s"]))
    elif isinstance(error, errors.Overloaded):
        response.headers["Retry-After"] = "1"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        is_provider = isinstance(error, errors.ProviderUnavailable)
        trouble = "identity provider trouble" if is_provider else "store trouble"
        log.warning(trouble, error=type(error).__name__, cause=repr(error.__cause__))
    return response


async def answer_parameters(_: Request, error: Exception) -> Response:
    """Return the problem of invalid parameters of the path, the query or the headers."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    rejections = [
        Rejection(index=i, code="invalid", detail=fault["msg"], field=str(fault["loc"][-1]))
        for i, fault in enumerate(faults)
    ]
    detail = "; ".join(rejection.detail for rejection in rejections)
    field = rejections[0].field if rejections else None
    return problem(422, "InvalidParameter", detail, field=field, errors=rejections)


async def answer_http(request: Request, error: Exception) -> Response:
    """Return the problem of an unknown path or method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    phrase = HTTPStatus(status).phrase.title().replace(" ", "")
    if status != HTTPStatus.METHOD_NOT_ALLOWED:
        hint = {404: "no such path; /docs lists them"}
        return problem(status, phrase, hint.get(status, HTTPStatus(status).description))
    allowed = ", ".join(methods(request))
    response = problem(status, phrase, f"this path has no such method; it has {allowed}")
    response.headers["Allow"] = allowed
    return response


def methods(request: Request) -> list[str]:
    """Return the methods of a path."""
    scopes = ({**request.scope, "method": method} for method in METHODS)
    return [
        scope["method"]
        for scope in scopes
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


async def answer_disconnected(_: Request, __: Exception) -> Response:
    """Return a problem for the log, because the client ended the connection before its answer."""
    return problem(400, "ClientDisconnect", "the connection ended before the answer")


async def answer_unexpected(request: Request, _: Exception) -> Response:
    """Return the problem of a fault of the service; only the log has the traceback.

    The answer bypasses all middleware, so this function adds what they would.
    """
    response = problem(
        500,
        "InternalError",
        "the service failed, and its log has the reason; nothing of this request is stored, except "
        "the first blocks of a stream",
    )
    if request_id := request.scope.get("request_id"):
        response.headers[REQUEST_ID] = request_id
    response.raw_headers += PLAIN_HEADERS
    response.raw_headers += readable(origins_of(request.scope), request.scope["headers"])
    return response


HANDLERS = {
    **dict.fromkeys(STATUS, answer),
    RequestValidationError: answer_parameters,
    HTTPException: answer_http,
    ClientDisconnect: answer_disconnected,
    Exception: answer_unexpected,
}


async def respond(request: Request, error: Exception) -> Response:
    """Return the problem of an exception."""
    handler = next(HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    return await handler(request, error)


def install(app: FastAPI) -> None:
    """Register the problem of each exception."""
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
