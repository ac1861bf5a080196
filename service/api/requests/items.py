"""Items of request bodies: decoded one by one, every fault named by the index of its item."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from recrawl_client.wire.common import Item, Rejection
from recrawl_client.wire.evidence import Observation
from service.api.requests.bodies import BIG, JSON, LINES, Body
from service.api.requests.refusals import RefusedItem, refuse
from service.api.requests.site_values import readable, wrong_costs
from service.model import lenient_json
from service.model.arrays import Ints, Texts
from service.model.errors import (
    InvalidField,
    MalformedBody,
    TooManyItems,
    UnsupportedMediaType,
)
from service.model.field_faults import fault_of, shown, worded
from service.model.lenient_json import Contradiction

LINE = re.compile(rb"[^\n]+")
IS_LINES = re.compile(r"line \d+, column 1: more follows")
"""Fault of a JSON array that is NDJSON."""

ItemT = TypeVar("ItemT", bound=Item)
ListedT = TypeVar("ListedT", bound=Item)
WholeT = TypeVar("WholeT")


@dataclass(frozen=True, slots=True)
class Batch(Generic[ItemT]):
    """The decoded items, their positions in the request, and the refused items."""

    items: list[ItemT]
    index: Ints
    refusals: list[RefusedItem]
    own_hosts: Texts = None
    """As `CrawlColumns.own_hosts`, of each item."""
    left_out: tuple[Rejection, ...] = ()
    """Fields of good items that were left out."""

    @property
    def n_items(self) -> int:
        """All items, good and bad."""
        return len(self.index) + len(self.refusals)


def decode_batch(body: Body, kind: type[ItemT], max_items: int) -> Batch[ItemT]:
    """Return the items of a JSON array, or of one JSON object a line.

    The whole body is decoded at once. After a failure, each item is decoded alone, to separate
    good and bad items.

    Raises
    ------
    UnsupportedMediaType, MalformedBody, TooManyItems
        The body as a whole cannot be accepted.
    """
    if body.media_type == JSON:
        whole: Callable[..., list[ItemT]] = _decoder(list[kind]).decode  # type: ignore[valid-type]
        parts = _array
    elif body.media_type in LINES:
        whole = _decoder(kind).decode_lines
        parts = _lines
    else:
        raise _unsupported(body, f"{JSON} (an array of items) or {LINES[0]} (one item a line)")
    _limit(body.n_items, max_items)
    items = _strict(whole, body.content)
    if items is None or (parts is _lines and len(items) != _n_lines(body.content)):
        return _one_by_one(parts(body.content, max_items), kind, body.first)
    _limit(len(items), max_items)
    return Batch(items, body.first + np.arange(len(items)), [])


def decode_object(body: Body, kind: type[ItemT]) -> ItemT:
    """Return one decoded JSON object.

    Raises
    ------
    UnsupportedMediaType, MalformedBody, InvalidField
        The body is not JSON, or a field is wrong.
    """
    if body.media_type != JSON:
        raise _unsupported(body, f"{JSON}: one object")
    return _one_object(_parse(body.content), kind)


def decode_changes(body: Body, kind: type[Item]) -> dict[str, Any]:
    """Return the fields of a decoded object that the client sent.

    Raises
    ------
    UnsupportedMediaType, MalformedBody, InvalidField
        As `decode_object`; and no field is sent.
    """
    changes = sent_fields(decode_object(body, kind))
    if not changes:
        names = kind.__struct_fields__
        raise InvalidField(names[0], f"nothing to change; send one of {', '.join(names)}")
    return changes


def sent_fields(item: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of an object without those that the client left out."""
    fields = msgspec.structs.asdict(item)
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _one_object(value: Any, kind: type[ItemT]) -> ItemT:
    batch = _one_by_one([value], kind)
    if batch.refusals:
        wrong = batch.refusals[0].rejection
        raise InvalidField(wrong.field, wrong.detail)
    for name, sent in sent_fields(batch.items[0]).items():
        try:
            _ENCODER.encode(sent)
        except UnicodeEncodeError:  # no store can compare or keep it
            detail = f"{name} holds a lone surrogate; send valid Unicode"
            raise InvalidField(name, detail) from None
    return batch.items[0]


def _unsupported(body: Body, wanted: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(f"the body is {shown(body.media_type)}; send it as {wanted}")


def decode_with_items(
    body: Body, kind: type[ItemT], name: str, items: type[ListedT], max_items: int
) -> tuple[ItemT, Batch[ListedT] | None]:
    """Return one decoded JSON object, and the items of its list `name`; None without items.

    Each item of the list succeeds or fails alone. Raise as `decode_object`, or `TooManyItems`.
    """
    if body.media_type != JSON:
        raise _unsupported(body, f"{JSON}: one object")
    whole: ItemT | None = _strict(_decoder(kind).decode, body.content)
    if whole is not None:
        listed = getattr(whole, name)
        _limit(len(listed), max_items)
        return whole, Batch(listed, np.arange(len(listed)), []) if listed else None
    parsed, batch = _parse(body.content), None
    if isinstance(parsed, dict) and isinstance(parsed.get(name), list):
        values = parsed.pop(name)
        _limit(len(values), max_items)
        batch = _one_by_one(values, items) if values else None
    return _one_object(parsed, kind), batch


@cache
def _decoder(kind: Any) -> Any:
    return msgspec.json.Decoder(kind)


def _strict(decode: Callable[[bytes], WholeT], content: bytes) -> WholeT | None:
    """Return what a body holds; None if any of it is wrong, or may repeat a key."""
    try:
        whole = decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if may_repeat_keys(content, whole) else whole


def _limit(n_items: int, max_items: int) -> None:
    if n_items > max_items:
        raise TooManyItems(f"the batch has {n_items} items; send at most {max_items} at a time")


class _Broken(NamedTuple):
    """A line that is not JSON."""

    reason: str


def _parse(content: bytes) -> Any:
    """Return leniently parsed JSON: a byte-order mark, NaN and lone surrogates are allowed.

    The schema of the item then refuses NaN and surrogates with the name of the field.
    """
    content = content.removeprefix(BOM_UTF8)
    if not content.strip():
        raise MalformedBody("the body is empty; send JSON")
    try:
        return lenient_json.parse(content)
    except ValueError as error:
        raise MalformedBody(f"the body is not JSON: {error}") from error


def _array(content: bytes, max_items: int) -> list[Any]:
    try:
        items = _parse(content)
    except MalformedBody as error:
        if IS_LINES.search(error.detail) and content.lstrip().startswith(b"{"):
            raise MalformedBody(f"the body has one item a line; send it as {LINES[0]}") from error
        raise
    if not isinstance(items, list):
        raise MalformedBody("the body must be a JSON array of items; wrap a single item in [ ]")
    _limit(len(items), max_items)
    return items


def _n_lines(content: bytes) -> int:
    return sum(not line.isspace() for line in _pieces(content) if line)


def _pieces(content: bytes) -> Iterable[bytes]:
    """Return the lines of a text; most of those without content are left out of a long one."""
    if content.count(b"\n") <= BIG:
        return content.split(b"\n")
    return (line[0] for line in LINE.finditer(content))


def _lines(content: bytes, max_items: int) -> list[Any]:
    """Return each line parsed."""
    _limit(_n_lines(content), max_items)
    lines: list[Any] = []
    for line in _pieces(content):
        if not line.strip():
            continue
        try:
            lines.append(_parse(line))
        except MalformedBody as error:
            lines.append(_Broken(error.detail.replace("the body", "the line")))
    return lines


def _one_by_one(values: list[Any], kind: type[ItemT], first: int = 0) -> Batch[ItemT]:
    items, index, refusals = [], [], []
    left_out: list[Rejection] = []
    for i, value in enumerate(values, first):
        try:
            wanted, wrong = _without_wrong_costs(value) if kind is Observation else (value, {})
            items.append(msgspec.convert(wanted, kind))
            index.append(i)
            left_out += (
                Rejection(index=i, code="left_out", field=name, detail=detail)
                for name, detail in wrong.items()
            )
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            refusals.append(refuse(_rejection(i, error, value, kind), value))
    return Batch(items, np.array(index, np.int64), refusals, left_out=tuple(left_out))


def _without_wrong_costs(value: Any) -> tuple[Any, dict[str, str]]:
    """Return a readable report without its wrong costs, and what is wrong with them, by field."""
    wrong = wrong_costs(value, Observation)
    kept = {name: each for name, each in value.items() if name not in wrong} if wrong else value
    return readable(kept), wrong


def _rejection(
    index: int,
    error: msgspec.ValidationError | UnicodeEncodeError,
    value: Any,
    kind: type[Item],
) -> Rejection:
    if isinstance(value, _Broken):
        return Rejection(index=index, code="malformed", detail=value.reason)
    if isinstance(value, Contradiction):
        return Rejection(index=index, code="contradiction", detail=str(value), field=value.key)
    if isinstance(error, UnicodeEncodeError):
        detail = "a name or word in it holds a lone surrogate; send valid Unicode"
        return Rejection(index=index, code="invalid", detail=detail)
    fault = fault_of(error)
    code = "unknown_field" if fault.kind == "unknown" else "invalid"
    return Rejection(index=index, code=code, field=fault.field, detail=worded(fault, value, kind))


_ENCODER = msgspec.json.Encoder()


def may_repeat_keys(content: bytes, items: Any) -> bool:
    r"""Return whether an object of a JSON text, from which the items were decoded, repeats a key.

    The function encodes the items again and compares the numbers of quotation marks. Encoding
    costs a hundredth of recording the items. A repeated key has two marks more in the text than in
    the encoded items. A mark that is written as a code point would spoil the count, so such a mark
    counts as a repetition. Structs must refuse unknown fields and omit unset ones.
    """
    if b"\\" in content and b"\\u0022" in content:
        return True
    try:
        written = _ENCODER.encode(items)
    except UnicodeEncodeError:  # a lone surrogate
        return True
    return content.count(b'"') != written.count(b'"')
