"""Generators of clients find a type for every schema, and a name for everything."""

import keyword
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from support.document import DOCUMENT

from service.api.formats import with_formats

BITS = {"int32": 31, "int64": 63}
OWN_VALUES = {"example", "examples", "default", "enum"}
"""Keys whose values are no schemas."""
FREE = {
    "AuditItem.before",
    "AuditItem.after",
    "Crawl.note",
    "Observation.note",
    "Page.note",
    "PageAnswer.note",
    "ScheduledPage.note",
}
"""Fields with any JSON: values of any setting, and notes of crawlers."""
GO = (
    "break case chan const continue default defer else fallthrough for func go goto if import "
    "interface map package range return select struct switch type var"
)
JAVA = (
    "abstract boolean byte catch char class delete do double enum export extends final finally "
    "float function implements instanceof int let long native new null private protected public "
    "short static super synchronized this throw throws transient try typeof void volatile while "
    "with yield"
)
RESERVED = {*keyword.kwlist, *GO.split(), *JAVA.split()}
"""Reserved words of Python, Go, Java, JavaScript and TypeScript."""
OWN_TYPES = (
    "any array boolean date error file list map number object optional record response request "
    "set string symbol time union"
)
"""Types of languages, in lower case: a component with such a name would hide the type."""


def operations(section: str) -> Iterator[dict[str, Any]]:
    for methods in DOCUMENT[section].values():
        yield from methods.values()


OPERATIONS = [*operations("paths"), *operations("webhooks")]


def schemas(node: Any, place: str = "", *, of_names: bool = False) -> Iterator[tuple[str, Any]]:
    """Return each schema of a part of the document, with its place."""
    if isinstance(node, list):
        for n, item in enumerate(node):
            yield from schemas(item, f"{place}/{n}")
    if not isinstance(node, dict):
        return
    if not of_names:
        yield place, node
    for name, value in node.items():
        if of_names or name not in OWN_VALUES:
            named = name in ("properties", "schemas") and not of_names
            yield from schemas(value, f"{place}/{name}", of_names=named)


ALL = dict(schemas(DOCUMENT))


def kinds(schema: dict[str, Any]) -> set[str]:
    kind = schema.get("type", ())
    return {kind} if isinstance(kind, str) else set(kind)


def test_every_number_has_a_format_that_its_range_fits():
    seen = Counter[str]()
    for place, schema in ALL.items():
        if "integer" in kinds(schema):
            bits = BITS[schema["format"]]
            assert schema.get("maximum", 0) < 2**bits, place
            assert schema.get("minimum", 0) >= -(2**bits), place
        elif "number" in kinds(schema):
            assert schema["format"] == "double", place
        else:
            assert schema.get("format") not in ("int32", "int64", "double", "float"), place
            continue
        seen[schema["format"]] += 1
    assert {*seen} == {"int32", "int64", "double"}
    assert min(seen.values()) > 20


@pytest.mark.parametrize("name", ["page_id", "page_ids", "epoch", "n_pages", "since_epoch"])
def test_ids_and_counts_have_64_bits(name: str):
    end = re.compile(f"/properties/{name}(/items)?$")
    fields = [schema for place, schema in ALL.items() if end.search(place)]
    parameters = [
        parameter["schema"]
        for operation in OPERATIONS
        for parameter in operation.get("parameters", ())
        if parameter["name"] == name
    ]
    numbers = [each for each in fields + parameters if "integer" in kinds(each)]
    assert numbers
    assert {number["format"] for number in numbers} == {"int64"}


def test_a_number_without_both_bounds_gets_the_wide_format():
    assert with_formats({"type": "integer", "maximum": 5})["format"] == "int64"
    assert with_formats({"type": "integer", "minimum": 0})["format"] == "int64"
    assert with_formats({"type": "integer", "exclusiveMinimum": 0})["format"] == "int64"
    narrow = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    assert with_formats(narrow)["format"] == "int32"
    assert with_formats({**narrow, "maximum": 2**31})["format"] == "int64"
    assert with_formats({**narrow, "minimum": -(2**31) - 1})["format"] == "int64"


def test_a_null_is_one_more_type_and_examples_stay_as_they_are():
    either = {
        "description": "A number.",
        "anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}],
    }
    whole = {"type": ["integer", "null"], "minimum": 1, "maximum": 9, "format": "int32"}
    assert with_formats(either) == {**whole, "description": "A number."}
    example = {"type": "integer", "anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert with_formats({"example": example, "examples": [example]})["example"] == example
    fields = {"example": either, "type": {"type": "number"}, "properties": {"type": "integer"}}
    assert with_formats({"properties": fields})["properties"] == {
        "example": {**whole, "description": "A number."},
        "type": {"type": "number", "format": "double"},
        "properties": {"type": "integer", "format": "int64"},
    }
    choice = {"enum": ["a", "b", None]}
    assert with_formats(choice) == {"enum": ["a", "b", None], "type": ["string", "null"]}


def test_only_references_are_joined_with_null():
    for place, schema in ALL.items():
        for joined in ("anyOf", "oneOf", "allOf"):
            # a price may have a currency
            branches = (
                () if place.endswith("/Observation/properties/price") else schema.get(joined, ())
            )
            assert all("$ref" in each or each == {"type": "null"} for each in branches), place
        assert schema.get("type") != "null" or "/anyOf/" in place


def test_nothing_is_free_of_form_unless_it_is_meant_to_be():
    free = set()
    for name, struct in DOCUMENT["components"]["schemas"].items():
        assert struct["type"] == "object"
        assert struct["properties"]
        for field, schema in struct["properties"].items():
            for _, part in schemas(schema):
                if not part.keys() & {"type", "$ref", "anyOf"}:
                    free.add(f"{name}.{field}")
                if "object" in kinds(part):
                    inner = part["additionalProperties"]
                    assert inner is True or inner["type"] == "number"
                    free |= {f"{name}.{field}"} if inner is True else set()
                if "array" in kinds(part):
                    assert part["items"]
    assert free == FREE


def test_operations_are_identifiers_in_every_language():
    names = [operation["operationId"] for operation in OPERATIONS]
    assert all(re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", name) for name in names)
    assert not {*names} & RESERVED
    assert len({name.replace("_", "") for name in names}) == len(names)


def test_parameters_of_an_operation_have_names_of_their_own():
    for operation in OPERATIONS:
        names = [parameter["name"] for parameter in operation.get("parameters", ())]
        plain = [re.sub("[^a-z0-9]", "", name.lower()) for name in names]
        assert len({*plain}) == len(plain)


def test_webhooks_share_no_tag_with_paths_and_are_no_calls():
    tags = {s: {t for o in operations(s) for t in o["tags"]} for s in ("paths", "webhooks")}
    assert tags["webhooks"]
    assert not tags["paths"] & tags["webhooks"]
    assert {tag["name"] for tag in DOCUMENT["tags"]} == tags["paths"] | tags["webhooks"]
    assert all(operation["x-internal"] is True for operation in operations("webhooks"))
    assert not any("x-internal" in operation for operation in operations("paths"))


def test_tags_become_files_and_classes_of_their_own():
    names = [tag["name"] for tag in DOCUMENT["tags"]]
    assert all(re.fullmatch("[a-z]+", name) for name in names)
    assert not {*names} & RESERVED


def test_components_are_classes_in_every_language():
    names = list(DOCUMENT["components"]["schemas"])
    assert all(re.fullmatch("[A-Z][A-Za-z0-9]*", name) for name in names)
    assert len({name.lower() for name in names}) == len(names)
    assert not {name.lower() for name in names} & {*RESERVED, *OWN_TYPES.split()}
    for name, struct in DOCUMENT["components"]["schemas"].items():
        plain = {field.replace("_", "").lower() for field in struct["properties"]}
        assert len(plain) == len(struct["properties"]), name


@pytest.mark.parametrize("place", ["Problem/properties/type", "ChangeEvent/properties/source"])
def test_addresses_of_our_own_are_uris(place: str):
    assert ALL[f"/components/schemas/{place}"]["format"] == "uri"


def test_urls_of_pages_are_no_uris():
    # the normal form keeps `|` and `[`, which generated clients would refuse in a `uri`
    assert not any(s.get("format") == "uri" for p, s in ALL.items() if p.endswith("/url"))
