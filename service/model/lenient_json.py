"""JSON as strangers write it: parsed, whatever its values are, or refused in words for them."""

import json
from dataclasses import dataclass
from typing import Any

MAX_DIGITS = 40
"""No field takes an integer of more digits."""

MAX_SHOWN = 300
"""Maximum length of a key that a message shows, characters."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An object that holds a key twice, with different values."""

    key: str

    def __str__(self) -> str:
        return f"{self.key} stands twice, with different values; keep one of them"


def parse(content: str | bytes) -> Any:
    """Parse JSON; NaN and lone surrogates are left to who knows what a field may be.

    An object that contradicts itself becomes a `Contradiction`, and so does each object around it.

    Raises
    ------
    ValueError
        It is no JSON; says why.
    """
    try:
        return json.loads(content, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error


def _integer(digits: str) -> float:
    """Read an integer; one too long for any field overflows like a float, and fails alone."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any] | Contradiction:
    fields = dict(members)
    for value in fields.values():
        if isinstance(value, Contradiction):
            return value
    if len(fields) < len(members):
        for key, value in members:
            if not _same(value, fields[key]):
                return Contradiction(key.encode(errors="backslashreplace").decode()[:MAX_SHOWN])
    return fields


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # true is not 1
