"""The pages of docs/reference/ on calls: over HTTP, and of the Python client."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

import recrawl_client

ROOT = Path(__file__).parents[1]
HTTP_HEAD = """# HTTP

A service with API keys requires the header `Authorization: Bearer KEY`; each call names the role
that the key needs. Every error is a
[problem](problems.md). `GET /docs` of a running service shows this page with examples."""
CLIENT_HEAD = """# Python client

In a checkout, `pip install ./recrawl_client` installs the package `recrawl_client`, and
`pip install './recrawl_client[scrapy]'` its scheduler for Scrapy too. It needs httpx, msgspec and
protego, and nothing of the service. Fields of values have the names of the
[glossary](../glossary.md)."""


def table(header: str, rows: list[tuple[str, ...]]) -> str:
    """Return a table; `header` has the titles, separated by |."""
    n_columns = header.count("|") + 1
    lines = [f"| {header} |", "|" + " --- |" * n_columns]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code(text: object) -> str:
    """Return text as code, nothing as nothing."""
    return f"`{text}`" if str(text) else ""


def sentence(text: str) -> str:
    """Return text in one line."""
    return " ".join(text.split())


# -- HTTP


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a JSON value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(kind_of, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind_of({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"array of {kind_of(schema['items'])}"
    return str(schema.get("format", kind)) if kind == "string" else str(kind)


def description(schema: dict[str, Any], glossary: dict[str, str], name: str) -> str:
    """Return the meaning of a property, from the document or else from the glossary."""
    text = schema.get("description")
    return sentence(text) if text else glossary.get(name, "")


def properties(schema: dict[str, Any], glossary: dict[str, str]) -> str:
    """Return the table of an object's properties."""
    required = set(schema.get("required", ()))
    rows = [
        (
            code(name) + ("" if name in required else " (optional)"),
            kind_of(value),
            description(value, glossary, name),
        )
        for name, value in schema.get("properties", {}).items()
    ]
    return table("property | type | meaning", rows)


def operation(method: str, path: str, described: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of one call's description."""
    yield f"### {method.upper()} {path}"
    if described.get("description"):
        yield described["description"]
    rows = [
        (code(one["name"]), one["in"], kind_of(one["schema"]), sentence(one.get("description", "")))
        for one in described.get("parameters", ())
    ]
    if rows:
        yield table("parameter | in | type | meaning", rows)
    for media, content in described.get("requestBody", {}).get("content", {}).items():
        yield f"Body `{media}`: {kind_of(content['schema'])}."
    rows = []
    for status, answer in sorted(described["responses"].items()):
        kinds = [
            kind_of(content["schema"])
            for media, content in answer.get("content", {}).items()
            if content.get("schema") and "json" in media
        ]
        rows.append((status, sentence(answer["description"]), " or ".join(dict.fromkeys(kinds))))
    yield table("status | meaning | answer", rows)


def definitions() -> dict[str, str]:
    """Return the meaning of each word of the glossary."""
    text = (ROOT / "docs" / "glossary.md").read_text().replace("](reference/", "](")
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", text, re.MULTILINE)
    return {word: meaning for names, meaning in rows for word in re.findall(r"`([^`]+)`", names)}


def http() -> str:
    """Return the page of the HTTP interface."""
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, described in operations.items():
            by_tag.setdefault(described["tags"][0], []).extend(operation(method, path, described))
    glossary = definitions()
    parts = [HTTP_HEAD, document["info"]["description"].strip()]
    for tag, calls in by_tag.items():
        parts += [f"## Calls: {tag}", *calls]
    parts.append("## Objects")
    for name, schema in document["components"]["schemas"].items():
        parts += [f"### {name}", schema.get("description", ""), properties(schema, glossary)]
    return "\n\n".join(part for part in parts if part) + "\n"


# -- the client


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return a call with its parameters and their defaults, without types."""
    parameters = inspect.signature(function).parameters.values()
    bare = [one.replace(annotation=one.empty) for one in parameters if one.name != "self"]
    listed = str(inspect.Signature(bare)) if inspect.isfunction(function) else ""
    return f"{name}{listed}"


def docstring(kind: object) -> str:
    """Return a docstring with its examples and sections as code."""
    text = inspect.getdoc(kind) or ""
    head, _, rest = text.partition("\n\n")
    return f"{head}\n\n```text\n{rest}\n```" if rest else head


def client() -> str:
    """Return the page of the Python client."""
    parts = [CLIENT_HEAD]
    classes = {name: kind for name, kind in vars(recrawl_client).items() if inspect.isclass(kind)}
    for name, kind in classes.items():
        if issubclass(kind, Struct | Exception):
            continue
        parts += [f"## {name}", docstring(kind)]
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            if not method.startswith("_"):
                parts += [f"### {name}.{method}", f"`{signature(method, function)}`"]
                parts.append(docstring(function))
    rows = [(code(n), sentence(k.__doc__ or "")) for n, k in classes.items()]
    errors = [
        row for row, k in zip(rows, classes.values(), strict=True) if issubclass(k, Exception)
    ]
    values = [row for row, k in zip(rows, classes.values(), strict=True) if issubclass(k, Struct)]
    parts += ["## Errors", table("error | meaning", errors)]
    parts += ["## Values", table("value | meaning", values)]
    return "\n\n".join(part for part in parts if part) + "\n"
