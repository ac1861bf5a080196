"""The times at which a spider's requests leave, as near as Scrapy shows them.

Scrapy signals when a request enters its downloader. The request may then wait for a slot. Each step
to the socket takes a turn of the event loop, in which other requests are handled. A host's next
page would come too early after a request that is dated too early.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import call_later

from recrawl_client.base import utc_now

TURNS = 4
"""Turns of the event loop from the downloader to the socket of a new connection: a task begins, a
connection is asked for, it stands, it takes the bytes."""


class SentTimes:
    """The times at which the pages of leases in hand were requested."""

    def __init__(self, crawler: Crawler, in_hand: Callable[[str], bool]) -> None:
        self.in_hand = in_hand
        """Function that returns whether a lease is in hand."""
        self.at: dict[str, datetime] = {}
        """Time of the last request of a page, by lease; a middleware may repeat the request."""
        self.unanswered: set[str] = set()
        """Leases whose last request has no answer yet."""
        crawler.signals.connect(self._entered, signal=signals.request_reached_downloader)
        crawler.signals.connect(self._answered, signal=signals.headers_received)

    def forget(self, lease: str) -> None:
        """Forget the time of a lease."""
        self.at.pop(lease, None)
        self.unanswered.discard(lease)

    def _entered(self, request: Request, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's names
        crawl = request.meta.get("recrawl")
        if crawl is not None and self.in_hand(crawl.lease):
            request.meta.pop("download_latency", None)  # of an earlier request
            self.unanswered.add(crawl.lease)
            self._turn(crawl.lease, TURNS)

    def _turn(self, lease: str, n_more: int) -> None:
        """Date a request now, and again at each further turn until there is an answer."""
        if lease not in self.unanswered:
            return
        self.at[lease] = utc_now()
        if n_more:
            call_later(0, self._turn, lease, n_more - 1)

    def _answered(self, request: Request, **_: Any) -> None:
        """Correct the time of a request that has waited for a slot."""
        crawl = request.meta.get("recrawl")
        latency_s = request.meta.get("download_latency")
        if crawl is None or crawl.lease not in self.unanswered:
            return
        self.unanswered.remove(crawl.lease)
        if latency_s is not None:
            began = utc_now() - timedelta(seconds=latency_s)
            self.at[crawl.lease] = max(self.at[crawl.lease], began)
