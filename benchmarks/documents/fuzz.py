"""Documents mutated at random: the reader raises nothing but its own errors, in little memory."""

import gzip
import json
import re
import resource
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from benchmarks.documents.score import MAX_BYTES, cases
from benchmarks.documents.written import BASE, FORMATS, document
from service.connectors.dates import read_date
from service.connectors.feed import read_feed
from service.connectors.feed_hints import hints
from service.connectors.sitemap import Sitemap
from service.model.errors import InvalidUrl, RequestError
from service.model.urls import normalise

LENGTHS = (512, 1_536, 4_096)
"""Maximum lengths of mutated documents, bytes."""
A_PUSH = 4
"""Number of documents of which one is read as a push of a hub too."""
MAX_MEMORY = 4_000_000
"""Maximum memory of one document, bytes."""
NOW = datetime(2026, 5, 1, tzinfo=UTC)
PIECES = re.compile(rb"<[^<>]*>?|&[^;<>]*;?|[^<&]+")
WORDS = (
    b"< > & \" ' / = ; : ]]> --> ?> [ ] { } , \\ </ /> &# &#x \0 \xff\xfe \xef\xbb\xbf \xc3 "
    b"\x1f\x8b <!-- <![CDATA[ <! <? <?xml <!DOCTYPE <!ENTITY encoding='utf-16' \\ud800 null 1e999"
).split()
LABEL = re.compile(rb"encoding=.([\w-]+)")
LABELS = (
    b"utf-8 utf-16 UTF-16BE utf-32 utf-7 gbk GB2312 big5 Shift_JIS EUC-JP ISO-2022-JP EUC-KR "
    b"iso-8859-8-i windows-1255 x-user-defined replacement hz-gb-2312 idna rot13 zlib base64 x"
).split()
CODECS = ("utf-16", "utf-16-be", "utf-32", "utf-7", "gb18030", "shift_jis", "iso2022_jp", "cp1251")
DATES = re.compile(rb"\d{4}-\d\d-\d\d[^<\"]*|\d\d \w{3} \d{2,4} [^<\"]*")
ODD_DATES = (
    b"9999-12-31T23:59:59-23:59|0001-01-01T00:00:00+14:00|2026-02-30|2026-13-01|0000-00-00|99999"
    b"|2026-05-01T24:00:00Z|9999-12-31T24:00:00|2026-05-01T12:00:60Z|2026-W53-7|20260501|-2026-05-01"
    b"|Fri, 31 Dec 9999 24:00:00 -2359|1 Jan 0001 00:00 +2359|1 May 26 12:00 (CEST)|12/31/2026"
    b"|1 May 2026 12:00 +99:99|1 May 2026 12:00 ZZZZZ|2026-05-01T12:00:00+24:00|1777636800"
    b"|\xd9\xa2\xd9\xa0\xd9\xa2\xd9\xa6-05-01|2026-05-01T12:00:00.999999999999Z"
    b"|May 1 12:00 NZDT 2026"
).split(b"|")
QUOTED = re.compile(rb"=\s*[\"']([^\"'<>]*)[\"']")
INSIDE = re.compile(rb"<\w[\w:-]*")
ENTITIES = (
    b"&amp;amp;lt;",
    b"&a&b;;",
    b"&#38;#60;",
    b"&&amp;;",
    b"&#x110000;",
    b"&#xD800;",
    b"&lol9;",
)


def mutants(n: int, seed: int = 1) -> Iterator[bytes]:
    """Yield documents that are broken by rules and then at random."""
    rng = Random(seed)
    originals = [case.content for case in cases(2, seed)]
    originals += [json_feed(rng) for _ in range(len(originals) // 4)]
    for _ in range(n):
        yield mutant(rng.choice(originals), rng.choice(originals), rng)


def json_feed(rng: Random) -> bytes:
    """Return a JSON Feed."""
    items = [
        {
            "id": str(number),
            "url": each.loc,
            "title": "caf\u00e9",
            "date_modified": f"{each.changed_at}",
        }
        for number, each in enumerate(document(FORMATS[0], rng).entries)
    ]
    hubs = [{"type": "WebSub", "url": "https://hub.example/"}]
    feed = {"version": "https://jsonfeed.org/version/1.1", "feed_url": BASE, "hubs": hubs}
    return json.dumps({**feed, "items": items}, indent=rng.choice([None, 1])).encode()


def mutant(content: bytes, other: bytes, rng: Random) -> bytes:
    """Return a document after some changes of bytes and of pieces of markup."""
    for _ in range(rng.randint(1, 6)):
        content = rng.choice(CHANGES)(content, other, rng)
    return content[: rng.choice(LENGTHS)]


def span(content: bytes, rng: Random) -> tuple[int, int]:
    """Return the begin and the end of some bytes."""
    at = rng.randrange(len(content) + 1)
    return at, min(at + rng.choice([1, 1, 2, 8, 100]), len(content))


def replaced(pattern: re.Pattern[bytes], text: bytes, content: bytes, rng: Random) -> bytes:
    """Return a document with one match of a pattern replaced."""
    found = list(pattern.finditer(content))
    if not found:
        return content
    match = rng.choice(found)
    return content[: match.start()] + text + content[match.end() :]


def cut(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Leave bytes out."""
    at, to = span(content, rng)
    return content[:at] + content[to:]


def inserted(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Insert a word of markup, at times often."""
    at, _ = span(content, rng)
    return content[:at] + rng.choice(WORDS) * rng.choice([1, 1, 1, 200]) + content[at:]


def flipped(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Put other bytes in the place of some."""
    at, to = span(content, rng)
    return content[:at] + rng.randbytes(to - at) + content[to:]


def spliced(content: bytes, other: bytes, rng: Random) -> bytes:
    """Insert a piece of another document, or go on with the other."""
    at, piece = span(content, rng)[0], other[rng.randrange(len(other) + 1) :]
    return content[:at] + rng.choice([piece, piece[:200] + content[at:]])


def doubled(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Repeat some bytes."""
    at, to = span(content, rng)
    return content[:at] + content[at:to] * rng.choice([2, 30]) + content[to:]


def shuffled(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Let some pieces of the markup change places."""
    pieces = PIECES.findall(content)
    for _ in range(3):
        if pieces:
            here, there = rng.randrange(len(pieces)), rng.randrange(len(pieces))
            pieces[here], pieces[there] = pieces[there], pieces[here]
    return b"".join(pieces)


def mislabelled(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Name another encoding, or write another one than the named."""
    if rng.random() < 0.5:
        return replaced(LABEL, b"encoding='" + rng.choice(LABELS), content, rng)
    return content.decode("utf-8", "replace").encode(rng.choice(CODECS), "replace")


def dated(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Write an odd date."""
    return replaced(DATES, rng.choice(ODD_DATES), content, rng)


def unquoted(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Write attributes without quotes."""
    return QUOTED.sub(rb"=\1", content, count=rng.randint(1, 5))


def commented(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Write a comment in a tag."""
    return replaced(INSIDE, b"<url <!-- a > b -->", content, rng)


def nested(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Write references in references, and elements or lists in each other."""
    at, _ = span(content, rng)
    piece = rng.choice(
        [rng.choice(ENTITIES), rng.choice([b"<a>", b"<item>", b"[", b'{"a":']) * 500]
    )
    return content[:at] + piece + content[at:]


def zipped(content: bytes, _other: bytes, rng: Random) -> bytes:
    """Compress the document, which later changes may break."""
    return gzip.compress(content, 1, mtime=0) if rng.random() < 0.2 else content


CHANGES: list[Callable[[bytes, bytes, Random], bytes]] = [
    cut,
    inserted,
    flipped,
    spliced,
    doubled,
    shuffled,
    mislabelled,
    dated,
    unquoted,
    commented,
    nested,
    zipped,
]


def read(content: bytes, ends: Counter[str]) -> None:
    """Read a document as the service does, up to the addresses and instants of its entries."""
    sitemap = Sitemap(content, MAX_BYTES, BASE)
    try:
        for entry in sitemap:
            ends["entries"] += 1
            with suppress(InvalidUrl):
                normalise(entry.loc).url.encode()
                ends["addresses"] += 1
            if (date := read_date(entry.lastmod or "")) is not None:
                date.latest(NOW).isoformat()
                ends["dates"] += 1
        hints(sitemap.head, [f"{NOW}"] * 3, NOW)
        "".join([*sitemap.warnings, sitemap.broke_off, *sitemap.faults]).encode("utf-8", "replace")
        ends["broke off" if sitemap.broke_off else "read"] += 1
    except RequestError as error:
        ends[type(error).__name__] += 1


def push(content: bytes, ends: Counter[str]) -> None:
    """Read a document as a push of a hub."""
    for entry in read_feed(content, BASE, NOW):
        datetime.fromisoformat(entry.lastmod or "")
        ends["pushed"] += 1


def resident() -> int:
    """Return the memory of this process, MB."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() // 1_000_000


def fuzz(n: int, seed: int = 1, *, measured: int = 0) -> Counter[str]:
    """Read mutated documents; return how many of them ended how, and raise for any other end.

    The memory of the first `measured` documents is measured, which takes ten times as long.
    """
    ends: Counter[str] = Counter()
    for number, content in enumerate(mutants(n, seed)):
        if number == measured:
            ends["MB at the begin"] = resident()
        if number < measured:
            tracemalloc.start()
        try:
            read(content, ends)
            if number % A_PUSH == 0:
                push(content, ends)
        except Exception as error:
            raise AssertionError(f"document {number} of seed {seed}: {content!r}") from error
        if number < measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if peak > MAX_MEMORY:
                raise AssertionError(f"{peak:,} bytes for document {number} of seed {seed}")
    ends["MB at the end"] = resident()
    return ends
