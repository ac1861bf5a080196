"""Lenient JSON: parse any values, and name the reason where a text is not JSON."""

import json
from dataclasses import dataclass, field
from typing import Any

from service.model.field_faults import shown

MAX_DIGITS = 40
"""Maximum length of an integer in any field, digits."""

MAX_REST = 20
"""Maximum length of the text after a fault that a message shows, characters."""

MAX_SHOWN = 300
"""Maximum length of a key that a message shows, characters."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An object that holds a key twice, with different values."""

    key: str
    clear: dict[str, Any] = field(default_factory=dict, compare=False)
    """Members of the object that have one value."""

    def __str__(self) -> str:
        return f"{self.key} stands twice, with different values; keep one of them"


def parse(content: str | bytes) -> Any:
    """Return the value of a JSON text; NaN and lone surrogates are allowed.

    Because only the caller knows the fields, the caller checks the values. An object that
    contradicts itself becomes a `Contradiction`, and so does each object around it.

    Raises
    ------
    ValueError
        The text is not JSON; the message is the reason.
    """
    try:
        if not isinstance(content, str):  # json would take UTF-16 too, whose marks no one counts
            content = content.decode("utf-8", "surrogatepass")
        return json.loads(content, parse_int=_integer, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(_fault(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error


def _fault(error: json.JSONDecodeError) -> str:
    """Return where a text stops being JSON, and why."""
    rest = error.doc[error.pos :]
    if error.msg == "Extra data":
        why = "more follows after the first value"
    elif not rest.strip():
        why = "it ends too early"
    else:
        why = f"{shown(rest[:MAX_REST])} cannot stand there"
    line = f"line {error.lineno}, " if "\n" in error.doc.strip() else ""
    return f"{line}column {error.colno}: {why}; correct it and send it again"


def _integer(digits: str) -> float:
    """Return an integer, or a float if it is too long for any field: then only that item fails."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any] | Contradiction:
    fields = dict(members)
    contrary = {key: each.key for key, each in fields.items() if isinstance(each, Contradiction)}
    if len(fields) < len(members):
        for key, value in members:
            if not _same(value, fields[key]):
                contrary.setdefault(key, key.encode(errors="backslashreplace").decode()[:MAX_SHOWN])
    if not contrary:
        return fields
    clear = {key: value for key, value in fields.items() if key not in contrary}
    return Contradiction(next(iter(contrary.values())), clear)


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # true is not 1
