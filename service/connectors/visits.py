"""Visits to sites: a guarded client, the delay between requests, and pauses that sites ask for."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from recrawl_client import retry_after
from recrawl_client.headers import http_date, usable_etag
from service.connectors.entries import FEEDS
from service.connectors.guarded import USER_AGENT, FetchLimits, Outgoing, guarded_client
from service.connectors.inflating import AnswerTooLarge
from service.connectors.sitemap import Sitemap
from service.connectors.watch_hours import WatchHours
from service.model.errors import RecrawlError, SitemapNotFetched

NOT_MODIFIED, OK = 304, 200
BUSY = (429, 503)
REFUSED = 4
"""First digit of the statuses of a refusal."""
CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")
"""Content encodings; any other value of the header, such as utf-8, is ignored."""
DEFAULT_WAIT_S = 600.0
"""Pause for a busy site without Retry-After, seconds."""
LONGEST_S = 120.0
"""Maximum time for a document, seconds, so that one site does not delay the others."""
MAX_REDIRECTS = 10
MAX_INFLATED = 1_000_000_000
"""Maximum size of a document that the service has read already, bytes."""


class Fetched(NamedTuple):
    """Answer of a site."""

    url: str
    """Address after all redirects."""
    status: int
    headers: httpx.Headers
    content: bytes

    @property
    def is_absent(self) -> bool:
        """True if the site has no such document, or refuses it."""
        return self.status // 100 == REFUSED and self.status not in BUSY

    @property
    def coding(self) -> str:
        """Content encoding; `identity` for any value that is none."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        return coding if coding in CODINGS else "identity"

    @property
    def etag(self) -> str | None:
        """ETag that can be sent back; None without one."""
        return usable_etag(self.headers.get("etag", ""))

    @property
    def last_modified(self) -> datetime | None:
        """Date of Last-Modified; None without one that can be read."""
        return http_date(self.headers.get("last-modified", ""))

    def entries(self) -> Sitemap:
        """Return the document, to be read here once more."""
        return Sitemap(self.content, MAX_INFLATED, self.url)

    def is_feed(self) -> bool:
        """Return whether the document is RSS, Atom or a JSON Feed."""
        document = self.entries()
        with suppress(RecrawlError):
            next(iter(document), None)
            return document.kind in FEEDS
        return False


@dataclass(frozen=True, slots=True)
class Manners:
    """Limits of requests to sites."""

    delay_s: float = 1.0
    """Time between two fetches from any sites, seconds."""
    max_bytes: int = 52_428_800
    """Maximum size of a document as it is sent, bytes; the default is the protocol's limit."""
    cross_host: bool = False
    www: bool = False
    """True where entries of the host with and without `www.` are taken."""
    private: bool = False
    """True where addresses that are not public are allowed."""
    user_agent: str = USER_AGENT
    proxy_guards: bool = False
    """True where the proxies of the environment refuse addresses of the operator's network."""


class Visits:
    """Polite requests to sites, one at a time."""

    def __init__(
        self,
        manners: Manners,
        hours: WatchHours,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.manners = manners
        self.hours = hours
        self.sleep = sleep
        self.clock = clock
        self._not_before: dict[str, float] = {}
        """Ends of pauses that sites asked for, by host, seconds of the clock."""
        self._next_fetch = clock()

    def client(self, wait: Callable[[httpx.Request], None]) -> httpx.Client:
        """Return a guarded client that waits before each request."""
        return guarded_client(
            FetchLimits(LONGEST_S, self.manners.max_bytes, MAX_REDIRECTS),
            private=self.manners.private,
            headers={"Accept-Encoding": "gzip"},
            outgoing=Outgoing(self.manners.user_agent, self.manners.proxy_guards),
            event_hooks={"request": [wait]},
        )

    def fetch(self, client: httpx.Client, url: str, conditions: dict[str, str]) -> Fetched:
        """Return the answer of a site, the document as it is sent; raise `SitemapNotFetched`."""
        try:
            urlsplit(url)
        except ValueError as error:
            raise SitemapNotFetched(f"it is no address: {error}") from error
        try:
            with client.stream("GET", url, headers=conditions) as response:
                if response.status_code in BUSY:
                    at_once = response.headers.get("retry-after", "").strip() == "0"
                    wait = retry_after(response) or (0.0 if at_once else DEFAULT_WAIT_S)
                    self._not_before[_host(response.request)] = self.clock() + wait
                is_read = response.status_code == OK
                content = b"".join(response.iter_raw()) if is_read else b""
                url = str(response.url)
                return Fetched(url, response.status_code, response.headers, content)
        except AnswerTooLarge as error:
            raise SitemapNotFetched(f"{error}; raise --max-bytes") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise SitemapNotFetched(f"the site cannot be reached: {error}") from error
        finally:
            self._next_fetch = self.clock() + self.manners.delay_s

    def wait(self, request: httpx.Request) -> None:
        """Wait for the delay before each request, also before those of redirects."""
        self.respect(request)
        self.sleep(max(self._next_fetch - self.clock(), 0.0))
        self._next_fetch = self.clock() + self.manners.delay_s

    def respect(self, request: httpx.Request) -> None:
        """Raise `SitemapNotFetched` while a site has asked to be left alone."""
        if (wait := self._not_before.get(_host(request), 0.0) - self.clock()) > 0:
            raise SitemapNotFetched(f"the site asked to be left alone for another {wait:.0f} s")
        self.hours.check(request.url.host)


def _host(request: httpx.Request) -> str:
    return request.url.netloc.decode()
