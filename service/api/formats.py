"""Types of schemas as generators of clients need them: formats of numbers, null as a type."""

import math
from typing import Any

LOWEST, HIGHEST = -(2**31), 2**31 - 1
"""Ends of the integers of 32 bits."""
EXAMPLES = ("example", "examples")


def with_formats(part: Any, *, of_names: bool = False) -> Any:
    """Return a part of an OpenAPI document with a format at each number.

    Generators take a number without a format for one of 32 bits. They take `anyOf` with null for
    a type of its own, so null becomes one more `type`. A reference has no `type` and keeps `anyOf`.

    >>> with_formats({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    {'type': ['integer', 'null'], 'format': 'int64'}
    """
    if isinstance(part, list):
        return [with_formats(item) for item in part]
    if not isinstance(part, dict):
        return part
    if of_names:
        return {name: with_formats(schema) for name, schema in part.items()}
    inside = {
        key: value if key in EXAMPLES else with_formats(value, of_names=key == "properties")
        for key, value in part.items()
    }
    return _with_format(_typed(inside))


def _typed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose `type` holds its null, and that of its choices."""
    match schema:
        case {"anyOf": [{"type": str(kind)} as branch, {"type": "null"}]}:
            del schema["anyOf"]
            return {**branch, "type": [kind, "null"], **schema}
        case {"enum": [*choices]} if "type" not in schema:
            strings = [choice for choice in choices if choice is not None]
            if all(isinstance(choice, str) for choice in strings):
                nullable = len(strings) < len(choices)
                schema["type"] = ["string", "null"] if nullable else "string"
    return schema


def _with_format(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the format of its numbers; any object states that it is free."""
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "integer" in kinds:
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        schema["format"] = "int32" if low >= LOWEST and high <= HIGHEST else "int64"
    elif "number" in kinds:
        schema["format"] = "double"
    elif "object" in kinds and "properties" not in schema:
        schema.setdefault("additionalProperties", True)
    return schema
