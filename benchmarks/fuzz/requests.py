"""A valid request of every operation of the OpenAPI document, as the base of mutations."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

PLACES = {
    "page_id": "1",
    "lease": "7-5f3a9c0b1d2e4f60",
    "subscription_id": "0" * 22,
    "webhook_id": "0" * 22,
    "epoch": "1",
    "host": "example.com",
    "group": "shared-1",
}
"""Values of path parameters."""
QUERIES = {
    "url": "https://example.com/news",
    "cursor": "0",
    "limit": "10",
    "host": "example.com",
    "observability": "auto",
    "due_before": "2026-05-01T12:00:00Z",
    "since_epoch": "1",
    "min_change": "0.1",
    "wait_s": "0",
    "before": "5",
    "register": "true",
    "cross_host": "false",
    "key": "0123abcd-4567-ef89",
    "keyLocation": "https://example.com/key.txt",
    "hub.mode": "subscribe",
    "hub.topic": "https://example.com/feed",
    "hub.challenge": "word",
    "hub.lease_seconds": "60",
}
"""Valid values of query parameters."""
PLAIN = {"text/plain": "https://example.com/a\nhttps://example.com/b\n", "*/*": "<feed/>"}
"""Bodies of media types that have no example in the document."""
FULL: dict[str, tuple[Any, ...]] = {
    "POST /leases": (
        {"worker": "w", "count": 3, "ttl_s": 2, "hosts": ["example.com"], "slices": 2, "slice": 1},
        {"count": 1_000, "hosts": ["example.com", "example.org"], "wait_s": 0},
    ),
    "POST /pages": (
        [
            {
                "url": "https://example.com/full",
                "importance": 2.5,
                "observability": "auto",
                "min_crawl_rate": 0.5,
                "max_crawl_rate": 9.0,
            }
        ],
    ),
    "PATCH /pages/{page_id}": (
        {
            "importance": 1.0,
            "observability": "complete",
            "min_crawl_rate": None,
            "max_crawl_rate": 2.0,
        },
    ),
    "POST /observations": (
        [
            {
                "url": "https://example.com/full",
                "observed_at": "2026-05-01T12:00:00Z",
                "status": 503,
                "retry_after_s": 1.5,
            },
            {
                "page_id": 1,
                "observed_at": "2026-05-01T12:00:00Z",
                "status": 200,
                "changed": True,
                "last_modified": "2026-05-01T12:00:00Z",
            },
            {
                "url": "https://example.com/moved",
                "observed_at": "2026-05-01T12:00:00Z",
                "status": 301,
                "redirect_url": "https://example.org/",
            },
            {
                "lease": "7-5f3a9c0b1d2e4f60",
                "observed_at": "2026-05-01T12:00:00Z",
                "digest": "a",
                "status": 200,
            },
        ],
    ),
}
"""Bodies with the fields that the document's examples omit."""


@dataclass(frozen=True)
class Request:
    """One request before it is encoded for the socket."""

    operation: str
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw_query: str = ""
    """Query that is sent unescaped in place of `query`."""

    def target(self) -> str:
        """Return path and query."""
        query = self.raw_query or urlencode(self.query)
        return f"{self.path}?{query}" if query else self.path

    def written(self) -> bytes:
        """Return the bytes for the socket."""
        headers = {"Host": "fuzz", "Content-Length": str(len(self.body)), **self.headers}
        lines = (f"{name}: {value}" for name, value in headers.items())
        head = "\r\n".join([f"{self.method} {self.target()} HTTP/1.1", *lines, "", ""])
        return head.encode("latin-1", "replace") + self.body


def valid_requests(document: Mapping[str, Any]) -> list[Request]:
    """Return at least one request of each operation."""
    return [
        request
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for request in of_operation(path, method.upper(), operation)
    ]


def of_operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[Request]:
    """Yield a request for each media type of an operation."""
    parameters = operation.get("parameters", [])
    names = [p["name"] for p in parameters if p["in"] == "query" and p["name"] in QUERIES]
    filled = path
    for name, value in PLACES.items():
        filled = filled.replace(f"{{{name}}}", quote(value))
    request = Request(
        f"{method} {path}", method, filled, tuple((name, QUERIES[name]) for name in names)
    )
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        yield request
        yield replace(request, query=())
    for media, described in content.items():
        example = described.get("example", PLAIN.get(media, ""))
        text = example if isinstance(example, str) else json.dumps(recent(example))
        yield replace(request, body=text.encode(), headers={"Content-Type": media}, query=())
    for body in FULL.get(request.operation, ()):
        headers = {"Content-Type": "application/json"}
        yield replace(request, body=json.dumps(recent(body)).encode(), headers=headers, query=())


def recent(example: Any) -> Any:
    """Return an example with current instants, because older ones would soon be late."""
    now = datetime.now(UTC).isoformat()
    text = json.dumps(example)
    text = text.replace('"wait_s": 5', '"wait_s": 0')  # a long poll would slow the run
    return json.loads(text.replace("2026-05-01T12:00:00Z", now))
