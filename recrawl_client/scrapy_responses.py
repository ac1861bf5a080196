"""The reports of a spider's responses: digest, weight of the change, target, price."""

import logging
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from scrapy import Request, Spider
from scrapy.http import HtmlResponse, Response
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.response import get_meta_refresh
from w3lib.url import safe_url_string

from recrawl_client.calls import CrawlEvidence
from recrawl_client.headers import http_date, price_of, retry_seconds, target_url, usable_etag
from recrawl_client.scrapy_failures import header

LONGEST_DIGEST = 256
"""Maximum length of a digest, characters."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
SUCCESS = range(200, 300)
"""Statuses of pages with content."""

log = logging.getLogger(__name__)


class Responses:
    """Evidence of responses, by functions of the spider or of the settings where there are any."""

    def __init__(self, options: BaseSettings) -> None:
        compare = options.get("RECRAWL_CHANGE_WEIGHT")
        self.change_weight: Callable[[Response], object] | None = (
            load_object(compare) if compare else None
        )

    def evidence(self, response: Response, request: Request, spider: Spider) -> CrawlEvidence:
        """Return the report of a response; a function of the spider that fails is logged."""
        digested = None
        try:
            if response.status in SUCCESS:
                digested = _digest(response, spider)
        except Exception:
            log.exception("recrawl_digest failed; %s is reported without content", response.url)
        return {
            "status": response.status,
            "digest": digested,
            "retry_after_s": retry_seconds(header(response, "Retry-After")) or None,
            "last_modified": http_date(header(response, "Last-Modified")),
            "etag": usable_etag(header(response, "ETag")),
            "redirect_url": target_url(response.status, response.url, _location(response)),
            "change_weight": self._weight(response, spider) if digested else None,
            "bytes": float(len(response.body)),
            "seconds": request.meta.get("download_latency"),
            "price": price_of(response.status, lambda name: header(response, name)),
        }

    def _weight(self, response: Response, spider: Spider) -> float | None:
        """Return the weight of a page's change by the spider, else by the settings.

        The service would refuse any other value, and the report with it.
        """
        own: Callable[[Response], object] | None = getattr(spider, "recrawl_change_weight", None)
        compare = own or self.change_weight
        if compare is None:
            return None
        try:
            value: Any = compare(response)
            weight = None if value is None else float(value)
        except Exception:
            log.exception("the comparison failed; the change of %s counts in full", response.url)
            return None
        if weight is None or 0 <= weight <= 1:
            return weight
        log.error(
            "the weight of a change of %s is %s, not 0 to 1; it counts in full", response.url, value
        )
        return None


def _digest(response: Response, spider: Spider) -> str | None:
    """Return the digest of a page; None if the spider sees no content in it."""
    own: Callable[[Response], object] = getattr(spider, "recrawl_digest", digest)
    value = own(response)
    if value is None or value == "":
        return None
    text = str(value)
    # the service would refuse a longer text, and one that is no Unicode
    fits = len(text) <= LONGEST_DIGEST and not LONE_SURROGATE.search(text)
    return text if fits else hashed(text)


def digest(response: Response) -> str:
    """Return the digest of a body; a spider's method `recrawl_digest` replaces this function."""
    return blake2b(response.body, digest_size=16).hexdigest()


def hashed(text: str) -> str:
    """Return a digest of any text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def refresh(response: Response) -> Request | None:
    """Return a request of the page to which a document leads; None without one."""
    if not isinstance(response, HtmlResponse):
        return None
    try:
        url = get_meta_refresh(response)[1]
        return Request(url) if url else None
    except ValueError:  # no URL of the web, such as `javascript:` or a port above 65,535
        return None


def _location(response: Response) -> str:
    location = response.headers.get("Location")
    try:
        return safe_url_string(location) if location else ""
    except ValueError:  # no URL, such as one with a port above 65,535
        return ""
