"""Requests of a spider that end without a response: what each failure shows of site and crawler.

| failure | report |
| --- | --- |
| not sent: a middleware refused it, or raised another error | none: the lease is returned |
| the same, and the reason names robots.txt | `robots_denied` |
| content that was not read: too long, cut short, badly compressed | status of the answer alone |
| no connection, or no end of the answer in time | status 0 |

Scrapy passes on no status of an answer that is too long. So this module ends the download itself,
by the same limit, in a way that keeps the status.

Sites fail every day, so a failure of a site takes one line in the log of the crawler. Any other
failure is logged by Scrapy, with its traceback.
"""

import logging
from traceback import walk_tb
from typing import Any

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares import httpcompression
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Response
from scrapy.utils.log import logformatter_adapter
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed

from recrawl_client.calls import CrawlEvidence
from recrawl_client.headers import retry_seconds
from recrawl_client.robots_flows import denied

log = logging.getLogger(__name__)


class BodyTooLong(StopDownload):
    """The end of a download beyond its limit; the errback of the request receives it."""

    def __init__(self, limit: int) -> None:
        super().__init__(fail=True)
        self.limit = limit

    def __str__(self) -> str:
        return f"the body has more than {self.limit} bytes (DOWNLOAD_MAXSIZE)"


OF_SITES = (
    BodyTooLong,
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
)
"""Failures whose cause is the site or the way to it; a traceback would only name Scrapy's code."""


class Answers:
    """The answers to requests of due pages, until the pages are reported."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.default_limit = crawler.settings.getint("DOWNLOAD_MAXSIZE")
        self.responses: dict[str, Response] = {}
        """Responses of the downloader, by lease; middlewares may fail on them."""
        self.n_bytes: dict[str, int] = {}
        """Number of bytes received of a body, by lease."""
        connect = crawler.signals.connect
        connect(self._downloaded, signal=signals.response_downloaded)
        connect(self._begun, signal=signals.headers_received)
        connect(self._read, signal=signals.bytes_received)

    def forget(self, lease: str) -> None:
        """Forget the answer to the request of a lease."""
        self.responses.pop(lease, None)
        self.n_bytes.pop(lease, None)

    def evidence(self, lease: str, failure: Failure, *, sent: bool) -> CrawlEvidence | None:
        """Return the report of a request that failed; None: the lease is to be returned."""
        error = failure.value
        if isinstance(error, IgnoreRequest) and "robots.txt" in str(error):
            # a middleware of robots.txt, Scrapy's or another, names it in its reason
            return denied()
        response = self.responses.get(lease) or getattr(error, "response", None)
        if isinstance(response, Response):
            wait_s = retry_seconds(header(response, "Retry-After"))
            return {"status": response.status, "retry_after_s": wait_s or None}
        if not sent:
            return None
        if isinstance(error, ResponseDataLossError):
            cause = error.__cause__
            cut = cause.response if isinstance(cause, ResponseFailed) else None
            return {} if cut is None else {"status": int(cut.code)}
        if isinstance(error, DownloadCancelledError):
            return {}  # too long: some download handlers raise this before any signal
        return {"status": 0}

    def unhandled(self, failure: Failure) -> Failure | None:
        """Log a failure of a site that no errback took; return any other one for Scrapy's log."""
        error, spider = failure.value, self.crawler.spider
        of_site = isinstance(error, OF_SITES) or _in_decompression(failure)
        if spider is None or not of_site or isinstance(error, IgnoreRequest):
            return failure
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        request: Request = failure.request  # type: ignore[attr-defined]
        line = self.crawler.logformatter.download_error(failure, request, spider, text)
        log.log(*logformatter_adapter(line), extra={"spider": spider})
        return None

    def _downloaded(self, response: Response, request: Request) -> None:
        crawl = request.meta.get("recrawl")
        if crawl is not None:
            self.responses[crawl.lease] = response

    def _begun(self, body_length: Any, request: Request) -> None:
        crawl = request.meta.get("recrawl")
        if crawl is not None:
            self.n_bytes[crawl.lease] = 0
            # Twisted has a text for an unknown length
            self._stop_beyond(body_length if isinstance(body_length, int) else 0, request)

    def _read(self, data: bytes, request: Request) -> None:
        crawl = request.meta.get("recrawl")
        if crawl is not None:
            n_bytes = self.n_bytes.get(crawl.lease, 0) + len(data)
            self.n_bytes[crawl.lease] = n_bytes
            self._stop_beyond(n_bytes, request)

    def _stop_beyond(self, n_bytes: int, request: Request) -> None:
        limit = request.meta.get("download_maxsize", self.default_limit)
        if limit and n_bytes > limit:
            raise BodyTooLong(limit)


def _in_decompression(failure: Failure) -> bool:
    """Return whether a body could not be decompressed; each library has errors of its own."""
    frames = walk_tb(failure.getTracebackObject())  # type: ignore[no-untyped-call]
    return any(frame.f_globals.get("__name__") == httpcompression.__name__ for frame, _ in frames)


def header(response: Response, name: str) -> str:
    """Return a header of an answer; empty without one."""
    return (response.headers.get(name) or b"").decode("latin-1")
