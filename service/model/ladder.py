"""The ladder of a URL: its host, its directories, and the shape of its last segment.

Addresses with parameters lie below their path, as if it were a directory: a trap that invents
parameters is one group, whatever their names.

Each level of the ladder is a group of URLs, the first the widest. New pages are judged by these
groups (`core.worth`). Because the ladder follows from the URL alone, it is the same in every
process and store.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Ints
from service.model.urls import kind

MOST_DIRECTORIES = 6
"""Maximum number of directories in a ladder; deeper ones belong to the last of these."""
MOST_LETTERS = 24
"""Maximum length of a shape that has its letters, characters."""
MOST_PARAMETERS = 8
"""Maximum number of names of parameters in a shape."""
MOST_NAME = 500
"""Maximum length of the name of a level, characters."""
DIGITS = re.compile(r"\d+")


class Ladder(NamedTuple):
    """The levels of a URL, from the host to the shape of the last segment."""

    names: tuple[str, ...]
    levels: tuple[int, ...]
    """Id of each level, at least 1 and below 2^62."""


def level_of(name: str) -> int:
    """Return the id of a level: a hash of its name."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 2) | 1


def shape(last: str, query: str) -> str:
    """Return the shape of a last segment: `#` for numbers, `*` for words, and its parameters.

    Examples
    --------
    >>> shape("list", "page=2&id=77")
    'list?id&page'
    >>> shape("p1234.html", ""), shape("about-us", ""), shape("post-title/", "")
    ('p#.html?', '*?', '*/?')
    """
    form = DIGITS.sub("#", last)
    if len(form) > MOST_LETTERS or form.count("#") > 1:
        form = "*#*" if "#" in form else "*"
    elif not query and "#" not in form:
        form = "*/" if form[-1:] == "/" else "*"
    return f"{form}?{_parameters(query)}" if query else f"{form}?"


@lru_cache(maxsize=1 << 14)
def _parameters(query: str) -> str:
    """Return the names of the parameters of a query, in order."""
    names = {part.partition("=")[0] for part in query.split("&")}
    return "&".join(sorted(names)[:MOST_PARAMETERS])


@lru_cache(maxsize=1 << 16)
def _directories(directory: str) -> Ladder:
    """Return the levels of a host and its directories."""
    parts = kind(directory).split("/")[: 1 + MOST_DIRECTORIES]
    names = tuple("/".join(parts[:n]) for n in range(1, 1 + len(parts)))
    return Ladder(tuple(name[:MOST_NAME] for name in names), tuple(map(level_of, names)))


@lru_cache(maxsize=1 << 16)
def _last(directory: str, form: str) -> int:
    """Return the id of the last level."""
    parts = kind(directory).split("/")[: 1 + MOST_DIRECTORIES]
    return level_of(f"{'/'.join(parts)}/{form}")


def _divided(url: str) -> tuple[str, str]:
    """Return the directory of a normal URL, and the shape of its last segment."""
    path, _, query = url.partition("?")
    start = path.find("://") + 3
    end = max(path.rfind("/", 0, -1), path.find("/", start))
    return path[start:end], shape(path[end + 1 :], query)


def ladder(url: str) -> Ladder:
    """Return the ladder of a normal URL.

    Examples
    --------
    >>> ladder("https://example.com/shop/12345?page=2").names
    ('example.com', 'example.com/shop', 'example.com/shop/#', 'example.com/shop/#?page')
    """
    directory, form = _divided(url)
    above = _directories(directory)
    form_shown = form[: MOST_NAME // 2]  # the `?` of last levels must stay
    name = f"{above.names[-1][: MOST_NAME - 1 - len(form_shown)]}/{form_shown}"
    names, levels = (*above.names, name), (*above.levels, _last(directory, form))
    path, _, parameters = name.partition("?")
    if not parameters or path.endswith("/"):
        return Ladder(names, levels)
    return Ladder((*names[:-1], path, name), (*levels[:-1], level_of(path), levels[-1]))


@lru_cache(maxsize=1 << 16)
def _last_of(url: str) -> int:
    # a batch of registrations asks twice: for the column of its pages, and for its new levels
    return _last(*_divided(url))


def last_levels(urls: Iterable[str] | NDArray[np.object_]) -> Ints:
    """Return (N,) ids of the last levels of normal URLs."""
    return np.fromiter(map(_last_of, urls), np.int64)


def directory_level(url: str) -> Ladder:
    """Return the ladder of a host or directory, named by a URL that ends with a slash.

    Examples
    --------
    >>> directory_level("https://example.com/calendar/").names
    ('example.com', 'example.com/calendar')
    """
    return _directories(url.partition("?")[0].partition("://")[2].rstrip("/"))
