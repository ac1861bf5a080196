"""The client: one method for each call of a crawler. `AsyncClient` has the same methods."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from recrawl_client import calls
from recrawl_client.act_methods import ActMethods
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
from recrawl_client.collection_methods import CollectionMethods
from recrawl_client.flows import PART, Call, Flow, Listing
from recrawl_client.patience import UNANSWERED, answered, log_wait
from recrawl_client.reporter import Reporter, ReporterOptions
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


class Client(BaseClient, CollectionMethods, ActMethods):
    """A client of one service, shared by any number of threads.

    Parameters
    ----------
    base_url, api_key
        Address of the service, and one of its keys if it requires one.
    patience_s
        Maximum wait of a call while the service is busy, restarting or out of reach, seconds.
    batch
        Maximum number of items of one request.
    now, wait
        Clock of observations; function that waits for a number of seconds. A true result of
        `wait`, such as that of `threading.Event.wait`, ends the retries of the call.
    on_wait
        Function that receives one sentence for each outage, when a call has waited for a second;
        the default function logs the sentence.
    transport
        Transport of httpx, for example one for tests.

    A `base_url` that is no http or https address raises `ValueError`.

    Every method raises `Unavailable` after `patience_s`, and a `Refused` when the service refuses
    the request. For an invalid item, `report`, `ping` and `register` raise `Rejected`.
    `report_many`, `ping_many` and `register_many` return the invalid items in their answer.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        patience_s: float = 60.0,
        batch: int = BATCH,
        now: Callable[[], datetime] = utc_now,
        wait: Callable[[float], object] = time.sleep,
        on_wait: Callable[[str], object] = log_wait,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(base_url, api_key, patience_s, batch, now, on_wait)
        self.wait = wait
        self.http = httpx.Client(
            base_url=base_url, headers=self.headers, timeout=TIMEOUT, transport=transport
        )

    def __enter__(self) -> Self:
        """Open the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    # -- leases

    def lease(
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
        return self._run(calls.lease(count, report, options, register=register))

    def extend(self, crawl: Crawl, ttl_s: float) -> Crawl:
        """Return the crawl with a lease that ends `ttl_s` from now; raise `LeaseNotHeld`."""
        return self._run(calls.extend(crawl, ttl_s))

    def release(self, crawl: Crawl) -> bool:
        """Release a crawl that was not made; return whether its lease still ran."""
        return self._run(calls.release(crawl))

    # -- evidence

    def report(
        self, page: PageName, *, register: bool = True, **evidence: Unpack[CrawlEvidence]
    ) -> Reported:
        """Report one crawl, see `observation`; raise `Rejected` for an invalid one.

        Without `register`, neither the page nor the target of its redirect is registered.
        """
        item = self.observation(page, **evidence)
        return self._run(calls.report(item, register=register))

    def report_many(
        self, observations: Iterable[Observation], *, register: bool = True
    ) -> Reported:
        """Report crawls, those of a page in the order of time; sending again changes nothing."""
        return self._run(calls.report_many(observations, self.batch, register=register))

    def reporter(self, **options: Unpack[ReporterOptions]) -> Reporter:
        """Return a context that reports in batches from a thread, see `Batches`."""
        return Reporter(self, **options)

    def ping(self, page: str | int, *, changed_at: datetime | None = None) -> Decision:
        """Announce a change of a page; return the decision whether to crawl the page now."""
        return self._run(calls.ping(page, changed_at or self.now()))

    def ping_many(self, pings: Iterable[Ping]) -> Pinged:
        """Announce changes of pages; return the decisions."""
        return self._run(calls.ping_many(pings, self.batch))

    def sitemap(
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
        return self._run(flow)

    # -- pages and hosts

    def register(self, *pages: NewPage) -> Registered:
        """Register pages or change registered ones; raise `Rejected` for an invalid page.

        The valid pages are registered in any case.
        """
        return self._run(calls.register(pages, self.batch))

    def register_many(self, pages: Iterable[NewPage]) -> Registered:
        """Register pages or change registered ones."""
        return self._run(calls.register_many(pages, self.batch))

    def page(self, page: str | int) -> PageAnswer:
        """Return a page's settings, estimate, schedule and last crawls; raise `NotFound`."""
        return self._run(calls.page(page))

    def host(self, host: str) -> HostAnswer:
        """Return a host's settings, politeness and state; raise `NotFound`."""
        return self._run(calls.host(host))

    def open_hours(self, host: str) -> OpenHoursAnswer:
        """Return when a host may be crawled; the host may have no page."""
        return self._run(calls.open_hours(host))

    def hosts(self, sort: HostOrder = "host_id", *, blocked: bool = False) -> Iterator[ListedHost]:
        """Yield hosts, requested in parts: all hosts, or the blocked ones.

        `sort` is the order: `host_id`, `host`, or a load: `n_pages`, `n_overdue`, `asked_rate`; a
        minus means descending.
        """
        return self._items(calls.hosts(sort, blocked=blocked))

    def hosts_part(
        self,
        cursor: str | None = None,
        *,
        sort: HostOrder = "host_id",
        blocked: bool = False,
        limit: int = PART,
    ) -> HostsAnswer:
        """Return a part of the list of hosts, as `hosts`; `next_cursor` continues its order."""
        return self._run(calls.hosts_part(cursor, sort, limit, blocked=blocked))

    def set_host(self, host: str, /, **settings: Unpack[HostSettings]) -> HostAnswer:
        """Change settings of a host; None restores the default of a field."""
        return self._run(calls.set_host(host, settings))

    # -- subscriptions

    def subscribe(
        self,
        topic: str,
        hub: str,
        secret: str | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> RegisteredSubscription:
        """Register a subscription to a topic; without `public_url`, ask the hub yourself."""
        return self._run(calls.subscribe(topic, hub, secret, options))

    def unsubscribe(self, subscription_id: str) -> None:
        """Delete a subscription; raise `Refused` where there is none."""
        return self._run(calls.unsubscribe(subscription_id))

    def subscription(self, subscription_id: str) -> SubscriptionItem:
        """Return a subscription and what its hub has sent; raise `Refused` where there is none."""
        return self._run(calls.subscription(subscription_id))

    def subscriptions(self) -> Iterator[SubscriptionItem]:
        """Yield all subscriptions, requested in parts."""
        return self._items(calls.subscriptions())

    # -- changes

    def changes(
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
        return self._run(calls.changes(cursor, filters, limit, wait_s))

    def follow_changes(
        self, cursor: str | None = None, **filters: Unpack[ChangeFilters]
    ) -> Iterator[ChangesAnswer]:
        """Yield the parts of the feed as they come, without end; keep `next_cursor` of each."""
        while True:
            part = self.changes(cursor, wait_s=LONGEST_WAIT_S, **filters)
            cursor = part.next_cursor
            yield part

    def add_webhook(self, url: str, **settings: Unpack[WebhookOptions]) -> CreatedWebhook:
        """Create a webhook, which receives changes at a URL; keep its `secret`."""
        return self._run(calls.add_webhook(url, settings))

    def webhooks(self) -> Iterator[WebhookItem]:
        """Yield all webhooks, requested in parts."""
        return self._items(calls.webhooks())

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook; raise `Refused` where there is none."""
        return self._run(calls.delete_webhook(webhook_id))

    # -- schedule and epochs

    def schedule(self, **filters: Unpack[ScheduleFilters]) -> Iterator[ScheduledPage]:
        """Yield the schedule in force, requested in parts, all parts of one epoch.

        Raise `CursorExpired` where two epochs were published meanwhile.
        """
        return self._items(calls.schedule(filters))

    def request_epoch(self) -> Epoch:
        """Request an epoch now."""
        return self._run(calls.request_epoch())

    def epoch(self, epoch: int | None = None) -> Epoch:
        """Return one epoch, or the one in force; raise `NotFound`."""
        return self._run(calls.epoch(epoch))

    def epochs(self) -> Iterator[Epoch]:
        """Yield all epochs, newest first, requested in parts."""
        return self._items(calls.epochs())

    def steps(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        step_s: int = 600,
        host: str | None = None,
    ) -> Iterator[HistoryRow]:
        """Yield rows of the history of all pages or of a host, oldest first, requested in parts.

        The range ends now, and begins a day before its end, unless specified. Rows are `step_s`
        seconds long, a multiple of 600.
        """
        return self._items(calls.steps(since, until, step_s, host))

    def status(self) -> StatusAnswer:
        """Return the state of the service, and what needs somebody."""
        return self._run(calls.status())

    def plan(self, *bandwidths: float, limit: int = 20) -> PlanAnswer:
        """Return the plans of other bandwidths; raise `NotFound` before the first epoch.

        Each plan lists up to `limit` hosts, tags and starved pages.
        """
        return self._run(calls.plan(bandwidths, limit))

    def savings(self, since: datetime | None = None) -> SavingsAnswer:
        """Return what the fleet gained against uniform crawling, by default in 90 days."""
        return self._run(calls.savings(since))

    # -- sending

    def _run(self, flow: Flow[T]) -> T:
        try:
            call = next(flow)
            while True:
                call = flow.send(self._send(call))
        except StopIteration as end:
            result: T = end.value
            return result

    def _items(self, listing: Listing[ItemT]) -> Iterator[ItemT]:
        while listing.more:
            yield from self._run(listing.part())

    def _send(self, call: Call) -> httpx.Response:
        """Return the service's answer to a request; raise `Unavailable`."""
        patience = self._patience(call)
        while True:
            try:
                response = self.http.request(call.method, call.path, **call.options())
            except UNANSWERED as error:
                pause_s = patience.after_error(error)
            else:
                if answered(response):
                    self.is_away = False
                    return response
                pause_s = patience.after_answer(response)
            if self.wait(pause_s):
                raise patience.over()
