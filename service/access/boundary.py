"""Boundaries: the hosts and URLs that a key is limited to."""

from collections.abc import Collection
from dataclasses import dataclass

from service.model.errors import InvalidField, InvalidUrl
from service.model.urls import NormalUrl, normalise, normalise_host

SHOWN = 3
"""Maximum number of names that a sentence shows."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Pages that a key may name: those of some hosts, and those below some URLs."""

    hosts: frozenset[str]
    url_prefixes: tuple[str, ...]

    def allows(self, url: NormalUrl) -> bool:
        """Return whether the key may name the page.

        >>> boundary = Boundary(frozenset({"a.example"}), ("https://b.example/news/",))
        >>> [boundary.allows(normalise(f"https://{url}")) for url in
        ...  ("a.example", "A.example/x", "a.example.net", "b.example/news/1", "b.example/shop")]
        [True, True, False, True, False]
        """
        return url.host in self.hosts or url.url.startswith(self.url_prefixes)

    def allows_text(self, url: str) -> bool:
        """Return whether the key may name the page of a URL; an invalid URL has no page."""
        try:
            return self.allows(normalise(url))
        except InvalidUrl:
            return False

    def __str__(self) -> str:
        names = (*sorted(self.hosts), *self.url_prefixes)
        return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def boundary_of(hosts: Collection[str], url_prefixes: Collection[str]) -> Boundary | None:
    """Return the boundary of normal names; None: the key is not limited."""
    if not hosts and not url_prefixes:
        return None
    return Boundary(frozenset(hosts), tuple(url_prefixes))


def normal_prefix(url: str) -> str:
    """Return the normal form of a URL prefix; its host is complete, because a path follows.

    Raises
    ------
    InvalidField
        The prefix is no absolute URL.

    >>> normal_prefix("https://A.example")
    'https://a.example/'
    """
    try:
        return normalise(url).url
    except InvalidUrl as error:
        raise InvalidField("url_prefixes", f"url_prefixes: {error.detail}", error.code) from error


def normal_host(host: str) -> str:
    """Return the normal name of a host; raise `InvalidField`."""
    return normalise_host(host, "hosts")
