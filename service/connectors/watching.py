"""Watch documents of sites: fetch them politely, and pass them on to a running service.

Sitemaps are fetched one at a time, each round. An unchanged document is not sent again. Children of
an index are fetched after it, unless the index states that they have not changed. A site's
robots.txt counts as an index of its `Sitemap:` lines. Feeds are pages of the service, which
`feed_watch` leases.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import httpx

from recrawl_client import Client, Ping, Refused, SitemapRead, Unavailable
from recrawl_client.robots_rules import MAX_BYTES, Rules
from recrawl_client.wire.evidence import SitemapChild
from service.connectors.inflating import beginning
from service.connectors.links import resolved, twin
from service.connectors.visits import NOT_MODIFIED, OK, Fetched, Manners, Visits
from service.connectors.watch_hours import HostClosed, WatchHours
from service.connectors.watch_state import Child, Document, WatchState
from service.model.errors import InvalidUrl, RecrawlError, SitemapNotFetched
from service.model.urls import normalise
from service.model.words import counted

UNWELCOME = (401, 404, 405)
"""Statuses of a service that refuses this client, and of a server that is no Recrawl."""
TOO_LARGE = 413
"""Status of the service, or of a proxy before it, for one document."""
MAX_DEPTH = 3
"""Maximum depth of indexes within indexes."""
TOO_DEEP = f"sitemaps below level {MAX_DEPTH} are left out; name them to watch them"

A_LOOK_IN = 20
"""One in so many documents is fetched though its index states that it has not changed."""
MOST_LOOKED_AT = 1_000
"""Maximum number of addresses of a round that the service is asked to crawl, because they left."""
DAY_EVERYWHERE_S = 38 * 3_600.0
"""Time from the begin of a day anywhere to its end everywhere else, seconds."""
A_MINUTE_S = 60.0
MAX_NAMED = 1_000
"""Maximum number of sitemaps of a robots.txt."""
FORBIDDEN = 403


class WatchStep(NamedTuple):
    """Outcome for one document."""

    url: str
    outcome: Literal["taken", "unchanged", "skipped", "listed", "asked", "failed"]
    """`taken` by the service; `skipped` by the date in its index or a closed window; `listed`: a
    robots.txt, or a feed that the service knows now; `asked`: crawls of addresses that left."""
    answer: SitemapRead | None = None
    """Answer of the service that accepted the document."""
    reason: str = ""
    """Reason of the failure, or what was done."""


class Watcher:
    """A loop that fetches documents and sends them to the service."""

    def __init__(
        self,
        client: Client,
        state: WatchState,
        manners: Manners,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: random.Random | None = None,
    ) -> None:
        self.client = client
        self.state = state
        self.manners = manners
        self.sleep = sleep
        self.clock = clock
        self.now = now
        self.rng = rng or random.Random()  # noqa: S311 - no secret
        self.adopt: Callable[[str], bool] | None = None
        """Registers a feed, and returns whether leases lead to its reads; None: feeds are read each
        round, as sitemaps are."""
        self.hours = WatchHours(client, clock, now)
        self.visits = Visits(manners, self.hours, sleep, clock)

    def recognise(self) -> bool:
        """Forget all documents if the database of the service was restored; return whether."""
        incarnation = ""
        with suppress(httpx.HTTPError, ValueError):  # the calls of the round show what is wrong
            incarnation = self.client.http.get("/readyz").json().get("incarnation", "")
        return bool(incarnation) and self.state.recognise(incarnation)

    def look(self, urls: Iterable[str]) -> Iterator[WatchStep]:
        """Yield a step for each document, and for those that it names.

        Raises
        ------
        Unavailable, Refused
            The service cannot be reached, or refuses this client.
        """
        began = self._now_s()
        waiting = deque((Child(url, None), 0 if is_site(url) else 1) for url in dict.fromkeys(urls))
        queued = {child.url for child, _ in waiting}
        with self.visits.client(self.visits.wait) as client:
            while waiting:
                child, depth = waiting.popleft()
                if self.adopt is not None and self.state.has_feed(child.url):
                    continue
                step, url = self._step(client, child, is_root=not depth)
                yield step
                last = self.state.document(url)
                children = {each.url: each for each in (last.children if last is not None else ())}
                new = children.keys() - queued
                if new and depth >= MAX_DEPTH:
                    yield WatchStep(url, "skipped", reason=TOO_DEEP)
                    continue
                queued |= new
                waiting += [(child, depth + 1) for at, child in children.items() if at in new]
        self.state.forget_old(began)
        yield from self._ask_for_left(began)

    def _step(self, client: httpx.Client, child: Child, *, is_root: bool) -> tuple[WatchStep, str]:
        """Return the step of a document and the address of its row."""
        url = child.url
        try:
            if is_root:
                url = f"{url.rstrip('/')}/robots.txt"
                return self._read_robots(client, url), url
            if self._is_settled(child):
                self.state.see(url, self._now_s())
                return WatchStep(url, "skipped"), url
            return self._pass_on(client, child), url
        except HostClosed as error:
            self.state.see(url, self._now_s())
            self.hours.put_off(child.url, error.opens_at)
            return WatchStep(url, "skipped", reason=str(error)), url
        except SitemapNotFetched as error:
            self.state.see(url, self._now_s())
            return WatchStep(url, "failed", reason=str(error)), url

    def _is_settled(self, child: Child) -> bool:
        """Return whether a document has not changed since its last read, by its index."""
        last = self.state.document(child.url)
        if last is None or child.lastmod is None or last.lastmod != child.lastmod:
            return False
        if last.scope != self._scope() or not is_past(child.lastmod, last.read_at):
            return False
        return self.rng.random() >= 1 / A_LOOK_IN

    def _read_robots(self, client: httpx.Client, url: str) -> WatchStep:
        """Return the step of a robots.txt; without `Sitemap:` lines it names /sitemap.xml."""
        fetched = self.visits.fetch(client, url, self._conditions(url))
        if fetched.status == NOT_MODIFIED:
            self.state.see(url, self._now_s())
            return WatchStep(url, "unchanged")
        if fetched.status != OK and not fetched.is_absent:
            raise SitemapNotFetched(f"the site answered {fetched.status}")
        content = fetched.content if fetched.status == OK else b""
        # the rules drop a line that their limit cuts
        rules = Rules(beginning(content, MAX_BYTES + 1), self.manners.user_agent)
        lines = rules.sitemaps
        named = [resolved(fetched.url, line.strip()) for line in lines[:MAX_NAMED]]
        host = urlsplit(url).hostname or ""
        own = [each for each in named if self._is_own(each, host)]
        children = own or ([] if named else [resolved(url, "/sitemap.xml")])
        document = self._document("robots", fetched if fetched.status == OK else None)
        self.state.remember(
            url, document._replace(children=tuple(Child(each, None) for each in children))
        )
        left_out = {"on other hosts": len(named) - len(own), "more": len(lines) - len(named)}
        others = [f", {n:,} {which} left out" for which, n in left_out.items() if n]
        return WatchStep(url, "listed", reason=counted(len(own), "sitemap") + "".join(others))

    def _is_own(self, url: str, host: str) -> bool:
        """Return whether a sitemap of a robots.txt may be fetched."""
        try:
            other = normalise(url).host
        except InvalidUrl:
            return False
        wide = self.manners
        return other == host or wide.cross_host or (wide.www and other == twin(host))

    def _pass_on(self, client: httpx.Client, child: Child) -> WatchStep:
        url, last = child.url, self.state.document(child.url)
        fetched = self.visits.fetch(client, url, self._conditions(url))
        if fetched.status == NOT_MODIFIED and last is not None:
            lastmod = child.lastmod if last.etag or last.last_modified else None
            self.state.remember(url, last._replace(lastmod=lastmod, read_at=self._now_s()))
            return WatchStep(url, "unchanged")
        if fetched.status != OK:
            raise SitemapNotFetched(f"the site answered {fetched.status}")
        if self.adopt is not None and fetched.is_feed() and self.adopt(url):
            return WatchStep(url, "listed", reason="a feed, which is read when it is due")
        step = self.send(url, fetched)
        answer = step.answer
        if answer is None:
            self.state.see(url, self._now_s())
            return step
        document = self._document(answer.kind, fetched if answer.complete else None)
        document = document._replace(
            children=_dated(answer.children), lastmod=child.lastmod if answer.complete else None
        )
        is_whole = answer.complete and answer.n_entries > 0 and answer.kind in ("urlset", "text")
        self.state.remember(url, document, self._urls(fetched) if is_whole else None)
        return step

    def send(self, url: str, fetched: Fetched) -> WatchStep:
        """Send a document to the service; return its step, failed where the service refuses it."""
        try:
            answer = self.client.sitemap(
                fetched.url,
                fetched.content,
                encoding=fetched.coding,
                cross_host=self.manners.cross_host,
                www=self.manners.www,
            )
        except Refused as error:
            if error.status in UNWELCOME or not (error.code or error.status == TOO_LARGE):
                raise
            return WatchStep(url, "failed", reason=f"{error.status} {error.problem.detail}")
        except Unavailable as error:
            if not isinstance(error.__cause__, httpx.ReadTimeout):
                raise
            reason = "the service took too long to read it; it may have read it all the same"
            return WatchStep(url, "failed", reason=reason)
        return WatchStep(url, "taken", answer)

    def _document(self, kind: str, fetched: Fetched | None) -> Document:
        """Return a document that was read now; without `fetched` it has no validators."""
        document = Document(kind, scope=self._scope(), read_at=self._now_s())
        if fetched is None:
            return document
        words = [fetched.headers.get(name, "") for name in ("etag", "last-modified")]
        etag, last_modified = (word if word.isascii() else "" for word in words)
        return document._replace(etag=etag, last_modified=last_modified)

    def _urls(self, fetched: Fetched) -> set[str]:
        """Return the addresses of a document in their normal form."""
        urls = set[str]()
        try:
            for entry in fetched.entries():
                try:
                    urls.add(normalise(entry.loc).url)
                except InvalidUrl:
                    continue
        except RecrawlError:  # the service reads with other limits
            return set()
        return urls

    def _scope(self) -> str:
        """Return the options on other hosts that are set."""
        wide = {"cross_host": self.manners.cross_host, "www": self.manners.www}
        return " ".join(name for name, is_set in wide.items() if is_set)

    # -- addresses that have left

    def _ask_for_left(self, since: float) -> Iterator[WatchStep]:
        """Ask for one crawl of each address that has left; yield a step if there are any."""
        left = self.state.left(since, MOST_LOOKED_AT)
        if not left:
            return
        try:
            n_asked = self.client.recrawl(*left).changed
        except Refused as error:
            if error.status != FORBIDDEN:
                raise
            # a key that may only report announces a change instead
            pings = (Ping(url=url, changed_at=self.now()) for url in left)
            n_asked = sum(decision.crawl for decision in self.client.ping_many(pings).decisions)
        self.state.forget_left(left)
        soon = f"{n_asked} to crawl as soon as the budget allows"
        reason = f"{len(left)} addresses left their sitemaps, {soon}"
        yield WatchStep(self.client.base_url, "asked", reason=reason)

    def _conditions(self, url: str) -> dict[str, str]:
        last = self.state.document(url)
        if last is None or last.scope != self._scope():
            return {}  # the entries that were left out then are read now
        named = {"If-None-Match": last.etag, "If-Modified-Since": last.last_modified}
        return {condition: word for condition, word in named.items() if word}

    def _now_s(self) -> float:
        return self.now().timestamp()


def is_site(url: str) -> bool:
    """Return whether an address is that of a whole site.

    >>> is_site("https://example.com"), is_site("https://example.com/feed")
    (True, False)
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.netloc) and parts.path in ("", "/") and not (parts.query or parts.fragment)


def is_past(lastmod: float, read_at: float) -> bool:
    """Return whether a read came after all changes that a `lastmod` stands for.

    A full quarter of an hour may be the begin of a day in some zone, so it stands for that day.
    """
    is_day = lastmod % 900 == 0
    return read_at > lastmod + (DAY_EVERYWHERE_S if is_day else A_MINUTE_S)


def _dated(children: Iterable[SitemapChild]) -> tuple[Child, ...]:
    return tuple(
        Child(each.loc, None if each.lastmod is None else each.lastmod.timestamp())
        for each in children
    )
