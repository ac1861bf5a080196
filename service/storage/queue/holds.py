"""Holds of pages in the queue: the contract, and the SQL that both databases share.

The statements only read, and lock nothing. Each is bounded: a count stops at a maximum.
"""

from abc import abstractmethod
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from service.model.arrays import INSTANT, LATEST, NO_TIME, Instants, Ints, element_types, instant
from service.model.errors import PageNotFound
from service.storage.dialect import HOST_QUEUE, Dialect, Subject, all_of
from service.storage.queue.columns import ALL_PAGES, NO_STATUS, HostQueues, LeaseFilter
from service.storage.queue.reach import IN_SLICE, IS_DUE, filters, in_reach

MOST_QUEUES = 1_000
"""Maximum number of host queues that are looked at."""
MOST_ROWS = 100_000
"""Maximum number of rows of the queue that are counted."""
MOST_WAITING = 10_000
"""Maximum number of pages that wait for a first crawl, or after a lease, that are counted."""


class PagePlace(NamedTuple):
    """The place of a page in the queue."""

    queue_id: int
    """Host queue of the page."""
    group: str | None
    """Name of the group of its host; None: none."""
    next_at: datetime | None
    """Lower bound of the due time of its row; None: it has no row."""
    worker: str | None
    """Worker of its last lease; None: no lease that runs, or that ended without a report."""
    expires_at: datetime | None
    """End of the lease that runs, or has expired without being counted; None: there is none."""


class LeaseOfQueue(NamedTuple):
    """A lease that runs on a host queue."""

    worker: str | None
    leased_at: datetime
    expires_at: datetime


class HoldStatements(Subject):
    """The part of a transaction that reads what holds pages."""

    @abstractmethod
    def page_place(self, page_id: int) -> PagePlace:
        """Return the place of a page in the queue; raise `PageNotFound`.

        A page that the transaction has read may have been deleted since.
        """

    @abstractmethod
    def read_host_queues(self, queue_id: Ints) -> HostQueues:
        """Return those of these host queues that exist."""

    @abstractmethod
    def next_in_reach(self, of: LeaseFilter = ALL_PAGES, limit: int = MOST_QUEUES) -> HostQueues:
        """Return the host queues of a filter that have rows, those that open first, to a limit."""

    @abstractmethod
    def queue_names(self, queue_id: Ints) -> list[str]:
        """Return the name of the host or group of each of these host queues; "" for none."""

    @abstractmethod
    def n_due_rows(
        self, queue_id: Ints, before: datetime, each: int, of: LeaseFilter = ALL_PAGES
    ) -> Ints:
        """Return the (N,) numbers of rows without a running lease that are due before an instant.

        The instant is not after now. At most `each` rows of a host queue are looked at; those of
        the filter's hosts among them count.
        """

    @abstractmethod
    def n_before(
        self, queue_id: int, next_at: datetime, page_id: int, most: int
    ) -> tuple[int, bool]:
        """Return how many rows without a running lease come before a row of the same host queue.

        The order is that of the bounds, then of the pages. At most `most` rows are looked at; the
        second value is true if there may be more.
        """

    @abstractmethod
    def n_before_in_turns(
        self, page_id: int, place: PagePlace, now: datetime, most: int, *, first: bool
    ) -> tuple[int, int, bool]:
        """Return how many rows of its kind come before a row, and how many of the other are due.

        The kinds are first crawls and others. At most `most` rows of each are looked at; the last
        value is true if there may be more.
        """

    @abstractmethod
    def next_to_end(self, queue_id: int, now: datetime) -> LeaseOfQueue | None:
        """Return the lease on a host queue that ends first; None: none runs."""

    @abstractmethod
    def n_running(self, queue_id: Ints, now: datetime) -> Ints:
        """Return the (N,) numbers of leases that run.

        The method reads the leases of all host queues, not the other rows as `running` does.
        """

    @abstractmethod
    def lease_ends(self, queue_id: Ints, after: datetime) -> tuple[Ints, Instants]:
        """Return the host queue and the end of each of M leases that end after an instant.

        Leases that have expired since then are among them, because their workers may have crawled
        at the last instant. As `n_running`, the method reads the leases of all host queues.
        """

    @abstractmethod
    def first_rows(self, queue_id: Ints) -> Instants:
        """Return the (N,) first bounds of the rows of host queues without feeds; NaT: no row.

        The bound of a leased row is the end of its lease.
        """

    @abstractmethod
    def n_put_off(self, now: datetime, of: LeaseFilter = ALL_PAGES) -> tuple[int, int]:
        """Return how many pages wait for a first crawl, and after leases without a report.

        Each number is at most `MOST_WAITING`, before the filter.
        """

    @abstractmethod
    def newest_lease(self) -> datetime | None:
        """Return the newest begin of a lease that runs, or ended without a report; None: none."""


OF_QUEUE = element_types(HostQueues)
READ_COLUMNS = ", ".join(
    {
        **{name: name for name in OF_QUEUE},
        "first_credit": "coalesce(first_credit, 0.5) AS first_credit",
        "first_share": "(SELECT first_share FROM hosts WHERE host_id = queue_id) AS first_share",
    }.values()
)
PLACE = f"""
SELECT {HOST_QUEUE} AS queue_id, name, next_at, worker, token IS NOT NULL AS is_open, expires_at
FROM pages JOIN hosts ON hosts.host_id = pages.host_id
LEFT JOIN host_groups ON host_groups.group_id = hosts.group_id
LEFT JOIN due_pages ON due_pages.page_id = pages.page_id
WHERE pages.page_id = %(page_id)s
"""
READ_QUEUES = f"""
SELECT {READ_COLUMNS} FROM host_queues WHERE queue_id IN (SELECT value FROM {{ids}})
ORDER BY queue_id
"""
NEXT_IN_REACH = f"""
SELECT {READ_COLUMNS} FROM host_queues WHERE {{where}} ORDER BY next_at LIMIT %(limit)s
"""
QUEUE_NAMES = """
SELECT value AS queue_id, coalesce(
    (SELECT host FROM hosts WHERE host_id = value),
    (SELECT name FROM host_groups WHERE group_id = -value), ''
) AS name
FROM {ids}
"""
OF_HOSTS = """(queue_id > 0 OR EXISTS (
    SELECT 1 FROM pages JOIN hosts ON hosts.host_id = pages.host_id
    WHERE pages.page_id = due_row.page_id AND host {in_hosts}
))"""
N_DUE = f"""
SELECT value AS queue_id, (
    SELECT count(*) FROM (
        SELECT page_id, queue_id FROM due_pages WHERE due_pages.queue_id = value
            AND first IN (false, true) AND {IS_DUE}
        LIMIT %(each)s
    ) AS due_row WHERE {{where}}
) AS n
FROM {{ids}}
"""
"""Statement that walks the index of each host queue, to a limit; only a group's pages may belong
to other hosts than those of the filter."""
RUNNING_IN = """
SELECT queue_id FROM due_pages WHERE worker >= '' AND token IS NOT NULL AND expires_at > %(now)s
"""
"""Statement for the index of rows with a worker. SQLite would use that of host queues, and walk all
rows, if the statement named or grouped them."""
LEASE_ENDS = """
SELECT queue_id, expires_at FROM due_pages
WHERE worker >= '' AND (token IS NOT NULL OR ending = 1) AND expires_at > %(after)s
"""
"""Statement for the index of rows with a worker, as `RUNNING_IN`."""
FIRST_OF_KIND = """
SELECT value AS queue_id, (
    SELECT next_at FROM due_pages WHERE queue_id = value AND first = {first} AND feed IS NULL
    ORDER BY next_at LIMIT 1
) AS next_at
FROM {{ids}}
"""
FIRST_ROWS = " UNION ALL ".join(FIRST_OF_KIND.format(first=first) for first in ("true", "false"))
N_BEFORE = """
SELECT count(*) FILTER (WHERE next_at < %(next_at)s OR page_id < %(page_id)s) AS n,
    count(*) AS n_read
FROM (
    SELECT page_id, next_at FROM due_pages WHERE queue_id = %(queue_id)s
        AND first IN (false, true) AND next_at <= %(next_at)s AND feed IS NULL
    LIMIT %(most)s
) AS before
"""
OF_KIND = """
    SELECT * FROM (
        SELECT page_id, next_at, first FROM due_pages WHERE queue_id = %(queue_id)s
            AND first = {first} AND next_at <= {until} AND feed IS NULL
        LIMIT %(most)s
    ) AS of_kind
"""
N_IN_TURNS = f"""
SELECT
    count(*) FILTER (WHERE first = %(first)s
        AND (next_at < %(next_at)s OR page_id < %(page_id)s)) AS n_own,
    count(*) FILTER (WHERE first = %(first)s) AS n_own_read,
    count(*) FILTER (WHERE first = %(other)s) AS n_other
FROM (
    {OF_KIND.format(first="%(first)s", until="%(next_at)s")}
    UNION ALL
    {OF_KIND.format(first="%(other)s", until="%(now)s")}
) AS due
"""
NEXT_TO_END = """
SELECT worker, leased_at, expires_at FROM due_pages
WHERE worker >= '' AND token IS NOT NULL AND expires_at > %(now)s AND queue_id + 0 = %(queue_id)s
ORDER BY expires_at LIMIT 1
"""
"""Statement that adds 0, because SQLite would walk the rows of the host queue."""
N_PUT_OFF = f"""
SELECT
    (SELECT count(*) FROM (
        SELECT page_id FROM page_states WHERE held > 0 LIMIT {MOST_WAITING}
    ) AS due_row WHERE {{where}}) AS n_held,
    (SELECT count(*) FROM (
        SELECT page_id FROM due_pages
        WHERE n_unfinished IS NOT NULL AND token IS NULL AND next_at > %(now)s
        LIMIT {MOST_WAITING}
    ) AS due_row WHERE {{where}}) AS n_unreported
"""
IN_QUEUES = """EXISTS (
    SELECT 1 FROM pages JOIN hosts ON hosts.host_id = pages.host_id
    WHERE pages.page_id = due_row.page_id AND {where}
)"""
NEWEST_LEASE = """
SELECT max(leased_at) AS leased_at FROM due_pages WHERE worker >= '' AND feed IS NULL
    AND (token IS NOT NULL OR n_unfinished IS NOT NULL)
"""
"""Statement for the index of rows with a worker, which are few."""


class HoldsSql(Dialect, HoldStatements):
    """The statements on holds that Postgres and SQLite share."""

    @override
    def page_place(self, page_id: int) -> PagePlace:
        rows = self.read(PLACE, page_id=page_id)
        if not rows:
            raise PageNotFound(f"no page has the id {page_id}; GET /pages lists the pages")
        (row,) = rows
        end = row["expires_at"] if row["is_open"] else None
        return PagePlace(row["queue_id"], row["name"], row["next_at"], row["worker"], end)

    @override
    def read_host_queues(self, queue_id: Ints) -> HostQueues:
        return _host_queues(self.read(READ_QUEUES, ids=queue_id))

    @override
    def next_in_reach(self, of: LeaseFilter = ALL_PAGES, limit: int = MOST_QUEUES) -> HostQueues:
        where = all_of(["next_at IS NOT NULL", *in_reach(of)])
        rows = self.read(NEXT_IN_REACH.replace("{where}", where), limit=limit, **filters(of))
        return _host_queues(rows)

    @override
    def queue_names(self, queue_id: Ints) -> list[str]:
        names = {row["queue_id"]: row["name"] for row in self.read(QUEUE_NAMES, ids=queue_id)}
        return [names.get(each, "") for each in queue_id.tolist()]

    @override
    def n_due_rows(
        self, queue_id: Ints, before: datetime, each: int, of: LeaseFilter = ALL_PAGES
    ) -> Ints:
        if not len(queue_id):
            return queue_id
        statement = N_DUE.replace("{where}", all_of([OF_HOSTS] if of.hosts else []))
        hosts = filters(LeaseFilter(of.hosts))
        rows = self.read(statement, ids=queue_id, before=before, each=each, **hosts)
        of_queue = {row["queue_id"]: row["n"] for row in rows}
        return np.array([of_queue[one] for one in queue_id.tolist()], np.int64)

    @override
    def n_running(self, queue_id: Ints, now: datetime) -> Ints:
        queues, n = np.unique(self.ids(RUNNING_IN, now=now), return_counts=True)
        of_queue = dict(zip(queues.tolist(), n.tolist(), strict=True))
        return np.array([of_queue.get(one, 0) for one in queue_id.tolist()], np.int64)

    @override
    def lease_ends(self, queue_id: Ints, after: datetime) -> tuple[Ints, Instants]:
        rows = self.read(LEASE_ENDS, after=after)
        queues = np.array([row["queue_id"] for row in rows], np.int64)
        ends = np.array([instant(row["expires_at"]) for row in rows], INSTANT)
        here = np.isin(queues, queue_id)
        return queues[here], ends[here]

    @override
    def first_rows(self, queue_id: Ints) -> Instants:
        first: dict[int, datetime] = {}
        for row in self.read(FIRST_ROWS, ids=queue_id):
            if row["next_at"] is not None:
                first[row["queue_id"]] = min(row["next_at"], first.get(row["queue_id"], LATEST))
        bounds = [first.get(one) for one in queue_id.tolist()]
        return np.array([NO_TIME if at is None else instant(at) for at in bounds], INSTANT)

    @override
    def n_before(
        self, queue_id: int, next_at: datetime, page_id: int, most: int
    ) -> tuple[int, bool]:
        place = {"queue_id": queue_id, "next_at": next_at, "page_id": page_id}
        (row,) = self.read(N_BEFORE, **place, most=most)
        return row["n"], row["n_read"] >= most

    @override
    def n_before_in_turns(
        self, page_id: int, place: PagePlace, now: datetime, most: int, *, first: bool
    ) -> tuple[int, int, bool]:
        next_at = now if place.next_at is None else min(place.next_at, now)
        kinds = {"first": first, "other": not first}
        (row,) = self.read(
            N_IN_TURNS,
            **kinds,
            queue_id=place.queue_id,
            next_at=next_at,
            page_id=page_id,
            now=now,
            most=most,
        )
        return row["n_own"], row["n_other"], max(row["n_own_read"], row["n_other"]) >= most

    @override
    def next_to_end(self, queue_id: int, now: datetime) -> LeaseOfQueue | None:
        rows = self.read(NEXT_TO_END, queue_id=queue_id, now=now)
        return LeaseOfQueue(**rows[0]) if rows else None

    @override
    def n_put_off(self, now: datetime, of: LeaseFilter = ALL_PAGES) -> tuple[int, int]:
        conditions = ["host {in_hosts}"] if of.hosts else []
        if of.slices > 1:
            conditions.append(IN_SLICE.replace("queue_id", HOST_QUEUE))
        own = [IN_QUEUES.replace("{where}", all_of(conditions))] if conditions else []
        statement = N_PUT_OFF.replace("{where}", all_of(own))
        (row,) = self.read(statement, now=now, **filters(of))
        return row["n_held"], row["n_unreported"]

    @override
    def newest_lease(self) -> datetime | None:
        (row,) = self.read(NEWEST_LEASE)
        leased_at: datetime | None = row["leased_at"]
        return leased_at


def _host_queues(rows: list[dict[str, Any]]) -> HostQueues:
    columns: dict[str, Any] = {}
    for name, dtype in OF_QUEUE.items():
        cells = [row[name] for row in rows]
        if dtype == INSTANT:
            cells = [NO_TIME if cell is None else instant(cell) for cell in cells]
        elif name in ("max_concurrency", "n_latencies"):
            cells = [cell or 0 for cell in cells]
        elif name == "paused_status":
            cells = [NO_STATUS if cell is None else cell for cell in cells]
        columns[name] = np.array(cells, dtype)
    whole = HostQueues(**columns)
    return whole.take(np.argsort(whole.queue_id))
