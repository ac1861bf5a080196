"""Text of strangers' documents: bytes in pieces in, text in pieces out.

A byte-order mark decides, then the zeros of UTF-16, then the label that an XML declaration names.
Labels are those of the WHATWG Encoding Standard, so nothing else that Python decodes is reached.
"""

import codecs
import re
from collections.abc import Iterator

import webencodings

from service.connectors.references import Faults

HEAD = 65_536
"""Maximum length of what stands before an XML declaration, bytes."""
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
LABEL = re.compile(
    rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']\s*([\w.:+-]{1,40})""", re.IGNORECASE
)
UTF_8 = "utf-8"
CODECS = {
    "gbk": "gb18030",
    **dict.fromkeys(("utf-16le", "utf-16be", "replacement", "x-user-defined"), UTF_8),
}
"""Python's codec where a label of the standard is read by another than its own. A declaration that
can be read byte by byte is not in UTF-16, although it may name UTF-16. HTML reads x-user-defined as
Windows-1252, as bytes that are not UTF-8 are read here."""
AS_WINDOWS = "recrawl.as_windows"
"""Way to read bytes that are not UTF-8: as Windows-1252, which contains Latin-1."""


def decoded(pieces: Iterator[bytes], faults: Faults) -> Iterator[str]:
    r"""Yield the text; bytes that are not UTF-8 in a text of UTF-8 are read as Windows-1252.

    >>> "".join(decoded(iter([b"caf\xc3\xa9 caf\xe9"]), faults := Faults())), faults
    ('café café', {'bytes that are not utf-8': 1})
    """
    head = b""
    while len(head) < HEAD and (piece := next(pieces, b"")):
        head += piece
    codec = codec_of(head)
    decoder = codecs.getincrementaldecoder(codec)("strict")
    yield _decode(decoder, codec, head, faults)
    for piece in pieces:
        yield _decode(decoder, codec, piece, faults)
    yield _decode(decoder, codec, b"", faults, final=True)


def codec_of(head: bytes) -> str:
    r"""Return Python's codec for a document that begins with `head`.

    >>> codec_of(b'<?xml version="1.0" encoding="GB2312"?>'), codec_of(b"<\0u\0")
    ('gb18030', 'utf-16-le')
    """
    for mark, codec in UTF_16.items():
        if head.startswith(mark):
            return codec
    if b"\0" in head[:2]:
        return "utf-16-be" if head[:1] == b"\0" else "utf-16-le"
    if head.lstrip().startswith(codecs.BOM_UTF8):
        return UTF_8
    if (named := LABEL.search(head[:HEAD])) is None:
        return UTF_8
    encoding = webencodings.lookup(named[1].decode("ascii"))
    if encoding is None:
        return UTF_8
    return CODECS.get(encoding.name, encoding.codec_info.name)


def _decode(
    decoder: codecs.IncrementalDecoder,
    codec: str,
    piece: bytes,
    faults: Faults,
    *,
    final: bool = False,
) -> str:
    state = decoder.getstate()
    try:
        return decoder.decode(piece, final)
    except UnicodeDecodeError:
        faults.note(f"bytes that are not {codec}")
        decoder.setstate(state)
        decoder.errors = AS_WINDOWS if codec == UTF_8 else "replace"
        return decoder.decode(piece, final)


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return wrong.decode("cp1252", "replace"), error.end


codecs.register_error(AS_WINDOWS, _as_windows)
