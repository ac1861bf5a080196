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
"""Maximum depth of a body whose fields are mutated, brackets."""
HERE = "\x01here\x01"
"""Placeholder for a text that need not be JSON."""

Mutation = Callable[[Request, Random], Request]


def flip(request: Request, draw: Random) -> Request:
    """Return a request with some bytes of its body changed."""
    body = bytearray(request.body)
    for _ in range(draw.randint(1, 4)):
        body[draw.randrange(len(body))] = draw.randrange(256)
    return replace(request, body=bytes(body))


def cut(request: Request, draw: Random) -> Request:
    """Return a request without a piece of its body, often the end."""
    begin = draw.randrange(len(request.body))
    end = len(request.body) if draw.random() < 0.5 else draw.randint(begin, len(request.body))
    return replace(request, body=request.body[:begin] + request.body[end:])


def double(request: Request, draw: Random) -> Request:
    """Return a request with a piece of its body repeated up to a hundred times."""
    begin = draw.randrange(len(request.body))
    end = draw.randint(begin, len(request.body))
    piece = request.body[begin:end] * draw.choice((1, 2, 100))
    return replace(request, body=request.body[:end] + piece + request.body[end:])


def number(request: Request, draw: Random) -> Request:
    """Return a request with an extreme number in place of a value."""
    return with_value(request, draw, lambda: draw.choice(NUMBERS))


def text(request: Request, draw: Random) -> Request:
    """Return a request with an odd text in place of a value."""
    return with_value(request, draw, lambda: json.dumps(draw.choice(TEXTS)))


def structure(request: Request, draw: Random) -> Request:
    """Return a request with an array, an object or deep nesting in place of a value."""
    deep = draw.choice((2, 50, 5_000))
    shapes = ("[]", "{}", "[[]]", '{"a":{}}', "[" * deep, "[" * deep + "]" * deep, '{"":1}')
    return with_value(request, draw, lambda: draw.choice(shapes))


def with_value(request: Request, draw: Random, value: Callable[[], str]) -> Request:
    """Return a request with one value of its JSON body replaced by a text, JSON or not."""
    whole = decoded(request.body)
    if not (fields := leaves(whole)):
        return flip(request, draw)
    holder, key = draw.choice(fields)
    holder[key] = HERE
    written = json.dumps(whole).replace(json.dumps(HERE), value())
    return replace(request, body=written.encode("utf-8", "surrogatepass"))


def swap(request: Request, draw: Random) -> Request:
    """Return a request with two values swapped, one dropped, or an unknown or duplicate name."""
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
    """Return a JSON body, or the first line of NDJSON, or None if the body is not JSON."""
    if body.count(b"[") + body.count(b"{") > DEEPEST:
        return None  # Python's own decoder and encoder are recursive
    for part in (body, body.partition(b"\n")[0]):
        try:
            return json.loads(part)
        except ValueError:
            continue
    return None


def leaves(whole: Any) -> list[tuple[Any, Any]]:
    """Return the places of all values, each as its object or array and its key."""
    places, waiting = list[tuple[Any, Any]](), [whole]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, list | dict):
            for key in range(len(holder)) if isinstance(holder, list) else holder:
                places.append((holder, key))
                waiting.append(holder[key])
    return places


def media(request: Request, draw: Random) -> Request:
    """Return a request with another media type."""
    return replace(request, headers={**request.headers, "Content-Type": draw.choice(MEDIA)})


def coding(request: Request, draw: Random) -> Request:
    """Return a request with a compressed body, under a right or wrong name, sometimes truncated."""
    name, compress = draw.choice([*CODINGS.items()])
    body = compress(request.body)
    if draw.random() < 0.3:
        body = body[: draw.randrange(len(body))]
    claimed = name if draw.random() < 0.7 else draw.choice((*CODINGS, "identity", "x"))
    return replace(request, body=body, headers={**request.headers, "Content-Encoding": claimed})


def charset(request: Request, draw: Random) -> Request:
    """Return a request with its body in another character encoding."""
    text = request.body.decode("utf-8", "replace")
    encoding = draw.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"))
    return replace(request, body=text.encode(encoding, "replace"))


def query(request: Request, draw: Random) -> Request:
    """Return a request with an odd query."""
    return replace(request, raw_query=draw.choice(QUERIES))


def parameter(request: Request, draw: Random) -> Request:
    """Return a request with an odd value in one parameter of its query."""
    if not request.query:
        return query(request, draw)
    changed = [*request.query]
    which = draw.randrange(len(changed))
    changed[which] = (changed[which][0], odd(draw))
    pairs = [pair for i, pair in enumerate(changed) if i == which or draw.random() < 0.5]
    return replace(request, query=tuple(pairs))


def odd(draw: Random) -> str:
    """Return an odd value that UTF-8 can encode."""
    value = draw.choice((*NUMBERS, *TEXTS))
    return value.encode("utf-8", "replace").decode()


def header(request: Request, draw: Random) -> Request:
    """Return a request with an additional odd header."""
    name, value = draw.choice(HEADERS)
    return replace(request, headers={**request.headers, name: value})


def path(request: Request, draw: Random) -> Request:
    """Return a request with another path."""
    parts = request.path.split("/")
    parts[draw.randrange(1, len(parts))] = draw.choice(PATHS)
    return replace(request, path="/".join(parts))


def method(request: Request, draw: Random) -> Request:
    """Return a request with another method."""
    other = draw.choice(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "X"))
    return replace(request, method=other)


def valid(request: Request, _: Random) -> Request:
    """Return the request unchanged, so that the database fills."""
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
"""Mutations of requests with a body."""
HEADS: tuple[Mutation, ...] = (query, parameter, header, path, method, valid)
"""Mutations of any request."""


def mutated(request: Request, draw: Random) -> Request:
    """Return a request with one to three mutations."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        mutations = HEADS if not request.body or draw.random() < 0.2 else BODIES
        request = draw.choice(mutations)(request, draw)
    return request
