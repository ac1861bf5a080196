"""Addresses in strangers' documents: relative ones, and those that leave out their scheme."""

import re
from urllib.parse import urljoin

from service.connectors.references import UNREADABLE

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
BLANK = re.compile(r"\s")
WWW = "www."


def resolved(base: str, link: str) -> str:
    """Return a link of a document at `base`; a link that is none, and any without a base, as it is.

    >>> base = "https://example.com/a/sitemap.xml"
    >>> resolved(base, "b?c"), resolved(base, "//cdn.example/d"), resolved(base, "not a link")
    ('https://example.com/a/b?c', 'https://cdn.example/d', 'not a link')
    >>> resolved(base, "www.example.com/e")
    'https://www.example.com/e'
    """
    if link.startswith(("https://", "http://")):
        return link
    if not base or not link or SCHEME.match(link) or BLANK.search(link) or UNREADABLE in link:
        return link
    try:
        scheme, _, rest = base.partition("://")
        host, name = rest.partition("/")[0].lower(), link.partition("/")[0].lower()
        if name in (host, twin(host)):
            return f"{scheme}://{link}"
        return urljoin(base, link)
    except ValueError:  # such as a base of https://[
        return link


def twin(host: str) -> str:
    """Return the name of a host with `www.`, or without it where it has it.

    >>> twin("example.com"), twin("www.example.com")
    ('www.example.com', 'example.com')
    """
    return host.removeprefix(WWW) if host.startswith(WWW) else WWW + host
