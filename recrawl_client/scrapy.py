"""A scheduler for Scrapy: spiders crawl the pages that are due and report the results.

    SCHEDULER = "recrawl_client.scrapy.Scheduler"
    RECRAWL_URL = "http://127.0.0.1:8000"

The scheduler registers the requests of a spider with Recrawl, and Recrawl decides on the time of
their crawls. The note of a page keeps the names of its spider, callback and errback, `cb_kwargs`
and `meta` (`scrapy_notes`); without a callback, `parse` receives the response. A spider returns the
lease of another spider's page, and its log names the remedy. A request with
`meta={"recrawl_changed_at": datetime}` is a ping too. A redirect of a due page is reported with its
target, which the service schedules if the spider may crawl it. Pages are fetched by conditional
requests: no callback receives a page that its site reports as unchanged (304), unless
`RECRAWL_CONDITIONAL` is false. Requests other than GET, and requests with
`meta={"recrawl_now": True}`, are sent at once, with their redirects.
With `ROBOTSTXT_OBEY`, the scheduler reads the robots.txt of due pages, and keeps its delay.
Threads take leases and send reports, so the reactor never waits.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, Unpack

from msgspec import Raw
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from recrawl_client.base import EXAMPLE, checked_address
from recrawl_client.batches import Batches
from recrawl_client.calls import CrawlEvidence
from recrawl_client.client import Client
from recrawl_client.errors import ClientError, Refused, Unavailable
from recrawl_client.headers import (
    conditions,
)
from recrawl_client.reporter import Reporter
from recrawl_client.scrapy_failures import Answers
from recrawl_client.scrapy_leases import LeasesInHand
from recrawl_client.scrapy_notes import (
    Faults,
    Notes,
    NotKept,
    ReportingErrback,
    RequestNote,
    UnnamedFunction,
)
from recrawl_client.scrapy_responses import Responses, refresh
from recrawl_client.scrapy_robots import ScrapyRobots, release
from recrawl_client.scrapy_times import SentTimes
from recrawl_client.wire.common import empty
from recrawl_client.wire.evidence import Ping, Pinged
from recrawl_client.wire.leases import Crawl
from recrawl_client.wire.pages import Page, Registered

WAIT_S = 2.0
"""Maximum wait of a lease request at the service, seconds; closing waits for the request."""
REPORTS_S = 0.02
"""Maximum age of a report before sending, seconds.

Reports are sent sooner when as many reports wait as pages are being fetched, because hosts may
wait for the reports."""
LINKS_S = 1.0
"""Maximum age of a link or a ping before sending, seconds."""
MOST_REMEMBERED = 1_000_000
"""Maximum number of remembered registered pages, which links do not register again."""
OF_KEYS = (401, 403)
"""Statuses of a service that wants another key."""
TARGET = "recrawl_target"
"""Name in `meta` of the list that gets the URL of a redirect's target, if it may be crawled."""

log = logging.getLogger(__name__)


class Scheduler(BaseScheduler):
    """A scheduler that takes leases and passes them to the engine; signals return the responses."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        options = crawler.settings
        url, self.fault = address_of(options.get("RECRAWL_URL", EXAMPLE))
        key = options.get("RECRAWL_API_KEY")
        self.register = options.getbool("RECRAWL_REGISTER", True)
        self.conditional = options.getbool("RECRAWL_CONDITIONAL", True)
        ttl_s = options.getfloat("RECRAWL_LEASE_TTL_S") or None
        self.idle_s: float | None = options.getfloat("RECRAWL_CLOSE_IDLE_S") or None
        self.lease_options: dict[str, Any] = {
            "hosts": options.getlist("RECRAWL_HOSTS"),
            "ttl_s": ttl_s,
            "wait_s": min(WAIT_S, self.idle_s or WAIT_S),
        }
        self.stop = threading.Event()
        self.leasing = Client(url, key, wait=self.stop.wait)
        self.client = Client(url, key)
        self.reporter = Reporter(self.client, every_s=REPORTS_S)
        self.outside = Reporter(self.client, every_s=REPORTS_S, register=False)
        self.pages: Batches[Page, Registered] = Batches(
            self.client.register_many, empty(Registered), every_s=LINKS_S
        )
        self.pings: Batches[Ping, Pinged] = Batches(
            self.client.ping_many, empty(Pinged), every_s=LINKS_S
        )
        self.batches = (self.reporter, self.outside, self.pages, self.pings)
        obeys = options.getbool("ROBOTSTXT_OBEY")
        self.answers = Answers(crawler)
        self.responses = Responses(options)
        self.notes = Notes(crawler, options)
        self.robots = ScrapyRobots(crawler, self.leasing) if obeys else None
        self.entering: set[Deferred[None]] = set()
        """Crawls that wait for robots.txt and its delay."""
        self.ready: deque[Request] = deque()
        most = options.getint("RECRAWL_LEASES", 2 * options.getint("CONCURRENT_REQUESTS"))
        self.leases = LeasesInHand(self.leasing, most, ttl_s, self.stop)
        self.sent = SentTimes(crawler, self.leases.__contains__)
        self.registered: dict[int, int] = {}
        """Hashes of the notes of registered pages, by hashes of their URLs."""
        self.of_requests, self.of_notes = Faults(), Faults()
        self.dry = False
        self.threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("leases", self._lease_on), ("ends", self.leases.keep))
        ]

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return a scheduler with the settings RECRAWL_*."""
        return cls(crawler)

    # -- calls of the engine, in its own thread

    def open(self, spider: Spider) -> None:
        """Start to take leases."""
        self.lease_options["worker"] = (
            self.crawler.settings.get("RECRAWL_WORKER") or spider.name[:100]
        )
        self.crawler.signals.connect(self._received, signal=signals.response_received)
        self.in_engine = engine_thread()
        for batches in self.batches:
            batches.__enter__()
        for thread in self.threads:
            thread.start()

    def close(self, reason: str) -> Deferred[None]:  # noqa: ARG002 - the same for all reasons
        """Send the remaining items and release the crawls that were not made."""
        self.stop.set()
        for entering in list(self.entering):
            entering.cancel()
        return deferred_from_coro(run_in_thread(self._end))

    def has_pending_requests(self) -> bool:
        """Return true while more crawls may be due; false only if the spider closes when idle."""
        return bool(self.ready) or not self.dry

    def next_request(self) -> Request | None:
        """Return a request to send now; None without one.

        A page whose lease has ended is dropped, because another worker may crawl the page.
        """
        while self.ready:
            request = self.ready.popleft()
            crawl = request.meta.get("recrawl")
            if crawl is None or self.leases.runs(crawl.lease):
                return request
            self._drop(crawl)
            self._count("recrawl/lease_ended")
        return None

    def _drop(self, crawl: Crawl) -> bool:
        """Remove a lease; return whether it was in hand."""
        self.sent.forget(crawl.lease)
        return self.leases.drop(crawl.lease)

    def _count(self, name: str) -> None:
        if self.crawler.stats is not None:
            self.crawler.stats.inc_value(name)

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request or register its page; return false if neither is allowed."""
        if self.fault:
            return False
        if self._now(request):
            self.ready.append(request)
            return True
        if (followed := request.meta.get(TARGET)) is not None:
            followed += [request.url] if self.register else []
            return True
        changed_at = request.meta.get("recrawl_changed_at")
        if not request.url.startswith(("http:", "https:")) or not (self.register or changed_at):
            return False
        try:
            note = self.notes.of(request)
        except NotKept as error:
            return self._refuse(request, error)
        with self.leases.lock:
            if changed_at:
                self.pings.add(Ping(url=request.url, changed_at=changed_at))
            if not (note.is_plain and changed_at):
                self._register(request, note)
            self.dry = False
        return True

    def _register(self, request: Request, note: RequestNote) -> None:
        """Register a page with the note of its first request, or of a later unfiltered one."""
        url, of_note = hash(request.url), hash(note)
        before = self.registered.get(url)
        if before is None or (request.dont_filter and before != of_note):
            if len(self.registered) >= MOST_REMEMBERED:
                self.registered.clear()
            self.registered[url] = of_note
            # an unfiltered request replaces what the service has, a plain one does not
            if_new = note.is_plain and not request.dont_filter
            self.pages.add(Page(url=request.url, note=Raw(note.json), note_if_new=if_new))

    def _refuse(self, request: Request, error: NotKept) -> bool:
        """Log a request that no note keeps; close the spider if its code must change."""
        self._count("recrawl/request_refused")
        # a spider's first function without a name closes it; other refusals are of one page each
        unnamed = isinstance(error, UnnamedFunction)
        self.of_requests.log(error, "" if unnamed else request.url)
        if unnamed:
            self.in_engine(self._close, "recrawl_callback")
        return False

    def _now(self, request: Request) -> bool:
        """Return whether a request is sent at once, without a lease of its own.

        The page of a lease is sent at once while the crawl has no report. Its links are not, even
        though spiders copy the `meta` of a response to its links.
        """
        meta = request.meta
        if "recrawl" in meta:
            return meta["recrawl"].lease in self.leases
        direct = meta.get("recrawl_now") or "redirect_times" in meta
        return bool(direct) or request.method != "GET"

    def _received(self, response: Response, request: Request, spider: Spider) -> None:
        crawl = request.meta.get("recrawl")
        if crawl is None:
            return
        # spiders copy `meta` to requests that Scrapy itself must check
        request.meta.pop("dont_obey_robotstxt", None)
        evidence = self.responses.evidence(response, request, spider)
        target = evidence.get("redirect_url")
        inside = target is None or self._follows(target)
        self._report(crawl, self.reporter if inside else self.outside, **evidence)
        if onward := refresh(response):
            self._pass(onward.replace(**self.notes.request(crawl.note)))

    def _follows(self, url: str) -> bool:
        """Return whether the service may register the target of a redirect.

        The settings and the spider's `allowed_domains` may forbid it. The report names the target,
        and the service counts its redirects: registered here, it would be asked for like a link.
        """
        followed: list[str] = []
        self._pass(Request(url, meta={TARGET: followed}))
        return bool(followed)

    def _pass(self, request: Request) -> None:
        """Pass a request through the engine and its middlewares, which call `enqueue_request`."""
        engine = self.crawler.engine
        web = request.url.startswith(("http:", "https:"))
        if engine is not None and engine.spider is not None and web:
            engine.crawl(request)

    def _failed(self, failure: Failure) -> None:
        """Report a request without a response, or return its lease."""
        crawl = failure.request.meta["recrawl"]  # type: ignore[attr-defined]
        sent = crawl.lease in self.sent.at
        evidence = self.answers.evidence(crawl.lease, failure, sent=sent)
        if evidence is None:
            self._return(crawl)
        else:
            self._report(crawl, self.reporter, **evidence)

    def _return(self, crawl: Crawl) -> None:
        """Return the lease of a page that nobody asked for, by the choice of this crawler."""
        if self._drop(crawl):
            self._count("recrawl/lease_returned")
            deferred_from_coro(run_in_thread(release, self.leasing, crawl))

    def _report(self, crawl: Crawl, reporter: Reporter, **evidence: Unpack[CrawlEvidence]) -> None:
        self.answers.forget(crawl.lease)
        sent_at = self.sent.at.get(crawl.lease)
        if self._drop(crawl):
            # without a request, such as of a page that robots.txt forbids, the lease dates it
            evidence.setdefault("observed_at", sent_at)
            reporter.report(crawl, **evidence)
        if reporter.n_waiting >= len(self.leases):
            reporter.flush()

    def _take(self, crawls: list[Crawl]) -> None:
        for crawl in crawls:
            if self.robots is None:
                self._send(crawl)
                continue
            entering = deferred_from_coro(self._enter(crawl, self.robots))
            self.entering.add(entering)
            entering.addBoth(partial(self._entered, entering))

    def _entered(self, entering: Deferred[None], _: object) -> None:
        """Forget a crawl that has been sent, reported or cancelled."""
        self.entering.discard(entering)

    async def _enter(self, crawl: Crawl, robots: ScrapyRobots) -> None:
        """Send a page that robots.txt allows, once its delay has passed; report any other."""
        try:
            entry = await robots.enter(crawl)
        except Exception:
            if self.stop.is_set():
                return None  # without asyncio, Twisted's end of a wait is an error
            log.exception("robots.txt of %s: its page is reported as unanswered", crawl.url)
            return self._report(crawl, self.reporter, status=0)
        if self.stop.is_set():
            return None  # released when the spider closes
        if entry.allowed:
            return self._send(crawl)
        log.debug("not crawled: %s (%s)", crawl.url, entry.reason)
        if entry.evidence:
            self._count("recrawl/robotstxt_refused")
            return self._report(crawl, self.reporter, **entry.evidence)
        self._drop(crawl)
        return None

    def _send(self, crawl: Crawl) -> None:
        engine = self.crawler.engine
        if engine is None or engine.spider is None or self.stop.is_set():
            return None  # released when the spider closes
        try:
            kept = self.notes.request(crawl.note)
        except NotKept as error:
            self.of_notes.log(error, str(error))
            return self._return(crawl)
        meta = kept.pop("meta") | {"recrawl": crawl, "dont_retry": True, "dont_redirect": True}
        if self.robots is not None:
            meta["dont_obey_robotstxt"] = True  # the scheduler has
        headers = conditions(crawl) if self.conditional else {}
        errback = ReportingErrback(self._failed, self.answers.unhandled, kept.pop("errback", None))
        request = Request(
            crawl.url, errback=errback, headers=headers, meta=meta, dont_filter=True, **kept
        )
        return engine.crawl(request)  # the engine wakes and calls enqueue_request

    def _give_up(self, reason: str) -> None:
        log.error("%s", reason)
        self._close("recrawl_refused")

    def _close(self, reason: str) -> None:
        engine = self.crawler.engine
        if engine is not None and engine.spider is not None and not self.stop.is_set():
            deferred_from_coro(engine.close_spider_async(reason=reason))

    # -- in threads

    def _lease_on(self) -> None:
        if self.fault:
            self.in_engine(self._give_up, self.fault)
            return
        while count := self.leases.wait_for_room():
            was_quiet = not (self.pages.n_waiting or self.pings.n_waiting)
            try:
                leased = self.reporter.lease(count, client=self.leasing, **self.lease_options)
            except Unavailable as error:
                log.warning("no leases: %s", error)
                continue
            except ClientError as error:
                self.in_engine(self._give_up, f"the service refused: {refusal(error)}")
                return
            with self.leases.lock:
                self.leases.take(leased.items)
                self.dry = was_quiet and self._over(leased.retry_after_s or 0.0)
            if leased.items:
                self.in_engine(self._take, leased.items)

    def _over(self, idle_s: float) -> bool:
        waiting = len(self.leases) or self.pages.n_waiting or self.pings.n_waiting
        return self.idle_s is not None and idle_s >= self.idle_s and not waiting

    def _end(self) -> None:
        self.leases.end()
        for thread in self.threads:
            thread.join()
        if n := sum(batches.n_waiting for batches in self.batches):
            log.info("sending %s before the end", "1 item" if n == 1 else f"{n} items")
        with ThreadPoolExecutor() as pool, self.leasing, self.client:
            if all(pool.map(_ended, [batches.close for batches in self.batches])):
                _ended(self._give_back)

    def _give_back(self) -> None:
        for crawl in self.leases.crawls.values():
            self.client.release(crawl)


def address_of(url: str) -> tuple[str, str]:
    """Return the address to use, and what is wrong with the one of the settings, "" for nothing.

    Scrapy would print an error of its scheduler as two tracebacks.
    """
    try:
        return checked_address(url), ""
    except ValueError as error:
        return EXAMPLE, f"RECRAWL_URL: {error}"


def refusal(error: ClientError) -> str:
    """Return an error with the setting to change, where it is the key's."""
    is_of_key = isinstance(error, Refused) and error.status in OF_KEYS
    remedy = " Set RECRAWL_API_KEY in the settings of Scrapy to a key of role crawl."
    return f"{str(error).removesuffix('.')}.{remedy}" if is_of_key else str(error)


def _ended(last: Callable[[], None]) -> bool:
    """Run the last step; return false if the service was out of reach."""
    try:
        last()
    except ClientError as error:
        log.error("%s", error)  # noqa: TRY400 - a traceback has no further information
        return not isinstance(error.__cause__, Unavailable)
    return True


def engine_thread() -> Callable[..., object]:
    """Return a function that calls another one in the thread of the engine."""
    if is_reactor_installed():
        from twisted.internet import reactor

        call: Callable[..., object] = reactor.callFromThread
        return call
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe
