"""Compressed request bodies: inflated piece by piece, so that a small body stays a small body."""

import zlib
from collections.abc import AsyncIterator, Iterator

import zstandard

from service.model.errors import MalformedBody, UnsupportedMediaType

GZIP = ("gzip", "x-gzip")

PIECE = 262_144
"""Maximum size of an inflated piece, bytes."""
SLICE = 256
"""Size of a zstd body to inflate at once, bytes; 4 bytes of it may stand for 128 KiB."""


def inflate(coding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Undo a Content-Encoding.

    Raises
    ------
    UnsupportedMediaType
        Neither gzip nor zstd.
    MalformedBody
        Not of the stated encoding, or cut off; raised while the pieces are read.
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
    """Members of gzip, one after the other."""

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
    """Frames of zstd, one after the other."""

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
    try:
        async for chunk in chunks:
            for piece in inflater.pieces(chunk):
                yield piece
    except (zlib.error, zstandard.ZstdError) as error:
        raise MalformedBody(f"the body is not {coding}: {error}") from error
    if not inflater.whole():
        raise MalformedBody(f"the body is not {coding}: it ends too early")
