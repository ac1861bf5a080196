"""Addresses in strangers' documents: relative ones, and those that leave out their scheme."""

import re

import ada_url

from service.connectors.references import UNREADABLE

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
BLANK = re.compile(r"\s")
NEARLY = re.compile(r"[^\w/.?#]*(?:https?\W{0,3}//|:/)", re.IGNORECASE)
"""Pattern of the begin of a spoilt address, which is no relative one."""
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\ufeff"
"""Characters around an address that editors leave there."""
QUOTES = {'"': '"', "'": "'", "<": ">", "\u201c": "\u201d"}
WWW = "www."


def resolved(base: str, link: str) -> str:
    """Return a link of a document at `base`; a link that is none, and any without a base, as it is.

    >>> base = "https://example.com/a/sitemap.xml"
    >>> resolved(base, "b?c"), resolved(base, "//cdn.example/d"), resolved(base, "not a link")
    ('https://example.com/a/b?c', 'https://cdn.example/d', 'not a link')
    >>> resolved(base, "www.example.com/e")
    'https://www.example.com/e'
    >>> resolved(base, "'https://example.com/f'"), resolved(base, "http//example.com/g")
    ('https://example.com/f', 'http//example.com/g')
    """
    if link.startswith(("https://", "http://")) and link.isascii():
        return link
    link = _bare(link)
    if not base or not link or SCHEME.match(link) or BLANK.search(link) or UNREADABLE in link:
        return link
    if NEARLY.match(link):
        return link
    try:
        scheme, _, rest = base.partition("://")
        host, name = rest.partition("/")[0].lower(), link.partition("/")[0].lower()
        if name in (host, twin(host)):
            return f"{scheme}://{link}"
        return ada_url.join_url(base, link)  # that of urllib drops empty segments
    except ValueError:  # such as a base of https://[
        return link


def _bare(link: str) -> str:
    """Return a link without quotes and invisible characters around it."""
    link = link.strip(INVISIBLE)
    if len(link) > 1 and QUOTES.get(link[0]) == link[-1]:
        link = link[1:-1].strip()
    return link


def twin(host: str) -> str:
    """Return the name of a host with `www.`, or without it where it has it.

    >>> twin("example.com"), twin("www.example.com")
    ('www.example.com', 'example.com')
    """
    return host.removeprefix(WWW) if host.startswith(WWW) else WWW + host
