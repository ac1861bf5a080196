"""From the URL a caller sends to the one page it names: normal form, host and key."""

from hashlib import blake2b
from typing import NamedTuple

import ada_url

from service.errors import InvalidUrl

MAX_URL_BYTES = 2048


class NormalUrl(NamedTuple):
    """A page's address in its one normal form."""

    url: str
    host: str
    key: bytes
    """128-bit BLAKE2b of the normal form: collision-free even against chosen URLs."""


def normalise(url: str) -> NormalUrl:
    """Parse by the WHATWG rules, drop the fragment, and key the rest.

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
    try:
        n_bytes = len(url.encode())
        if n_bytes > MAX_URL_BYTES:
            raise InvalidUrl(f"the url has {n_bytes} bytes; at most {MAX_URL_BYTES} are kept")
        if "\x00" in url:
            raise InvalidUrl("the url holds a NUL character; percent-encode or remove it")
        parsed = ada_url.URL(url)
    except UnicodeEncodeError as error:
        raise InvalidUrl("the url holds a lone surrogate; send valid Unicode") from error
    except ValueError as error:
        raise InvalidUrl("the url cannot be parsed; send an absolute http or https URL") from error
    if parsed.protocol not in ("http:", "https:"):
        raise InvalidUrl(f"the scheme {parsed.protocol[:40]} is not crawled; send http or https")
    if parsed.username or parsed.password:
        raise InvalidUrl("the url holds user information; remove it")
    if "#" in url:
        parsed.hash = ""
    normal = parsed.href
    encoded = normal.encode()
    if len(encoded) > MAX_URL_BYTES:
        raise InvalidUrl(f"the url has over {MAX_URL_BYTES} bytes once percent-encoded")
    return NormalUrl(normal, parsed.hostname, blake2b(encoded, digest_size=16).digest())
