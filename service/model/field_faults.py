"""Words for values of the wrong type or range: the field, the value, and what to send.

msgspec and pydantic have phrases of their own, which name types of Python. This module reads the
fault from msgspec's message and states it in words for people.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec

from service.model.words import number

MAX_SHOWN = 60
"""Maximum length of a value that an error repeats, characters."""
MAX_NAME = 300
"""Maximum length of a name from the request that an error repeats, characters."""
SECRETS = frozenset({"secret"})
"""Fields whose values no error repeats."""
ARTICLES = frozenset({"A", "An", "The"})
"""First words of a description that needs no other article."""
UNBOUNDED = 2**62
"""Bounds above this are not worth a mention."""


class Fault(NamedTuple):
    """A fault of a value, as msgspec reports it."""

    kind: Literal["unknown", "missing", "invalid"]
    field: str | None
    """Name of the field; None when the value as a whole is wrong."""
    entry: int | None = None
    """Position in the field's list."""

    @property
    def place(self) -> str:
        """The field, or the entry of its list."""
        return f"{self.field}" if self.entry is None else f"{self.field}[{self.entry}]"


def fault_of(error: msgspec.ValidationError) -> Fault:
    """Return the fault that a message of msgspec states.

    >>> fault_of(msgspec.ValidationError("Expected `str`, got `int` - at `$.hosts[1]`"))
    Fault(kind='invalid', field='hosts', entry=1)
    """
    reason, _, path = str(error).partition(" - at `$")
    if named := re.search(r"(unknown|missing required) field `(.*)`$", reason, re.DOTALL):
        return Fault("unknown" if named[1] == "unknown" else "missing", named[2][:MAX_NAME])
    if place := re.match(r"\.(\w+)(?:\[(\d+)\])?", path):
        return Fault("invalid", place[1], None if place[2] is None else int(place[2]))
    return Fault("invalid", None)


def worded(fault: Fault, value: Any, kind: type[msgspec.Struct]) -> str:
    """Return what is wrong with a value that is to become a struct, and what to send.

    >>> from typing import Annotated
    >>> class Move(msgspec.Struct):
    ...     days: Annotated[int, msgspec.Meta(ge=1, description="a whole number of days")]
    >>> worded(Fault("invalid", "days"), {"days": "soon"}, Move)
    'days is "soon"; send a whole number of days'
    """
    names = ", ".join(kind.__struct_fields__)
    if fault.field is None:
        return f"this is {shown(value)}; send an object with {names}"
    if fault.kind == "unknown":
        return f"{shown(fault.field)} is no field of this; remove it, known fields are {names}"
    remedy = f"; send {descriptions(kind)[fault.field]}"
    if fault.kind == "missing":
        return f"{fault.field} is missing{remedy}"
    if fault.field in SECRETS:
        return f"{fault.field} has a wrong form{remedy}"
    wrong = value.get(fault.field) if isinstance(value, Mapping) else None
    if fault.entry is not None and isinstance(wrong, list):
        wrong = wrong[fault.entry]
    return f"{fault.place} is {shown(wrong)}{remedy}"


@cache
def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return what to send for each field: the description of its type, or else its range."""
    (_,), components = msgspec.json.schema_components([kind])
    properties = components[kind.__name__]["properties"]
    phrases = {
        name: [each.get("description") for each in (schema, *schema.get("anyOf", ()))]
        for name, schema in properties.items()
    }
    return {
        name: next(filter(None, phrases[name]), None) or expected(schema)
        for name, schema in properties.items()
    }


def shown(value: Any) -> str:
    """Return a value as JSON, as far as an error repeats it.

    >>> shown("x" * 100 + "end"), shown([1, 2]), shown(None)
    ('"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"…', 'a list of 2 items', 'null')
    """
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,} items" if len(value) > 1 else "a list"
    if not isinstance(value, str):
        return json.dumps(value, default=str)[:MAX_SHOWN]
    text = json.dumps(value[:MAX_SHOWN], ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "…" * (len(value) > MAX_SHOWN)


def expected(schema: Mapping[str, Any]) -> str:
    """Return what values a JSON Schema takes, as what to send.

    >>> expected({"type": "integer", "minimum": 1, "maximum": 1000})
    'a whole number from 1 to 1,000'
    >>> expected({"type": "number", "minimum": 1e-9, "maximum": 1e15})
    'a number from 0.000000001 to 1,000,000,000,000,000'
    """
    if choices := [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]:
        schema = {**schema, **choices[0]}
    if words := schema.get("enum"):
        return f"one of {', '.join(map(str, words))}"
    kind = "object" if "$ref" in schema else schema.get("type")
    if kind in ("boolean", "object"):
        return "true or false" if kind == "boolean" else "an object"
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _range(schema)
    if kind == "array":
        return _list(schema)
    if schema.get("format") == "date-time":
        return "an RFC 3339 instant with a zone, such as 2026-05-01T12:00:00Z"
    first_sentence = str(schema.get("description", "")).partition(". ")[0].rstrip(".")
    phrase = _with_article(first_sentence)
    return (
        f"{phrase}, at most {schema['maxLength']:,} characters" if "maxLength" in schema else phrase
    )


def _list(schema: Mapping[str, Any]) -> str:
    """Return what a schema of a list takes.

    >>> _list({"items": {"type": "object"}}), _list({"items": {"type": "integer"}, "maxItems": 9})
    ('a list of objects', 'a list of at most 9 values, each a whole number')
    """
    most, each = schema.get("maxItems"), expected(schema.get("items", {}))
    if "minItems" in schema:
        return f"{schema['minItems']} to {most} values, each {each}"
    counts = "a list of " + ("" if most is None else f"at most {most:,} ")
    plural = {"an object": "objects", "text": "texts"}.get(each)
    return counts + (plural or f"values, each {each}")


def _with_article(description: str) -> str:
    """Return the description of a text as what to send.

    >>> [_with_article(each) for each in ("Tag of the pages", "URL of the page", "", "A name")]
    ['the tag of the pages', 'the URL of the page', 'text', 'a name']
    """
    if not description:
        return "text"
    first = description.partition(" ")[0]
    is_word = first[1:].islower() or first in ARTICLES
    phrase = (description[0].lower() if is_word else description[0]) + description[1:]
    return phrase if first in ARTICLES else f"the {phrase}"


def _plain(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else number(value, 9)


def _range(schema: Mapping[str, Any]) -> str:
    low, high, step = (schema.get(name) for name in ("minimum", "maximum", "multipleOf"))
    text = "" if step is None else f", a multiple of {step:,},"
    above = schema.get("exclusiveMinimum")
    text += "" if above is None else f" above {_plain(above)}"
    text += "" if low is None else f" from {_plain(low)}"
    return text if high is None or high > UNBOUNDED else f"{text} to {_plain(high)}"
