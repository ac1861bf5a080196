"""Request bodies, read within limits.

Every byte of a body comes through `arriving`. `_read` counts a large body as it arrives and keeps
none of it once a limit is exceeded; the decoders (`requests.items`) receive the others.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message

from service.api.encodings import GZIP, inflate, plainly, refuse_compressed
from service.api.requests.meter import SMALL, BodyLimits, Meter
from service.model.errors import (
    BodyTooLarge,
    Overloaded,
    UnsupportedMediaType,
)
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
    "application/feed+json",
    "application/json",
    "text/html",
)
"""Media types of sitemaps; the kind of sitemap depends on the bytes alone. Many sites send their
sitemap as HTML."""

DRAIN_FACTOR = 3
"""Maximum size to drain after the limit, in limits, so that the client can read our error."""

EMPTY_PART = 20
"""Size that an empty part of a compressed body counts for, bytes; this avoids endless parts."""

BIG, MANY = 100_000, 1_000
"""Maximum size, bytes, and maximum number of items that the event loop decodes itself."""


class Body(NamedTuple):
    """The bytes of a request, or of a part of it, and their media type."""

    content: bytes
    media_type: str
    first: int = 0
    """Position of the first item in the request."""
    n_items: int = 0
    """Number of items, as counted before decoding; 0 where the body is small or has no list."""


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
    first = await request.receive()
    content = whole(request, first)
    if content is not None and len(content) <= (limit or service.max_body_bytes):
        refuse_compressed(content)
        hold(len(content))
        ask_again()
        return Body(content, kind)
    limits = BodyLimits.of(service.max_items, service.max_body_bytes)
    meter = Meter(limits, lines=kind in LINES)
    content = await _read(request, as_text, limit, hold, meter, first)
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
    first: Message | None = None,
) -> bytes:
    service = request.app.state.service
    limit = limit or service.max_body_bytes
    chunks, content, size = arrival(request, first), bytearray(), 0
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


async def arrival(request: Request, first: Message | None = None) -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive; ask again for the caller's right meanwhile.

    `first` is a message that was received before; None: none was. Raise `ClientDisconnect` for a
    client that has gone.
    """
    asked_at = time.monotonic()
    message = first or await request.receive()
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if time.monotonic() - asked_at >= ASK_EVERY_S:
            ask_again()
            asked_at = time.monotonic()
        yield message.get("body", b"")
        if not message.get("more_body"):
            return
        message = await request.receive()


def whole(request: Request, first: Message) -> bytes | None:
    """Return a small plain body that has arrived at once; None for all others.

    Such a body, which most requests have, is neither inflated nor counted in pieces.
    """
    content: bytes = first.get("body", b"")
    if first["type"] == "http.disconnect" or first.get("more_body") or len(content) > SMALL:
        return None
    return None if header(request, b"content-encoding") else content


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


def as_text(request: Request, arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the pieces of JSON as `inflated`; without the header they may not be compressed."""
    pieces = inflated(request, arriving)
    return plainly(arriving) if pieces is arriving else pieces


async def drain(arriving: AsyncIterator[bytes], limit: int) -> None:
    """Read up to `DRAIN_FACTOR` limits more, so that the client can read our error."""
    size = 0
    async for chunk in arriving:
        size += len(chunk)
        if size > DRAIN_FACTOR * limit:
            break
