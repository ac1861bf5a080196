"""The client for asyncio: the methods of `Client` as coroutines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from recrawl_client import calls
from recrawl_client.act_methods import AsyncActMethods
from recrawl_client.base import BATCH, LONGEST_WAIT_S, TIMEOUT, BaseClient, utc_now
from recrawl_client.calls import (
    ChangeFilters,
    CrawlEvidence,
    HostSettings,
    LeaseOptions,
    NewPage,
    PageName,
    ScheduleFilters,
    SubscriptionOptions,
    WebhookOptions,
)
from recrawl_client.collection_methods import AsyncCollectionMethods
from recrawl_client.flows import PART, Call, Flow, Listing
from recrawl_client.patience import UNANSWERED, answered, log_wait
from recrawl_client.reporter import AsyncReporter, ReporterOptions
from recrawl_client.wire.changes import ChangesAnswer
from recrawl_client.wire.evidence import Decision, Observation, Ping, Pinged, Reported, SitemapRead
from recrawl_client.wire.history import HistoryRow
from recrawl_client.wire.hosts import (
    HostAnswer,
    HostOrder,
    HostsAnswer,
    ListedHost,
    OpenHoursAnswer,
)
from recrawl_client.wire.leases import Crawl, Leased
from recrawl_client.wire.pages import PageAnswer, Registered
from recrawl_client.wire.plan import PlanAnswer
from recrawl_client.wire.savings import SavingsAnswer
from recrawl_client.wire.schedule import Epoch, ScheduledPage
from recrawl_client.wire.status import StatusAnswer
from recrawl_client.wire.webhooks import CreatedWebhook, WebhookItem
from recrawl_client.wire.websub import RegisteredSubscription, SubscriptionItem

T = TypeVar("T")
ItemT = TypeVar("ItemT")


class AsyncClient(BaseClient, AsyncCollectionMethods, AsyncActMethods):
    """A client of one service, shared by the tasks of one event loop of asyncio.

    Parameters, methods and errors are those of `Client`; the parameter `wait` returns an
    awaitable.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        patience_s: float = 60.0,
        batch: int = BATCH,
        now: Callable[[], datetime] = utc_now,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
        on_wait: Callable[[str], object] = log_wait,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(base_url, api_key, patience_s, batch, now, on_wait)
        self.wait = wait
        self.http = httpx.AsyncClient(
            base_url=base_url, headers=self.headers, timeout=TIMEOUT, transport=transport
        )

    async def __aenter__(self) -> Self:
        """Open the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    # -- leases

    async def lease(
        self,
        count: int = 10,
        *,
        report: Iterable[Observation] = (),
        register: bool = True,
        **options: Unpack[LeaseOptions],
    ) -> Leased:
        """Lease up to `count` due crawls; wait up to `wait_s` (30) seconds for the first one.

        The crawls in `report` are recorded first, in the same commit, as by `report_many`; the
        answer has their outcomes in `reported`. After a lost answer, the repeated request receives
        the same leases.
        """
        return await self._run(calls.lease(count, report, options, register=register))

    async def extend(self, crawl: Crawl, ttl_s: float) -> Crawl:
        """Return the crawl with a lease that ends `ttl_s` from now; raise `LeaseNotHeld`."""
        return await self._run(calls.extend(crawl, ttl_s))

    async def release(self, crawl: Crawl) -> bool:
        """Release a crawl that was not made; return whether its lease still ran."""
        return await self._run(calls.release(crawl))

    # -- evidence

    async def report(
        self, page: PageName, *, register: bool = True, **evidence: Unpack[CrawlEvidence]
    ) -> Reported:
        """Report one crawl, see `observation`; raise `Rejected` for an invalid one.

        Without `register`, neither the page nor the target of its redirect is registered.
        """
        item = self.observation(page, **evidence)
        return await self._run(calls.report(item, register=register))

    async def report_many(
        self, observations: Iterable[Observation], *, register: bool = True
    ) -> Reported:
        """Report crawls, those of a page in the order of time; sending again changes nothing."""
        return await self._run(calls.report_many(observations, self.batch, register=register))

    def reporter(self, **options: Unpack[ReporterOptions]) -> AsyncReporter:
        """Return a context that reports in batches from a task, see `AsyncBatches`."""
        return AsyncReporter(self, **options)

    async def ping(self, page: str | int, *, changed_at: datetime | None = None) -> Decision:
        """Announce a change of a page; return the decision whether to crawl the page now."""
        return await self._run(calls.ping(page, changed_at or self.now()))

    async def ping_many(self, pings: Iterable[Ping]) -> Pinged:
        """Announce changes of pages; return the decisions."""
        return await self._run(calls.ping_many(pings, self.batch))

    async def sitemap(
        self,
        url: str,
        content: bytes,
        *,
        encoding: str | None = None,
        cross_host: bool = False,
        www: bool = False,
    ) -> SitemapRead:
        """Send a sitemap or feed as fetched from `url`, with the Content-Encoding of its answer.

        `www` takes entries of the host with and without `www.`, `cross_host` those of all hosts.
        """
        flow = calls.sitemap(url, content, encoding, cross_host=cross_host, www=www)
        return await self._run(flow)

    # -- pages and hosts

    async def register(self, *pages: NewPage) -> Registered:
        """Register pages or change registered ones; raise `Rejected` for an invalid page.

        The valid pages are registered in any case.
        """
        return await self._run(calls.register(pages, self.batch))

    async def register_many(self, pages: Iterable[NewPage]) -> Registered:
        """Register pages or change registered ones."""
        return await self._run(calls.register_many(pages, self.batch))

    async def page(self, page: str | int) -> PageAnswer:
        """Return a page's settings, estimate, schedule and last crawls; raise `NotFound`."""
        return await self._run(calls.page(page))

    async def host(self, host: str) -> HostAnswer:
        """Return a host's settings, politeness and state; raise `NotFound`."""
        return await self._run(calls.host(host))

    async def open_hours(self, host: str) -> OpenHoursAnswer:
        """Return when a host may be crawled; the host may have no page."""
        return await self._run(calls.open_hours(host))

    def hosts(
        self, sort: HostOrder = "host_id", *, blocked: bool = False
    ) -> AsyncIterator[ListedHost]:
        """Yield hosts, requested in parts: all hosts, or the blocked ones.

        `sort` is the order: `host_id`, `host`, or a load: `n_pages`, `n_overdue`, `asked_rate`; a
        minus means descending.
        """
        return self._items(calls.hosts(sort, blocked=blocked))

    async def hosts_part(
        self,
        cursor: str | None = None,
        *,
        sort: HostOrder = "host_id",
        blocked: bool = False,
        limit: int = PART,
    ) -> HostsAnswer:
        """Return a part of the list of hosts, as `hosts`; `next_cursor` continues its order."""
        return await self._run(calls.hosts_part(cursor, sort, limit, blocked=blocked))

    async def set_host(self, host: str, /, **settings: Unpack[HostSettings]) -> HostAnswer:
        """Change settings of a host; None restores the default of a field."""
        return await self._run(calls.set_host(host, settings))

    # -- subscriptions

    async def subscribe(
        self,
        topic: str,
        hub: str,
        secret: str | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> RegisteredSubscription:
        """Register a subscription to a topic; without `public_url`, ask the hub yourself."""
        return await self._run(calls.subscribe(topic, hub, secret, options))

    async def unsubscribe(self, subscription_id: str) -> None:
        """Delete a subscription; raise `Refused` where there is none."""
        return await self._run(calls.unsubscribe(subscription_id))

    async def subscription(self, subscription_id: str) -> SubscriptionItem:
        """Return a subscription and what its hub has sent; raise `Refused` where there is none."""
        return await self._run(calls.subscription(subscription_id))

    def subscriptions(self) -> AsyncIterator[SubscriptionItem]:
        """Yield all subscriptions, requested in parts."""
        return self._items(calls.subscriptions())

    # -- changes

    async def changes(
        self,
        cursor: str | None = None,
        *,
        limit: int = PART,
        wait_s: float = 0.0,
        **filters: Unpack[ChangeFilters],
    ) -> ChangesAnswer:
        """Return a part of the feed of changes; wait up to `wait_s` (30) seconds for a change.

        Keep `next_cursor` once the items are handled. Without a cursor the feed begins at `since`,
        or at its oldest change. Raise `CursorExpired` where changes may be missing.
        """
        return await self._run(calls.changes(cursor, filters, limit, wait_s))

    async def follow_changes(
        self, cursor: str | None = None, **filters: Unpack[ChangeFilters]
    ) -> AsyncIterator[ChangesAnswer]:
        """Yield the parts of the feed as they come, without end; keep `next_cursor` of each."""
        while True:
            part = await self.changes(cursor, wait_s=LONGEST_WAIT_S, **filters)
            cursor = part.next_cursor
            yield part

    async def add_webhook(self, url: str, **settings: Unpack[WebhookOptions]) -> CreatedWebhook:
        """Create a webhook, which receives changes at a URL; keep its `secret`."""
        return await self._run(calls.add_webhook(url, settings))

    def webhooks(self) -> AsyncIterator[WebhookItem]:
        """Yield all webhooks, requested in parts."""
        return self._items(calls.webhooks())

    async def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook; raise `Refused` where there is none."""
        return await self._run(calls.delete_webhook(webhook_id))

    # -- schedule and epochs

    def schedule(self, **filters: Unpack[ScheduleFilters]) -> AsyncIterator[ScheduledPage]:
        """Yield the schedule in force, requested in parts, all parts of one epoch.

        Raise `CursorExpired` where two epochs were published meanwhile.
        """
        return self._items(calls.schedule(filters))

    async def request_epoch(self) -> Epoch:
        """Request an epoch now."""
        return await self._run(calls.request_epoch())

    async def epoch(self, epoch: int | None = None) -> Epoch:
        """Return one epoch, or the one in force; raise `NotFound`."""
        return await self._run(calls.epoch(epoch))

    def epochs(self) -> AsyncIterator[Epoch]:
        """Yield all epochs, newest first, requested in parts."""
        return self._items(calls.epochs())

    def steps(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        step_s: int = 600,
        host: str | None = None,
    ) -> AsyncIterator[HistoryRow]:
        """Yield rows of the history of all pages or of a host, oldest first, requested in parts.

        The range ends now, and begins a day before its end, unless specified. Rows are `step_s`
        seconds long, a multiple of 600.
        """
        return self._items(calls.steps(since, until, step_s, host))

    async def status(self) -> StatusAnswer:
        """Return the state of the service, and what needs somebody."""
        return await self._run(calls.status())

    async def plan(self, *bandwidths: float, limit: int = 20) -> PlanAnswer:
        """Return the plans of other bandwidths; raise `NotFound` before the first epoch.

        Each plan lists up to `limit` hosts, tags and starved pages.
        """
        return await self._run(calls.plan(bandwidths, limit))

    async def savings(self, since: datetime | None = None) -> SavingsAnswer:
        """Return what the fleet gained against uniform crawling, by default in 90 days."""
        return await self._run(calls.savings(since))

    # -- sending

    async def _run(self, flow: Flow[T]) -> T:
        try:
            call = next(flow)
            while True:
                call = flow.send(await self._send(call))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _items(self, listing: Listing[ItemT]) -> AsyncIterator[ItemT]:
        while listing.more:
            for item in await self._run(listing.part()):
                yield item

    async def _send(self, call: Call) -> httpx.Response:
        """Return the service's answer to a request; raise `Unavailable`."""
        patience = self._patience(call)
        while True:
            try:
                response = await self.http.request(call.method, call.path, **call.options())
            except UNANSWERED as error:
                pause_s = patience.after_error(error)
            else:
                if answered(response):
                    self.is_away = False
                    return response
                pause_s = patience.after_answer(response)
            if await self.wait(pause_s):
                raise patience.over()
