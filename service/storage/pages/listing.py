"""Lists of pages, hosts, groups and leases: the contract, and the SQL that both databases share.

**Bounded.** A list is read in parts by ascending page_id. Each reading scans at most
`MOST_SCANNED` candidates: pages of the tag, of the host, or page_ids. A page that exists from the
first reading to the last is in exactly one part, whatever others write meanwhile.

A list walks along an index from `after` to `last`: that of the tag, that of the host, or the
primary key. `last` bounds the candidates that one reading scans, so that a filter with few matches
takes bounded time.
"""

from abc import abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints
from service.model.domain import Host, HostGroup, Observability
from service.model.id_space import IdSpace
from service.model.listing import ListedPages, ListedPart, PageFilter, RunningLease
from service.model.outcomes import NO_CONTENT_AFTER, OFFER, Outcome
from service.storage.dialect import IS_HELD, Dialect, Subject, all_of
from service.storage.epochs.schedule import (
    BETWEEN,
    DUE_RATE,
    HOST_ID,
    MOST_PAGE_ID,
    MOST_SCANNED,
    NEXT_PAGE_ID,
)
from service.storage.queue.hosts import GROUPS, HOSTS, host_group_of, host_of
from service.storage.queue.unfinished import EXPIRED, LAST_OF_BLOCK

NameOrder = Literal["host_id", "-host_id", "host", "-host"]
"""Order of a list of hosts by registration or by name; a minus means descending."""


class ListingStatements(Subject):
    """The statements of lists."""

    @abstractmethod
    def list_pages(
        self, after: int, limit: int, only: PageFilter, last: int | None = None
    ) -> ListedPart:
        """Return pages with after < page_id <= last, ascending, at most `limit`.

        Because the method scans at most `MOST_SCANNED` candidates, a part with fewer pages, even
        none, may not be the last.
        """

    @abstractmethod
    def candidates(self, after: int, n: int, only: PageFilter) -> tuple[int, int]:
        """Return the number of the next `n` candidates above `after`, and the last of them.

        Candidates are the pages that a reading scans for a filter. Fewer than `n` are the end.
        """

    @abstractmethod
    def last_page_id(self) -> int:
        """Return the highest page_id, 0 without pages."""

    @abstractmethod
    def running_leases(
        self, after: int, limit: int, now: datetime
    ) -> tuple[list[RunningLease], int | None]:
        """Return leases that run, by page_id > after, at most `limit`, and where to go on.

        The method scans at most `MOST_SCANNED` rows of the queue; None is the end.
        """

    @abstractmethod
    def hosts_in_order(
        self,
        order: NameOrder,
        after: int | str | None,
        limit: int,
        blocked_at: datetime | None = None,
    ) -> tuple[list[Host], int | str | None]:
        """Return the next hosts in an order, at most `limit`, and where to go on.

        With `blocked_at`, return only hosts whose queue is blocked then. The method scans at most
        `MOST_SCANNED` hosts; None is the end.
        """

    @abstractmethod
    def next_host_ids(self, after: int, limit: int) -> Ints:
        """Return the next host_ids above `after`, ascending, at most `limit`."""

    @abstractmethod
    def hosts_by_id(self, host_id: Ints) -> list[Host]:
        """Return those of the hosts that exist, in any order."""

    @abstractmethod
    def groups(self, after: int, limit: int) -> list[HostGroup]:
        """Return groups with group_id > after, ascending, at most `limit`."""

    @abstractmethod
    def page_ranges(self) -> IdSpace:
        """Return the ranges that have all page_ids.

        Each restore of the database, and each logical shard, begins another range.
        """


TAG_ID = "SELECT tag_id FROM tags WHERE tag = %(tag)s"

LISTED = """
SELECT {picked}.page_id, created_at, last_crawl_at, requested_at, gone,
    coalesce(n_failures, 0) AS n_failures, coalesce(outcome, 0) AS outcome,
    coalesce(hops, 0) AS hops, coalesce(retry_rate, 0.0) AS retry_rate, interval_factor,
    {due_rate} AS due_rate, {held} AS held, url, importance,
    observability, min_crawl_rate, max_crawl_rate, schedule.change_rate, schedule.crawl_rate,
    n_observations, n_changes, {tags} AS tags, coalesce(redirects_to, 0) AS redirects_to,
    {target} AS redirect_url
FROM {source}
LEFT JOIN page_states ON page_states.page_id = {picked}.page_id AND {states}
{{schedule_of: schedule, {picked}.page_id, %(epoch)s}}
WHERE {where}
ORDER BY {picked}.page_id
LIMIT %(limit)s
"""
"""Statement that reads pages of a list. With inner joins, Postgres would take the keys for
independent, expect few rows, and look each up instead of merging. Tags are a subquery, which runs
for the listed pages only, and few pages have tags."""

PICKED = """(
    SELECT {walked}.page_id FROM {tables} WHERE {where} ORDER BY {order} LIMIT %(limit)s
) AS picked
LEFT JOIN pages ON pages.page_id = picked.page_id"""
"""Subquery that picks the pages of a filter, from those tables alone that the filter needs."""

TAGS = """(
    SELECT {joined_tags} FROM page_tags AS own JOIN tags ON tags.tag_id = own.tag_id
    WHERE own.page_id = pages.page_id
)"""
TARGET = """(
    SELECT target.url FROM pages AS target WHERE target.page_id = page_states.redirects_to
)"""
WALKED = {"tag": "page_tags", "host": "pages", "": "pages"}
"""Table whose index a list walks along, by the filter."""
OF_STATES = frozenset(
    {
        "observability",
        "gone",
        "failing",
        "no_content",
        "moved",
        "crawled",
        "may_retire",
        "changed_since",
        "unfinished",
    }
)
OF_SCHEDULE = frozenset({"change_rate_from", "change_rate_to", "crawl_rate_from", "crawl_rate_to"})
OF_PAGES = frozenset({"host", "url_prefix"})
OF_QUEUE = frozenset({"unfinished"})
JOINED = "{table} ON {table}.page_id = {first}.page_id"

LOOKED_UP = 20_000
"""Maximum candidates of an index that one reading looks up in other tables."""

OF_HOST = "pages.host_id = %(host_id)s AND {of_host_after}"
HOST_ORDER = "{of_host_order}"
"""Order of page_ids along the index of hosts."""
ONLY = {
    "host": OF_HOST,
    "url_prefix": "substr(url, 1, length(%(url_prefix)s)) = %(url_prefix)s",
    "tag": "page_tags.tag_id = %(tag_id)s",
    "observability": "observability = %(observability)s",
    "gone": "gone = %(gone)s",
    "failing": f"(coalesce(n_failures, 0) > 0 OR coalesce(outcome, 0) = {OFFER}) = %(failing)s",
    "no_content": f"(coalesce(n_failures, 0) >= {NO_CONTENT_AFTER}) = %(no_content)s",
    "moved": f"(coalesce(outcome, 0) = {Outcome.moved.value}) = %(moved)s",
    "crawled": "(last_crawl_at IS NOT NULL) = %(crawled)s",
    "may_retire": "(gone OR hops IS NOT NULL) = %(may_retire)s",
    "change_rate_from": "schedule.change_rate{double} >= %(change_rate_from)s",
    "change_rate_to": "schedule.change_rate{double} <= %(change_rate_to)s",
    "crawl_rate_from": "schedule.crawl_rate{double} >= %(crawl_rate_from)s",
    "crawl_rate_to": "schedule.crawl_rate{double} <= %(crawl_rate_to)s",
    "changed_since": "{observed_at} >= %(changed_since)s"
    f" AND (n_changes > 0 OR page_states.observability = {Observability.complete.value})"
    # a scalar, because Postgres without statistics hashes the whole log for an EXISTS
    """ AND (last_interval > 0 OR (
        SELECT 1 FROM {log} WHERE {log_of_any} AND observations.page_id = page_states.page_id
        AND observations.observed_at >= %(changed_since)s AND observations.changed = 1 LIMIT 1
    ) IS NOT NULL)""",
    "unfinished": f"coalesce(due_pages.n_unfinished, 0) + CASE WHEN {EXPIRED} THEN 1 ELSE 0 END"
    " >= %(unfinished)s AND coalesce(page_states.last_crawl_at < due_pages.leased_at, true)",
}
"""Condition of each field of a `PageFilter`. The last interval shows a change of the
last crawl without a look into the log. Changes of complete pages are no evidence, so `n_changes`
does not count them."""

SEVEN_DIGITS = 1e-6
"""Relative width of a bound, so that a rate as it is shown, in seven digits, is within itself."""

CANDIDATES = """
SELECT count(*) AS n, max(page_id) AS last FROM (
    SELECT page_id FROM {table} WHERE {where} AND page_id > %(after)s
    ORDER BY {order} LIMIT %(limit)s
) AS candidates
"""
LAST_PAGE_ID = "SELECT max(page_id) FROM pages"
CELL = 2**22
"""Number of page_ids among which a gap is no gap."""
CELLS = f"""
WITH RECURSIVE cells (first) AS (
    SELECT min(page_id) FROM pages
    UNION ALL
    SELECT (SELECT min(page_id) FROM pages WHERE page_id > (cells.first | {CELL - 1}))
    FROM cells WHERE cells.first IS NOT NULL
)
SELECT first, (SELECT max(page_id) FROM pages WHERE page_id <= (first | {CELL - 1}))
FROM cells WHERE first IS NOT NULL ORDER BY first
"""
"""Statement that finds the cells with pages, by two look-ups for each."""

RUNNING_LEASES = """
SELECT due_pages.page_id, url, host, worker, leased_at, expires_at, requested
FROM due_pages JOIN pages ON pages.page_id = due_pages.page_id
JOIN hosts ON hosts.host_id = pages.host_id
WHERE due_pages.page_id > %(after)s AND due_pages.page_id <= %(last)s
    AND token IS NOT NULL AND expires_at > %(now)s
ORDER BY due_pages.page_id LIMIT %(limit)s
"""

LAST_HOST = """
SELECT {key} FROM hosts WHERE {after} ORDER BY {key} {way} LIMIT 1 OFFSET %(n)s
"""
HOSTS_IN_ORDER = f"{HOSTS} WHERE {{where}} ORDER BY {{key}} {{way}} LIMIT %(limit)s"
BLOCKED = "(used.blocked_until > %(blocked_at)s OR used.paused_until > %(blocked_at)s)"
HOSTS_BY_ID = f"{HOSTS} WHERE hosts.host_id {{among_ids}}"
NEXT_HOST_IDS = (
    "SELECT host_id FROM hosts WHERE host_id > %(after)s ORDER BY host_id LIMIT %(limit)s"
)
NEXT_GROUPS = f"{GROUPS} WHERE group_id > %(after)s ORDER BY group_id LIMIT %(limit)s"


class ListingSql(Dialect, ListingStatements):
    """The statements on lists that Postgres and SQLite share."""

    @override
    def list_pages(
        self, after: int, limit: int, only: PageFilter, last: int | None = None
    ) -> ListedPart:
        walk, filters = self._walk(only)
        bound = self._bound(after, walk, filters)
        end = bound if last is None else min(bound, last)
        pages = self.read_listed(
            statement_of(walk, filters),
            epoch=self.number_in_force(),
            after=after,
            last=end,
            limit=limit,
            **self._values(filters),
        )
        pages = self.with_hours(pages)
        if len(pages) == limit:
            return ListedPart(pages, int(pages.page_id[-1]))
        # a restore leaves a wide gap between ids, which no reader should cross step by step
        following = self.scalar(NEXT_PAGE_ID, after=end)
        ends = following is None or (last is not None and following > last)
        return ListedPart(pages, None if ends else following - 1)

    @override
    def candidates(self, after: int, n: int, only: PageFilter) -> tuple[int, int]:
        walk, filters = self._walk(only)
        values = self._values({walk: filters[walk]} if walk else {})
        where = {"tag": "tag_id = %(tag_id)s", "host": OF_HOST, "": "true"}[walk]
        order = HOST_ORDER if walk == "host" else "page_id"
        statement = CANDIDATES.format(table=WALKED[walk], where=where, order=order)
        (row,) = self.read(statement, after=after, limit=n, **values)
        return row["n"], row["last"] or after

    @override
    def last_page_id(self) -> int:
        return self.scalar(LAST_PAGE_ID) or 0

    @override
    def page_ranges(self) -> IdSpace:
        ranges: list[list[int]] = []
        for first, last in self.run(CELLS):
            goes_on = bool(ranges) and ranges[-1][1] // CELL + 1 == first // CELL
            if goes_on:
                ranges[-1][1] = last
            else:
                ranges.append([first - 1 if first > CELL else 0, last])
        return IdSpace(np.array(ranges or [[0, 0]], np.int64))

    def _walk(self, only: PageFilter) -> tuple[str, dict[str, Any]]:
        """Return the filter whose index a list walks along, and all filters with a value."""
        filters = {name: getattr(only, name) for name in ONLY}
        filters = {name: value for name, value in filters.items() if value is not None}
        return ("tag" if "tag" in filters else "host" if "host" in filters else ""), filters

    def _bound(self, after: int, walk: str, filters: dict[str, Any]) -> int:
        """Return the last page_id that one reading may scan."""
        if not walk:
            return min(after + MOST_SCANNED, MOST_PAGE_ID)
        if len(filters) == 1:  # every candidate matches, so the limit is the bound
            return MOST_PAGE_ID
        own = PageFilter(**{walk: filters[walk]})
        n, last = self.candidates(after, LOOKED_UP, own)
        return last if n == LOOKED_UP else MOST_PAGE_ID

    def _values(self, filters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of the conditions: hosts and tags by their ids."""
        values = dict(filters)
        if "host" in values:
            values["host_id"] = self.scalar(HOST_ID, host=values.pop("host")) or 0
        if "tag" in values:
            values["tag_id"] = self.scalar(TAG_ID, tag=values.pop("tag")) or 0
        if "observability" in values:
            values["observability"] = values["observability"].value
        if "unfinished" in values:
            values["unfinished"], values["now"] = values["unfinished"]
        for name, sign in (("from", -1), ("to", 1)):
            for rate in (f"change_rate_{name}", f"crawl_rate_{name}"):
                if rate in values:
                    values[rate] *= 1.0 + sign * SEVEN_DIGITS
        return values

    @abstractmethod
    def read_listed(self, statement: str, **parameters: Any) -> ListedPages:
        """Return the rows of a statement that `statement_of` returned."""

    # -- leases, hosts and groups

    @override
    def running_leases(
        self, after: int, limit: int, now: datetime
    ) -> tuple[list[RunningLease], int | None]:
        last = self.scalar(LAST_OF_BLOCK, after=after, n=MOST_SCANNED - 1)
        end = last or MOST_PAGE_ID
        rows = self.read(RUNNING_LEASES, after=after, last=end, limit=limit, now=now)
        leases = [RunningLease(**{**row, "requested": bool(row["requested"])}) for row in rows]
        return leases, leases[-1].page_id if len(leases) == limit else last

    @override
    def hosts_in_order(
        self,
        order: NameOrder,
        after: int | str | None,
        limit: int,
        blocked_at: datetime | None = None,
    ) -> tuple[list[Host], int | str | None]:
        key, down = order.removeprefix("-"), order.startswith("-")
        way, beyond, within = ("DESC", "<", ">=") if down else ("ASC", ">", "<=")
        conditions = [] if after is None else [f"hosts.{key} {beyond} %(after)s"]
        values: dict[str, Any] = {} if after is None else {"after": after}
        end = None
        if blocked_at is not None:
            bound = LAST_HOST.format(key=f"hosts.{key}", way=way, after=all_of(conditions))
            end = self.scalar(bound, n=MOST_SCANNED - 1, **values)
            conditions.append(BLOCKED)
            values["blocked_at"] = blocked_at
        if end is not None:
            conditions.append(f"hosts.{key} {within} %(last)s")
            values["last"] = end
        statement = HOSTS_IN_ORDER.format(where=all_of(conditions), key=f"hosts.{key}", way=way)
        hosts = [host_of(row) for row in self.read(statement, limit=limit, **values)]
        return hosts, getattr(hosts[-1], key) if len(hosts) == limit else end

    @override
    def next_host_ids(self, after: int, limit: int) -> Ints:
        return self.ids(NEXT_HOST_IDS, after=after, limit=limit)

    @override
    def hosts_by_id(self, host_id: Ints) -> list[Host]:
        return [host_of(row) for row in self.read(HOSTS_BY_ID, ids=host_id)]

    @override
    def groups(self, after: int, limit: int) -> list[HostGroup]:
        return [host_group_of(row) for row in self.read(NEXT_GROUPS, after=after, limit=limit)]


def statement_of(walk: str, filters: Collection[str]) -> str:
    """Return the statement that reads pages under these filters along an index."""
    if not filters:
        picked, source, where = "pages", "pages", BETWEEN.format(table="pages")
        states = BETWEEN.format(table="page_states")
    else:
        picked, source, where = "picked", _picked(walk, frozenset(filters)), "true"
        states = "true"
    return LISTED.format(
        picked=picked,
        source=source,
        where=where,
        states=states,
        due_rate=DUE_RATE,
        held=IS_HELD,
        tags=TAGS,
        target=TARGET,
    )


def _picked(walk: str, filters: frozenset[str]) -> str:
    needed = {
        "page_states": filters & OF_STATES,
        "pages": filters & OF_PAGES,
        "due_pages": filters & OF_QUEUE,
    }
    tables = [WALKED[walk]] if walk else ["page_states"]
    tables += [table for table, used in needed.items() if used and table not in tables]
    first = tables[0]
    conditions = [ONLY[name] for name in ONLY if name in filters]
    conditions += [BETWEEN.format(table=first)]
    if not walk:  # a range of each table, because planners do not derive it from joins
        conditions += [BETWEEN.format(table=table) for table in tables[1:]]
    joined = " JOIN ".join([first, *(JOINED.format(table=t, first=first) for t in tables[1:])])
    if filters & OF_SCHEDULE:
        joined += f" {{schedule_of: schedule, {first}.page_id, %(epoch)s}}"
    order = HOST_ORDER if walk == "host" else f"{first}.page_id"
    return PICKED.format(walked=first, tables=joined, where=all_of(conditions), order=order)
