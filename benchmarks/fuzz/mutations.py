"""Mutations of valid requests: bytes, fields, numbers, encodings, queries, headers, heads."""

import bz2
import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import zstandard

from benchmarks.fuzz.odd import HEADERS, MEDIA, NUMBERS, PATHS, QUERIES, TEXTS
from benchmarks.fuzz.requests import Request

CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, mtime=0),
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "bzip2": bz2.compress,
}

DEEPEST = 500
"""Brackets of a body whose fields are still mutated."""
HERE = "\x01here\x01"
"""Stands where a text will be put that need not be JSON."""

Mutation = Callable[[Request, Random], Request]


def flip(request: Request, draw: Random) -> Request:
    """Change some bytes of the body."""
    body = bytearray(request.body)
    for _ in range(draw.randint(1, 4)):
        body[draw.randrange(len(body))] = draw.randrange(256)
    return replace(request, body=bytes(body))


def cut(request: Request, draw: Random) -> Request:
    """Cut a piece out of the body, often its end."""
    begin = draw.randrange(len(request.body))
    end = len(request.body) if draw.random() < 0.5 else draw.randint(begin, len(request.body))
    return replace(request, body=request.body[:begin] + request.body[end:])


def double(request: Request, draw: Random) -> Request:
    """Repeat a piece of the body, up to a hundred times."""
    begin = draw.randrange(len(request.body))
    end = draw.randint(begin, len(request.body))
    piece = request.body[begin:end] * draw.choice((1, 2, 100))
    return replace(request, body=request.body[:end] + piece + request.body[end:])


def number(request: Request, draw: Random) -> Request:
    """Put an extreme number in place of a value."""
    return with_value(request, draw, lambda: draw.choice(NUMBERS))


def text(request: Request, draw: Random) -> Request:
    """Put an odd text in place of a value."""
    return with_value(request, draw, lambda: json.dumps(draw.choice(TEXTS)))


def structure(request: Request, draw: Random) -> Request:
    """Put an array, an object or deep nesting in place of a value."""
    deep = draw.choice((2, 50, 5_000))
    shapes = ("[]", "{}", "[[]]", '{"a":{}}', "[" * deep, "[" * deep + "]" * deep, '{"":1}')
    return with_value(request, draw, lambda: draw.choice(shapes))


def with_value(request: Request, draw: Random, value: Callable[[], str]) -> Request:
    """Replace one value of a JSON body by a text that need not be JSON."""
    whole = decoded(request.body)
    if not (fields := leaves(whole)):
        return flip(request, draw)
    holder, key = draw.choice(fields)
    holder[key] = HERE
    written = json.dumps(whole).replace(json.dumps(HERE), value())
    return replace(request, body=written.encode("utf-8", "surrogatepass"))


def swap(request: Request, draw: Random) -> Request:
    """Swap two values, drop one, or give one an unknown or a doubled name."""
    whole = decoded(request.body)
    if not (fields := leaves(whole)):
        return flip(request, draw)
    (one, a), (other, b) = draw.choice(fields), draw.choice(fields)
    match draw.randrange(4):
        case 0:
            one[a], other[b] = other[b], one[a]
        case 1:
            del one[a]
        case 2 if isinstance(one, dict):
            one[draw.choice(TEXTS)] = one.pop(a)
        case _:
            written = json.dumps(whole)
            return replace(request, body=written.replace('"', '"a":1,"', 1).encode())
    return replace(request, body=json.dumps(whole).encode("utf-8", "surrogatepass"))


def decoded(body: bytes) -> Any:
    """Return a JSON body, or its first line where there are several; None if it is no JSON."""
    if body.count(b"[") + body.count(b"{") > DEEPEST:
        return None  # Python's own decoder and encoder recurse
    for part in (body, body.partition(b"\n")[0]):
        try:
            return json.loads(part)
        except ValueError:
            continue
    return None


def leaves(whole: Any) -> list[tuple[Any, Any]]:
    """Return all places of values, each as the object or array that holds it and its key."""
    places, waiting = list[tuple[Any, Any]](), [whole]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, list | dict):
            for key in range(len(holder)) if isinstance(holder, list) else holder:
                places.append((holder, key))
                waiting.append(holder[key])
    return places


def media(request: Request, draw: Random) -> Request:
    """Claim another media type."""
    return replace(request, headers={**request.headers, "Content-Type": draw.choice(MEDIA)})


def coding(request: Request, draw: Random) -> Request:
    """Compress the body, under the right name or a wrong one, sometimes broken off."""
    name, compress = draw.choice([*CODINGS.items()])
    body = compress(request.body)
    if draw.random() < 0.3:
        body = body[: draw.randrange(len(body))]
    claimed = name if draw.random() < 0.7 else draw.choice((*CODINGS, "identity", "x"))
    return replace(request, body=body, headers={**request.headers, "Content-Encoding": claimed})


def charset(request: Request, draw: Random) -> Request:
    """Write the body in another encoding of characters."""
    text = request.body.decode("utf-8", "replace")
    encoding = draw.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"))
    return replace(request, body=text.encode(encoding, "replace"))


def query(request: Request, draw: Random) -> Request:
    """Ask with an odd query."""
    return replace(request, raw_query=draw.choice(QUERIES))


def parameter(request: Request, draw: Random) -> Request:
    """Put an odd value into one parameter of the query."""
    if not request.query:
        return query(request, draw)
    changed = [*request.query]
    which = draw.randrange(len(changed))
    changed[which] = (changed[which][0], odd(draw))
    kept = [pair for i, pair in enumerate(changed) if i == which or draw.random() < 0.5]
    return replace(request, query=tuple(kept))


def odd(draw: Random) -> str:
    """Return an odd value that UTF-8 can hold."""
    value = draw.choice((*NUMBERS, *TEXTS))
    return value.encode("utf-8", "replace").decode()


def header(request: Request, draw: Random) -> Request:
    """Add an odd header."""
    name, value = draw.choice(HEADERS)
    return replace(request, headers={**request.headers, name: value})


def path(request: Request, draw: Random) -> Request:
    """Change the path."""
    parts = request.path.split("/")
    parts[draw.randrange(1, len(parts))] = draw.choice(PATHS)
    return replace(request, path="/".join(parts))


def method(request: Request, draw: Random) -> Request:
    """Use another method."""
    other = draw.choice(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "X"))
    return replace(request, method=other)


def valid(request: Request, _: Random) -> Request:
    """Change nothing: so that there is something in the database."""
    return request


BODIES: tuple[Mutation, ...] = (
    flip,
    cut,
    double,
    number,
    text,
    structure,
    swap,
    media,
    coding,
    charset,
    valid,
)
"""Mutations of requests that have a body."""
HEADS: tuple[Mutation, ...] = (query, parameter, header, path, method, valid)
"""Mutations of any request."""


def mutated(request: Request, draw: Random) -> Request:
    """Return a request with one to three mutations."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        mutations = HEADS if not request.body or draw.random() < 0.2 else BODIES
        request = draw.choice(mutations)(request, draw)
    return request
