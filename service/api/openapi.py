"""Pieces of the OpenAPI document that routes declare: bodies, answers, headers and problems."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from recrawl_client import wire
from recrawl_client.wire import changes, common, hosts
from service.api.requests.bodies import JSON, NDJSON


class IndexNowBody(Struct, frozen=True, kw_only=True):
    """URLs of one host that have changed; the IndexNow protocol names the fields."""

    host: str
    """Host of all the URLs."""
    key: str
    """Key that the site shows in a file."""
    urlList: list[str]  # noqa: N815 - the protocol's name
    """URLs that have changed, 1 to 10,000."""
    keyLocation: str | None = None  # noqa: N815
    """URL of the key file; null for `/KEY.txt` at the root of the host."""


class IndexNowAnswer(Struct, frozen=True, kw_only=True):
    """Outcome of a submission by IndexNow."""

    status: Literal["taken", "pending"]
    """`taken`: the URLs count as pings. `pending`: the service checks the site's key first."""
    n_urls: int
    """Number of distinct URLs; while pending the number of URLs as sent."""
    n_taken: int
    """Number of distinct URLs that count as pings of this moment."""


class Health(Struct, frozen=True, kw_only=True):
    """The service is alive, or ready."""

    status: Literal["ok", "degraded"]
    """`ok`, or `degraded` while databases of several are away."""
    version: str
    """Version of the service."""
    away: list[str] | UnsetType = UNSET
    """Names of the databases that are away; absent while all answer."""
    incarnation: str | UnsetType = UNSET
    """Name of the database's incarnation: another one after a restore, when a client should forget
    what it has sent. Only in the answers of servers, to GET /readyz."""


TITLES = {
    400: "The body does not have its media type",
    401: "The request has no valid API key",
    403: "The key has no right to this, or the site does not show its key",
    404: "There is no such page, host, group, epoch, subscription, webhook, key or running lease",
    406: "The service has none of the media types in Accept",
    408: "The head of the request took over 10 s, or the body came at under 1 KB/s",
    409: "The host has pages, or the key has been revoked or has expired",
    410: "What `cursor` or `since_epoch` continues, or the subscription, is no longer kept",
    413: "The body has too many bytes or items",
    415: "The operation does not take this media type, or this Content-Encoding",
    422: "A field or a parameter is wrong, or every item of the batch is",
    429: "Too much is waiting, or the key has used up its items; try again after Retry-After",
    501: "There are more pages than a plan takes",
    503: "The database does not answer, takes no writes or has another schema, or too much is "
    "waiting; try again after Retry-After",
    507: "The database has no room left",
}
EVERYWHERE = (401, 403, 408, 429, 503)
WRITES = (400, 413, 415, 422, 507)


def header(description: str, example: str | int, kind: str = "string") -> dict[str, Any]:
    """Return the description of a header of an answer."""
    return {"description": description, "schema": {"type": kind}, "example": example}


LINK = {
    "Link": header(
        "URL of the next part, rel=next; absent at the end (RFC 8288)",
        '</hosts?limit=100&cursor=kqZob3N0czER>; rel="next"',
    )
}
LOCATION = {"Location": header("Path of the epoch", "/epochs/8")}
RETRIED = frozenset({429, 503, 507})
"""Statuses of problems that carry Retry-After."""
LIMITS = {
    "RateLimit": header(
        "Items that the key may still send, and seconds until its limit is full again "
        "(draft-ietf-httpapi-ratelimit-headers); absent where the key has no limit of items",
        '"items";r=7;t=7',
    ),
    "RateLimit-Policy": header(
        "The limit: items within a window, seconds; absent where the key has none",
        '"items";q=20;qu="items";w=10',
    ),
}
"""Headers of answers to a key with a limit of items."""
RETRY_AFTER = {"Retry-After": header("Wait before the next try, seconds", 5, "integer")}

STRUCTS = [
    kind
    for module in iter_modules(wire.__path__, f"{wire.__name__}.")
    for kind in vars(import_module(module.name)).values()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind.__module__ == module.name
    and kind not in (common.Item, common.Counts, changes.ChangesPlace, hosts.HostItem)
] + [IndexNowBody, IndexNowAnswer, Health]
"""Structs of bodies and answers, with those that the client does not use."""


def ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the reference to the schema of a struct."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def request_body(kind: type[msgspec.Struct], example: Any, *, batch: bool = True) -> dict[str, Any]:
    """Return the description of a request body: a batch of items, or one object."""
    schema = {"type": "array", "items": ref(kind)} if batch else ref(kind)
    content: dict[str, Any] = {JSON: {"schema": schema, "example": example}}
    if batch:
        lines = "\n".join(msgspec.json.encode(item).decode() for item in example)
        content[NDJSON] = {"schema": {"type": "string"}, "example": lines}
    return {"requestBody": {"required": True, "content": content}}


def body_fields(description: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields of a body, of an object or of the items of a list."""
    content = description.get("requestBody", {}).get("content", {})
    schema = content.get(JSON, {}).get("schema", {})
    name = schema.get("items", schema).get("$ref", "").rpartition("/")[2]
    return next((kind.__struct_fields__ for kind in STRUCTS if kind.__name__ == name), ())


def document_body(example: str) -> dict[str, Any]:
    """Return the description of a body that is a sitemap."""
    text, binary = {"type": "string"}, {"type": "string", "format": "binary"}
    content = {
        "application/xml": {"schema": text, "example": example},
        "text/plain": {"schema": text},
        "application/feed+json": {"schema": text},
        "application/gzip": {"schema": binary},
        "application/octet-stream": {"schema": binary},
    }
    return {"requestBody": {"required": True, "content": content}}


def feed_body(example: str) -> dict[str, Any]:
    """Return the description of a body of any type, preferably Atom or RSS."""
    content = {
        "application/atom+xml": {"schema": {"type": "string"}, "example": example},
        "application/rss+xml": {"schema": {"type": "string"}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    }
    return {"requestBody": {"required": True, "content": content}}


def answers(
    kind: type[msgspec.Struct],
    example: Any,
    *statuses: int,
    status: int = 200,
    headers: dict[str, Any] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """Return the description of the answers: a struct, and a problem for each status."""
    whole = msgspec.json.decode(msgspec.json.encode(msgspec.convert(example, kind)))
    response: dict[str, Any] = {
        "description": (kind.__doc__ or "").splitlines()[0],
        "content": {JSON: {"schema": ref(kind), "example": whole}},
    }
    if headers:
        response["headers"] = headers
    return {status: response, **problems_of(*EVERYWHERE, *statuses)}


def streams(example: Any, *media: str) -> dict[str, Any]:
    """Return the description of the same answer as a stream: NDJSON or binary."""
    line = msgspec.json.encode(example).decode()
    return {
        kind: {"schema": {"type": "string"}, "example": line}
        if kind == NDJSON
        else {"schema": {"type": "string", "format": "binary"}}
        for kind in media
    }


def open_answers(kind: type[msgspec.Struct], example: Any, *statuses: int) -> dict[int | str, Any]:
    """Return the description of the answers to a call that needs no key."""
    return {200: answers(kind, example)[200], **problems_of(408, *statuses)}


def plain_text(description: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer of text."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}}


def no_content(*statuses: int) -> dict[str, Any]:
    """Return the options of a route whose answer is empty, with a problem for each status."""
    return {"status_code": 204, "responses": problems_of(*EVERYWHERE, *statuses)}


def problems_of(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the problems of some statuses."""
    problems: dict[int | str, dict[str, Any]] = {
        status: {
            "description": TITLES[status],
            "content": {"application/problem+json": {"schema": ref(common.Problem)}},
        }
        for status in sorted(set(statuses))
    }
    for status in RETRIED & problems.keys():
        problems[status]["headers"] = RETRY_AFTER
    return problems
