"""Content encodings: inflate bodies of requests, compress answers, both piece by piece."""

import zlib
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any

import zstandard
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.threads import in_thread
from service.model.errors import BodyTooLarge, MalformedBody, UnsupportedMediaType

GZIP = ("gzip", "x-gzip")
MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""First bytes of a body in each encoding."""

PIECE = 262_144
"""Maximum size of an inflated piece, bytes."""
SLICE = 256
"""Size of a zstd body to inflate at once, bytes; 4 bytes may inflate to 128 KiB."""
MAX_RATIO, RATIO_FROM = 100, 4_000_000
"""Maximum size of an inflated body in sizes as sent, beyond its first bytes.

Logs of crawls inflate up to fifty times; a bomb of gzip inflates a thousand times."""
ANEW = "compress it again, and send all of it"
MOST_MAGIC = max(map(len, MAGIC.values()))
BOMB = f"the body inflates over {MAX_RATIO} times"


def inflate(coding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the pieces of a body without its Content-Encoding.

    Raises
    ------
    UnsupportedMediaType
        The encoding is neither gzip nor zstd.
    MalformedBody
        The body does not have the stated encoding, or ends early; raised while it is read.
    BodyTooLarge
        The body is far larger than what was sent; raised while it is read.
    """
    if coding in ("", "identity"):
        return chunks
    if coding in GZIP:
        return _inflated("gzip", Gzip(), chunks)
    if coding == "zstd":
        return _inflated("zstd", Zstd(), chunks)
    raise UnsupportedMediaType(
        f"Content-Encoding {coding[:40]} is not taken; send gzip, zstd or plain bytes"
    )


class Gzip:
    """Inflation of consecutive members of gzip."""

    def __init__(self) -> None:
        self.member = zlib.decompressobj(wbits=31)
        self.begun = False

    def pieces(self, content: bytes) -> Iterator[bytes]:
        """Inflate the next bytes."""
        while content:
            self.begun = True
            yield self.member.decompress(content, PIECE)
            content = self.member.unconsumed_tail
            if self.member.eof:
                content, self.begun = self.member.unused_data, False
                self.member = zlib.decompressobj(wbits=31)

    def whole(self) -> bool:
        """Return whether the last member is complete."""
        return not self.begun


class Zstd:
    """Inflation of consecutive frames of zstd."""

    def __init__(self) -> None:
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.begun = False

    def pieces(self, content: bytes) -> Iterator[bytes]:
        """Inflate the next bytes."""
        for start in range(0, len(content), SLICE):
            part = content[start : start + SLICE]
            while part:
                self.begun = True
                yield self.frame.decompress(part)
                part = self.frame.unused_data
                if self.frame.eof:
                    self.frame, self.begun = zstandard.ZstdDecompressor().decompressobj(), False

    def whole(self) -> bool:
        """Return whether the last frame is complete."""
        return not self.begun


async def _inflated(
    coding: str, inflater: Gzip | Zstd, chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    n_sent = n_inflated = 0
    head = b""
    try:
        async for chunk in chunks:
            n_sent += len(chunk)
            head = head if len(head) >= len(MAGIC[coding]) else head + chunk[: len(MAGIC[coding])]
            for piece in inflater.pieces(chunk):
                n_inflated += len(piece)
                if n_inflated > max(RATIO_FROM, MAX_RATIO * n_sent):
                    raise BodyTooLarge(BOMB)
                yield piece
    except (zlib.error, zstandard.ZstdError) as error:
        if head.startswith(MAGIC[coding]):
            raise MalformedBody(f"the {coding} of the body is damaged; {ANEW}") from error
        remedy = f"drop the header Content-Encoding or compress the body by {coding}"
        raise MalformedBody(f"the body is not {coding}; {remedy}") from error
    if not inflater.whole():
        raise MalformedBody(f"the {coding} of the body ends too early; {ANEW}")


async def plainly(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body of text; raise as `refuse_compressed`."""
    head = b""
    async for chunk in chunks:
        if len(head) < MOST_MAGIC:
            head += chunk[:MOST_MAGIC]
            refuse_compressed(head)
        yield chunk


def refuse_compressed(head: bytes) -> None:
    """Raise `MalformedBody` for a body that is compressed without a header that states it."""
    if coding := next((c for c, magic in MAGIC.items() if head.startswith(magic)), None):
        raise MalformedBody(f"the body is {coding}; send Content-Encoding: {coding} too")


@lru_cache(maxsize=256)
def best(header: str, offers: tuple[str, ...]) -> str | None:
    """Return the offer of the highest quality; None where the client accepts no offer.

    Among equal qualities, an exact name precedes a range, and the first offer precedes the others.

    >>> best("text/html;q=0.9, */*;q=0.1", ("application/json", "text/html"))
    'text/html'
    >>> best("gzip, zstd;q=0", ("zstd", "gzip"))
    'gzip'
    """
    quality = qualities(header)
    ranked = []
    for place, offer in enumerate(offers):
        ranges = (offer, f"{offer.partition('/')[0]}/*", "*/*", "*")
        exactness = next((i for i, pattern in enumerate(ranges) if pattern in quality), None)
        if exactness is not None and quality[ranges[exactness]] > 0:
            ranked.append((-quality[ranges[exactness]], exactness, place))
    return offers[min(ranked)[2]] if ranked else None


def qualities(header: str) -> dict[str, float]:
    """Return the quality of each name in a header; an unreadable one is 0.

    >>> qualities("a/b;level=1;q=0.5, *;q=x, c")
    {'a/b': 0.5, '*': 0.0, 'c': 1.0}
    """
    by_name = {}
    for part in header.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            by_name[name] = float(quality)
        except ValueError:
            by_name[name] = 0.0
    return by_name


OFFERS = ("zstd", "gzip", "identity")
LEAST_BYTES = 1_024
"""Minimum size of a body that is compressed, bytes."""
IN_A_THREAD = 65_536
"""Minimum size of a part that a thread compresses, bytes."""


def compressor(encoding: str) -> tuple[Any, int, int]:
    """Return a compressor of an encoding, and its modes of a flush and of the end."""
    if encoding == "zstd":
        flush, finish = zstandard.COMPRESSOBJ_FLUSH_BLOCK, zstandard.COMPRESSOBJ_FLUSH_FINISH
        return zstandard.ZstdCompressor(level=1).compressobj(), flush, finish
    gzip = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return gzip, zlib.Z_SYNC_FLUSH, zlib.Z_FINISH


class CompressMiddleware:
    """Middleware that compresses each long body without a content encoding."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, Compressing(send, scope))


class Compressing:
    """The `send` function of one response."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self.send = send
        self.scope = scope
        self.stream: tuple[Any, int, int] | None = None

    async def __call__(self, message: Message) -> None:
        """Send one message, its body compressed."""
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body" and self.stream is not None:
            body, more = message.get("body", b""), message.get("more_body", False)
            if len(body) < IN_A_THREAD:
                message["body"] = self._compressed(body, more=more)
            else:
                message["body"] = await in_thread(self._compressed, body, more=more)
        await self.send(message)

    def _begin(self, message: Message) -> None:
        if message["status"] in (204, 304):
            return
        headers = MutableHeaders(raw=message["headers"])
        if not compressible(headers):
            return
        headers.add_vary_header("Accept-Encoding")
        accepted = ", ".join(Headers(scope=self.scope).getlist("accept-encoding"))
        encoding = best(accepted, OFFERS) or "identity"
        if encoding != "identity":
            headers["Content-Encoding"] = encoding
            del headers["Content-Length"]
            self.stream = compressor(encoding)

    def _compressed(self, body: bytes, *, more: bool) -> bytes:
        if self.stream is None or (more and not body):
            return b""
        stream, flush, finish = self.stream
        compressed: bytes = stream.compress(body) + stream.flush(flush if more else finish)
        return compressed


def compressible(headers: Headers) -> bool:
    """Return whether an answer has a plain body, long enough or of unknown length."""
    length = headers.get("content-length")
    return (
        "content-encoding" not in headers
        and not headers.get("content-type", "").startswith("image/")
        and (length is None or int(length) >= LEAST_BYTES)
    )
