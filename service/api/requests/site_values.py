"""Values of a report that a site chose, in forms that the schema of a report accepts.

A site may send any date, number or address, and a crawler may pass it on. Such a value never costs
the report: what can be read of it counts, and the rest is left out. A value of a wrong type is the
crawler's, and is refused by its field.

| field | value | counts as |
| --- | --- | --- |
| all but `note` | null, as clients write what they do not know | left out |
| `digest` | `""` | no digest |
| `status` | negative, or beyond all numbers | a status that a site invents: failed |
| `retry_after_s` | negative, NaN | no pause |
| `retry_after_s` | infinite | the longest pause |
| `last_modified` | a date of HTTP (RFC 9110) | that date |
| `last_modified` | any other text, a date without a zone | no date |
| `bytes`, `seconds`, `price` | negative, NaN, infinite, no number | none, as the answer says |
"""

from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite, isnan
from typing import Any

import msgspec

from recrawl_client.headers import http_date
from service.model.field_faults import Fault, worded
from service.model.outcomes import INVENTED

LONGEST_PAUSE_S = 1e300
"""Highest number of `retry_after_s`, seconds."""
HIGHEST_STATUS = 2**31 - 1
"""Highest number of `status`."""


def readable(item: Any) -> Any:
    """Return an item of JSON with the values of its site as the schema wants them.

    >>> readable({"digest": "", "status": -1, "last_modified": "Wed, 21 Oct 2015 07:28:00 GMT"})
    {'status': 999, 'last_modified': '2015-10-21T07:28:00+00:00'}
    >>> readable({"digest": "a1", "etag": None, "note": None})
    {'digest': 'a1', 'note': None}
    """
    if not isinstance(item, dict):
        return item
    fields = {name: value for name, value in item.items() if value is not None or name == "note"}
    read = {name: READERS[name](value) for name, value in fields.items() if name in READERS}
    return {name: value for name, value in {**fields, **read}.items() if value is not LEFT_OUT}


COSTS = ("bytes", "seconds", "price")
"""Fields of costs, whose wrong values are left out."""


def wrong_costs(item: Any, kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return what is wrong with the costs of an item of JSON, by field.

    >>> from recrawl_client.wire.evidence import Observation
    >>> wrong_costs({"bytes": -1, "seconds": 0.5}, Observation)
    {'bytes': 'bytes is -1; send a number of bytes from 0, as in 48213'}
    """
    if not isinstance(item, dict):
        return {}
    wrong = {}
    for name in COSTS:
        if item.get(name) is None:
            continue
        try:
            msgspec.convert({name: item[name]}, kind)
        except (msgspec.ValidationError, UnicodeEncodeError):
            wrong[name] = worded(Fault("invalid", name), item, kind)
    return wrong


LEFT_OUT = object()
"""Value of a field that is left out."""


def _digest(digest: Any) -> Any:
    return LEFT_OUT if digest == "" else digest


def _status(status: Any) -> Any:
    if _is_number(status) and not (isfinite(status) and 0 <= status <= HIGHEST_STATUS):
        return INVENTED
    return status


def _retry_after(seconds: Any) -> Any:
    if not _is_number(seconds):
        return seconds
    if isnan(seconds) or seconds < 0:
        return LEFT_OUT
    return min(seconds, LONGEST_PAUSE_S)


def _last_modified(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        at: datetime | None = datetime.fromisoformat(text)
    except ValueError:
        at = http_date(text)
    if at is None or at.tzinfo is None:
        return LEFT_OUT
    try:
        return at.astimezone(UTC).isoformat()
    except OverflowError:  # at the ends of time
        return LEFT_OUT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


READERS: dict[str, Callable[[Any], Any]] = {
    "digest": _digest,
    "status": _status,
    "retry_after_s": _retry_after,
    "last_modified": _last_modified,
}
"""Reader of each field whose value a site chose; other fields take any text."""
