"""Bodies of answers, inflated in pieces and within a size."""

import zlib
from collections.abc import Iterator

import httpx

PIECE = 65_536
"""Maximum size of an inflated piece, bytes."""
GZIP = ("gzip", "x-gzip")


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
    inflater = zlib.decompressobj(wbits=31)
    try:
        for part in response.iter_raw():
            rest = part
            while rest:
                yield inflater.decompress(rest, PIECE)
                rest = inflater.unconsumed_tail
    except zlib.error as error:
        raise httpx.DecodingError(f"it is not gzip: {error}") from error


def inflated_within(response: httpx.Response, max_bytes: int) -> bytes:
    """Return the inflated body; raise `AnswerTooLarge` beyond a size in bytes."""
    content = bytearray()
    for piece in gunzipped(response):
        content += piece
        if len(content) > max_bytes:
            raise AnswerTooLarge(f"it has over {max_bytes} bytes")
    return bytes(content)
