"""The OpenAPI document: FastAPI's paths and parameters, the structs' schemas, our examples."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api import host_schemas, page_schemas, schemas, websub_schemas
from service.api.bodies import JSON, NDJSON

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
    for kind in {
        **vars(schemas),
        **vars(page_schemas),
        **vars(host_schemas),
        **vars(websub_schemas),
    }.values()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind not in (msgspec.Struct, schemas.Item, schemas.BatchAnswer)
]


def ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Refer to the schema of a struct."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def takes(kind: type[msgspec.Struct], example: Any, *, batch: bool = True) -> dict[str, Any]:
    """Describe a request body: a batch of items, or one object."""
    schema = {"type": "array", "items": ref(kind)} if batch else ref(kind)
    content: dict[str, Any] = {JSON: {"schema": schema, "example": example}}
    if batch:
        lines = "\n".join(msgspec.json.encode(item).decode() for item in example)
        content[NDJSON] = {"schema": {"type": "string"}, "example": lines}
    return {"requestBody": {"required": True, "content": content}}


def takes_document(example: str) -> dict[str, Any]:
    """Describe a request body that is a document, not JSON."""
    text, binary = {"type": "string"}, {"type": "string", "format": "binary"}
    content = {
        "application/xml": {"schema": text, "example": example},
        "text/plain": {"schema": text},
        "application/gzip": {"schema": binary},
    }
    return {"requestBody": {"required": True, "content": content}}


def takes_feed(example: str) -> dict[str, Any]:
    """Describe a request body that may be anything, and best is Atom or RSS."""
    content = {
        "application/atom+xml": {"schema": {"type": "string"}, "example": example},
        "*/*": {"schema": {"type": "string", "format": "binary"}},
    }
    return {"requestBody": {"required": True, "content": content}}


def gives(
    kind: type[msgspec.Struct], example: Any, *problems: int, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """Describe the answers: the good one, and a problem for each status."""
    good = {
        "description": (kind.__doc__ or "").splitlines()[0],
        "content": {JSON: {"schema": ref(kind), "example": example}},
    }
    return {status: good, **refuses(*EVERYWHERE, *problems)}


def streams(example: Any, *media: str) -> dict[str, Any]:
    """Describe the same answer as a stream: NDJSON, or bytes of another kind."""
    line = msgspec.json.encode(example).decode()
    return {
        kind: {"schema": {"type": "string"}, "example": line}
        if kind == NDJSON
        else {"schema": {"type": "string", "format": "binary"}}
        for kind in media
    }


def tells(kind: type[msgspec.Struct], example: Any, *problems: int) -> dict[int | str, Any]:
    """Describe the answers of a call that needs no key, and perhaps no database."""
    return {200: gives(kind, example)[200], **refuses(*problems)}


def refuses(*problems: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems of these statuses."""
    return {
        status: {
            "description": TITLES[status],
            "content": {"application/problem+json": {"schema": ref(schemas.Problem)}},
        }
        for status in sorted(set(problems))
    }


def install(app: FastAPI) -> None:
    """Let the application describe itself with the structs' schemas."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """Write the OpenAPI document of the application."""
    described = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = described.setdefault("components", {})
    _, structs = msgspec.json.schema_components(STRUCTS, ref_template="#/components/schemas/{name}")
    kept = {
        name: schema
        for name, schema in components.get("schemas", {}).items()
        if name not in ("HTTPValidationError", "ValidationError")
    }
    components["schemas"] = dict(sorted({**kept, **structs}.items()))
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    described["security"] = [{}, {"key": []}]
    for path in described["paths"].values():
        for operation in path.values():
            _replace_validation_error(operation)
    return described


def _replace_validation_error(operation: dict[str, Any]) -> None:
    """FastAPI describes refused parameters in its own shape; ours is a problem."""
    if "422" in operation["responses"]:
        operation["responses"]["422"] = refuses(422)[422]
