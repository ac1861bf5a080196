"""Feeds as pages of the schedule: lease those that are due, pass them on, report each read.

The service decides when a feed is read, by the rate that its reads have taught, within the budget
and the politeness of its host. A read with new entries is a change.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import httpx

from recrawl_client import ClientError, Crawl, Refused, Rejected, SitemapRead
from recrawl_client.headers import conditions, retry_seconds
from service.connectors.feed_hints import DIFFERS_BY, FASTEST, hints, importance, new_mean
from service.connectors.visits import NOT_MODIFIED, OK, Fetched
from service.connectors.watch_hours import HostClosed
from service.connectors.watch_state import FeedSettings
from service.connectors.watching import FORBIDDEN, Watcher, WatchStep
from service.model.errors import NotSubscribed, RecrawlError, SitemapNotFetched

AT_ONCE = 10
"""Feeds of one request for leases."""
LEASE_S = 1_800.0
"""Duration of their leases, seconds: that of the slowest answers of all of them."""
WORKER = "recrawl watch"
LOOK_EVERY_S = 60.0
"""Maximum time between two requests for leases, seconds."""
SHARE = 0.1
"""Maximum share of the bandwidth for minimum rates that this command sets."""
ASK_EVERY_S = 600.0
"""Time between two looks at the bandwidth in force, seconds."""
SETTINGS = ("importance", "min_crawl_rate", "max_crawl_rate")
"""Settings of the page that the command chooses."""
Subscribe = Callable[[str], str]
"""Subscribes at the hub of a feed, and returns its address; raises `NotSubscribed`."""


class FeedReader:
    """Reader of the feeds that are due."""

    def __init__(self, watcher: Watcher, subscribe: Subscribe | None = None) -> None:
        self.watcher = watcher
        self.client, self.state = watcher.client, watcher.state
        self.visits = watcher.visits
        self.subscribe = subscribe
        """None: hubs are not used."""
        watcher.adopt = self.adopt
        self._bandwidth, self._asked_at = 0.0, float("-inf")

    def adopt(self, url: str) -> bool:
        """Register a feed, which is due at once as any new page; return whether it was taken."""
        try:
            self.client.register({"url": url, "kind": "feed"})
        except Rejected:  # a key that is limited to hosts chooses no kinds
            return False
        self.state.remember_feed(url, FeedSettings())
        return True

    def keep(self, urls: list[str]) -> None:
        """Register the stored feeds among some addresses again, in case the service lost them."""
        stored = [url for url in urls if self.state.has_feed(url)]
        with suppress(Rejected):
            if stored:
                self.client.register(*({"url": url, "kind": "feed"} for url in stored))

    def due(self) -> Iterator[WatchStep]:
        """Yield a step for each feed that is due, until none is."""
        while crawls := self._leased()[0]:
            yield from self._read_all(crawls)

    def until(self, end: float) -> Iterator[WatchStep]:
        """Yield a step for each feed that is due until an instant of the watcher's clock."""
        while (left := end - self.watcher.clock()) > 0:
            crawls, wait_s = self._leased()
            yield from self._read_all(crawls)
            if not crawls:
                self.watcher.sleep(min(left, wait_s))

    def _leased(self) -> tuple[list[Crawl], float]:
        """Return feeds that are due, and the wait until the next request, seconds."""
        if self.watcher.adopt is None:
            return [], float("inf")
        try:
            leased = self.client.lease(AT_ONCE, kind="feed", worker=WORKER, ttl_s=LEASE_S)
        except Refused as error:
            if error.status != FORBIDDEN:
                raise
            self.watcher.adopt = None  # a key without leases reads feeds as sitemaps
            return [], float("inf")
        return leased.items, min(max(leased.retry_after_s or 0.0, 1.0), LOOK_EVERY_S)

    def _read_all(self, crawls: list[Crawl]) -> Iterator[WatchStep]:
        with self.visits.client(self.visits.respect) as http:
            for crawl in crawls:
                yield from self._read(http, crawl)

    def _read(self, http: httpx.Client, crawl: Crawl) -> Iterator[WatchStep]:
        """Fetch a feed, pass it on and report the read."""
        try:
            fetched = self.visits.fetch(http, crawl.url, conditions(crawl))
        except HostClosed as error:  # the feed leads to another host, whose window is closed
            self.client.release(crawl)
            yield WatchStep(crawl.url, "skipped", reason=str(error))
            return
        except SitemapNotFetched as error:
            self._report(crawl, status=0)
            yield WatchStep(crawl.url, "failed", reason=str(error))
            return
        is_conditional = crawl.etag is not None or crawl.last_modified is not None
        if fetched.status == NOT_MODIFIED and is_conditional:
            self._report(crawl, status=NOT_MODIFIED)
            stored = self.state.feed(crawl.url)
            self._set(crawl.url, stored, stored._replace(entries=new_mean(stored.entries, 0)))
            yield WatchStep(crawl.url, "unchanged")
            return
        if fetched.status != OK:
            wait_s = retry_seconds(fetched.headers.get("retry-after", "")) or None
            # a 304 that nobody asked for shows nothing
            status = 0 if fetched.status == NOT_MODIFIED else fetched.status
            self._report(crawl, status=status, retry_after_s=wait_s)
            yield WatchStep(crawl.url, "failed", reason=f"the site answered {fetched.status}")
            return
        step = self.watcher.send(crawl.url, fetched)
        answer = step.answer
        if answer is None:  # it is no feed any more, or is too large
            self._report(crawl, status=OK, changed=False, bytes=len(fetched.content))
            yield step
            return
        is_whole = answer.complete
        self._report(
            crawl,
            status=OK,
            changed=answer.accepted > 0,
            etag=fetched.etag if is_whole else None,
            last_modified=fetched.last_modified if is_whole else None,
            bytes=len(fetched.content),
        )
        yield step
        yield from self._learn(crawl.url, fetched, answer, crawl.last_crawl_at)

    def _report(self, crawl: Crawl, **evidence: object) -> None:
        """Report a read; one whose lease has ended, or whose page is gone, is not counted."""
        with suppress(Rejected):
            self.client.report(crawl, register=False, **evidence)  # type: ignore[arg-type]

    # -- what a feed states about itself

    def _learn(
        self, url: str, fetched: Fetched, answer: SitemapRead, last_read_at: datetime | None
    ) -> Iterator[WatchStep]:
        """Send new bounds of the feed's rate, and subscribe at its hub."""
        document, now = fetched.entries(), self.watcher.now()
        dates: list[str | None] = []
        with suppress(RecrawlError):
            dates = [entry.lastmod for entry in document]
        hint = hints(document.head, dates, now)
        least = hint.min_crawl_rate
        if last_read_at is not None and 1 < answer.n_entries <= answer.accepted:
            days = max((now - last_read_at).total_seconds() / 86_400, 1e-3)
            least = min(max(2 / days, least or 0.0), hint.max_crawl_rate or FASTEST, FASTEST)
            reason = "all its entries are new, so some may have come and gone between two reads"
            yield WatchStep(url, "asked", reason=f"{reason}; it is read more often")
        stored = self.state.feed(url)
        if least is not None:
            least = min(least, self._room(stored)) or None
        entries = stored.entries
        if last_read_at is not None:
            entries = new_mean(entries, answer.accepted)
        wished = stored._replace(
            min_crawl_rate=least, max_crawl_rate=hint.max_crawl_rate, entries=entries
        )
        stored = self._set(url, stored, wished)
        if self.subscribe is not None and hint.hub and hint.hub != stored.hub:
            try:
                hub = self.subscribe(fetched.url)
            except (NotSubscribed, ClientError) as error:
                yield WatchStep(url, "failed", reason=str(error))
            else:
                self.state.remember_feed(url, stored._replace(hub=hint.hub))
                yield WatchStep(url, "asked", reason=f"asked {hub} for its pushes")

    def _set(self, url: str, stored: FeedSettings, wished: FeedSettings) -> FeedSettings:
        """Send the settings of a feed that differ, but for those that an operator has set."""
        wished = wished._replace(importance=importance(wished.entries))
        changes = {
            name: getattr(wished, name)
            for name in SETTINGS
            if _differs(getattr(wished, name), getattr(stored, name))
        }
        if changes:
            page = self.client.page(url)
            changes = {
                name: value
                for name, value in changes.items()
                if getattr(page, name) == getattr(stored, name)
            }
            with suppress(Rejected):  # its bounds would cross one of an operator
                if changes:
                    self.client.register({"url": url, **changes})
        sent = stored._replace(**changes, entries=wished.entries)
        self.state.remember_feed(url, sent)
        return sent

    def _room(self, stored: FeedSettings) -> float:
        """Return the highest minimum rate for a feed, so that the minima leave others their share.

        Minima beyond the bandwidth would stop the epochs. Without an epoch, and under a budget that
        is not one of crawls, there is no room.
        """
        if self.watcher.clock() >= self._asked_at + ASK_EVERY_S:
            self._asked_at = self.watcher.clock()
            try:
                epoch = self.client.epoch()
            except Refused:
                self._bandwidth = 0.0
            else:
                self._bandwidth = (epoch.bandwidth or 0.0) if epoch.unit == "crawls" else 0.0
        others = self.state.sum_of_minima() - (stored.min_crawl_rate or 0.0)
        return max(SHARE * self._bandwidth - others, 0.0)


def _differs(rate: float | None, stored: float | None) -> bool:
    """Return whether a stated rate differs from the one that was sent."""
    return rate is not None and (stored is None or abs(rate - stored) > DIFFERS_BY * stored)
