"""The client: one method for each thing a crawler asks of Recrawl."""

import json as standard_json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from msgspec import Struct, json, structs, to_builtins

from recrawl_client.calls import Line, decoded
from recrawl_client.errors import LeaseNotHeld, Rejected, TooLarge, Unavailable, refusal
from recrawl_client.reporter import Reporter
from recrawl_client.wire.common import Counts, Problem, Rejection, added, empty
from recrawl_client.wire.evidence import (
    Decision,
    Observation,
    Ping,
    Pinged,
    Reported,
    SitemapRead,
)
from recrawl_client.wire.hosts import HostItem, HostsAnswer
from recrawl_client.wire.leases import Crawl, LeaseAnswer, Leased
from recrawl_client.wire.pages import Page, Registered
from recrawl_client.wire.schedule import Epoch, EpochsAnswer, ScheduleAnswer, ScheduledPage
from recrawl_client.wire.websub import (
    RegisteredSubscription,
    SubscriptionItem,
    SubscriptionsAnswer,
)

BATCH = 1_000
"""Default number of items of one request."""
LAST_STATUS = 599
UNPROCESSABLE = 422
TIMEOUT_S = 60.0
"""Timeout of a request, seconds; the service may let one wait for half of it."""
PART = 1_000
"""Items of one part of a list."""

PageName = Crawl | str | int
"""A page: by the crawl that was leased, its URL or its page_id."""
T = TypeVar("T", bound=Struct)
C = TypeVar("C", bound=Counts)


class Client:
    """A client of one service, to be shared by any number of threads.

    Parameters
    ----------
    base_url, api_key
        Where the service is, and one of its keys if it asks for one.
    patience_s
        Seconds that a call waits while the service is busy, restarting or out of reach.
    batch
        Most items of one request.
    now, wait
        The clock of observations; how to wait for seconds (one that gives true, as the `wait`
        of a `threading.Event`, ends the call's patience).
    transport
        Of httpx, where calls are to take another way.

    Every method raises `Unavailable` once patience is over, and a `Refused` when the service
    will not do what is asked.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        patience_s: float = 60.0,
        batch: int = BATCH,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait: Callable[[float], object] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.http = httpx.Client(
            base_url=base_url, headers=headers, timeout=TIMEOUT_S, transport=transport
        )
        self.line = Line(self.http, patience_s, wait)
        self.batch = batch
        self.now = now

    def __enter__(self) -> Self:
        """Use the connections."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close them."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    # -- leases

    def lease(
        self,
        count: int = 10,
        *,
        worker: str | None = None,
        ttl_s: float | None = None,
        hosts: Sequence[str] = (),
        wait_s: float = 0.0,
    ) -> Leased:
        """Take up to `count` crawls that are due, waiting up to `wait_s` (30) for the first.

        Leases of an answer that got lost expire by themselves.
        """
        body: dict[str, Any] = {"worker": worker or platform.node()[:100] or "worker"}
        body |= {"count": count, "hosts": list(hosts), "wait_s": wait_s}
        if ttl_s is not None:
            body["ttl_s"] = ttl_s
        return self._ask("POST", "/leases", Leased, content=json.encode(body))

    def extend(self, crawl: Crawl, ttl_s: float) -> Crawl:
        """Return the crawl with a lease that ends `ttl_s` from now; raises `LeaseNotHeld`."""
        content = json.encode({"ttl_s": ttl_s})
        lease = self._ask("PATCH", f"/leases/{crawl.lease}", LeaseAnswer, content=content)
        return structs.replace(crawl, expires_at=lease.expires_at)

    def release(self, crawl: Crawl) -> bool:
        """Give a crawl back that was not done; return whether it was still yours."""
        try:
            self._call("DELETE", f"/leases/{crawl.lease}")
        except LeaseNotHeld:
            return False
        return True

    # -- evidence

    def observation(
        self, page: PageName, *, observed_at: datetime | None = None, **evidence: Any
    ) -> Observation:
        """Return an observation: `changed`, `digest`, `status`, `last_modified` and others.

        Fields that are None are left out. A status beyond those of HTTP, as some servers make up,
        counts as the last of them.
        """
        fields = {name: value for name, value in evidence.items() if value is not None}
        if "status" in fields:
            fields["status"] = min(fields["status"], LAST_STATUS)
        name = "url" if isinstance(page, str) else "page_id"
        fields |= {"lease": page.lease} if isinstance(page, Crawl) else {name: page}
        return Observation(observed_at=observed_at or self.now(), **fields)

    def report(self, page: PageName, **evidence: Any) -> Reported:
        """Report one crawl, see `observation`; raises `Rejected` if it cannot be."""
        return _raised(self.report_many([self.observation(page, **evidence)]))

    def report_many(self, observations: Iterable[Observation]) -> Reported:
        """Report crawls, those of a page in the order of time; again changes nothing."""
        return self._batches("/observations", observations, Reported)

    def reporter(self, **options: Any) -> Reporter:
        """Return a context that reports from a thread of its own; `options` are of `Batches`."""
        return Reporter(self, **options)

    def ping(self, page: str | int, *, changed_at: datetime | None = None) -> Decision:
        """Announce that a page has changed; return whether to crawl it now."""
        name = "url" if isinstance(page, str) else "page_id"
        ping = Ping(changed_at=changed_at or self.now(), **{name: page})  # type: ignore[arg-type]
        return _raised(self.ping_many([ping])).decisions[0]

    def ping_many(self, pings: Iterable[Ping]) -> Pinged:
        """Announce changes."""
        return self._batches("/pings", pings, Pinged)

    def sitemap(
        self, url: str, content: bytes, *, encoding: str | None = None, cross_host: bool = False
    ) -> SitemapRead:
        """Pass on a sitemap as it was fetched from `url`, with the Content-Encoding it had."""
        headers = {"Content-Type": "application/octet-stream"}
        if encoding is not None:
            headers["Content-Encoding"] = encoding
        params = {"url": url, "cross_host": cross_host}
        return self._ask(
            "POST", "/sitemaps", SitemapRead, params=params, content=content, headers=headers
        )

    # -- pages and hosts

    def register(self, *pages: Page | str | dict[str, Any]) -> Registered:
        """Register pages, as structs, URLs or items as they are sent; change known ones."""
        items = (Page(url=page) if isinstance(page, str) else page for page in pages)
        return self._batches("/pages", items, Registered)

    def page(self, page: str | int) -> dict[str, Any]:
        """Return all that is known of one page, as GET /pages answers; raises `NotFound`."""
        path, params = (
            ("/pages", {"url": page}) if isinstance(page, str) else (f"/pages/{page}", {})
        )
        return decoded(self._call("GET", path, params=params), dict[str, Any])

    def host(self, host: str) -> dict[str, Any]:
        """Return how a host is crawled, as GET /hosts/{host} answers; raises `NotFound`."""
        return decoded(self._call("GET", _host_path(host)), dict[str, Any])

    def hosts(self) -> Iterator[HostItem]:
        """Go through all hosts."""
        return self._items("/hosts", HostsAnswer)

    def set_host(self, host: str, /, **settings: Any) -> dict[str, Any]:
        """Change how a host is crawled: `min_delay_s`, `max_concurrency`, …; None sets back."""
        content = _encoded(settings)
        return decoded(self._call("PATCH", _host_path(host), content=content), dict[str, Any])

    # -- subscriptions

    def subscribe(self, topic: str, hub: str, secret: str | None = None) -> RegisteredSubscription:
        """Register a subscription to a topic; the hub is yours to ask."""
        body = {"topic": topic, "hub": hub} | ({} if secret is None else {"secret": secret})
        return self._ask("POST", "/websub", RegisteredSubscription, content=json.encode(body))

    def unsubscribe(self, subscription_id: str) -> None:
        """Forget a subscription; raises `Refused` where there is none."""
        self._call("DELETE", f"/websub/{subscription_id}")

    def subscriptions(self) -> Iterator[SubscriptionItem]:
        """Go through all subscriptions."""
        return self._items("/websub", SubscriptionsAnswer)

    # -- schedule and epochs

    def schedule(self, **filters: Any) -> Iterator[ScheduledPage]:
        """Go through the schedule in force, as of one epoch.

        `filters` are those of GET /schedule, such as `host` or `due_before`. Raises
        `CursorExpired` where two epochs passed meanwhile.
        """
        return self._items("/schedule", ScheduleAnswer, **filters)

    def request_epoch(self) -> Epoch:
        """Ask for an epoch now."""
        return self._ask("POST", "/epochs", Epoch)

    def epoch(self, epoch: int | None = None) -> Epoch:
        """Show one epoch, or the one in force; raises `NotFound`."""
        return self._ask("GET", f"/epochs/{epoch or 'latest'}", Epoch)

    def epochs(self) -> Iterator[Epoch]:
        """Go through all epochs, newest first."""
        params: dict[str, int] = {}
        while True:
            part = self._ask("GET", "/epochs", EpochsAnswer, params=params)
            yield from part.items
            if part.next_before is None:
                return
            params["before"] = part.next_before

    # -- how it is sent

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
        if "content" in request:
            request.setdefault("headers", {"Content-Type": "application/json"})
        response = self.line.call(method, path, **request)
        if not response.is_success:
            raise refusal(response)
        return response

    def _ask(self, method: str, path: str, answer: type[T], **request: Any) -> T:
        return decoded(self._call(method, path, **request), answer)

    def _items(self, path: str, kind: Any, **params: Any) -> Iterator[Any]:
        """Return the items of a list, part by part."""
        params.setdefault("limit", PART)
        while True:
            part = self._ask("GET", path, kind, params=params)
            yield from part.items
            if part.next_cursor is None:
                return
            params["cursor"] = part.next_cursor

    def _batches(self, path: str, items: Iterable[Any], kind: type[C]) -> C:
        """Send items in batches and return the sum of the answers.

        A batch of which nothing is taken has an answer too. Where the service, or a proxy before
        it, takes no such batch, the batches are halved.
        """
        rest, total, n_sent, most = iter(items), empty(kind), 0, self.batch
        while batch := list(islice(rest, most)):
            try:
                answer = self._ask("POST", path, kind, content=_encoded(batch))
                _check_whole(answer, len(batch))
            except TooLarge as error:
                if len(batch) > 1:
                    rest, most = chain(batch, rest), len(batch) // 2
                    continue
                code = error.code or "too-large"
                alone = Rejection(index=0, code=code, detail=error.problem.detail)
                answer = _without(kind, [alone])
            except Rejected as error:
                if not error.problem.rejected:
                    raise
                answer = _without(kind, error.problem.rejected)
            total = added(total, answer, n_sent)
            n_sent += len(batch)
        return total


def _host_path(host: str) -> str:
    return f"/hosts/{quote(host, safe='')}"


def _encoded(body: Any) -> bytes:
    """Return JSON; of plain values NaN and lone surrogates too, for the service to refuse by name.

    Other values of Python, such as dates, are written as text.
    """
    if isinstance(body, list) and all(isinstance(item, Struct) for item in body):
        return json.encode(body)
    return standard_json.dumps(body, default=_plain).encode()


def _plain(value: Any) -> Any:
    return to_builtins(value) if isinstance(value, Struct) else str(value)


def _without(kind: type[C], rejected: list[Rejection]) -> C:
    """Return the answer to a batch of which nothing is taken."""
    answer = structs.replace(empty(kind), rejected=rejected, n_rejected=len(rejected))
    if isinstance(answer, Registered):
        return structs.replace(answer, page_ids=[None] * len(rejected))
    return answer


def _check_whole(answer: Counts, n_sent: int) -> None:
    """Raise `Unavailable` unless each item was answered for."""
    n = answer.accepted + answer.duplicate + answer.late + answer.n_rejected
    if n != n_sent:
        raise Unavailable(f"the answer is for {n} of {n_sent} items; is that the service?")


def _raised(answer: C) -> C:
    """Return the answer to one item; raises `Rejected` where the item was."""
    if not answer.rejected:
        return answer
    reason = answer.rejected[0]
    problem = Problem(
        type="",
        title="Rejected",
        status=UNPROCESSABLE,
        detail=reason.detail,
        field=reason.field,
        rejected=answer.rejected,
    )
    raise Rejected(UNPROCESSABLE, problem)
