"""Bodies of answers, inflated in pieces and within a size."""

import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

import httpx

PIECE = 65_536
"""Maximum size of an inflated piece, bytes."""
GZIP = ("gzip", "x-gzip")
MAGIC = b"\x1f\x8b"
"""Beginning of each member of a gzip."""


class BrokenGzip(ValueError):
    """A gzip is broken or cut short; all that could be inflated was yielded before."""


class AnswerTooLarge(httpx.TransportError):
    """The answer has more bytes than allowed."""


def gunzipped(response: httpx.Response) -> Iterator[bytes]:
    """Return the inflated body in pieces of bounded size; raise for any coding but gzip."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        yield from response.iter_raw()
        return
    if coding not in GZIP:
        raise httpx.DecodingError(f"its Content-Encoding {coding[:40]} was not requested")
    try:
        yield from inflated(response.iter_raw())
    except BrokenGzip as error:
        raise httpx.DecodingError(f"its gzip {error}") from error


def inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip, of all its members, in pieces of bounded size.

    Bytes after the last member are padding, and do not count. An empty member is an empty piece.
    Raise `BrokenGzip` at the place where a gzip breaks off.
    """
    member, is_begun = zlib.decompressobj(wbits=31), False
    for piece in pieces:
        rest = piece
        while rest:
            if member.eof:
                if not rest.startswith(MAGIC[: len(rest)]):
                    return
                member = zlib.decompressobj(wbits=31)
            is_begun, before = True, member.copy()
            try:
                content = member.decompress(rest, PIECE)
            except zlib.error as error:
                yield _before_fault(before, rest)
                raise BrokenGzip(f"is broken ({error})") from error
            if content or member.eof:
                yield content
            rest = member.unused_data if member.eof else member.unconsumed_tail
    if is_begun and not member.eof:
        raise BrokenGzip("was cut short")


def _before_fault(member: "zlib._Decompress", rest: bytes) -> bytes:
    """Return what a member inflates before the fault in its next bytes, which zlib drops."""
    content = bytearray()
    with suppress(zlib.error):
        for at in range(len(rest)):
            content += member.decompress(rest[at : at + 1])
    return bytes(content)


def beginning(content: bytes, max_bytes: int) -> bytes:
    """Return the first bytes of a document, inflated where it is a gzip, up to the gzip's break."""
    if not content.startswith(MAGIC):
        return content[:max_bytes]
    plain = bytearray()
    with suppress(BrokenGzip):
        for piece in inflated([content]):
            plain += piece
            if len(plain) >= max_bytes:
                break
    return bytes(plain[:max_bytes])


def inflated_within(response: httpx.Response, max_bytes: int) -> bytes:
    """Return the inflated body; raise `AnswerTooLarge` beyond a size in bytes."""
    content = bytearray()
    for piece in gunzipped(response):
        content += piece
        if len(content) > max_bytes:
            raise AnswerTooLarge(f"it has over {max_bytes} bytes")
    return bytes(content)
