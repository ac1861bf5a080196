"""Quotes around values of the environment."""

from typing import Any

QUOTES = "\"'"


def unquoted(value: Any) -> Any:
    """Return a value without the quotes around it, which `docker --env-file` does not remove.

    >>> [unquoted(text) for text in ('"a b"', "'a'", '"a', '"a","b"', 7)]
    ['a b', 'a', '"a', '"a","b"', 7]
    """
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in QUOTES:
        inner = value[1:-1]
        return value if value[0] in inner else inner
    return value
