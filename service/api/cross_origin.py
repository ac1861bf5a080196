"""Answers that a browser shows to pages of other origins (`RECRAWL_CORS_ORIGINS`).

Starlette's middleware adds the headers to most answers. Those of faults and of full servers
come from outside of it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""Methods that such a page may use."""
SENT = (
    *("Authorization", "Content-Type", "Content-Encoding", "If-None-Match"),
    *("Idempotency-Key", "X-Request-ID", "traceparent", "tracestate"),
)
"""Headers that such a page may send; keys travel in Authorization."""
SHOWN = (
    *("ETag", "Link", "Location", "Retry-After", "X-Request-ID"),
    *("RateLimit", "RateLimit-Policy"),
)
"""Headers of an answer that such a page may read."""
ORIGINS = "cors_origins"
"""Key of the state of the application: the origins of the setting."""

Headers = Iterable[tuple[bytes, bytes]]


def origins_of(scope: Mapping[str, Any]) -> Collection[str]:
    """Return the listed origins, which each request has in its state."""
    origins: Collection[str] = scope.get("state", {}).get(ORIGINS, ())
    return origins


def readable(origins: Collection[str], headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers by which a browser shows an answer to the page that asked.

    >>> readable(["https://a.example"], [(b"origin", b"https://a.example")])[0]
    (b'access-control-allow-origin', b'https://a.example')
    >>> readable(["https://a.example"], [(b"origin", b"https://b.example")])
    []
    """
    origin = next((value for name, value in headers if name == b"origin"), b"")
    if origin.decode("latin-1") not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", ", ".join(SHOWN).encode()),
        (b"vary", b"Origin"),
    ]
