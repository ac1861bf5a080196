"""Which URL group of a site a page belongs to: the directory of its URL, hashed into buckets.

Pages of one directory tend to change alike, so an epoch learns of each page from its siblings
(`core.credibility`). A URL group is a number below `URL_GROUPS` that follows from the URL alone:
it is the same in every process and store, and what is kept of URL groups does not grow with the
corpus. Of n directories, about n / `URL_GROUPS` share the bucket of another one and are taken to
be alike.

References
----------
Weinberger, Dasgupta, Langford, Smola, Attenberg 2009, Feature Hashing for Large Scale Multitask
Learning.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from service.model.arrays import UrlGroups

URL_GROUPS = 1 << 20
BUCKETS_A_PAGE = 16
"""A small corpus has no more buckets: one directory in 16 at most shares that of another one."""

DATE = re.compile(r"/((?:19|20)\d\d)(?:/\d\d?){1,2}(?=/|$)")
"""Of a date the year is kept: what is older changes less, but a day or month has few pages."""

ID = re.compile(
    r"(?!(?:19|20)\d\d$)\d{3,}|.*\d{5}.*|.*\b(?=[a-f]*\d)[0-9a-f]{8,}\b.*", re.IGNORECASE
)
"""What names one thing and not a kind of things: a number of three digits or more that is no year,
five digits in a row, eight hexadecimal ones, hence a UUID."""


def n_buckets(n_pages: int) -> int:
    """Return the number of buckets of URL groups for a number of pages: a power of 2.

    Examples
    --------
    >>> n_buckets(1000), n_buckets(1_000_000)
    (16384, 1048576)
    """
    wanted = BUCKETS_A_PAGE * max(n_pages, 1)
    return min(1 << (wanted - 1).bit_length(), URL_GROUPS)


def directory(url: str) -> str:
    """Give host and path of a normal URL without the path's last segment.

    Examples
    --------
    >>> directory("https://example.com/docs/api/open.html?lang=en/us")
    'example.com/docs/api'
    >>> directory("https://example.com/docs/api/")
    'example.com/docs'
    >>> directory("https://example.com/")
    'example.com'
    """
    path = url.partition("?")[0].partition("://")[2]
    return path[: max(path.rfind("/", 0, -1), path.find("/"))]


def kind(directory: str) -> str:
    """Give a directory with `#` for every id, and the year for every date.

    Examples
    --------
    >>> kind("example.com/questions/12345")
    'example.com/questions/#'
    >>> kind("example.com/2024/05/17")
    'example.com/2024'
    >>> kind("example.com/docs/7.4/1b4e28ba-2fa1-11d2-883f-0016d3cca427/reviews")
    'example.com/docs/7.4/#/reviews'
    """
    host, *segments = DATE.sub(r"/\1", directory).split("/")
    return "/".join([host, *("#" if ID.fullmatch(segment) else segment for segment in segments)])


@lru_cache(maxsize=1 << 16)
def bucket(directory: str) -> int:
    """Hash a directory's kind."""
    digest = blake2b(kind(directory).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % URL_GROUPS


def url_groups(urls: Iterable[str]) -> UrlGroups:
    """Give (N,) URL groups of normal URLs.

    Examples
    --------
    >>> url_groups(["https://example.com/a/b", "https://example.com/a/c/", "https://example.com/d"])
    array([230059, 230059, 247059], dtype=int32)
    """
    return np.fromiter((bucket(directory(url)) for url in urls), np.int32)
