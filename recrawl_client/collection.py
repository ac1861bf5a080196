"""The requests and results of methods on many pages, without input or output."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import quote

from msgspec import json, structs

from recrawl_client.errors import Unavailable
from recrawl_client.flows import Flow, Listing, ask, call, encoded
from recrawl_client.wire.common import Rejection
from recrawl_client.wire.freshness import MOST_COPIES, Copy, FreshnessAnswer, Verdict
from recrawl_client.wire.hosts import GroupAnswer
from recrawl_client.wire.listing import (
    MOST_NAMED,
    BulkAnswer,
    GroupItem,
    GroupsAnswer,
    LeaseItem,
    LeasesAnswer,
    LeasesExplained,
    ListedPage,
    LogAnswer,
    PagesAnswer,
    ReturnedLeases,
    StateFilter,
    WorkerItem,
    WorkersAnswer,
)
from recrawl_client.wire.pages import CrawlAnswer, PageAnswer, Watched
from recrawl_client.wire.url_groups import UrlGroupItem, UrlGroupsAnswer

CopyName: TypeAlias = Copy | str | int | dict[str, Any]
"""A copy of a page: a struct, a URL, a page_id, or an item of POST /freshness."""


class GroupSettings(TypedDict, total=False):
    """Politeness and members of a group of hosts; None restores the default of a field."""

    min_delay_s: float | None
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
    blocked_until: datetime | None
    members: list[str]
    """All hosts of the group; left out, no host joins or leaves."""


class PageFilters(TypedDict, total=False):
    """Filters of pages; a page must match all of them."""

    host: str
    url_prefix: str
    tag: str
    state: StateFilter
    observability: Watched
    change_rate_from: float
    change_rate_to: float
    crawl_rate_from: float
    crawl_rate_to: float
    changed_since: datetime


class PageChanges(TypedDict, total=False):
    """New settings of pages; None removes a bound."""

    importance: float
    observability: Watched
    min_crawl_rate: float | None
    max_crawl_rate: float | None
    tags: list[str]
    add_tags: list[str]
    remove_tags: list[str]


def pages(filters: PageFilters) -> Listing[ListedPage]:
    """List pages."""
    return Listing("/pages", PagesAnswer, _params(filters))


def count_pages(filters: PageFilters, *, exact: bool) -> Flow[PagesAnswer]:
    """Count pages."""
    kind = "exact" if exact else "estimate"
    params = {**_params(filters), "limit": 1, "count": kind}
    return ask("GET", "/pages", PagesAnswer, params=params)


def change_pages(
    changes: PageChanges, filters: PageFilters, *, all_pages: bool, dry_run: bool
) -> Flow[BulkAnswer]:
    """Change the selected pages."""
    params = _selected(filters, all_pages=all_pages, dry_run=dry_run)
    return _whole("PATCH", "/pages", params, encoded(changes))


def delete_pages(filters: PageFilters, *, all_pages: bool, dry_run: bool) -> Flow[BulkAnswer]:
    """Delete the selected pages."""
    return _whole("DELETE", "/pages", _selected(filters, all_pages=all_pages, dry_run=dry_run))


def delete_page(page: str | int) -> Flow[None]:
    """Delete one page."""
    if isinstance(page, str):
        page = (yield from ask("GET", "/pages", PageAnswer, params={"url": page})).page_id
    yield from call("DELETE", f"/pages/{page}")


def recrawl(
    named: Iterable[str | int], filters: PageFilters, *, all_pages: bool, dry_run: bool
) -> Flow[BulkAnswer]:
    """Request crawls of the named or of the selected pages."""
    params = _selected(filters, all_pages=all_pages, dry_run=dry_run)
    rest = iter(named)
    total = yield from _whole("POST", "/pages/recrawl", params, _names(rest))
    while (content := _names(rest)) != NO_NAMES:
        answer = yield from ask(
            "POST", "/pages/recrawl", BulkAnswer, params=params, content=content
        )
        total = _sum(total, answer)
    return total


NO_NAMES = b"{}"


def _names(rest: Iterable[str | int]) -> bytes:
    """Return the body that names the next pages."""
    part = list(islice(rest, MOST_NAMED))
    page_ids = [name for name in part if isinstance(name, int)]
    urls = [name for name in part if isinstance(name, str)]
    return json.encode({"page_ids": page_ids, "urls": urls}) if part else NO_NAMES


def _whole(
    method: str, path: str, params: dict[str, Any], content: bytes | None = None
) -> Flow[BulkAnswer]:
    """Send a request again with its cursor until all pages are done; return the sum."""
    body = {} if content is None else {"content": content}
    total = yield from ask(method, path, BulkAnswer, params=params, **body)
    while total.next_cursor is not None:
        following = {**params, "cursor": total.next_cursor}
        answer = yield from ask(method, path, BulkAnswer, params=following, **body)
        total = _sum(total, answer)
    return total


def _sum(total: BulkAnswer, answer: BulkAnswer) -> BulkAnswer:
    moved = [structs.replace(each, index=each.index + total.matched) for each in answer.rejected]
    return structs.replace(
        answer,
        matched=total.matched + answer.matched,
        changed=total.changed + answer.changed,
        n_rejected=total.n_rejected + answer.n_rejected,
        rejected=total.rejected + moved,
    )


def page_log(page_id: int) -> Listing[CrawlAnswer]:
    """List the log of a page."""
    return Listing(f"/pages/{page_id}/observations", LogAnswer)


def running_leases() -> Listing[LeaseItem]:
    """List the leases that run."""
    return Listing("/leases", LeasesAnswer)


def explain_leases(hosts: Sequence[str]) -> Flow[LeasesExplained]:
    """Return why a request for leases gets nothing now."""
    params = {"explain": True, "hosts": list(hosts)}
    answer = yield from ask("GET", "/leases", LeasesAnswer, params=params)
    if answer.explanation is None:
        raise Unavailable("GET /leases has no explanation; upgrade the service")
    return answer.explanation


def workers() -> Flow[list[WorkerItem]]:
    """Return the workers that hold leases or have lost some."""
    answer = yield from ask("GET", "/leases/workers", WorkersAnswer)
    return answer.items


def return_leases(worker: str, *, dry_run: bool) -> Flow[int]:
    """Return all running leases of a worker that is gone; return their number."""
    params = {"worker": worker, "dry_run": dry_run}
    answer = yield from ask("DELETE", "/leases", ReturnedLeases, params=params)
    return answer.ended


def groups() -> Listing[GroupItem]:
    """List all groups."""
    return Listing("/groups", GroupsAnswer)


def group(name: str) -> Flow[GroupAnswer]:
    """Read a group of hosts."""
    return ask("GET", _group_path(name), GroupAnswer)


def set_group(name: str, settings: GroupSettings) -> Flow[GroupAnswer]:
    """Change how a group of hosts is crawled."""
    return ask("PATCH", _group_path(name), GroupAnswer, content=encoded(settings))


def _group_path(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


def url_groups(prefix: str, *, stopped: bool) -> Listing[UrlGroupItem]:
    """List URL groups."""
    params = ({"prefix": prefix} if prefix else {}) | ({"stopped": "true"} if stopped else {})
    return Listing("/url-groups", UrlGroupsAnswer, params)


def set_url_group(group: str, rule: Literal["admit", "stop"] | None) -> Flow[UrlGroupItem]:
    """Write the rule of a URL group."""
    body = encoded({"group": group, "rule": rule})
    return ask("PUT", "/url-groups", UrlGroupItem, content=body)


def delete_host(host: str) -> Flow[None]:
    """Delete a host."""
    yield from call("DELETE", f"/hosts/{quote(host, safe='')}")


def delete_group(group: str) -> Flow[None]:
    """Delete a group."""
    yield from call("DELETE", _group_path(group))


def freshness(copies: Iterable[CopyName], batch: int) -> Flow[FreshnessAnswer]:
    """Ask for verdicts about copies."""
    rest, n_sent = map(_copy, copies), 0
    verdicts: list[Verdict | None] = []
    rejected: list[Rejection] = []
    answer = None
    while part := list(islice(rest, min(batch, MOST_COPIES))):
        answer = yield from ask("POST", "/freshness", FreshnessAnswer, content=encoded(part))
        rejected += [structs.replace(each, index=each.index + n_sent) for each in answer.rejected]
        verdicts += answer.verdicts
        n_sent += len(part)
    if answer is None:
        answer = yield from ask("POST", "/freshness", FreshnessAnswer, content=b"[]")
    n_fetch = sum(verdict is not None and verdict.fetch for verdict in verdicts)
    return structs.replace(
        answer, verdicts=verdicts, rejected=rejected, n_rejected=len(rejected), n_fetch=n_fetch
    )


def _copy(copy: CopyName) -> Copy | dict[str, Any]:
    if isinstance(copy, Copy | dict):
        return copy
    return Copy(url=copy) if isinstance(copy, str) else Copy(page_id=copy)


def _params(filters: PageFilters) -> dict[str, Any]:
    if "url" in filters:
        raise TypeError("`url` names one page and is no filter; call page(url), or use url_prefix")
    params: dict[str, Any] = {**filters}
    if isinstance(since := params.get("changed_since"), datetime):
        params["changed_since"] = since.isoformat()
    return params


def _selected(filters: PageFilters, *, all_pages: bool, dry_run: bool) -> dict[str, Any]:
    flags = {"all_pages": all_pages, "dry_run": dry_run}
    return _params(filters) | {name: True for name, flag in flags.items() if flag}
