"""robots.txt of pages that a spider crawls: the flows of `robots_flows` in Scrapy's engine."""

import asyncio
import time
from concurrent.futures import Future
from typing import Any

import httpx
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later, run_in_thread, sleep
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from recrawl_client.base import utc_now
from recrawl_client.client import Client
from recrawl_client.errors import ClientError
from recrawl_client.robots_fetch import DEADLINE_S
from recrawl_client.robots_flows import (
    Entry,
    Fetch,
    Join,
    Pause,
    Release,
    RobotsFlows,
    SetDelay,
    Step,
    driven,
)
from recrawl_client.robots_rules import MAX_BYTES
from recrawl_client.wire.leases import Crawl

PRIORITY = 1_000
"""Priority of requests of robots.txt, as in Scrapy itself."""
MOST_UNPACKED = 64 * MAX_BYTES
"""Maximum length of an answer after its decompression, bytes."""
KEPT_HEADERS = ("Location", "Retry-After")
"""Headers of an answer that the flows use."""


class ScrapyRobots:
    """A reader of robots.txt by the downloader of a crawler, so that its middlewares apply."""

    def __init__(self, crawler: Crawler, client: Client) -> None:
        settings = crawler.settings
        self.crawler = crawler
        self.client = client
        user_agent = settings.get("ROBOTSTXT_USER_AGENT") or settings.get("USER_AGENT") or "*"
        self.flows = RobotsFlows(user_agent, time.monotonic, utc_now)
        crawler.signals.connect(self._limit, signal=signals.bytes_received)

    async def enter(self, crawl: Crawl) -> Entry:
        """Decide on a leased page, after a wait for the delay of its host."""
        return await driven(self.flows.enter(crawl), self._take)

    async def _take(self, step: Step) -> Any:
        match step:
            case Fetch(url):
                return await self._fetched(url)
            case Join(reading):
                await _ended(reading)
            case Pause(seconds):
                await sleep(seconds)
            case SetDelay(host, delay_s):
                return await run_in_thread(self._set_delay, host, delay_s)
            case Release(crawl):
                await run_in_thread(release, self.client, crawl)
        return None

    async def _fetched(self, url: str) -> httpx.Response | Exception:
        request = Request(
            url,
            callback=NO_CALLBACK,
            priority=PRIORITY,
            dont_filter=True,
            headers={"Accept-Encoding": "identity"},
            meta={
                "recrawl_robots": 0,
                "dont_obey_robotstxt": True,
                "dont_redirect": True,
                "dont_retry": True,
                "allow_offsite": True,
                "download_timeout": DEADLINE_S,
                "download_maxsize": MOST_UNPACKED,
            },
        )
        download = deferred_from_coro(self.crawler.engine.download_async(request))
        timer = call_later(DEADLINE_S + 1.0, download.cancel)
        started = time.monotonic()
        try:
            return _as_httpx(await maybe_deferred_to_future(download))
        except Exception as error:  # noqa: BLE001 - any fault of a site is no answer
            return error
        except asyncio.CancelledError:
            if time.monotonic() < started + DEADLINE_S:
                raise
            return TimeoutError(f"{url} took longer than {DEADLINE_S:g} s")
        finally:
            timer.cancel()

    def _limit(self, data: bytes, request: Request) -> None:
        """End the download of a robots.txt that is longer than what is read."""
        if "recrawl_robots" in request.meta:
            request.meta["recrawl_robots"] += len(data)
            if request.meta["recrawl_robots"] > MAX_BYTES:
                raise StopDownload(fail=False)

    def _set_delay(self, host: str, delay_s: float | None) -> ClientError | None:
        try:
            self.client.set_host(host, robots_delay_s=delay_s)
        except ClientError as error:
            return error
        return None


def release(client: Client, crawl: Crawl) -> None:
    """Return a lease; without an answer of the service, the lease expires."""
    try:
        client.release(crawl)
    except ClientError:
        return


def _as_httpx(response: Response) -> httpx.Response:
    headers = [
        (name.encode(), value)
        for name in KEPT_HEADERS
        if (value := response.headers.get(name)) is not None
    ]
    return httpx.Response(response.status, headers=headers, content=response.body)


async def _ended(reading: Future[None]) -> None:
    """Wait for another flow of this thread, with or without an event loop of asyncio."""
    waiting: Deferred[None] = Deferred()
    reading.add_done_callback(lambda _: None if waiting.called else waiting.callback(None))
    await maybe_deferred_to_future(waiting)
