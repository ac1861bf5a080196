"""The pages of docs/reference/http/: one for each tag of the OpenAPI document, one of objects."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from reference_calls import ROOT, code, sentence, table

HEAD = """# HTTP

A service with API keys requires the header `Authorization: Bearer KEY`; each call names the role
that the key needs. Every error is a
[problem](problems.md). `GET /docs` of a running service shows these pages with examples."""
OBJECTS = "objects"
"""Page of the objects that several tags use."""
OBJECTS_HEAD = """# HTTP: objects

JSON objects in requests and answers of several of the [groups of calls](../http.md). An object of
one group is described on its page."""
REFERENCE = re.compile(r'"#/components/schemas/(\w+)"')
LINK = re.compile(r"\]\((?!\w+:|#)")
"""Beginning of a link to another page."""

Schema = dict[str, Any]
Link = Callable[[str], str]
"""Function from the name of an object to the address of its description."""


def kind_of(schema: Schema, link: Link) -> str:
    """Return the type of a JSON value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({link(name)})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind_of(each, link) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind_of({**schema, "type": each}, link) for each in kind)
    if kind == "array":
        return f"array of {kind_of(schema['items'], link)}"
    return str(schema.get("format", kind)) if kind == "string" else str(kind)


def properties(schema: Schema, glossary: dict[str, str], link: Link) -> str:
    """Return the table of an object's properties; the glossary has meanings that it lacks."""
    required = set(schema.get("required", ()))
    rows = [
        (
            code(name) + ("" if name in required else " (optional)"),
            kind_of(value, link),
            sentence(value.get("description", "")) or glossary.get(name, ""),
        )
        for name, value in schema.get("properties", {}).items()
    ]
    return table("property | type | meaning", rows)


def operation(title: str, described: Schema, link: Link) -> Iterator[str]:
    """Yield the parts of one call's description."""
    yield f"## {title}"
    if described.get("description"):
        yield described["description"]
    rows = [
        (
            code(one["name"]),
            one["in"],
            kind_of(one["schema"], link),
            sentence(one.get("description", "")),
        )
        for one in described.get("parameters", ())
    ]
    if rows:
        yield table("parameter | in | type | meaning", rows)
    for media, content in described.get("requestBody", {}).get("content", {}).items():
        yield f"Body `{media}`: {kind_of(content['schema'], link)}."
    rows = []
    for status, answer in sorted(described["responses"].items()):
        kinds = [
            kind_of(content["schema"], link)
            for media, content in answer.get("content", {}).items()
            if content.get("schema") and "json" in media
        ]
        rows.append((status, sentence(answer["description"]), " or ".join(dict.fromkeys(kinds))))
    yield table("status | meaning | answer", rows)


def definitions() -> dict[str, str]:
    """Return the meaning of each word of the glossary, with links from docs/reference/http/."""
    text = LINK.sub("](../../", (ROOT / "docs" / "glossary.md").read_text())
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", text, re.MULTILINE)
    return {word: meaning for names, meaning in rows for word in re.findall(r"`([^`]+)`", names)}


def anchor(title: str) -> str:
    """Return the anchor of a heading.

    >>> anchor("GET /pages/{page_id}")
    'get-pagespage_id'
    """
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def calls(document: Schema) -> dict[str, dict[str, Schema]]:
    """Return the calls of each tag by their titles, in the order of the document."""
    by_tag: dict[str, dict[str, Schema]] = defaultdict(dict)
    for path, operations in document["paths"].items():
        for method, described in operations.items():
            by_tag[described["tags"][0]][f"{method.upper()} {path}"] = described
    return dict(by_tag)


def places(document: Schema) -> dict[str, str]:
    """Return the page of each object: that of its only tag, or `OBJECTS`."""
    schemas = document["components"]["schemas"]
    tags: dict[str, set[str]] = {name: set() for name in schemas}
    for tag, described in calls(document).items():
        waiting = set(REFERENCE.findall(json.dumps(described)))
        while waiting:
            name = waiting.pop()
            if tag not in tags[name]:
                tags[name].add(tag)
                waiting |= set(REFERENCE.findall(json.dumps(schemas[name])))
    return {name: next(iter(of)) if len(of) == 1 else OBJECTS for name, of in tags.items()}


def http() -> dict[PurePosixPath, str]:
    """Return the page of all calls, those of the tags and that of the objects, by their paths."""
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    by_tag, place, glossary = calls(document), places(document), definitions()

    def linking(page: str) -> Link:
        return lambda name: f"{'' if place[name] == page else f'{place[name]}.md'}#{anchor(name)}"

    def objects(page: str) -> Iterator[str]:
        for name, schema in document["components"]["schemas"].items():
            if place[name] == page:
                yield f"{'##' if page == OBJECTS else '###'} {name}"
                yield schema.get("description", "")
                yield properties(schema, glossary, linking(page))

    pages = {"http.md": [HEAD, document["info"]["description"].strip(), *summary(by_tag, place)]}
    for tag, described in by_tag.items():
        parts = [f"# HTTP: {tag}"]
        for title, one in described.items():
            parts += operation(title, one, linking(tag))
        own = [*objects(tag)]
        pages[f"http/{tag}.md"] = [*parts, *(["## Objects", *own] if own else [])]
    pages[f"http/{OBJECTS}.md"] = [OBJECTS_HEAD, *objects(OBJECTS)]
    return {
        PurePosixPath(path): "\n\n".join(part for part in parts if part) + "\n"
        for path, parts in pages.items()
    }


def summary(by_tag: dict[str, dict[str, Schema]], place: dict[str, str]) -> Iterator[str]:
    """Yield lists of all calls and objects; their anchors keep older links alive."""
    for tag, described in by_tag.items():
        yield f"## [{tag}](http/{tag}.md)"
        yield table(
            "call | meaning",
            [
                (row(title, f"http/{tag}.md"), sentence(one.get("summary", "")))
                for title, one in described.items()
            ],
        )
    yield f"## [{OBJECTS}](http/{OBJECTS}.md)"
    yield table("object | page", [(row(name, f"http/{at}.md"), at) for name, at in place.items()])


def row(title: str, page: str) -> str:
    """Return a link to a heading of a page, which has the heading's anchor itself."""
    return f'<a id="{anchor(title)}"></a>[{title}]({page}#{anchor(title)})'
