"""Readers of the headers of a site's answer: dates, waits and redirects."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from ipaddress import ip_address

import httpx

from recrawl_client.wire.leases import Crawl

LONGEST_RETRY_S = 1e6
"""Maximum wait of a Retry-After, seconds."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses of redirects."""
READABLE_PRICE = re.compile(r"[A-Za-z]{3} ?[0-9]{1,9}(\.[0-9]{1,12})?")
"""Prices that the service reads."""
PAYMENT = 402
"""Status with which a site may ask for a price."""
SUCCESS = range(200, 300)
"""Statuses of answers with content."""
MAX_ETAG = 512
"""Maximum length of an ETag for the service, characters."""
LAST_PORT = 65_535
MAX_URL_BYTES = 2_048
"""Maximum length of a URL for the service, bytes."""


def retry_after(response: httpx.Response) -> float:
    """Return the Retry-After of an answer, seconds; 0 without one.

    >>> retry_after(httpx.Response(503, headers={"Retry-After": "7"}))
    7.0
    """
    return retry_seconds(response.headers.get("Retry-After", ""))


def retry_seconds(header: str) -> float:
    """Return the seconds of a Retry-After, a number or a date; 0 where it cannot be read."""
    if header.isascii() and header.isdigit():
        return min(float(header), LONGEST_RETRY_S)
    at = http_date(header)
    if at is None:
        return 0.0
    return min(max((at - datetime.now(UTC)).total_seconds(), 0.0), LONGEST_RETRY_S)


def last_modified(response: httpx.Response) -> datetime | None:
    """Return the date of an answer's Last-Modified; None without a readable date.

    >>> dated = {"Last-Modified": "Fri, 01 May 2026 09:30:00 GMT"}
    >>> last_modified(httpx.Response(200, headers=dated)).isoformat()
    '2026-05-01T09:30:00+00:00'
    """
    return http_date(response.headers.get("Last-Modified", ""))


def etag(response: httpx.Response) -> str | None:
    """Return the ETag of an answer; None without one that can be sent back."""
    return usable_etag(response.headers.get("ETag", ""))


def usable_etag(header: str) -> str | None:
    """Return an ETag that the service stores; None for one that is empty, long or not ASCII."""
    usable = len(header) <= MAX_ETAG and header.isascii() and header.isprintable()
    return header if header and usable else None


def conditions(crawl: Crawl) -> dict[str, str]:
    """Return the headers of a conditional request, and of the price that may be paid.

    They are empty for a page without validators and without a price. A site whose page is unchanged
    answers with status 304 and without a body.

    >>> from recrawl_client import Crawl
    >>> at = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    >>> conditions(Crawl(lease="7-1", page_id=7, url="", host="", reason="due", due_at=at,
    ...     last_crawl_at=at, overdue=1.0, expires_at=at, etag='"5f3a"', last_modified=at))
    {'If-None-Match': '"5f3a"', 'If-Modified-Since': 'Fri, 01 May 2026 09:30:00 GMT'}
    """
    headers = {"If-None-Match": crawl.etag} if crawl.etag else {}
    if crawl.last_modified is not None:
        headers["If-Modified-Since"] = format_datetime(
            crawl.last_modified.astimezone(UTC), usegmt=True
        )
    if crawl.max_price is not None:
        headers["crawler-max-price"] = crawl.max_price
    return headers


def price(response: httpx.Response) -> str | float | None:
    """Return what an answer has charged, or with status 402 what it asks; None: it is not known.

    An answer with content and without a header of prices is free: 0, in any currency.

    >>> asked = {"crawler-price": "USD 0.01"}
    >>> price(httpx.Response(402, headers=asked)), price(httpx.Response(200, headers=asked))
    ('USD 0.01', None)
    >>> price(httpx.Response(200)), price(httpx.Response(304))
    (0.0, None)
    """
    return price_of(response.status_code, lambda name: response.headers.get(name, ""))


def price_of(status: int, header: Callable[[str], str]) -> str | float | None:
    """Return the price of an answer by its status; `header` returns the value of a header.

    A 304 stays without a price: 0 would lower the mean of a page that asks one for its content.
    """
    if status in SUCCESS and not header("crawler-charged") and not header("crawler-price"):
        return 0.0
    value = header("crawler-price" if status == PAYMENT else "crawler-charged")
    return value if READABLE_PRICE.fullmatch(value) else None


def http_date(header: str) -> datetime | None:
    """Return the date of a header; None where it cannot be read."""
    try:
        at = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def redirect_url(response: httpx.Response) -> str | None:
    """Return the absolute URL that a page redirects to; None without a redirect.

    `response` is the answer of the page itself, so fetch with `follow_redirects=False`.

    >>> request = httpx.Request("GET", "https://example.com/old")
    >>> redirect_url(httpx.Response(301, headers={"Location": "/new"}, request=request))
    'https://example.com/new'
    """
    location = response.headers.get("Location", "")
    return target_url(response.status_code, str(response.url), location)


def _is_name(host: bytes) -> bool:
    """Return whether Recrawl takes a host, which has its percent-encoding and punycode.

    A host whose last label is a number is an address.
    """
    if re.search(rb"[\x00-\x20%<>@\[\\\]^|]", host) or not host.strip(b"."):
        return False
    if re.search(rb"(^|\.)([0-9]+|0x[0-9a-f]*)\.?$", host) or b":" in host:
        try:
            ip_address(host.decode())
        except ValueError:
            return False
    return True


def target_url(status: int, url: str, location: str) -> str | None:
    """Return the absolute URL of a Location; None for a Location that cannot be a page.

    Because Recrawl rejects reports of other schemes, user information, broken hosts and long
    URLs, these redirects are reported without their target.
    """
    if status not in REDIRECTS or not location:
        return None
    try:
        target = httpx.URL(url).join(location)
    except (httpx.InvalidURL, ValueError):
        return None
    named = _is_name(target.raw_host) and (target.port or 0) <= LAST_PORT
    if target.scheme not in ("http", "https") or not named or target.userinfo:
        return None
    return str(target) if len(str(target)) <= MAX_URL_BYTES else None
