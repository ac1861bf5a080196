"""Lists of pages, hosts and leases, and tags, over several databases.

A list by ids reads one database after the other. Its cursor is an id, which names the shard, so a
list never skips a database that is away. A list of hosts by name merges all databases.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from recrawl_cluster.store.routing import (
    LAST_ID,
    Routing,
    Span,
    ascending,
    by_column,
    by_ids,
)
from recrawl_cluster.store.shard_map import hashed
from service.model.arrays import Floats, Ints, distinct
from service.model.changes import ChangeFilter
from service.model.domain import Host
from service.model.errors import ShardUnavailable
from service.model.id_space import IdSpace
from service.model.listing import (
    ListedPages,
    ListedPart,
    PageFilter,
    RunningLease,
    TagColumns,
)
from service.storage.pages.listing import NameOrder

MOST_READINGS = 64
"""Maximum readings of one call; a reading scans a bounded number of pages of one shard."""
TAGS = "SELECT tag_id, tag FROM tags"


class ShardedLists(Routing):
    """The statements on lists and tags."""

    @override
    def list_pages(
        self, after: int, limit: int, only: PageFilter, last: int | None = None
    ) -> ListedPart:
        part = self._list_pages(after, limit, only, LAST_ID if last is None else last)
        return part._replace(pages=self._with_targets(part.pages))

    def _with_targets(self, pages: ListedPages) -> ListedPages:
        """Return the pages with the URLs of targets in other databases, if these answer."""
        row = np.flatnonzero((pages.redirects_to > 0) & (pages.redirect_url == ""))
        if not len(row):
            return pages
        targets: dict[int, str] = {}
        with suppress(ShardUnavailable):
            urls = self.page_urls(distinct(pages.redirects_to[row]), ChangeFilter())
            targets = dict(zip(urls.page_id.tolist(), urls.url.tolist(), strict=True))
        url = pages.redirect_url.copy()
        url[row] = [targets.get(target, "") for target in pages.redirects_to[row].tolist()]
        return replace(pages, redirect_url=url)

    def _list_pages(self, after: int, limit: int, only: PageFilter, last: int) -> ListedPart:
        parts: list[ListedPages] = []
        for whole in self._spans_of(only.host, after, last):
            span: Span | None = whole
            while span is not None:
                try:
                    pages, going_on = list_span(span, limit, only)
                except ShardUnavailable:
                    if not parts:
                        raise
                    return ListedPart(ListedPages.concatenate(parts), span.after)
                parts.append(pages)
                limit -= len(pages)
                if going_on is not None and (limit <= 0 or len(parts) >= MOST_READINGS):
                    return ListedPart(ListedPages.concatenate(parts), going_on)
                span = None if going_on is None else span._replace(after=going_on)
            if limit <= 0 and not whole.is_end:
                return ListedPart(ListedPages.concatenate(parts), whole.last)
        return ListedPart(ListedPages.concatenate(parts), None)

    def _spans_of(self, host: str | None, after: int, last: int) -> list[Span]:
        """Return the spans that a filter by host leaves."""
        if host is None:
            return list(self.spans(after, last))
        return [Span(self, self.database_of_host(host), after, last, is_end=True)]

    @override
    def candidates(self, after: int, n: int, only: PageFilter) -> tuple[int, int]:
        total, place = 0, after
        for span in self._spans_of(only.host, after, LAST_ID):
            here, end = span.tx.candidates(span.after, n - total, only)
            if end > span.last and not span.is_end:  # the database has a later shard too
                here, end = self._counted(span, n - total, only)
            total, place = total + here, end if here else place
            if total >= n:
                break
        return total, place

    def _counted(self, span: Span, n: int, only: PageFilter) -> tuple[int, int]:
        """Return the number of candidates of a span, at most `n`, and the last one."""
        total, place = 0, span.after
        while total < n:
            part = span.tx.list_pages(place, min(n - total, 10_000), own_index(only), span.last)
            total += len(part.pages)
            place = int(part.pages.page_id[-1]) if len(part.pages) else place
            following = None if part.after is None else skipped(span, part.after)
            if following is None:
                break
            place = following
        return total, place

    @override
    def running_leases(
        self, after: int, limit: int, now: datetime
    ) -> tuple[list[RunningLease], int | None]:
        leases: list[RunningLease] = []
        for span in self.spans(after):
            try:
                some, place = span.tx.running_leases(span.after, limit - len(leases), now)
            except ShardUnavailable:
                if not leases:
                    raise
                return leases, span.after
            leases += [lease for lease in some if lease.page_id <= span.last]
            if place is not None and place < span.last:
                return leases, place
            if len(leases) >= limit:
                return leases, None if span.is_end else span.last
        return leases, None

    @override
    def hosts_in_order(
        self,
        order: NameOrder,
        after: int | str | None,
        limit: int,
        blocked_at: datetime | None = None,
    ) -> tuple[list[Host], int | str | None]:
        key, down = order.removeprefix("-"), order.startswith("-")
        parts = [tx.hosts_in_order(order, after, limit, blocked_at) for tx in self.whole()]
        ends = [place for _, place in parts if place is not None]
        names: list[Any] = [getattr(host, key) for hosts, _ in parts for host in hosts] + ends
        rank = self._ranks(names, down=down)
        bound = min((rank[end] for end in ends), default=len(rank))
        every = [host for hosts, _ in parts for host in hosts if rank[getattr(host, key)] <= bound]
        every.sort(key=lambda host: rank[getattr(host, key)])
        if len(every) > limit or (every and len(every) == limit and ends):
            return every[:limit], getattr(every[limit - 1], key)
        return every, min(ends, key=lambda end: rank[end]) if ends else None

    @override
    def next_host_ids(self, after: int, limit: int) -> Ints:
        parts: list[Ints] = []
        for span in self.spans(after):
            some = span.tx.next_host_ids(span.after, limit - sum(map(len, parts)))
            parts.append(some[some <= span.last])
            if sum(map(len, parts)) >= limit:
                break
        return np.concatenate(parts)

    @override
    def hosts_by_id(self, host_id: Ints) -> list[Host]:
        shares = self.split(host_id)
        return [host for tx, rows in shares for host in tx.hosts_by_id(host_id[rows])]

    def _ranks(self, names: Sequence[Any], *, down: bool) -> dict[Any, int]:
        """Return the place of each name in the order of the databases."""
        distinct = list(dict.fromkeys(names))
        if distinct and isinstance(distinct[0], str):  # the databases' collation decides
            rows = self.coordinator.run(
                "SELECT name FROM unnest(%(names)s::text[]) AS given (name) ORDER BY name",
                names=np.array(distinct, object),
            )
            ordered = [name for (name,) in rows]
        else:
            ordered = sorted(distinct)
        return {name: n for n, name in enumerate(reversed(ordered) if down else ordered)}

    @override
    def page_ranges(self) -> IdSpace:
        ranges = np.concatenate([tx.page_ranges().ranges for tx in self.every()])
        return IdSpace(ranges[np.argsort(ranges[:, 0])])

    # -- tags: each database has its own ids, so plans use hashes of the names

    tags_of = by_ids("tags_of", ascending)
    add_tags = by_column("add_tags")
    drop_tags = by_column("drop_tags")

    @override
    def load_tags(self) -> TagColumns:
        parts: list[TagColumns] = []
        for tx in self.every():
            part = tx.load_tags()
            own: dict[int, str] = dict(iter(tx.run(TAGS)))
            ids, row = np.unique(part.tag_id, return_inverse=True)
            number = np.array([tag_number(own[tag_id]) for tag_id in ids.tolist()], np.int64)
            parts.append(TagColumns(page_id=part.page_id, tag_id=number[row]))
        return TagColumns.concatenate(parts)

    @override
    def tag_names(self, tag_id: Ints) -> dict[int, str]:
        numbers = {tag_number(tag): tag for tx in self.every() for _, tag in tx.run(TAGS)}
        return {number: numbers[number] for number in tag_id.tolist() if number in numbers}

    @override
    def host_names(self, host_id: Ints) -> dict[int, str]:
        return {
            number: name
            for tx, rows in self.split(host_id)
            for number, name in tx.host_names(host_id[rows]).items()
        }

    @override
    def host_costs(self, host_id: Ints, most: float) -> Floats:
        costs = np.zeros(len(host_id))
        for tx, rows in self.split(host_id):
            costs[rows] = tx.host_costs(host_id[rows], most)
        return costs

    @override
    def costs_of(self, page_id: Ints) -> Floats:
        costs = np.zeros(len(page_id))
        for tx, rows in self.by_database(page_id):
            costs[rows] = tx.costs_of(page_id[rows])
        return costs

    @override
    def hold_settings(self, name: str) -> None:
        self.coordinator.hold_settings(name)


def tag_number(tag: str) -> int:
    """Return the number of a tag over all databases."""
    return hashed(tag) >> 1


def list_span(span: Span, limit: int, only: PageFilter) -> tuple[ListedPages, int | None]:
    """Return pages of a span, and where to go on within it; None: the span is read."""
    last = min(span.last, span.tx.last_page_id())
    if last <= span.after:
        return ListedPages.empty(), None
    part = span.tx.list_pages(span.after, limit, only, last)
    if part.after is None:
        return part.pages, None
    return part.pages, skipped(span, part.after)


def skipped(span: Span, after: int) -> int | None:
    """Return the place before the next page of a span, over the gap between two shards."""
    following = span.tx.next_page_ids(after, 1)
    if not len(following) or following[0] > span.last:
        return None
    return max(after, int(following[0]) - 1)


def own_index(only: PageFilter) -> PageFilter:
    """Return the filter whose index a list walks along."""
    return PageFilter(tag=only.tag) if only.tag is not None else PageFilter(host=only.host)
