"""Request bodies: read within limits, decoded item by item, every fault named by its index.

Every byte of a body comes through `arriving`. `_read` counts a large body as it arrives and keeps
none of it once a limit is exceeded; the decoders receive the others.
"""

import asyncio
import re
import time
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from fastapi import Request

from recrawl_client.wire.common import Item, Rejection
from recrawl_client.wire.evidence import Observation
from service.api.encodings import GZIP, inflate
from service.api.requests.meter import SMALL, BodyLimits, Meter
from service.api.requests.refusals import RefusedItem, refuse
from service.api.requests.site_values import readable, wrong_costs
from service.model import lenient_json
from service.model.arrays import Ints, Texts
from service.model.errors import (
    BodyTooLarge,
    InvalidField,
    MalformedBody,
    Overloaded,
    TooManyItems,
    UnsupportedMediaType,
)
from service.model.field_faults import fault_of, worded
from service.model.lenient_json import Contradiction
from service.runtime.requests import ASK_EVERY_S, ask_again

JSON = "application/json"
NDJSON = "application/x-ndjson"
LINES = (NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines")

DOCUMENTS = (
    "application/xml",
    "text/xml",
    "text/plain",
    "application/gzip",
    "application/x-gzip",
    "application/octet-stream",
    "binary/octet-stream",
)
"""Media types of sitemaps; the kind of sitemap depends on the bytes alone."""

DRAIN_FACTOR = 3
"""Maximum size to drain after the limit, in limits, so that the client can read our error."""

EMPTY_PART = 20
"""Size that an empty part of a compressed body counts for, bytes; this avoids endless parts."""

BIG, MANY = 100_000, 1_000
"""Maximum size, bytes, and maximum number of items that the event loop decodes itself."""

LINE = re.compile(rb"[^\n]+")

ItemT = TypeVar("ItemT", bound=Item)
ListedT = TypeVar("ListedT", bound=Item)
WholeT = TypeVar("WholeT")


class Body(NamedTuple):
    """The bytes of a request, or of a part of it, and their media type."""

    content: bytes
    media_type: str
    first: int = 0
    """Position of the first item in the request."""
    n_items: int = 0
    """Number of items, as counted before decoding; 0 where the body is small or has no list."""


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


def heavy(content: bytes) -> bool:
    """Return whether to decode in a thread, because a body with many wrong items is slow."""
    return len(content) > BIG or max(content.count(b"\n"), content.count(b"{")) > MANY


async def read_body(request: Request) -> Body:
    """Return the body, read up to the service's limits.

    Raises
    ------
    BodyTooLarge
        The inflated body has more than `max_body_bytes`, or far more than was sent.
    TooManyItems
        The body has more items, or more values, than a request may have.
    UnsupportedMediaType, MalformedBody
        The Content-Encoding is neither gzip nor zstd, or the body does not have it.
    Overloaded
        Other large bodies are in work.
    """
    return await _read_json(request)


async def read_within(request: Request, limit: int, hold: Callable[[int], None]) -> Body:
    """Return a body within another limit; `hold` receives the size of each piece."""
    return await _read_json(request, limit, hold)


async def _read_json(
    request: Request, limit: int | None = None, hold: Callable[[int], None] = lambda _: None
) -> Body:
    kind, service = media_type(request), request.app.state.service
    limits = BodyLimits.of(service.max_items, service.max_body_bytes)
    meter = Meter(limits, lines=kind in LINES)
    content = await _read(request, inflated, limit, hold, meter)
    meter.check()
    return Body(content, kind, n_items=meter.n_items)


async def read_document(request: Request) -> bytes:
    """Return a document as it was fetched; its reader inflates gzip within a limit.

    Raises
    ------
    BodyTooLarge, UnsupportedMediaType, MalformedBody, Overloaded
        As `read_body`.
    """
    kind = media_type(request) if "content-type" in request.headers else DOCUMENTS[0]
    if kind not in DOCUMENTS and not kind.endswith("+xml"):
        raise UnsupportedMediaType(
            f"{kind[:40]} is no sitemap; send the document itself as {', '.join(DOCUMENTS[:4])}"
        )
    coding = request.headers.get("content-encoding", "").strip().lower()
    try:
        return await _read(request, plain if coding in GZIP else inflated)
    except BodyTooLarge as error:
        size = error.detail.partition(";")[0].replace("the body", "the document")
        raise BodyTooLarge(
            f"{size}; split it under a sitemap index, or raise RECRAWL_MAX_BODY_BYTES"
        ) from error


async def read_content(request: Request) -> bytes:
    """Return a body of any type as it was sent; raise `BodyTooLarge` or `Overloaded`."""
    return await _read(request, plain)


Undo = Callable[[Request, AsyncIterator[bytes]], AsyncIterator[bytes]]


def plain(_: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the pieces of a body with their Content-Encoding."""
    return chunks


async def arriving(
    request: Request, chunks: AsyncIterator[bytes], undo: Undo
) -> AsyncIterator[bytes]:
    """Yield the pieces of a body, with turns of other requests after large ones."""
    async for piece in undo(request, chunks):
        yield piece
        if len(piece) > SMALL:
            await asyncio.sleep(0)


async def _read(
    request: Request,
    undo: Undo,
    limit: int | None = None,
    hold: Callable[[int], None] = lambda _: None,
    meter: Meter | None = None,
) -> bytes:
    service = request.app.state.service
    limit = limit or service.max_body_bytes
    chunks, content, size = arrival(request), bytearray(), 0
    try:
        async for piece in arriving(request, chunks, undo):
            size += len(piece) or EMPTY_PART
            if size > limit:
                break
            hold(len(piece))
            if meter is None or not meter.is_over:
                content += piece
            if size > SMALL:
                service.bodies.hold(request.scope, _weight(content, piece, meter))
    except BodyTooLarge as error:
        await drain(chunks, limit)
        raise BodyTooLarge(f"{error.detail}; send it plain, within {limit} bytes") from error
    except Overloaded:
        content.clear()
        await drain(chunks, limit)
        raise
    if size > limit:
        await drain(chunks, limit)
        raise BodyTooLarge(f"the body has over {limit} bytes; send it in several requests")
    ask_again()
    return bytes(content)


def _weight(content: bytearray, piece: bytes, meter: Meter | None) -> int:
    """Return the memory of a large body after its next piece; drop a refused body."""
    if meter is None:
        return len(content)
    meter.feed(piece if meter.size else bytes(content))
    if not meter.is_over:
        return meter.weight
    content.clear()
    return 0


async def arrival(request: Request) -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive; ask again for the caller's right meanwhile."""
    asked_at = time.monotonic()
    async for piece in request.stream():
        if time.monotonic() - asked_at >= ASK_EVERY_S:
            ask_again()
            asked_at = time.monotonic()
        yield piece


def media_type(request: Request) -> str:
    """Return the media type of a body, without parameters."""
    return header(request, b"content-type", JSON).partition(";")[0].strip().lower()


def header(request: Request, name: bytes, default: str = "") -> str:
    """Return the first header of this name, in lower case."""
    for each, value in request.scope["headers"]:
        if each == name:
            return str(value, "latin-1")
    return default


def inflated(request: Request, arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the pieces of a body without its Content-Encoding; raise as `inflate`."""
    return inflate(header(request, b"content-encoding").strip().lower(), arriving)


async def drain(arriving: AsyncIterator[bytes], limit: int) -> None:
    """Read up to `DRAIN_FACTOR` limits more, so that the client can read our error."""
    size = 0
    async for chunk in arriving:
        size += len(chunk)
        if size > DRAIN_FACTOR * limit:
            break


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
        raise UnsupportedMediaType
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
        raise UnsupportedMediaType("send application/json: one object")
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
    return batch.items[0]


def decode_with_items(
    body: Body, kind: type[ItemT], name: str, items: type[ListedT], max_items: int
) -> tuple[ItemT, Batch[ListedT] | None]:
    """Return one decoded JSON object, and the items of its list `name`; None without items.

    Each item of the list succeeds or fails alone. Raise as `decode_object`, or `TooManyItems`.
    """
    if body.media_type != JSON:
        raise UnsupportedMediaType("send application/json: one object")
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
    items = _parse(content)
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
