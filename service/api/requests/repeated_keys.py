"""Keys that stand twice in a JSON object: found by counting, since msgspec keeps the last."""

from collections.abc import Sequence

import msgspec

_ENCODER = msgspec.json.Encoder()


def may_repeat_keys(content: bytes, items: Sequence[msgspec.Struct]) -> bool:
    r"""Return whether an object of a JSON text, from which the items were decoded, repeats a key.

    The items are written again, at a hundredth of the price of recording them. A key has two
    quotation marks, and a string has as many in both texts, as a mark within it is `\"`. So a
    repeated key shows as more marks than are written. One that is spelt as a code point could
    make up for it, and counts as a repetition. Structs must refuse unknown fields and omit unset
    ones.
    """
    if b"\\" in content and b"\\u0022" in content:
        return True
    try:
        written = _ENCODER.encode(items)
    except UnicodeEncodeError:  # a lone surrogate
        return True
    return content.count(b'"') != written.count(b'"')
