"""The OpenAPI document: FastAPI's paths and parameters, the structs' schemas, our examples."""

from typing import Any, Literal

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec import Struct

from recrawl_client.wire import common, evidence, hosts, leases, pages, schedule, websub
from service.api.requests.bodies import JSON, NDJSON


class IndexNowBody(Struct, frozen=True, kw_only=True):
    """URLs of one host that have changed, as the IndexNow protocol names the fields."""

    host: str
    key: str
    urlList: list[str]  # noqa: N815 - the protocol's name
    keyLocation: str | None = None  # noqa: N815


class IndexNowAnswer(Struct, frozen=True, kw_only=True):
    """What became of a submission by IndexNow."""

    status: Literal["taken", "pending"]
    """pending: the site's key is being looked at; the URLs are taken once it has been found."""
    n_urls: int
    """Distinct URLs; while pending the number of URLs as sent."""
    n_taken: int
    """Distinct URLs taken as change notices of this moment."""


class Health(Struct, frozen=True, kw_only=True):
    """The process is alive, or ready."""

    status: Literal["ok"]
    version: str


TITLES = {
    400: "The body is not what its media type says",
    401: "No valid API key",
    403: "The site does not show the key",
    404: "No such page, host, group, epoch, subscription or running lease",
    406: "None of the media types in Accept can be given",
    410: "What is named is no longer kept: the epoch of the cursor or since_epoch, a subscription",
    413: "Too many bytes or items",
    415: "A media type this call does not take, or a Content-Encoding other than gzip and zstd",
    422: "A field or parameter, or every item of the batch, was refused",
    429: "Too much is waiting; try again after Retry-After",
    503: "The database does not answer, takes no writes or has another schema, or too much is "
    "waiting; try again after Retry-After",
    507: "The database has no room left",
}
EVERYWHERE = (401, 503)
WRITES = (400, 413, 415, 422, 507)

STRUCTS = [
    kind
    for module in (common, evidence, hosts, leases, pages, schedule, websub)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind.__module__ == module.__name__
    and kind not in (common.Item, common.Counts)
] + [IndexNowBody, IndexNowAnswer, Health]
"""Structs of the wire, and those that the client does not use."""


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


def document_body(example: str) -> dict[str, Any]:
    """Return the description of a body that is a sitemap."""
    text, binary = {"type": "string"}, {"type": "string", "format": "binary"}
    content = {
        "application/xml": {"schema": text, "example": example},
        "text/plain": {"schema": text},
        "application/gzip": {"schema": binary},
    }
    return {"requestBody": {"required": True, "content": content}}


def feed_body(example: str) -> dict[str, Any]:
    """Return the description of a body of any type, preferably Atom or RSS."""
    content = {
        "application/atom+xml": {"schema": {"type": "string"}, "example": example},
        "*/*": {"schema": {"type": "string", "format": "binary"}},
    }
    return {"requestBody": {"required": True, "content": content}}


def answers(
    kind: type[msgspec.Struct], example: Any, *statuses: int, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """Return the description of the answers: a struct, and a problem for each status."""
    answer = {
        "description": (kind.__doc__ or "").splitlines()[0],
        "content": {JSON: {"schema": ref(kind), "example": example}},
    }
    return {status: answer, **problems_of(*EVERYWHERE, *statuses)}


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
    return {200: answers(kind, example)[200], **problems_of(*statuses)}


def problems_of(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the problems of some statuses."""
    return {
        status: {
            "description": TITLES[status],
            "content": {"application/problem+json": {"schema": ref(common.Problem)}},
        }
        for status in sorted(set(statuses))
    }


def install(app: FastAPI) -> None:
    """Replace the application's own OpenAPI document by `document`."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the application."""
    described = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = described.setdefault("components", {})
    _, structs = msgspec.json.schema_components(STRUCTS, ref_template="#/components/schemas/{name}")
    parameter_schemas = {
        name: schema
        for name, schema in components.get("schemas", {}).items()
        if name not in ("HTTPValidationError", "ValidationError")
    }
    components["schemas"] = dict(sorted({**parameter_schemas, **structs}.items()))
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    described["security"] = [{}, {"key": []}]
    for path in described["paths"].values():
        for operation in path.values():
            _replace_validation_error(operation)
    return described


def _replace_validation_error(operation: dict[str, Any]) -> None:
    """Describe invalid parameters as a problem; FastAPI has a shape of its own."""
    if "422" in operation["responses"]:
        operation["responses"]["422"] = problems_of(422)[422]
