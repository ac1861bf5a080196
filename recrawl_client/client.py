"""The client: one method for each thing a crawler asks of Recrawl."""

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from msgspec import Struct, json, structs

from recrawl_client.calls import Line, decoded
from recrawl_client.errors import (
    LeaseNotHeld,
    Problem,
    Rejected,
    TooLarge,
    Unavailable,
    refusal,
)
from recrawl_client.reporter import Reporter
from recrawl_client.values import (
    Counts,
    Crawl,
    Decision,
    Epoch,
    Leased,
    Observation,
    Page,
    Ping,
    Pinged,
    Registered,
    Rejection,
    Reported,
    ScheduledPage,
    SitemapRead,
)

BATCH = 1_000
"""Items that are sent in one request."""
LAST_STATUS = 599
TIMEOUT_S = 60.0
"""More than the half minute for which the service may let one wait."""

Named = Crawl | str | int
"""A page: by the crawl that was leased, its URL or its page_id."""
T = TypeVar("T", bound=Struct)
C = TypeVar("C", bound=Counts)


class Client:
    """A line to one service, to be shared by as many threads as you like.

    Parameters
    ----------
    base_url, api_key
        Where the service is, and one of its keys if it asks for one.
    patience_s
        So long a call waits while the service is busy, restarting or out of reach.
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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait: Callable[[float], object] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.http = httpx.Client(
            base_url=base_url, headers=headers, timeout=TIMEOUT_S, transport=transport
        )
        self.line = Line(self.http, patience_s, wait)
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
        asked: dict[str, Any] = {"worker": worker or platform.node()[:100] or "worker"}
        asked |= {"count": count, "hosts": list(hosts), "wait_s": wait_s}
        if ttl_s is not None:
            asked["ttl_s"] = ttl_s
        return self._ask("POST", "/leases", Leased, content=json.encode(asked))

    def extend(self, crawl: Crawl, ttl_s: float) -> Crawl:
        """Let a lease end so many seconds from now; raises `LeaseNotHeld`."""
        content = json.encode({"ttl_s": ttl_s})
        until = self._ask("PATCH", f"/leases/{crawl.lease}", _Extended, content=content)
        return structs.replace(crawl, expires_at=until.expires_at)

    def release(self, crawl: Crawl) -> bool:
        """Give a crawl back that was not done; tells whether it was still yours."""
        try:
            self._call("DELETE", f"/leases/{crawl.lease}")
        except LeaseNotHeld:
            return False
        return True

    # -- evidence

    def observation(
        self, page: Named, *, observed_at: datetime | None = None, **seen: Any
    ) -> Observation:
        """Say what was seen: `changed`, `digest`, `status`, `last_modified` and others.

        A status beyond those of HTTP, as some servers make up, counts as the last of them.
        """
        if seen.get("status") is not None:
            seen["status"] = min(seen["status"], LAST_STATUS)
        name = "url" if isinstance(page, str) else "page_id"
        named = {"lease": page.lease} if isinstance(page, Crawl) else {name: page}
        return Observation(observed_at=observed_at or self.now(), **named, **seen)

    def report(self, page: Named, **seen: Any) -> Reported:
        """Report one crawl, see `observation`; raises `Rejected` if it cannot be."""
        return _raised(self.report_many([self.observation(page, **seen)]))

    def report_many(self, observations: Iterable[Observation]) -> Reported:
        """Report crawls, those of a page in the order of time; again changes nothing."""
        return self._batches("/observations", observations, Reported())

    def reporter(self, **how: Any) -> Reporter:
        """Give a context that reports from a thread of its own, see `Batches` for `how`."""
        return Reporter(self, **how)

    def ping(self, page: str | int, *, changed_at: datetime | None = None) -> Decision:
        """Announce that a page has changed; tells whether to crawl it now."""
        name = "url" if isinstance(page, str) else "page_id"
        notice = Ping(changed_at=changed_at or self.now(), **{name: page})  # type: ignore[arg-type]
        return _raised(self.ping_many([notice])).decisions[0]

    def ping_many(self, pings: Iterable[Ping]) -> Pinged:
        """Announce changes."""
        return self._batches("/pings", pings, Pinged())

    def sitemap(self, url: str, content: bytes) -> SitemapRead:
        """Pass on a sitemap as it was fetched from `url`."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._ask(
            "POST", "/sitemaps", SitemapRead, params={"url": url}, content=content, headers=headers
        )

    # -- pages, schedule, epochs

    def register(self, *pages: Page | str | dict[str, Any]) -> Registered:
        """Register pages, as values, URLs or items as they are sent; change known ones."""
        given = (Page(url=page) if isinstance(page, str) else page for page in pages)
        return self._batches("/pages", given, Registered())

    def page(self, page: str | int) -> dict[str, Any]:
        """Show all that is known of one page, as GET /pages tells it; raises `NotFound`."""
        path, params = (
            ("/pages", {"url": page}) if isinstance(page, str) else (f"/pages/{page}", {})
        )
        return decoded(self._call("GET", path, params=params), dict[str, Any])

    def host(self, host: str) -> dict[str, Any]:
        """Show how a host is crawled, as GET /hosts/{host} tells it; raises `NotFound`."""
        return decoded(self._call("GET", f"/hosts/{quote(host, safe='')}"), dict[str, Any])

    def set_host(self, host: str, **settings: Any) -> None:
        """Change how a host is crawled: `min_delay_s`, `max_concurrency`, …; None sets back."""
        self._call("PATCH", f"/hosts/{quote(host, safe='')}", content=json.encode(settings))

    def schedule(self, **filters: Any) -> Iterator[ScheduledPage]:
        """Go through the schedule in force, as of one epoch.

        `filters` are those of GET /schedule, such as `host` or `due_before`. Raises
        `CursorExpired` where two epochs passed meanwhile.
        """
        params = {**filters}
        while True:
            part = self._ask("GET", "/schedule", _SchedulePart, params=params)
            yield from part.items
            if part.next_cursor is None:
                return
            params["cursor"] = part.next_cursor

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
            part = self._ask("GET", "/epochs", _EpochsPart, params=params)
            yield from part.items
            if part.next_before is None:
                return
            params["before"] = part.next_before

    # -- how it is sent

    def _call(self, method: str, path: str, **given: Any) -> httpx.Response:
        if "content" in given:
            given.setdefault("headers", {"Content-Type": "application/json"})
        response = self.line.call(method, path, **given)
        if not response.is_success:
            raise refusal(response)
        return response

    def _ask(self, method: str, path: str, answer: type[T], **given: Any) -> T:
        return decoded(self._call(method, path, **given), answer)

    def _batches(self, path: str, items: Iterable[Any], nothing: C) -> C:
        """Send items in batches and sum the answers up; a batch all rejected is an answer too.

        Where the service, or a proxy before it, takes no such batch, they are halved.
        """
        rest, total, n_sent, most = iter(items), nothing, 0, BATCH
        while batch := list(islice(rest, most)):
            try:
                answer = self._ask("POST", path, type(nothing), content=json.encode(batch))
                _check_whole(answer, len(batch))
            except TooLarge as refused:
                if len(batch) > 1:
                    rest, most = chain(batch, rest), len(batch) // 2
                    continue
                code = refused.problem.type.rpartition(":")[2] or "too-large"
                alone = Rejection(index=0, code=code, detail=refused.problem.detail)
                answer = _without(nothing, [alone])
            except Rejected as refused:
                if not refused.problem.rejected:
                    raise
                answer = _without(nothing, refused.problem.rejected)
            total = _sum(total, answer, n_sent)
            n_sent += len(batch)
        return total


class _Extended(Struct):
    expires_at: datetime


class _SchedulePart(Struct):
    items: list[ScheduledPage]
    next_cursor: str | None


class _EpochsPart(Struct):
    items: list[Epoch]
    next_before: int | None


def _without(nothing: C, rejected: list[Rejection]) -> C:
    """Give the answer to a batch of which nothing is taken."""
    if isinstance(nothing, Registered):
        return structs.replace(nothing, rejected=rejected, page_ids=[None] * len(rejected))
    return structs.replace(nothing, rejected=rejected)


def _check_whole(answer: Counts, n_sent: int) -> None:
    """Raise `Unavailable` unless each item was answered for."""
    n = answer.accepted + answer.duplicate + answer.late + len(answer.rejected)
    if n != n_sent:
        raise Unavailable(f"the answer is for {n} of {n_sent} items; is that the service?")


def _sum(total: C, answer: C, n_before: int) -> C:
    """Add an answer; an `index` in it counts from the first item of all."""
    summed: dict[str, Any] = {}
    for name in total.__struct_fields__:
        more = getattr(answer, name)
        if name in ("rejected", "decisions"):
            more = [structs.replace(item, index=item.index + n_before) for item in more]
        summed[name] = getattr(total, name) + more
    return type(total)(**summed)


def _raised(answer: C) -> C:
    """Raise what was rejected of one item."""
    if answer.rejected:
        why = answer.rejected[0]
        raise Rejected(422, Problem("", "Rejected", why.detail, why.field, answer.rejected))
    return answer
