"""The OpenAPI document: FastAPI's paths and parameters, the structs' schemas, our sentences.

The docstring of a struct's field is the description of the field; without a docstring, the
description of the type serves. The first line of an operation's description is its summary.
"""

import ast
import inspect
import sys
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from recrawl_client.wire.common import Item
from service.access.roles import Right
from service.api.formats import with_formats
from service.api.openapi import LIMITS, STRUCTS, IndexNowBody, problems_of
from service.api.route import DirectRoute
from service.api.webhook_requests import webhook_requests
from service.model.access import Role

HOME = "https://github.com/recrawl/recrawl"
CONTACT = {"name": "Recrawl", "url": f"{HOME}/issues"}
LICENSE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
SERVERS = [
    {"url": "/", "description": "The service that serves this document"},
    {"url": "http://127.0.0.1:8000", "description": "A service on this computer, as by default"},
]
TAGS = {
    "pages": "Register, list, look up, change and delete pages, one or many.",
    "evidence": "Report crawls; pass on pings, sitemaps and IndexNow submissions.",
    "leases": "Take crawls that are due, under leases.",
    "websub": "Subscribe to topics at WebSub hubs, which announce changes.",
    "schedule": "Read the schedule in force.",
    "changes": "Read the feed of changes that crawls found.",
    "webhooks": "Have the changes sent to an address.",
    "epochs": "Request and list epochs, the runs that compute the schedule.",
    "orders": "Set the budget and pause all hosts, for all servers and without a restart.",
    "history": "Read what was achieved: crawls, changes, freshness, right predictions.",
    "status": "Read the state of the service and what needs you; accept a need for some time.",
    "hosts": "Set and show how hosts, and groups of hosts that share a server, are crawled.",
    "access": "Create, list, rotate and revoke API keys; read the audit.",
    "health": "Check the service and read its metrics.",
    "events": "Receive the changes that a webhook sends; no call of the service.",
}
"""Description of each tag, in the order of the document."""
KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key of `recrawl keys create`, one of `RECRAWL_API_KEYS`, or a token of the "
    "identity provider. The names are roles: read, report, crawl, admin; each includes those "
    "before it. While a service has no key, it needs none.",
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
        servers=SERVERS,
        contact=CONTACT,
        license_info=LICENSE,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    described["components"] = {
        "schemas": schemas(),
        "headers": LIMITS,
        "securitySchemes": {"key": KEY},
    }
    described["security"] = [{"key": [Role.admin.name]}]
    described["webhooks"] = webhook_requests()
    routes = {route.operation_id: route for route in app.routes if isinstance(route, DirectRoute)}
    for path in described["paths"].values():
        for operation in path.values():
            _finish(operation, routes[operation["operationId"]])
    whole: dict[str, Any] = with_formats(described)
    return whole


def _finish(operation: dict[str, Any], route: DirectRoute) -> None:
    """Add what FastAPI leaves out: a summary, keyless access, our problems, nulls of examples."""
    operation["summary"] = operation["description"].partition("\n")[0].rstrip(".")
    if "422" in operation["responses"]:
        operation["responses"]["422"] = problems_of(422)[422]
    _add_right(operation, route.right)
    _add_limits(operation, route.right)
    for status, response in route.responses.items():
        for media_type, content in response.get("content", {}).items():
            if "example" in content:
                described = operation["responses"][str(status)]["content"][media_type]
                described["example"] = content["example"]
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        (kind,) = (each for each in schema.pop("anyOf", [{}]) if each.get("type") != "null")
        parameter["schema"] = {**kind, **schema}  # a URL cannot carry null


def _add_right(operation: dict[str, Any], right: Right) -> None:
    """State the role that the operation needs."""
    if right.role is None:
        operation["security"] = []
        return
    key = {"key": [right.role.name]}
    operation["security"] = [{}, key] if right.public_as or right.site_key else [key]
    operation["description"] += f"\n\nRole: `{right.role.name}`."


def _add_limits(operation: dict[str, Any], right: Right) -> None:
    """State the headers of a key's limit, on what it receives within the limit and beyond."""
    if right.role is None:
        return
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in LIMITS}
    for status, response in operation["responses"].items():
        if status.startswith("2") or int(status) == HTTPStatus.TOO_MANY_REQUESTS:
            response["headers"] = {**response.get("headers", {}), **references}


def schemas() -> dict[str, Any]:
    """Return the schema of each struct by its name."""
    _, components = msgspec.json.schema_components(
        STRUCTS, ref_template="#/components/schemas/{name}"
    )
    for kind in STRUCTS:
        _describe(components[kind.__name__], kind)
    return dict(sorted(components.items()))


def _describe(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Describe each field, list the fields that are always there, and remove the defaults.

    Answers need no defaults, because the service writes every field. A default in the schema of a
    request makes openapi-typescript demand the field.
    """
    docstrings, always = field_docstrings(kind), set(schema.get("required", ()))
    is_answer = not issubclass(kind, (Item, IndexNowBody))
    for name, field in schema["properties"].items():
        branches = [field, *field.get("anyOf", ())]
        phrases = [branch.pop("description", "") for branch in branches]
        field["description"] = docstrings.get(name) or _sentence(next(filter(None, phrases), ""))
        if "default" in field:
            del field["default"]
            if is_answer and not kind.__struct_config__.omit_defaults:
                always.add(name)
    schema["required"] = [name for name in schema["properties"] if name in always]
    schema["description"] = " ".join(schema["description"].split())


def _sentence(phrase: str) -> str:
    return f"{phrase[:1].upper()}{phrase[1:]}." if phrase else ""


def field_docstrings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring of each field of a struct, inherited fields included.

    >>> from recrawl_client.wire.pages import Registered
    >>> field_docstrings(Registered)["created"]
    'Number of pages that are new to the service.'
    """
    return {
        name: text
        for each in reversed(kind.__mro__)
        for name, text in _docstrings(each.__module__).get(each.__qualname__, {}).items()
    }


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of each class at the top of a module."""
    try:
        syntax = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # a module without a source file
        return {}
    return {
        node.name: {
            field.target.id: " ".join(inspect.cleandoc(text.value.value).split())
            for field, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in syntax.body
        if isinstance(node, ast.ClassDef)
    }
