"""JSON as strangers write it: parsed, whatever its values are, or refused in words for them."""

import json
from typing import Any

MAX_DIGITS = 40
"""No field takes an integer of more digits."""


def parse(content: str | bytes) -> Any:
    """Parse JSON; NaN and lone surrogates are left to who knows what a field may be.

    Raises
    ------
    ValueError
        It is no JSON; says why.
    """
    try:
        return json.loads(content, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error


def _integer(digits: str) -> float:
    """Read an integer; one too long for any field overflows like a float, and fails alone."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)
