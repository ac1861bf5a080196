"""From the URL a caller sends to the one page it names: normal form, host and key."""

import re
from hashlib import blake2b
from typing import NamedTuple

import ada_url

from service.model.errors import InvalidField, InvalidUrl

MAX_URL_BYTES = 2048

NORMAL = re.compile(
    r"https?://"
    r"((?![^/]*xn--)(?:[a-z0-9-]{1,63}\.)*+[a-z][a-z0-9-]{0,62}+)"
    r"(?:/(?!\.|%2[eE])[\w!$&'()*+,;=:@%.~-]*+)++"
    r"(?:\?[\w!$&()*+,;=:@%/?.~-]++)?+",
    re.ASCII,
)
"""Most URLs: a name (no number, no Punycode), no port, no dot segment, nothing to encode. They are
their own normal form."""


class NormalUrl(NamedTuple):
    """A page's address in its one normal form."""

    url: str
    host: str
    key: bytes
    """128-bit BLAKE2b of the normal form: collision-free even against chosen URLs."""


def normalise(url: str) -> NormalUrl:
    """Parse by the WHATWG rules, drop the fragment, and key the rest.

    A host's closing dot is dropped too, which those rules keep: it is the same host, and must not
    be crawled as if it were two.

    Raises
    ------
    InvalidUrl
        Not http or https, no host, user information in it, over 2,048 bytes, or
        characters that no URL has (NUL, lone surrogates).

    Examples
    --------
    >>> normalise("HTTPS://Example.COM:443/a/../b?x=1#top").url
    'https://example.com/b?x=1'
    """
    if len(url) <= MAX_URL_BYTES and (found := NORMAL.fullmatch(url)):
        return NormalUrl(url, found[1], key_of(url))
    return parsed(url)


def parsed(url: str) -> NormalUrl:
    """Normalise a URL of any form."""
    try:
        n_bytes = len(url.encode())
        if n_bytes > MAX_URL_BYTES:
            raise InvalidUrl(f"the url has {n_bytes} bytes; at most {MAX_URL_BYTES} are kept")
        if "\x00" in url:
            raise InvalidUrl("the url holds a NUL character; percent-encode or remove it")
        parts = ada_url.URL(url)
        if parts.hostname.endswith("."):
            parts.hostname = _rooted(parts.hostname)
    except UnicodeEncodeError as error:
        raise InvalidUrl("the url holds a lone surrogate; send valid Unicode") from error
    except ValueError as error:
        raise InvalidUrl("the url cannot be parsed; send an absolute http or https URL") from error
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
    """Leave out the dots at the end, which name the root; raises ValueError where that is all."""
    if not (name := host.rstrip(".")):
        raise ValueError(host)
    return name


def key_of(normal: str) -> bytes:
    """Hash a normal form."""
    return blake2b(normal.encode(), digest_size=16).digest()


def normalise_host(host: str, field: str = "host") -> str:
    """Give a host name as it stands in normal URLs.

    Raises
    ------
    InvalidField
        Not a host name alone.

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
        detail = f"{host[:100]!r} is not a host name; send a name such as example.com"
        raise InvalidField(field, detail)
    return normal.host
