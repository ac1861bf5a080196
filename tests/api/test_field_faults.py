"""Wrong values of every field and parameter: each error is in our words, and names a remedy."""

import importlib
import json
import pkgutil
import re
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from support.document import DOCUMENT
from support.live_server import Live, running

import recrawl_client.wire
from recrawl_client.wire.common import Item
from service.model.field_faults import descriptions, expected

SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
PHRASES = (
    "Input should",
    "Expected `",
    "value_error",
    "type_error",
    "unable to parse",
    "Field required",
    "String should",
    "Object missing",
    "Object contains",
    "Invalid enum",
    "Invalid RFC",
    "is malformed",
    "was truncated",
    "Expecting ",
    "Extra data",
    "`$",
    "$.",
    *(f"`{name}`" for name in ("str", "int", "float", "bool", "null", "array", "object")),
)
"""Phrases of pydantic, msgspec and the json module."""
TEXTS = (
    "",
    "x",
    "-1",
    "0",
    "1.5",
    "1e400",
    "NaN",
    "null",
    "9" * 30,
    "2026-05-01",
    "é",
    "%00",
    "\x00",
    "a b",
)
VALUES: tuple[Any, ...] = (None, True, -1, 0, 1.5, 10**12, 10**30, float("nan"), "", "x", "é" * 400)
VALUES += ([], {}, [[]], [1], [""], {"x": 1}, "2026-05-01T12:00:00", "\ud800", "x\n")
WHOLE = ("", " ", "{", "[", "null", "3", '"x"', "[[]]", "{}{}", '{"x" 1}', "[1,]", "\x00", "NaN")
PATHS = {
    "page_id": "1",
    "lease": "1-ff",
    "host": "a.example",
    "group": "shared",
    "epoch": "1",
    "subscription_id": "A" * 22,
    "key_id": "0" * 10,
    "webhook_id": "A" * 22,
}


@pytest.fixture(scope="module")
def live(sqlite_template, tmp_path_factory) -> Iterator[Live]:
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("wording") / "recrawl.db")
    with running(f"sqlite:///{path}") as live:
        live.register("https://a.example/")
        live.epoch()
        yield live


def needed(operation: dict[str, Any]) -> dict[str, str]:
    """Return the query parameters that an operation demands."""
    return {
        parameter["name"]: parameter["schema"]["examples"][0]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["required"]
    }


def sent(live: Live, name: str, **request: Any) -> httpx.Response:
    """Call an operation with its needs, but for what the request replaces."""
    method, path, operation = OPERATIONS[name]
    path = path.format(**PATHS | request.pop("path", {}))
    params = needed(operation) | request.pop("params", {})
    return live.client.request(method, path, params=params, **request)


def assert_plain(response: httpx.Response) -> dict[str, Any]:
    """Check that a refusal is a problem without a library's phrase; return the problem."""
    assert response.headers["Content-Type"] == "application/problem+json"
    for phrase in PHRASES:
        assert phrase not in response.text, response.text
    problem = response.json()
    assert problem["detail"]
    return problem


TAKE_ANY = {"verify_subscription", "post_content", "get_indexnow"}
"""Operations of strangers' protocols: their parameters are texts, judged by the endpoint."""
ANY_TEXT = {("list_url_groups", "prefix"), ("list_leases", "hosts")}
"""Parameters that take any text: nothing has such a name."""
PARAMETERS = [
    (name, parameter["in"], parameter["name"])
    for name, (_, _, operation) in OPERATIONS.items()
    for parameter in operation.get("parameters", ())
    if parameter["in"] != "header"
]


@pytest.mark.dear
def test_a_nul_in_a_parameter_is_no_fault_of_the_service(database_url):
    with running(database_url) as live:
        live.register("https://a.example/")
        live.epoch()
        for name, place, parameter in PARAMETERS:
            if place == "query":
                response = sent(live, name, params={parameter: "a\x00b"}, content=b"")
                assert response.status_code < 500, (name, parameter, response.text)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("name", "place", "parameter"), PARAMETERS)
def test_a_wrong_parameter_is_refused_in_our_words(live, name, place, parameter):
    n_refused = 0
    for text in TEXTS:
        if place == "path" and text in ("", "%00", "\x00"):
            continue
        where = "path" if place == "path" else "params"
        response = sent(live, name, **{where: {parameter: text}}, content=b"")
        if response.status_code < 400:
            continue
        problem = assert_plain(response)
        n_refused += 1
        if problem["type"].endswith("invalid-parameter"):
            assert problem["field"] == parameter
            assert problem["detail"].startswith(
                f"{parameter} is {json.dumps(text, ensure_ascii=False)}; send "
            )
    any_text = name in TAKE_ANY or (name, parameter) in ANY_TEXT
    assert n_refused or any_text


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_missing_or_an_unknown_parameter_is_refused_in_our_words(live, name):
    method, path, operation = OPERATIONS[name]
    for parameter in needed(operation):
        others = {key: value for key, value in needed(operation).items() if key != parameter}
        response = live.client.request(method, path.format(**PATHS), params=others)
        problem = assert_plain(response)
        assert problem["field"] == parameter
        assert problem["detail"].startswith(f"{parameter} is missing; send ")
    lenient = ("get_indexnow", "post_indexnow", "metrics")
    guarded = operation.get("security") != [] and name not in lenient
    if guarded:
        problem = assert_plain(sent(live, name, params={"nosuch": "1"}))
        assert "nosuch: no such parameter; remove it" in problem["detail"]


BODIES = {
    name: operation["requestBody"]["content"]["application/json"]
    for name, (_, _, operation) in OPERATIONS.items()
    if "application/json" in operation.get("requestBody", {}).get("content", {})
}


def fields_of(name: str) -> tuple[bool, dict[str, Any], list[str]]:
    """Return whether a body is a batch, the schemas of its fields, and those it demands."""
    schema = BODIES[name]["schema"]
    reference = schema.get("items", schema)["$ref"]
    kind = SCHEMAS[reference.rpartition("/")[2]]
    return "items" in schema, kind["properties"], kind["required"]


EXTRA = {
    "post_indexnow": {"nosuch", ""},
    "post_observations": {"bytes", "seconds", "price"},
    "post_leases": {"bytes", "seconds", "price"},
}
"""Unknown fields that an operation takes, because the protocol may have further ones, and costs,
which are left out where they are wrong (`left_out`)."""


AT_ONCE = {"post_leases": {"wait_s": 0}}
"""Fields of an example whose request would wait."""


def items_of(name: str) -> list[tuple[str, Any]]:
    """Return objects that are wrong in one field, each with the name of the field."""
    is_batch, fields, required = fields_of(name)
    example = BODIES[name]["example"]
    good = example[0] if is_batch else {**example, **AT_ONCE.get(name, {})}
    wrong = [(field, {**good, field: value}) for field in fields for value in VALUES]
    wrong += [(field, {k: v for k, v in good.items() if k != field}) for field in required]
    return [*wrong, ("nosuch", {**good, "nosuch": 1}), ("", {**good, "": 1})]


@pytest.mark.dear
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_field_is_refused_in_our_words(live, name):
    is_batch, fields, _ = fields_of(name)
    named = set()
    for field, item in items_of(name):
        content = json.dumps([item] if is_batch else item)
        response = sent(live, name, content=content, headers={"Content-Type": "application/json"})
        if response.status_code < 400:
            continue
        problem = assert_plain(response)
        if response.status_code == 422:
            assert "; " in problem["detail"], problem["detail"]
            named.add(problem.get("field"))
        elif name == "post_indexnow":
            named.add(field)
    assert named >= {*fields, "nosuch", ""} - EXTRA.get(name, set())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson", "text/csv", ""])
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_json_is_refused_in_our_words(live, name, media_type):
    for content in WHOLE:
        response = sent(live, name, content=content, headers={"Content-Type": media_type})
        if response.status_code >= 400:
            assert_plain(response)
        else:  # blank lines are no items
            assert (media_type, content.strip()) == ("application/x-ndjson", "")


def test_a_secret_is_not_repeated(live):
    body = {**BODIES["post_subscription"]["example"], "secret": "my secret"}
    response = live.client.post("/websub", json=body)
    assert response.status_code == 422
    assert "my secret" not in response.text
    assert response.json()["detail"].startswith("secret has a wrong form; send 1 to 199")


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        (
            "post_leases",
            '{"count": 0}',
            "count is 0; send a whole number of crawls, 1 to 1,000",
        ),
        (
            "post_leases",
            '{"hosts": ["a.example", 7]}',
            "hosts[1] is 7; send a list of at most 100 host names, each of 1 to 253 characters",
        ),
        (
            "post_leases",
            '{"report": {"lease": "1-aa"}}',
            "report is an object; send a list of objects",
        ),
        (
            "patch_page",
            '{"importance": "high"}',
            'importance is "high"; send a positive number up to 1e9',
        ),
        (
            "patch_lease",
            "{}",
            "ttl_s is missing; send a number of seconds from now, 1 to 86,400",
        ),
        (
            "patch_lease",
            '{"ttl_s": 5, "x": 1}',
            '"x" is no field of this; remove it, known fields are ttl_s',
        ),
        ("patch_lease", "[]", "this is a list; send an object with ttl_s"),
        (
            "patch_lease",
            '{"ttl_s": 5]',
            (
                'the body is not JSON: column 12: "]" cannot stand there; '
                "correct it and send it again"
            ),
        ),
        (
            "post_indexnow",
            '{"host": "a.example", "key": 7, "urlList": []}',
            (
                "the body is not IndexNow: key is no string; "
                "send url and key, or POST host, key and urlList"
            ),
        ),
    ],
)
def test_a_detail_names_the_field_the_value_and_the_remedy(live, name, content, detail):
    response = sent(live, name, content=content, headers={"Content-Type": "application/json"})
    assert response.json()["detail"] == detail


def remedies() -> Iterator[str]:
    """Yield what to send for each parameter, and for each field of each struct of a body."""
    for _, _, operation in OPERATIONS.values():
        for parameter in operation.get("parameters", ()):
            if parameter["in"] != "header":
                text = {"description": parameter.get("description", "")}
                yield expected(text | parameter["schema"])
    for name in BODIES:
        _, properties, _ = fields_of(name)
        yield from (expected(schema) for schema in properties.values())


PLAIN = {
    "array": r"a list of |\d+ to \d+ values, ",
    "object": "an object$",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false$",
}
"""Start of the remedy for each type of JSON but text."""


def test_no_list_object_or_number_is_answered_with_send_text():
    wrong = []
    for name, schema in SCHEMAS.items():
        for field, content in schema.get("properties", {}).items():
            choices = [each for each in content.get("anyOf", ()) if each.get("type") != "null"]
            kind = (choices[0] if choices else content).get("type")
            start = PLAIN.get(kind) if isinstance(kind, str) and "enum" not in content else None
            if start and not re.match(start, remedy := expected(content)):
                wrong.append((name, field, remedy))
    assert wrong == []


def test_each_remedy_of_a_body_has_the_type_of_its_field():
    wrong = []
    for kind in bodies_of_the_wire():
        (_,), components = msgspec.json.schema_components([kind])
        for field, content in components[kind.__name__]["properties"].items():
            remedy = descriptions(kind)[field]
            is_list = "array" in {each.get("type") for each in (content, *content.get("anyOf", ()))}
            if is_list and not remedy.startswith("a list of "):
                wrong.append((kind.__name__, field, remedy))
    assert wrong == []


def bodies_of_the_wire() -> Iterator[type[Item]]:
    """Yield the structs of bodies: every subclass of `Item`."""
    for module in pkgutil.iter_modules(recrawl_client.wire.__path__):
        names = vars(importlib.import_module(f"recrawl_client.wire.{module.name}"))
        for each in names.values():
            if isinstance(each, type) and issubclass(each, Item) and each.__struct_fields__:
                yield each


def test_each_remedy_is_an_end_of_the_sentence_send():
    wrong = [
        text
        for text in remedies()
        if re.match("[a-z][A-Z]|[A-Z][a-z]", text) or re.search(r"[0-9]\.0\b", text)
    ]
    assert wrong == []
    texts = [text for text in remedies() if re.match("(tag|name|id|token|url|kind)s? ", text)]
    assert texts == [], "a noun needs its article"


@pytest.mark.parametrize(
    ("method", "path", "request_", "detail"),
    [
        ("POST", "/pages", {"json": [{"url": 5}]}, "the only item was rejected; item 0: url is 5"),
        ("POST", "/pages", {"json": [5, 6]}, "all 2 items were rejected; item 0: this is 5"),
        ("GET", "/pages", {"params": {"cursor": "x\0"}}, '"x\\u0000" is no cursor of GET /pages'),
        ("GET", "/pages", {"params": {"host": "x\0"}}, '"x\\u0000" is not a host name; send'),
        (
            "POST",
            "/leases",
            {"headers": {"Idempotency-Key": "x" * 3_000}, "json": {}},
            "; send a text that is new for each request, such as a UUID, at most 255 characters",
        ),
        (
            "GET",
            "/leases",
            {"params": {"hosts": ["a.example"] * 101}},
            "hosts is a list of 101 items; send the name of a host, repeated for several",
        ),
        ("GET", "/pages", {"params": {"url": "x" * 3_000}}, "3,000 bytes; send at most 2,048"),
        ("GET", "/epochs/1", {"params": {"x": "1"}}, "remove it, this path takes none"),
        (
            "PUT",
            "/budget",
            {"content": b"{}", "headers": {"Content-Type": "text/csv"}},
            'the body is "text/csv"; send it as application/json: one object',
        ),
    ],
)
def test_a_refusal_states_the_value_and_the_remedy(live, method, path, request_, detail):
    response = live.client.request(method, path, **request_)
    assert 400 <= response.status_code < 500
    assert detail in assert_plain(response)["detail"]
