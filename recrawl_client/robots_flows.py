"""Flows of a reader of robots.txt, without input or output (RFC 9309).

A flow yields steps, receives their results and returns the decision. `Robots`, `AsyncRobots` and
the scheduler of Scrapy run the same flows by the same driver, `driven`.

A robots.txt that is unreachable allows nothing. One crawl reports it with the time until the next
request, which pauses the host; the crawls beside it return their leases. The times between requests
double up to an hour. After `UNREACHABLE_S` of failures in a row the file counts as missing, and
all is allowed, until it answers again.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import httpx

from recrawl_client.calls import CrawlEvidence
from recrawl_client.errors import Unavailable
from recrawl_client.headers import REDIRECTS, retry_after
from recrawl_client.robots_fetch import DEADLINE_S
from recrawl_client.robots_rules import Rules
from recrawl_client.wire.leases import Crawl

KEPT_S = 86_400.0
"""Time for which a robots.txt is kept, seconds; RFC 9309 allows a day."""
MOST_REDIRECTS = 5
"""Number of redirects in a row that are followed, also to other hosts."""
FIRST_AWAY_S, LONGEST_AWAY_S = 30.0, 3_600.0
"""First and longest time until an unreachable robots.txt is requested again, seconds.

The times double. The service pauses a host for longer, so its next crawl finds a new request."""
UNREACHABLE_S = 30 * 86_400.0
"""Time of failures in a row after which an unreachable robots.txt allows all, seconds; RFC 9309
names 30 days."""
TOLD_S = 10.0
"""Time after the report of an unreachable robots.txt in which other leases are returned, seconds:
they began before the service knew. A crawl that is leased later is reported too."""
LONGEST_TURN_S = 30.0
"""Longest wait of a leased page for its host's delay, seconds; then its lease is returned."""
MOST_SITES = 10_000
"""Maximum number of origins, and of hosts with a delay, that are kept."""
MOST_KEPT = 50_000_000
"""Maximum length of all rules that are kept, characters."""
TOO_MANY, SERVER_ERROR, UNAVAILABLE = 429, 500, 503
PORTS = {"http": 80, "https": 443}
"""Schemes of the web, with their ports."""

log = logging.getLogger(__name__)

T = TypeVar("T")


# -- steps of a flow, which a reader takes by its own input and output


@dataclass(frozen=True, slots=True)
class Fetch:
    """Request a URL without redirects; the result is the response, or the exception."""

    url: str


@dataclass(frozen=True, slots=True)
class Join:
    """Wait until another flow has read the robots.txt of the same origin."""

    reading: Future[None]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait; a true result ends all waiting."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SetDelay:
    """Report a host's delay to the service; the result is the exception, or None."""

    host: str
    delay_s: float | None


@dataclass(frozen=True, slots=True)
class Release:
    """Return the lease of a crawl."""

    crawl: Crawl


Step: TypeAlias = Fetch | Join | Pause | SetDelay | Release
RobotsFlow: TypeAlias = Generator[Step, Any, T]
"""Generator of steps that receives their results and returns the decision."""


async def driven(flow: RobotsFlow[T], take: Callable[[Step], Awaitable[Any]]) -> T:
    """Run a flow to its decision; `take` takes a step and returns its result."""
    try:
        step = next(flow)
        while True:
            step = flow.send(await take(step))
    except StopIteration as end:
        decision: T = end.value
        return decision
    finally:
        flow.close()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that awaits nothing, without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("the coroutine waits for an event loop")


@dataclass(frozen=True, slots=True)
class Entry:
    """Decision about a leased page."""

    allowed: bool
    """True if the page may be fetched now."""
    evidence: CrawlEvidence = field(default_factory=CrawlEvidence)
    """Report of a page that may not be fetched; empty if its lease has been returned."""
    reason: str = ""
    """Reason why the page may not be fetched."""


ALLOWED = Entry(allowed=True)


def denied() -> CrawlEvidence:
    """Return the report of a page that robots.txt denies."""
    return {"robots_denied": True}


@dataclass(slots=True)
class OriginRobots:
    """The robots.txt of one origin."""

    until: float
    """Time on the clock of the reader at which it is read again."""
    rules: Rules | None
    """Rules; None while the robots.txt is unreachable, so that nothing is fetched."""
    status: int = 0
    """Status of an unreachable robots.txt; 0 for no answer."""
    n_failures: int = 0
    """Number of consecutive failures."""
    away_since: float | None = None
    """Time of the first of these failures on the clock of the reader."""
    told_at: float | None = None
    """Time at which a crawl last reported that the robots.txt is unreachable."""
    is_reported: bool = False
    """True once the service has the delay."""

    @property
    def size(self) -> int:
        """Length of the rules, characters."""
        return 0 if self.rules is None else self.rules.size


@dataclass(slots=True)
class HostDelay:
    """The delay of one host, whose origins may have several robots.txt."""

    delays: dict[str, float] = field(default_factory=dict)
    """Delay by origin, seconds."""
    sent_at: float | None = None
    """Time of the last request on the clock of the reader."""

    @property
    def delay_s(self) -> float | None:
        """Longest delay of an origin, seconds; None without a delay."""
        return max(self.delays.values(), default=None)


class RobotsFlows:
    """Flows of a reader, and what they keep: robots.txt by origin, delays by host."""

    def __init__(
        self,
        user_agent: str,
        now: Callable[[], float],
        clock: Callable[[], datetime],
        *,
        releases: bool = True,
    ) -> None:
        self.user_agent = user_agent
        self.releases = releases
        """True if the reader can return leases; else every crawl is reported."""
        self.now = now
        self.clock = clock
        self.sites: OrderedDict[str, OriginRobots] = OrderedDict()
        self.gates: OrderedDict[str, HostDelay] = OrderedDict()
        self.size = 0
        self.readings: dict[str, Future[None]] = {}
        """Flows that read, by origin."""
        self.lock = threading.Lock()

    def enter(self, crawl: Crawl) -> RobotsFlow[Entry]:
        """Decide on a leased page; wait for its turn."""
        try:
            origin = origin_of(crawl.url)
        except ValueError as error:
            return Entry(False, {"status": 0}, str(error))
        site = yield from self.site(origin, crawl.host)
        if site.rules is None:
            return (yield from self._shut(site, crawl))
        if not site.rules.allowed(crawl.url):
            return Entry(False, denied(), "robots.txt")
        return (yield from self._turn(crawl))

    def _shut(self, site: OriginRobots, crawl: Crawl) -> RobotsFlow[Entry]:
        """Report an unreachable robots.txt with one crawl, and return the leases beside it."""
        reason, now = f"robots.txt answers {site.status or 'nothing'}", self.now()
        with self.lock:
            is_told = site.told_at is not None and now < site.told_at + TOLD_S and self.releases
            if not is_told:
                site.told_at = now
        if is_told:
            yield Release(crawl)
            return Entry(False, reason=reason)
        evidence: CrawlEvidence = {
            "status": site.status,
            "retry_after_s": max(site.until - now, 1.0),
        }
        return Entry(False, evidence, reason)

    def allowed(self, url: str) -> RobotsFlow[bool]:
        """Decide on a URL; while its robots.txt is unreachable, nothing is allowed."""
        site = yield from self.site(origin_of(url))
        return site.rules is not None and site.rules.allowed(url)

    def crawl_delay(self, url: str) -> RobotsFlow[float | None]:
        """Return the delay that a URL's robots.txt requests."""
        site = yield from self.site(origin_of(url))
        return None if site.rules is None else site.rules.delay_s

    def site(self, origin: str, host: str | None = None) -> RobotsFlow[OriginRobots]:
        """Return the robots.txt of an origin, and report its delay for a host to the service.

        One flow reads and reports; others wait for it.
        """
        while True:
            with self.lock:
                site = self._kept(origin)
                if site is not None and (host is None or site.rules is None or site.is_reported):
                    return site
                reading = self.readings.get(origin)
                if reading is None:
                    mine = self.readings[origin] = Future()
            if reading is not None:
                yield Join(reading)
                continue
            try:
                if site is None:
                    site = yield from self._read(origin)
                if host is not None and site.rules is not None:
                    yield from self._report(site, origin, host)
                return site
            finally:
                with self.lock:
                    del self.readings[origin]
                mine.set_result(None)

    def _kept(self, origin: str) -> OriginRobots | None:
        site = self.sites.get(origin)
        if site is None or site.until <= self.now():
            return None
        self.sites.move_to_end(origin)
        return site

    def _read(self, origin: str) -> RobotsFlow[OriginRobots]:
        before = self.sites.get(origin)
        site = yield from self._answered(origin, before)
        with self.lock:
            if old := self.sites.pop(origin, None):
                self.size -= old.size
            self.sites[origin] = site
            self.size += site.size
            while len(self.sites) > MOST_SITES or (self.size > MOST_KEPT and len(self.sites) > 1):
                self.size -= self.sites.popitem(last=False)[1].size
        return site

    def _answered(self, origin: str, before: OriginRobots | None) -> RobotsFlow[OriginRobots]:
        """Request a robots.txt: 4xx and long redirects allow all, 429, 5xx and silence nothing."""
        url, began = f"{origin}/robots.txt", self.now()
        for _ in range(MOST_REDIRECTS + 1):
            response = yield Fetch(url)
            if isinstance(response, Exception):
                log.info("%s: %s", url, str(response) or type(response).__name__)
                return self._away(0, 0.0, before)
            status = response.status_code
            if status == TOO_MANY or status >= SERVER_ERROR or not status:
                busy = TOO_MANY if status == TOO_MANY else UNAVAILABLE
                return self._away(busy, retry_after(response), before)
            if response.is_success:
                return OriginRobots(self.now() + KEPT_S, Rules(response.content, self.user_agent))
            target = next_url(url, response)
            if target is None:
                break
            if self.now() > began + DEADLINE_S:
                return self._away(0, 0.0, before)
            url = target
        return OriginRobots(self.now() + KEPT_S, Rules())

    def _away(self, status: int, asked_s: float, before: OriginRobots | None) -> OriginRobots:
        """Return what an unreachable robots.txt allows: nothing, and all after long."""
        now, n_failures = self.now(), 0 if before is None else before.n_failures
        since = now if before is None or before.away_since is None else before.away_since
        pause_s = min(FIRST_AWAY_S * 2.0 ** min(n_failures, 20), LONGEST_AWAY_S)
        pause_s = max(pause_s, min(asked_s, KEPT_S))
        rules = Rules() if now - since >= UNREACHABLE_S else None
        return OriginRobots(now + pause_s, rules, status, n_failures + 1, since)

    def _report(self, site: OriginRobots, origin: str, host: str) -> RobotsFlow[None]:
        """Keep a host's delay, and report it to the service if it is new or another one."""
        delay_s = None if site.rules is None else site.rules.delay_s
        with self.lock:
            gate = self.gates.get(host)
            if gate is None and delay_s is None:
                site.is_reported = True
                return
            gate = self.gates.setdefault(host, HostDelay())
            self.gates.move_to_end(host)
            gate.delays.pop(origin, None)
            if delay_s is not None:
                gate.delays[origin] = delay_s
            while len(self.gates) > MOST_SITES:
                self.gates.popitem(last=False)
        error = yield SetDelay(host, gate.delay_s)
        if error is not None:
            log.warning("the delay of %s is kept here only: %s", host, error)
        # a refusal stays one until the next reading; a service that is away is asked again
        site.is_reported = not isinstance(error, Unavailable)

    def _turn(self, crawl: Crawl) -> RobotsFlow[Entry]:
        """Wait until the host's delay has passed; return a lease that would wait too long."""
        left_s = (crawl.expires_at - self.clock()).total_seconds()
        most_s = min(LONGEST_TURN_S, left_s) if left_s > 0 else LONGEST_TURN_S
        end = self.now() + most_s
        while (wait_s := self._wait_s(crawl.host)) > 0:
            if self.now() + wait_s > end or (yield Pause(wait_s)):
                yield Release(crawl)
                return Entry(False, reason=f"robots.txt asks for {wait_s:.0f} s more")
        return ALLOWED

    def _wait_s(self, host: str) -> float:
        """Return the time until a host's next request, seconds; 0 makes it this request."""
        with self.lock:
            gate = self.gates.get(host)
            if gate is None or gate.delay_s is None:
                return 0.0
            now = self.now()
            if gate.sent_at is not None and now < gate.sent_at + gate.delay_s:
                return gate.sent_at + gate.delay_s - now
            gate.sent_at = now
            return 0.0


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL; raise ValueError for what is no URL of the web.

    >>> origin_of("HTTPS://user@Example.com:443/a?b")
    'https://example.com'
    """
    parts = urlsplit(url)
    scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    if scheme not in PORTS or not host:
        raise ValueError(f"{url} is no URL of the web")
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" + ("" if port in (None, PORTS[scheme]) else f":{port}")


def next_url(url: str, response: httpx.Response) -> str | None:
    """Return the absolute URL that an answer redirects to; None without one."""
    location = response.headers.get("Location", "")
    if response.status_code not in REDIRECTS or not location:
        return None
    try:
        target = httpx.URL(url).join(location)
    except (httpx.InvalidURL, ValueError):
        return None
    return str(target) if target.scheme in PORTS and target.host else None
