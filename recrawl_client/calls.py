"""The requests and results of each method, without input or output."""

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypedDict, Unpack
from urllib.parse import quote
from uuid import uuid4

from msgspec import json, structs

from recrawl_client.errors import LeaseNotHeld
from recrawl_client.flows import Flow, Listing, accepted, ask, batches, call, encoded
from recrawl_client.wire.changes import ChangeName, ChangesAnswer
from recrawl_client.wire.evidence import Decision, Observation, Ping, Pinged, Reported, SitemapRead
from recrawl_client.wire.history import HistoryAnswer, HistoryRow
from recrawl_client.wire.hosts import (
    HostAnswer,
    HostOrder,
    HostsAnswer,
    ListedHost,
    OpenHoursAnswer,
)
from recrawl_client.wire.leases import Crawl, LeaseAnswer, Leased
from recrawl_client.wire.pages import Kind, Page, PageAnswer, Registered, Watched
from recrawl_client.wire.plan import PlanAnswer
from recrawl_client.wire.savings import SavingsAnswer
from recrawl_client.wire.schedule import Epoch, EpochsAnswer, ScheduleAnswer, ScheduledPage
from recrawl_client.wire.status import StatusAnswer
from recrawl_client.wire.webhooks import (
    CreatedWebhook,
    WebhookItem,
    WebhooksAnswer,
)
from recrawl_client.wire.websub import (
    HostPolicyName,
    RegisteredSubscription,
    SubscriptionItem,
    SubscriptionsAnswer,
)

LAST_STATUS = 599
"""Highest HTTP status."""

PageName: TypeAlias = Crawl | str | int
"""A page: its leased crawl, its URL or its page_id."""
NewPage: TypeAlias = Page | str | dict[str, Any]
"""A page to register: a struct, a URL, or an item of POST /pages."""


class CrawlEvidence(TypedDict, total=False):
    """Results of a crawl; fields with None are left out."""

    observed_at: datetime | None
    """Time at which the crawler sent its request; without it the start of the lease, or now for a
    page without a lease."""
    changed: bool | None
    change_weight: float | None
    """Weight of the change by a comparison of your own, 0 to 1; without it 1."""
    digest: str | None
    status: int | None
    """HTTP status, 0 for no answer; an invalid status over 599 counts as 599."""
    robots_denied: bool | None
    """True if robots.txt forbids the page, so that nobody asked for it."""
    retry_after_s: float | None
    last_modified: datetime | None
    etag: str | None
    note: Any
    """JSON of at most 1,024 bytes, which the next lease of the page returns."""
    redirect_url: str | None
    bytes: float | None
    """Bytes transferred, for a budget of bytes."""
    seconds: float | None
    """Duration of the crawl, for a budget of time and for the latency of the host."""
    price: float | str | None
    """Price paid or asked, such as `USD 0.01`, for a budget of money."""


class HostSettings(TypedDict, total=False):
    """Politeness of a host; None restores the default of a field."""

    min_delay_s: float | None
    robots_delay_s: float | None
    max_concurrency: int | None
    latency_factor: float | None
    """Delay over a high latency, such as 5; 0: none."""
    max_delay_s: float | None
    """Maximum delay by latency, seconds."""
    windows: list[str] | None
    """Windows such as `Mon-Fri 22:00-06:00 Europe/Berlin`; []: no restriction."""
    blackouts: list[str] | None
    """Days without crawls, such as `2026-12-24/2026-12-26 Europe/Berlin`."""
    max_crawl_rate: float | None
    first_share: float | None
    group: str | None
    blocked_until: datetime | None
    false_304_at: datetime | None


class ScheduleFilters(TypedDict, total=False):
    """Filters of the rows of the schedule."""

    host: str
    url: str
    observability: Watched
    due_before: datetime
    limit: int
    """Number of rows of one request."""


class ChangeFilters(TypedDict, total=False):
    """Filters of changes, and the start of a reader without a cursor."""

    since: datetime
    """Instant from whose commits on changes are wanted."""
    host: str
    prefix: str
    """Start of the URLs."""
    tag: str
    """Tag that the pages have when their changes are read."""
    kinds: Sequence[ChangeName]
    min_weight: float
    """Minimum weight of the changes, 0 to 1."""


class SubscriptionOptions(TypedDict, total=False):
    """Settings of a subscription; without them, pages of the topic's host, and no renewal."""

    host_policy: HostPolicyName
    """Hosts whose pages are taken."""
    listed_hosts: list[str]
    """Hosts beside the topic's, with `host_policy` listed."""
    public_url: str
    """Public address of the service, at which the worker asks the hub to call."""


class WebhookOptions(TypedDict, total=False):
    """Settings of a webhook; without a field, all changes, and an array is of one event."""

    secret: str
    """Key of the signatures; without it, the service draws one."""
    kinds: Sequence[ChangeName] | None
    host: str | None
    prefix: str | None
    tag: str | None
    min_weight: float | None
    """Minimum weight of the changes, 0 to 1; None: all."""
    max_items: int
    cursor: str
    """Cursor of the feed at which delivery begins; without it, the next change."""


class LeaseOptions(TypedDict, total=False):
    """Options of a lease request."""

    worker: str | None
    """Name of the worker; without it, that of the machine with the number of the process."""
    ttl_s: float | None
    """Duration of the leases, seconds; without it, the default of the service."""
    hosts: Sequence[str]
    """Hosts whose pages are wanted; empty: all hosts."""
    kind: Kind
    """Kind of the pages: `page`, or `feed` for feeds alone."""
    wait_s: float
    """Maximum wait for a first crawl, seconds, at most 30."""


# -- leases


def default_worker() -> str:
    """Return a name of this process: that of the machine, and the number of the process."""
    return f"{platform.node()[:80] or 'worker'}-{os.getpid()}"


def lease(
    count: int, report: Iterable[Observation], options: LeaseOptions, *, register: bool
) -> Flow[Leased]:
    """Report crawls and take crawls that are due; an answer that is lost comes again."""
    body: dict[str, Any] = {k: value for k, value in options.items() if value is not None}
    body |= {"worker": body.get("worker") or default_worker(), "count": count}
    if items := list(report):
        body["report"] = items
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid4())}
    request = {"content": json.encode(body), "headers": headers}
    params = _registering(register=register)
    return ask("POST", "/leases", Leased, params=params, **request)


def extend(crawl: Crawl, ttl_s: float) -> Flow[Crawl]:
    """Move the end of a crawl's lease to `ttl_s` from now; return the crawl."""
    content = json.encode({"ttl_s": ttl_s})
    answer = yield from ask("PATCH", f"/leases/{crawl.lease}", LeaseAnswer, content=content)
    return structs.replace(crawl, expires_at=answer.expires_at)


def release(crawl: Crawl) -> Flow[bool]:
    """End the lease of a crawl that was not made; return whether the lease still ran."""
    try:
        yield from call("DELETE", f"/leases/{crawl.lease}")
    except LeaseNotHeld:
        return False
    return True


# -- evidence


def observation(
    page: PageName, now: Callable[[], datetime], **evidence: Unpack[CrawlEvidence]
) -> Observation:
    """Return the observation of a page.

    Without a time, the service dates a leased crawl by the start of its lease. Now would be too
    late: a ping that arrived while the page was being fetched would count as answered.
    """
    fields: dict[str, Any] = {k: value for k, value in evidence.items() if value is not None}
    if "status" in fields:
        fields["status"] = min(fields["status"], LAST_STATUS)
    if isinstance(page, Crawl):
        return Observation(**fields, lease=page.lease)
    name = "url" if isinstance(page, str) else "page_id"
    return Observation(**{"observed_at": now(), **fields, name: page})


def report(item: Observation, *, register: bool) -> Flow[Reported]:
    """Report one crawl."""
    return accepted(report_many([item], 1, register=register))


def report_many(items: Iterable[Observation], batch: int, *, register: bool) -> Flow[Reported]:
    """Report crawls."""
    return batches("/observations", items, Reported, batch, params=_registering(register=register))


def ping(page: str | int, changed_at: datetime) -> Flow[Decision]:
    """Announce that a page has changed."""
    name: dict[str, Any] = {"url" if isinstance(page, str) else "page_id": page}
    answer = yield from accepted(ping_many([Ping(changed_at=changed_at, **name)], 1))
    return answer.decisions[0]


def ping_many(pings: Iterable[Ping], batch: int) -> Flow[Pinged]:
    """Announce changes."""
    return batches("/pings", pings, Pinged, batch)


def sitemap(
    url: str, content: bytes, encoding: str | None, *, cross_host: bool, www: bool
) -> Flow[SitemapRead]:
    """Pass on a sitemap."""
    headers = {"Content-Type": "application/octet-stream"}
    if encoding is not None:
        headers["Content-Encoding"] = encoding
    params = {"url": url, "cross_host": cross_host, "www": www}
    return ask("POST", "/sitemaps", SitemapRead, params=params, content=content, headers=headers)


# -- pages and hosts


def register(pages: Iterable[NewPage], batch: int) -> Flow[Registered]:
    """Register pages; raise `Rejected` for an invalid page."""
    return accepted(register_many(pages, batch))


def register_many(pages: Iterable[NewPage], batch: int) -> Flow[Registered]:
    """Register pages."""
    items = (Page(url=page) if isinstance(page, str) else page for page in pages)
    return batches("/pages", items, Registered, batch)


def page(page: str | int) -> Flow[PageAnswer]:
    """Show one page."""
    if isinstance(page, str):
        return ask("GET", "/pages", PageAnswer, params={"url": page})
    return ask("GET", f"/pages/{page}", PageAnswer)


def host(host: str) -> Flow[HostAnswer]:
    """Show one host."""
    return ask("GET", _host_path(host), HostAnswer)


def open_hours(host: str) -> Flow[OpenHoursAnswer]:
    """Show when a host may be crawled."""
    return ask("GET", f"{_host_path(host)}/open-hours", OpenHoursAnswer)


def hosts(sort: HostOrder, *, blocked: bool) -> Listing[ListedHost]:
    """List hosts."""
    params = {"sort": sort} | ({"blocked": "true"} if blocked else {})
    return Listing("/hosts", HostsAnswer, params)


def hosts_part(
    cursor: str | None, sort: HostOrder, limit: int, *, blocked: bool
) -> Flow[HostsAnswer]:
    """Read a part of the list of hosts."""
    params: dict[str, Any] = {"sort": sort, "limit": limit}
    params |= {"blocked": "true"} if blocked else {}
    params |= {} if cursor is None else {"cursor": cursor}
    return ask("GET", "/hosts", HostsAnswer, params=params)


def set_host(host: str, settings: HostSettings) -> Flow[HostAnswer]:
    """Change how a host is crawled."""
    return ask("PATCH", _host_path(host), HostAnswer, content=encoded(settings))


# -- subscriptions


def subscribe(
    topic: str, hub: str, secret: str | None, options: SubscriptionOptions
) -> Flow[RegisteredSubscription]:
    """Register a subscription."""
    body = {"topic": topic, "hub": hub, **options}
    body |= {} if secret is None else {"secret": secret}
    return ask("POST", "/websub", RegisteredSubscription, content=json.encode(body))


def unsubscribe(subscription_id: str) -> Flow[None]:
    """End a subscription."""
    yield from call("DELETE", f"/websub/{subscription_id}")


def subscription(subscription_id: str) -> Flow[SubscriptionItem]:
    """Show one subscription."""
    return ask("GET", f"/websub/{subscription_id}/state", SubscriptionItem)


def subscriptions() -> Listing[SubscriptionItem]:
    """List all subscriptions."""
    return Listing("/websub", SubscriptionsAnswer)


# -- changes


def changes(
    cursor: str | None, filters: ChangeFilters, limit: int, wait_s: float
) -> Flow[ChangesAnswer]:
    """Read a part of the feed of changes."""
    params: dict[str, Any] = {"limit": limit, "wait_s": wait_s, **filters}
    if kinds := params.pop("kinds", None):
        params["kind"] = ",".join(kinds)
    since = params.pop("since", None)
    if cursor is not None:
        params["cursor"] = cursor
    elif since is not None:
        params["since"] = since.isoformat()
    return ask("GET", "/changes", ChangesAnswer, params=params)


def add_webhook(url: str, settings: WebhookOptions) -> Flow[CreatedWebhook]:
    """Create a webhook."""
    body = {"url": url, **settings}
    return ask("POST", "/webhooks", CreatedWebhook, content=encoded(body))


def webhooks() -> Listing[WebhookItem]:
    """List all webhooks."""
    return Listing("/webhooks", WebhooksAnswer)


def delete_webhook(webhook_id: str) -> Flow[None]:
    """Delete a webhook."""
    yield from call("DELETE", f"/webhooks/{webhook_id}")


# -- schedule and epochs


def schedule(filters: ScheduleFilters) -> Listing[ScheduledPage]:
    """List the schedule in force."""
    params: dict[str, Any] = {**filters}
    if isinstance(before := params.get("due_before"), datetime):
        params["due_before"] = before.isoformat()
    return Listing("/schedule", ScheduleAnswer, params)


def request_epoch() -> Flow[Epoch]:
    """Request an epoch."""
    return ask("POST", "/epochs", Epoch)


def epoch(epoch: int | None) -> Flow[Epoch]:
    """Show one epoch, or the one in force."""
    return ask("GET", f"/epochs/{epoch or 'latest'}", Epoch)


def epochs() -> Listing[Epoch]:
    """List all epochs, newest first."""
    return Listing("/epochs", EpochsAnswer)


def steps(
    since: datetime | None, until: datetime | None, step_s: int, host: str | None
) -> Listing[HistoryRow]:
    """List rows of the history, oldest first."""
    wanted = {"since": since, "until": until, "step_s": step_s, "host": host}
    params = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in wanted.items()
        if value is not None
    }
    return Listing("/history", HistoryAnswer, params)


def status() -> Flow[StatusAnswer]:
    """Show the state of the service."""
    return ask("GET", "/status", StatusAnswer)


def plan(bandwidths: Sequence[float], limit: int) -> Flow[PlanAnswer]:
    """Show the plans of other bandwidths."""
    return ask("GET", "/plan", PlanAnswer, params={"bandwidth": bandwidths, "limit": limit})


def savings(since: datetime | None) -> Flow[SavingsAnswer]:
    """Show what the fleet gained against uniform crawling."""
    params = {} if since is None else {"since": since.isoformat()}
    return ask("GET", "/savings", SavingsAnswer, params=params)


def _registering(*, register: bool) -> dict[str, bool] | None:
    return None if register else {"register": False}


def _host_path(host: str) -> str:
    return f"/hosts/{quote(host, safe='')}"
