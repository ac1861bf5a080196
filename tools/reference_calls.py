"""The page of the Python client in docs/reference/, and words that all pages share."""

import ast
import inspect
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, is_typeddict

from msgspec import Struct

import recrawl_client

ROOT = Path(__file__).parents[1]
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


def fields(kind: type) -> list[tuple[str, str, str]]:
    """Return the name, the type and the docstring of each field of a dictionary with types."""
    statements = list(ast.walk(ast.parse(inspect.getsource(kind))))[1].body  # type: ignore[attr-defined]
    rows = []
    for field, after in pairwise([*statements, None]):
        if isinstance(field, ast.AnnAssign):
            text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            name, type_ = ast.unparse(field.target), ast.unparse(field.annotation)
            rows.append((code(name), code(type_), sentence(text)))
    return rows


def client() -> str:
    """Return the page of the Python client."""
    parts = [CLIENT_HEAD]
    classes = {name: kind for name, kind in vars(recrawl_client).items() if inspect.isclass(kind)}
    for name, kind in classes.items():
        if issubclass(kind, Struct | Exception):
            continue
        parts += [f"## {name}", docstring(kind)]
        if is_typeddict(kind):
            parts.append(table("field | type | meaning", fields(kind)))
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
