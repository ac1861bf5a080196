"""A crawler of Crawlee whose requests are leases of Recrawl, which decides what is due.

python examples/crawlee_crawler.py http://127.0.0.1:8000 https://example.com/
"""

import asyncio
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

from crawlee import ConcurrencySettings, Request, service_locator
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import HttpCrawlingResult, HttpxHttpClient
from crawlee.request_loaders import RequestManager
from crawlee.storage_clients import MemoryStorageClient
from crawlee.storage_clients.models import ProcessedRequest
from typing_extensions import override

import recrawl_client as rc
from recrawl_client.headers import http_date, price_of, retry_seconds, target_url, usable_etag

AGENT = "recrawl-example/0.1 (+https://example.com/who-answers-complaints)"
WORKER = f"{socket.gethostname()}-{os.getpid()}"
TASKS = 16
IDLE_S = 60.0
"""Time without a due page after which a crawl of a site is finished, seconds."""


sending: ContextVar[rc.AsyncSentAt] = ContextVar("sending")
"""The date of the crawl whose request is sent."""


async def date(request: Any) -> None:
    """Let a request of httpx show when it leaves."""
    request.extensions["trace"] = sending.get(None)


class Answers(HttpxHttpClient):
    """Crawlee's client by httpx, which keeps what each answer shows and follows no redirect.

    Crawlee drops the answers of errors before a handler sees them.
    """

    def __init__(self) -> None:
        super().__init__(
            header_generator=None,
            follow_redirects=False,
            headers={"User-Agent": AGENT},
            event_hooks={"request": [date]},
        )
        self.seen: dict[str, rc.CrawlEvidence] = {}

    @override
    async def crawl(self, request: Request, **options: Any) -> HttpCrawlingResult:
        """Fetch a page, and keep the evidence by the key of its request."""
        start, sent_at = time.monotonic(), rc.AsyncSentAt()
        self.seen[request.unique_key] = {"status": 0}  # an exception is no answer
        sending.set(sent_at)
        result = await super().crawl(request, **options)
        answer, body = result.http_response, await result.http_response.read()
        header, status = answer.headers.get, answer.status_code
        seen: rc.CrawlEvidence = {"status": status, "observed_at": sent_at.value}
        seen["bytes"], seen["seconds"] = len(body), time.monotonic() - start
        seen["etag"] = usable_etag(header("etag") or "")
        seen["last_modified"] = http_date(header("last-modified") or "")
        seen["redirect_url"] = target_url(status, request.url, header("location") or "")
        seen["retry_after_s"] = retry_seconds(header("retry-after") or "") or None
        seen["price"] = price_of(status, lambda name: header(name) or "")
        seen["digest"] = (
            blake2b(body, digest_size=16).hexdigest() if status in range(200, 300) else None
        )
        self.seen[request.unique_key] = seen
        return result


class Leases(RequestManager):
    """The requests of a crawler: each is a lease, and each end of one is a report.

    With `keep_alive=True` the crawler goes on for ever; otherwise it ends when no page has been
    due for `IDLE_S`.
    """

    def __init__(self, reporter: rc.AsyncReporter, answers: Answers) -> None:
        self.reporter = reporter
        self.answers = answers
        self.ahead: deque[Request] = deque()
        self.in_hand: dict[str, rc.Crawl] = {}
        self.n_handled = 0
        self.asking = asyncio.Lock()
        self.last_due = time.monotonic()

    @override
    async def is_empty(self) -> bool:
        async with self.asking:
            if not self.ahead:
                await self._lease(TASKS - len(self.in_hand))
        return not self.ahead

    async def _lease(self, count: int) -> None:
        """Take crawls that are due; the request carries the reports that wait."""
        leased = await self.reporter.lease(count=count, wait_s=2, worker=WORKER)
        for crawl in leased.items:
            self.in_hand[crawl.lease] = crawl
            headers = rc.conditions(crawl)
            self.ahead.append(Request.from_url(crawl.url, unique_key=crawl.lease, headers=headers))
        if self.in_hand:
            self.last_due = time.monotonic()

    @override
    async def is_finished(self) -> bool:
        return not self.in_hand and time.monotonic() > self.last_due + IDLE_S

    @override
    async def fetch_next_request(self) -> Request | None:
        return self.ahead.popleft() if self.ahead else None

    @override
    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        self._report(request)
        self.n_handled += 1
        return ProcessedRequest(
            unique_key=request.unique_key, was_already_present=True, was_already_handled=False
        )

    @override
    async def reclaim_request(
        self, request: Request, *, forefront: bool = False
    ) -> ProcessedRequest | None:
        self._report(request)  # Recrawl decides when to try again
        return None

    def _report(self, request: Request) -> None:
        crawl = self.in_hand.pop(request.unique_key, None)
        # without a request to the site, its robots.txt has forbidden the page
        seen = self.answers.seen.pop(request.unique_key, {"robots_denied": True})
        if crawl is not None:
            self.reporter.report(crawl, **seen)

    @override
    async def add_request(
        self, request: str | Request, *, forefront: bool = False
    ) -> ProcessedRequest:
        (added,) = await self._register([request])
        return added

    @override
    async def add_requests(self, requests: Sequence[str | Request], **_: Any) -> None:
        await self._register(requests)

    async def _register(self, requests: Sequence[str | Request]) -> list[ProcessedRequest]:
        """Register links as pages; they come as leases when they are due."""
        urls = [each if isinstance(each, str) else each.url for each in requests]
        if urls:
            await self.reporter.client.register_many(urls)
        return [
            ProcessedRequest(unique_key=url, was_already_present=False, was_already_handled=False)
            for url in urls
        ]

    @override
    async def get_handled_count(self) -> int:
        return self.n_handled

    @override
    async def get_total_count(self) -> int:
        return self.n_handled + len(self.in_hand)

    @override
    async def drop(self) -> None:
        """Do nothing: the pages stay in Recrawl."""


async def main(recrawl_url: str, *start: str) -> None:
    """Crawl the sites of some pages until nothing is due."""
    service_locator.set_storage_client(MemoryStorageClient())  # Recrawl has the state
    answers = Answers()
    async with (
        rc.AsyncClient(recrawl_url, os.environ.get("RECRAWL_API_KEY")) as recrawl,
        recrawl.reporter() as reporter,
    ):
        crawler = ParselCrawler(
            request_manager=Leases(reporter, answers),
            http_client=answers,
            max_request_retries=0,
            max_session_rotations=0,
            use_session_pool=False,
            retry_on_blocked=False,
            respect_robots_txt_file=True,
            concurrency_settings=ConcurrencySettings(max_concurrency=TASKS),
        )

        @crawler.router.default_handler
        async def handle(context: ParselCrawlingContext) -> None:
            print(context.http_response.status_code, context.request.url, flush=True)
            await context.enqueue_links()  # store the content here

        if start:
            await recrawl.register_many(start)
        await crawler.run()


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        sys.exit("usage: python crawlee_crawler.py RECRAWL_URL [URL of a page]...")
    asyncio.run(main(*sys.argv[1:]))
