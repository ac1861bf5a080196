"""A web site that changes: a world served over HTTP, with hosts that cause trouble.

The site is a proxy for a few hosts. They therefore have names of their own on any machine, and no
request leaves the machine.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World
from service.model.arrays import Bools, Floats, Ints

NEWS, SHOP, SLOW, STRICT = "news.example", "shop.example", "slow.example", "strict.example"
SHARES = {NEWS: 0.4, SHOP: 0.4, SLOW: 0.1, STRICT: 0.1}
SLOW_S = 0.4
"""Response time of slow.example, seconds."""
STRICT_GAP_S, STRICT_WAIT_S = 0.2, 5
"""Minimum time between requests to strict.example, and its Retry-After with 429, seconds."""
LYING = 3
"""Period of false dates in a sitemap: every third page has the time of the fetch as lastmod."""


class Answer(NamedTuple):
    """The site's answer to a request."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


@dataclass
class Site:
    """A world whose day lasts `day_s` seconds of a clock, from now on; it records all crawls."""

    world: World
    host: tuple[str, ...]
    """(N,) host of each page."""
    day_s: float
    clock: Callable[[], float] = time.monotonic
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    start: float = field(init=False)
    crawled_version: Ints = field(init=False)
    """(N,) version of each page at its last crawl; -1 before the first one."""
    n_seen: int = 0
    """Number of crawls that found a new version."""
    crawled: list[tuple[int, float]] = field(default_factory=list)
    answers: list[tuple[str, int, float]] = field(default_factory=list)
    """Host, status and instant of each answer."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last: float = -np.inf
    """Instant of the last request to strict.example."""

    def __post_init__(self) -> None:
        self.start = self.clock()
        self.crawled_version = np.full(len(self.world), -1)

    def day(self) -> float:
        """Return the world's time, days."""
        return (self.clock() - self.start) / self.day_s

    def versions(self, day: float) -> Ints:
        """Return the (N,) versions of all pages at a time."""
        changed = np.append(0, np.cumsum(self.world.changed_at <= day))
        return np.diff(changed[self.world.first])

    def fresh(self) -> Bools:
        """Return a mask of (N,) pages whose last crawled version is the current one."""
        truth: Bools = self.crawled_version == self.versions(self.day())
        return truth

    def crawls(self) -> Crawls:
        """Return all crawls so far."""
        with self._lock:
            crawls = list(self.crawled)
        return Crawls(
            np.array([page for page, _ in crawls], np.int64), np.array([at for _, at in crawls])
        )

    def answer(self, url: str, etag_before: str | None) -> Answer:
        """Return the answer to a GET; `etag_before` is the client's version (If-None-Match)."""
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
        if host == SLOW:
            time.sleep(SLOW_S)
        with self._lock:
            answer = self._answer(host, path, etag_before)
            self.answers.append((host, answer.status, self.clock()))
        return answer

    def _answer(self, host: str, path: str, etag_before: str | None) -> Answer:
        if host == STRICT and self._hurried():
            return Answer(HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(STRICT_WAIT_S)})
        if path == "/sitemap.xml" and host in SHARES:
            return Answer(HTTPStatus.OK, {"Content-Type": "application/xml"}, self._sitemap(host))
        number = path.removeprefix("/page/")
        if not number.isdigit() or int(number) >= len(self.world) or self.host[int(number)] != host:
            return Answer(HTTPStatus.NOT_FOUND)
        return self._page(int(number), etag_before)

    def _hurried(self) -> bool:
        now, last = self.clock(), self._last
        self._last = now
        return now - last < STRICT_GAP_S

    def _page(self, page: int, etag_before: str | None) -> Answer:
        day = self.day()
        version = self.world.version(page, day)
        self.n_seen += 0 <= self.crawled_version[page] < version
        self.crawled_version[page] = version
        self.crawled.append((page, day))
        etag = f'"{page}-{version}"'
        if etag_before == etag:
            return Answer(HTTPStatus.NOT_MODIFIED, {"ETag": etag})
        body = f"<!doctype html><title>Page {page}</title><p>Version {version} of page {page}."
        return Answer(HTTPStatus.OK, {"ETag": etag, "Content-Type": "text/html"}, body.encode())

    def _sitemap(self, host: str) -> bytes:
        day = self.day()
        pages = [page for page, name in enumerate(self.host) if name == host]
        entries = "".join(
            f"<url><loc>{self.world.url[page]}</loc>"
            f"<lastmod>{self._lastmod(page, day)}</lastmod></url>"
            for page in pages
        )
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        return f'<urlset xmlns="{space}">{entries}</urlset>'.encode()

    def _lastmod(self, page: int, day: float) -> str:
        changes = self.world.changes_of(page)
        before = changes[: np.searchsorted(changes, day, side="right")]
        reported_day = day if page % LYING == 0 else float(before[-1]) if len(before) else 0.0
        return (self.began + timedelta(seconds=reported_day * self.day_s)).isoformat()


def site_of(world: World, day_s: float) -> Site:
    """Return a site with a world's pages spread over the hosts."""
    bounds = np.cumsum(list(SHARES.values())) * len(world)
    names = list(SHARES)
    row = np.minimum(np.searchsorted(bounds, np.arange(len(world)), side="right"), len(names) - 1)
    host = tuple(names[i] for i in row.tolist())
    url = tuple(f"http://{name}/page/{i}" for i, name in enumerate(host))
    return Site(replace(world, url=url), host, day_s)


def part(world: World, pages: Ints) -> World:
    """Return some pages as a world of their own."""
    counts = np.diff(world.first)[pages]
    changed_at: list[Floats] = [world.changes_of(page) for page in pages.tolist()]
    return replace(
        world,
        url=tuple(world.url[page] for page in pages.tolist()),
        importance=world.importance[pages],
        announced=world.announced[pages],
        created=world.created[pages],
        ended=world.ended[pages],
        changed_at=np.concatenate(changed_at),
        first=np.append(0, np.cumsum(counts)),
        change_rate=world.change_rate[pages],
    )


@contextmanager
def serving(site: Site) -> Iterator[str]:
    """Serve on a free loopback port; yield the address of the proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = site.answer(self.path, self.headers.get("If-None-Match"))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != HTTPStatus.NOT_MODIFIED:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore a client that closed its connection."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
