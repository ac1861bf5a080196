"""Bodies compressed as the client likes, whole or as they are streamed; plain ASGI."""

import zlib
from typing import Protocol

import zstandard
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.negotiate import best

OFFERS = ("zstd", "gzip", "identity")
LEAST_BYTES = 1_024
"""Shorter bodies are not worth it."""
IN_A_THREAD = 65_536
"""From so many bytes on, the event loop would wait noticeably."""


class Compressor(Protocol):
    """What makes a stream of one encoding."""

    def compress(self, data: bytes) -> bytes:
        """Take some bytes."""

    def flush(self, mode: int) -> bytes:
        """Give all that was taken, or the end of the stream."""


def compressor(encoding: str) -> tuple[Compressor, int, int]:
    """Give a compressor of an encoding, and how it is told to flush and to finish."""
    if encoding == "zstd":
        flush, finish = zstandard.COMPRESSOBJ_FLUSH_BLOCK, zstandard.COMPRESSOBJ_FLUSH_FINISH
        return zstandard.ZstdCompressor(level=1).compressobj(), flush, finish
    gzip = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return gzip, zlib.Z_SYNC_FLUSH, zlib.Z_FINISH


class CompressMiddleware:
    """Compress every body that is worth it and is not encoded already."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, Compressing(send, scope))


def compressed(response: Response, scope: Scope, send: Send) -> Send:
    """Give a `send` that compresses a response; its own where that is short, as most are."""
    body = getattr(response, "body", None)
    short = body is not None and len(body) < LEAST_BYTES
    return send if short else Compressing(send, scope)


class Compressing:
    """The `send` of one response."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self.send = send
        self.scope = scope
        self.stream: tuple[Compressor, int, int] | None = None

    async def __call__(self, message: Message) -> None:
        """Pass one message on."""
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
    """Whether there is a body that is long enough, or of unknown length, and plain."""
    length = headers.get("content-length")
    return (
        status not in (204, 304)
        and "content-encoding" not in headers
        and not headers.get("content-type", "").startswith("image/")
        and (length is None or int(length) >= LEAST_BYTES)
    )
