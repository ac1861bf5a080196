"""URLs: the normal form of a URL, its host, its key and its URL group.

The URL group of a page is the directory of its URL, hashed into at most `URL_GROUPS` buckets
(Weinberger et al. 2009, Feature Hashing for Large Scale Multitask Learning). Because the group
follows from the URL alone, it is the same in every process and store. The number of groups does not
grow with the corpus.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import ada_url
import numpy as np

from service.model.arrays import UrlGroups
from service.model.errors import InvalidField, InvalidUrl
from service.model.field_faults import shown

MAX_URL_BYTES = 2048
"""Maximum length of a URL, bytes."""

NORMAL = re.compile(
    r"https?://"
    r"((?![^/]*xn--)(?:[a-z0-9-]{1,63}\.)*+[a-z][a-z0-9-]{0,62}+)"
    r"(?:/(?!\.|%2[eE])[\w!$&'()*+,;=:@%.~-]*+)++"
    r"(?:\?[\w!$&()*+,;=:@%/?.~-]++)?+",
    re.ASCII,
)
"""Pattern of most URLs, which are their own normal form: a host name that is no number and not in
Punycode, no port, no dot segment, no character to encode."""


class NormalUrl(NamedTuple):
    """A URL in normal form, its host and its key."""

    url: str
    host: str
    key: bytes
    """128-bit BLAKE2b hash of the normal form; nobody can construct two URLs with the same key."""


def normalise(url: str) -> NormalUrl:
    """Return the normal form by the WHATWG rules, without the fragment and a host's final dot.

    Raises
    ------
    InvalidUrl
        The URL is not http or https, has no host, has user information, is longer than 2,048
        bytes, or has a NUL character or a lone surrogate.

    Examples
    --------
    >>> normalise("HTTPS://Example.COM:443/a/../b?x=1#top").url
    'https://example.com/b?x=1'
    """
    if len(url) <= MAX_URL_BYTES and (match := NORMAL.fullmatch(url)):
        return NormalUrl(url, match[1], key_of(url))
    return parsed(url)


def parsed(url: str) -> NormalUrl:
    """Return the normal form of any URL; raise `InvalidUrl` as `normalise` does."""
    try:
        n_bytes = len(url.encode())
        if n_bytes > MAX_URL_BYTES:
            raise InvalidUrl(f"the url has {n_bytes:,} bytes; send at most {MAX_URL_BYTES:,}")
        if "\x00" in url:
            raise InvalidUrl("the url holds a NUL character; percent-encode or remove it")
        parts = ada_url.URL(url)
        if parts.hostname.endswith("."):
            parts.hostname = _rooted(parts.hostname)
    except UnicodeEncodeError as error:
        raise InvalidUrl("the url holds a lone surrogate; send valid Unicode") from error
    except ValueError as error:
        what = f": {url[:60]!r} has no scheme" if url and "://" not in url else ""
        raise InvalidUrl(
            f"the url cannot be parsed{what}; send an absolute http or https URL"
        ) from error
    if parts.protocol not in ("http:", "https:"):
        raise InvalidUrl(f"the scheme {parts.protocol[:40]} is not crawled; send http or https")
    if parts.username or parts.password:
        raise InvalidUrl("the url holds user information; remove it")
    if "#" in url:
        parts.hash = ""
    normal = parts.href
    if len(normal) > MAX_URL_BYTES:
        raise InvalidUrl(f"the url has over {MAX_URL_BYTES} bytes once percent-encoded")
    return NormalUrl(normal, parts.hostname, key_of(normal))


def _rooted(host: str) -> str:
    """Return a host without its final dots; raise `ValueError` if nothing is left."""
    if not (name := host.rstrip(".")):
        raise ValueError(host)
    return name


def key_of(normal: str) -> bytes:
    """Return the hash of a normal form."""
    return blake2b(normal.encode(), digest_size=16).digest()


WITH_PORT = re.compile(r"(\[[^\]]*\]|[^:/?#@]*):\d+")
"""A host name, or an address, with a port."""


def normalise_host(host: str, field: str = "host") -> str:
    """Return a host name in the form that normal URLs have.

    Raises
    ------
    InvalidField
        The text is not a host name alone.

    Examples
    --------
    >>> normalise_host("Bücher.Example")
    'xn--bcher-kva.example'
    """
    try:
        normal = normalise(f"http://{host}/")
    except InvalidUrl:
        normal = None
    if normal is None or normal.url != f"http://{normal.host}/" or "#" in host:
        detail = f"{shown(host)} is not a host name; send a name such as example.com"
        if WITH_PORT.fullmatch(host):
            detail += ", without a port: all ports of a name are one host"
        raise InvalidField(field, detail)
    return normal.host


URL_GROUPS = 1 << 20
"""Maximum number of URL groups."""
BUCKETS_A_PAGE = 16
"""Buckets of URL groups per page in a small corpus: at most one directory in 16 shares a bucket."""

DATE = re.compile(r"/((?:19|20)\d\d)(?:/\d\d?){1,2}(?=/|$)")
"""Pattern of a date in a path. The URL group keeps the year only: older pages change less, but a
month has few pages."""

ID = re.compile(
    r"(?!(?:19|20)\d\d$)\d{3,}|.*\d{5}.*|.*\b(?=[a-f]*\d)[0-9a-f]{8,}\b.*", re.IGNORECASE
)
"""Pattern of a path segment that is an id, such as a UUID. It is a number of three digits or more,
but no year, or it has five digits or eight hexadecimal digits in a row."""


def n_buckets(n_pages: int) -> int:
    """Return the number of buckets of URL groups for a number of pages: a power of 2."""
    wanted = BUCKETS_A_PAGE * max(n_pages, 1)
    return min(1 << (wanted - 1).bit_length(), URL_GROUPS)


def directory(url: str) -> str:
    """Return host and path of a normal URL without the path's last segment.

    Examples
    --------
    >>> directory("https://example.com/docs/api/open.html?lang=en/us")
    'example.com/docs/api'
    """
    path = url.partition("?")[0].partition("://")[2]
    return path[: max(path.rfind("/", 0, -1), path.find("/"))]


def kind(directory: str) -> str:
    """Return a directory with `#` for every id, and the year for every date.

    Examples
    --------
    >>> kind("example.com/docs/7.4/1b4e28ba-2fa1-11d2-883f-0016d3cca427/reviews")
    'example.com/docs/7.4/#/reviews'
    """
    host, *segments = DATE.sub(r"/\1", directory).split("/")
    return "/".join([host, *("#" if ID.fullmatch(segment) else segment for segment in segments)])


@lru_cache(maxsize=1 << 16)
def bucket(directory: str) -> int:
    """Return the hash of a directory's kind."""
    digest = blake2b(kind(directory).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % URL_GROUPS


def url_groups(urls: Iterable[str]) -> UrlGroups:
    """Return (N,) URL groups of normal URLs."""
    return np.fromiter((bucket(directory(url)) for url in urls), np.int32)
