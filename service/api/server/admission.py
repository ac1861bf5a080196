"""Requests that the server answers before the application sees them."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.responses.problems import problem

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
    """Return an application that answers each request with one problem, and closes."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        response = problem(status, name, detail)
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    return refuse


def only_health(app: ASGIApp, n_connections: int) -> ASGIApp:
    """Return the application of a connection that is kept for probes of health."""
    full = refusal(
        503,
        "TooManyConnections",
        f"the server serves {n_connections} connections at a time; try again after Retry-After",
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["path"] in HEALTH else full)(scope, receive, send)

    return serve
