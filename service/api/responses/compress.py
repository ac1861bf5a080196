"""Compression of answers by the qualities of Accept-Encoding, whole or streamed."""

import zlib
from typing import Protocol

import zstandard
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.responses.negotiate import best

OFFERS = ("zstd", "gzip", "identity")
LEAST_BYTES = 1_024
"""Minimum size of a body that is compressed, bytes."""
IN_A_THREAD = 65_536
"""Minimum size of a part that a thread compresses, bytes."""


class Compressor(Protocol):
    """A stream of one content encoding."""

    def compress(self, data: bytes) -> bytes:
        """Compress the next bytes."""

    def flush(self, mode: int) -> bytes:
        """Return the rest of a block, or the end of the stream."""


def compressor(encoding: str) -> tuple[Compressor, int, int]:
    """Return a compressor of an encoding, and its modes of a flush and of the end."""
    if encoding == "zstd":
        flush, finish = zstandard.COMPRESSOBJ_FLUSH_BLOCK, zstandard.COMPRESSOBJ_FLUSH_FINISH
        return zstandard.ZstdCompressor(level=1).compressobj(), flush, finish
    gzip = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return gzip, zlib.Z_SYNC_FLUSH, zlib.Z_FINISH


class CompressMiddleware:
    """Compresses each body that is long enough and has no content encoding yet."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, Compressing(send, scope))


class Compressing:
    """The `send` of one response."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self.send = send
        self.scope = scope
        self.stream: tuple[Compressor, int, int] | None = None

    async def __call__(self, message: Message) -> None:
        """Send one message, its body compressed."""
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body" and self.stream is not None:
            body, more = message.get("body", b""), message.get("more_body", False)
            if len(body) < IN_A_THREAD:
                message["body"] = self._compressed(body, more=more)
            else:
                message["body"] = await run_in_threadpool(self._compressed, body, more=more)
        await self.send(message)

    def _begin(self, message: Message) -> None:
        headers = MutableHeaders(raw=message["headers"])
        if not compressible(message["status"], headers):
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
        return stream.compress(body) + stream.flush(flush if more else finish)


def compressible(status: int, headers: Headers) -> bool:
    """Return whether an answer has a plain body, long enough or of unknown length."""
    length = headers.get("content-length")
    return (
        status not in (204, 304)
        and "content-encoding" not in headers
        and not headers.get("content-type", "").startswith("image/")
        and (length is None or int(length) >= LEAST_BYTES)
    )
