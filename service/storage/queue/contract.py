"""The queue of due pages, host queues and leases: the contract, and the shared SQL.

**Queue.** A page that is due before the horizon has a row with a lower bound of its due time. The
bound may be too early, but never too late. A transaction that leases locks the rows, reads the
present values (`lock_pages`, rule: `leases.due`) and corrects the bounds (`requeue`). The bound of
a requested page is a century before its request.
**Host queues.** A host queue belongs to a host, or to a group of hosts that share a server. Its id
is that of the host, or minus that of the group. The rules are in `leases.politeness`. A host in a
group uses the group's host queue. A host that leaves a group uses its own settings again. Only the
holder of a host queue's lock leases its pages.
**Feeds.** The rows of feeds are of their host queue, but its `next_at` is that of the other pages:
a request for feeds finds their rows by an index of their own, and leaves `next_at` as it is.
**Leases.** A page has at most one lease that runs; only the lease's token ends it before its time.
A row counts the leases that ended without a report (`queue.unfinished`).
**Locks.** The order is page states or hosts, then rows of the queue, then incidents of hosts, then
host queues, each by ascending id. A transaction that leases locks host queues first and skips rows
that others have locked. After a report in the same transaction, it skips the locked host queues too
(`ready`).
"""

from abc import abstractmethod
from datetime import datetime

from typing_extensions import override

from service.model.arrays import Instants, Ints
from service.model.columns import DueColumns
from service.model.incidents import LONGEST
from service.model.unfinished import SET_ASIDE_AFTER, Ending
from service.storage.dialect import all_of
from service.storage.queue.columns import (
    ALL_PAGES,
    NEVER_FILLED,
    FillMark,
    HostQueueBounds,
    HostQueues,
    LeaseFilter,
    Leases,
    LeaseTokens,
    LockedLeases,
    LockedPages,
    QueueCensus,
    QueuedPages,
    QueueRows,
)
from service.storage.queue.holds import HoldsSql, HoldStatements
from service.storage.queue.reach import IS_DUE, MICROSECOND, filters, in_reach
from service.storage.queue.unfinished import EXPIRED, UnfinishedSql, UnfinishedStatements

READY_QUEUES = 100
"""Number of host queues whose first page shows how long crawls have waited."""


FIRST_CREDIT = "coalesce(first_credit, 0.5)"
"""Expression of `HostQueues.first_credit`: half a turn at the beginning."""
OWN_FIRST_SHARE = "(SELECT first_share FROM hosts WHERE hosts.host_id = {queues}.queue_id)"
"""Expression of `HostQueues.first_share`; a group has none of its own."""


class QueueStatements(UnfinishedStatements, HoldStatements):
    """The part of a transaction that works on the queue."""

    # -- what decides

    @abstractmethod
    def due_columns(self, page_id: Ints) -> DueColumns:
        """Return the (N,) values that decide when these pages are due, in this order."""

    @abstractmethod
    def due_block(self, after: int, last: int) -> DueColumns:
        """Return the values that decide when the pages after < page_id <= last are due."""

    # -- rows

    @abstractmethod
    def enqueue(self, rows: QueueRows) -> HostQueueBounds:
        """Insert rows by ascending page_id, or lower their bounds, except for leased pages.

        Return the host queues of the written rows.
        """

    @abstractmethod
    def waiting(self, after: int, last: int) -> Ints:
        """Return the pages after < page_id <= last that have a row without a lease, ascending.

        Pages whose last lease ended without a report are left out.
        """

    @abstractmethod
    def lock_pages(self, page_id: Ints, now: datetime) -> LockedPages:
        """Lock the rows without a running lease that no other transaction has locked.

        Return all (N,) pages with their values after that, and whether each row was locked.
        """

    @abstractmethod
    def requeue(self, rows: QueueRows) -> None:
        """Write locked rows without a lease or a count of them; delete rows without a bound."""

    @abstractmethod
    def filled(self) -> FillMark:
        """Return the last fill of the queue."""

    @abstractmethod
    def set_filled(self, filled: FillMark) -> None:
        """Write the last fill of the queue."""

    # -- host queues

    @abstractmethod
    def lower_host_queues(self, bounds: HostQueueBounds) -> None:
        """Lower `next_at` of host queues to `bounds`, but not below the opening of their gates."""

    @abstractmethod
    def ready(
        self,
        now: datetime,
        n_host_queues: int,
        n_rows: int,
        of: LeaseFilter = ALL_PAGES,
        *,
        wait: bool = True,
    ) -> tuple[HostQueues, QueuedPages]:
        """Lock at most `n_host_queues` that may have a page now, the longest ready first.

        Return the host queues, and the rows of each that can be leased first: `share(n_rows, …)` of
        pages that were never crawled, and as many of the others.
        Without `wait`, leave out the host queues that another transaction has locked.
        """

    @abstractmethod
    def lock_reported(self, queue_id: Ints) -> HostQueues:
        """Lock host queues (ascending, unique) that reports change, and return those that exist."""

    @abstractmethod
    def save_host_queues(self, host_queues: HostQueues) -> None:
        """Write the failures, pauses and times of locked host queues."""

    @abstractmethod
    def next_host_queues(self, after: int, limit: int) -> HostQueues:
        """Lock the next host queues with queue_id > after, ascending."""

    @abstractmethod
    def next_ready_at(self, of: LeaseFilter = ALL_PAGES) -> datetime | None:
        """Return a lower bound of the time of the next lease; None: nothing is queued."""

    @abstractmethod
    def ready_since(self) -> datetime | None:
        """Return the time since when a crawl waits, or when the next will; None: nothing is queued.

        A requested page waits since the request. The first page of each of the `READY_QUEUES` host
        queues that are ready first counts.
        """

    @abstractmethod
    def queue_census(self, now: datetime) -> QueueCensus:
        """Return the numbers of the queue; the method reads all rows of the queue."""

    def oldest_snapshot(self) -> datetime | None:
        """Return the begin of the oldest snapshot that keeps old rows; None: none is held.

        Leases change rows of the queue all the time, and read past the old ones.
        """
        return None

    # -- leases

    @abstractmethod
    def running(self, queue_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        """Return (N,) numbers of leases that end after an instant, and the first end of each."""

    @abstractmethod
    def lease(self, leases: Leases, now: datetime) -> None:
        """Write leases of pages whose rows and host queues are locked."""

    @abstractmethod
    def lock_leases(self, tokens: LeaseTokens) -> LockedLeases:
        """Lock the rows with these tokens, after waiting for others; return them in this order."""

    @abstractmethod
    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        """Set the end of a lease that still runs to `until`; return whether the lease runs."""

    # -- a clock that was set

    @abstractmethod
    def redate_leases(self, now: datetime) -> None:
        """Shift leases with a start after now, so that they start now."""

    @abstractmethod
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        """Set later times of crawls and pings of a range of pages to now."""


FILLED, FILLED_AT = "queue_filled", "queue_filled_at"
MARKS = f"SELECT name, value FROM meta WHERE name IN ('{FILLED}', '{FILLED_AT}')"
PAUSES = ("blocked_until", "paused_until")

REDATE_LEASES = """
UPDATE due_pages SET leased_at = %(now)s, expires_at = %(now)s + (expires_at - leased_at),
    next_at = %(now)s + (next_at - leased_at)
WHERE leased_at > %(now)s
"""
"""Statement that shifts each lease as a whole, so that the duration of the lease stays. So does the
wait after a lease that ended without a report."""

DATES = (
    "last_crawl_at",
    "last_observed_at",
    "last_ping_at",
    "pings_since",
    "requested_at",
    "renewed_at",
)


def redate(table: str, *columns: str) -> str:
    """Return the statement that sets dates after now to now, in a range of page_ids."""
    earlier = (f"{at} = CASE WHEN {at} > %(now)s THEN %(now)s ELSE {at} END" for at in columns)
    later = " OR ".join(f"{at} > %(now)s" for at in columns)
    return f"""
UPDATE {table} SET {", ".join(earlier)}
WHERE page_id > %(after)s AND page_id <= %(last)s AND ({later})
"""


REDATE_PAGES, REDATE_STATES = redate("pages", "created_at"), redate("page_states", *DATES)

CRAWLED_SINCE = "excluded.last_crawl_at >= due_pages.leased_at"
"""Condition that a page was crawled since its last lease began."""
UNCOUNTED = ", ".join(
    f"{name} = CASE WHEN {CRAWLED_SINCE} THEN NULL ELSE due_pages.{name} END"
    for name in ("n_unfinished", "ending", "leased_at")
)
LOWER_ROW = f"""ON CONFLICT (page_id) DO UPDATE SET queue_id = excluded.queue_id,
    next_at = {{least}}(due_pages.next_at, excluded.next_at),
    last_crawl_at = excluded.last_crawl_at, crawl_rate = excluded.crawl_rate,
    requested = excluded.requested, first = excluded.first, waits = NULL, {UNCOUNTED}
WHERE due_pages.token IS NULL
    AND (due_pages.waits IS NULL OR {CRAWLED_SINCE})
    AND (excluded.next_at < due_pages.next_at OR due_pages.waits
    OR excluded.queue_id <> due_pages.queue_id OR excluded.requested <> due_pages.requested
    OR (excluded.crawl_rate IS NULL) <> (due_pages.crawl_rate IS NULL)
    OR abs(excluded.crawl_rate - due_pages.crawl_rate) > 0.1 * due_pages.crawl_rate)"""
"""End of an INSERT that lowers the bound of a row without a lease, or writes a rate that has
changed by a tenth.

A row that waits after leases without a report keeps its bound until its page is crawled, or
`lift_waits` has ended the wait."""
WAITING = """
SELECT page_id FROM due_pages WHERE page_id > %(after)s AND page_id <= %(last)s AND token IS NULL
    AND n_unfinished IS NULL
ORDER BY page_id
"""
NEXT_READY_AT = "SELECT min(next_at) AS next_at FROM host_queues WHERE {where}"
GATE_OPENS = ", ".join(f"coalesce({at}, due_pages.next_at)" for at in ("ready_at", *PAUSES))
NEXT_FEED_AT = f"""
SELECT min(opens_at) AS next_at FROM (
    SELECT queue_id, {{{{greatest}}}}(due_pages.next_at, {GATE_OPENS}) AS opens_at
    FROM due_pages JOIN host_queues USING (queue_id) WHERE feed IS NOT NULL
) AS feeds WHERE {{where}}
"""
"""Statement that reads the rows of all feeds, which are few."""
FIRST_ROW = """SELECT * FROM (
                SELECT page_id, next_at FROM due_pages
                WHERE due_pages.queue_id = host_queues.queue_id AND {kind} AND token IS NULL
                    AND feed IS NULL
                ORDER BY due_pages.next_at LIMIT 1
            ) AS {name}"""
READY_SINCE = f"""
SELECT min(CASE WHEN requested_at > ready.next_at THEN requested_at
    WHEN created_at > ready.next_at THEN created_at ELSE ready.next_at END) AS ready_at
FROM (
    SELECT next_at, (
        SELECT page_id FROM (
            {FIRST_ROW.format(kind="NOT first", name="others")}
            UNION ALL
            {FIRST_ROW.format(kind="first", name="new_pages")}
        ) AS of_kinds ORDER BY of_kinds.next_at LIMIT 1
    ) AS page_id
    FROM host_queues WHERE next_at IS NOT NULL ORDER BY next_at LIMIT %(limit)s
) AS ready
LEFT JOIN page_states ON page_states.page_id = ready.page_id
LEFT JOIN pages ON pages.page_id = ready.page_id
"""
"""Statement for the first page of each of the host queues that are ready first. The bound of a
requested page lies a century earlier, or is the end of an old delay; the page waits since the
request."""
READY = "SELECT queue_id FROM host_queues WHERE {where} ORDER BY next_at LIMIT %(limit)s"
NEXT_HOST_QUEUES = (
    "SELECT queue_id FROM host_queues WHERE queue_id > %(after)s ORDER BY queue_id LIMIT %(limit)s"
)
PAGES_OF_HOSTS = """EXISTS (
    SELECT 1 FROM pages JOIN hosts ON hosts.host_id = pages.host_id
    WHERE pages.page_id = due_pages.page_id AND host {in_hosts}
)"""
READY_HOSTS = f"""queue_id > 0 OR EXISTS (
    SELECT 1 FROM due_pages WHERE due_pages.queue_id = host_queues.queue_id
    AND due_pages.next_at <= %(now)s AND {PAGES_OF_HOSTS}
)"""
"""Condition that a page of the filter's hosts is ready; a group has pages of other hosts too."""


def set_aside_by(ending: str) -> str:
    """Return the number of the pages that are set aside after an ending of their last lease."""
    aside = f"n_unfinished >= {SET_ASIDE_AFTER} AND ending = {Ending[ending].value}"
    return f"count(*) FILTER (WHERE {aside}) AS n_set_aside_{ending}"


CENSUS = f"""
SELECT count(*) AS n_queued,
    count(*) FILTER (WHERE {IS_DUE}) AS n_due,
    count(*) FILTER (WHERE token IS NOT NULL AND expires_at > %(now)s) AS n_leased,
    count(*) FILTER (WHERE {EXPIRED}) AS n_expired,
    count(*) FILTER (WHERE n_unfinished > 0 OR {EXPIRED}) AS n_unfinished,
    {set_aside_by("expired")}, {set_aside_by("returned")}, {set_aside_by("refused")},
    (SELECT count(*) FROM host_queues) AS n_host_queues,
    (SELECT count(*) FROM host_queues WHERE blocked_until > %(now)s) AS n_blocked,
    (SELECT count(*) FROM host_queues WHERE paused_until > %(now)s
        AND (blocked_until IS NULL OR blocked_until <= %(now)s)) AS n_paused,
    (SELECT count(*) FROM host_incidents
        WHERE kind <> 0 AND ended_at IS NULL AND since > %(day_ago)s) AS n_incidents,
    (SELECT count(*) FROM page_states WHERE held > 0) AS n_held,
    (SELECT count(*) FROM url_levels WHERE stopped) AS n_stopped
FROM due_pages
"""
EXTEND_LEASE = """
UPDATE due_pages SET expires_at = %(until)s, next_at = %(until)s
WHERE page_id = %(page_id)s AND token = %(token)s AND expires_at > %(now)s
RETURNING queue_id
"""


READY_FEEDS = """
SELECT queue_id FROM (
    SELECT queue_id + 0 AS queue_id, next_at FROM due_pages
    WHERE feed IS NOT NULL AND next_at <= %(now)s AND {where_row}
) AS feeds
WHERE {where} GROUP BY queue_id ORDER BY min(next_at) LIMIT %(limit)s
"""
"""Statement that adds 0, because SQLite would group by the index of all rows."""
NO_GATE = (
    "NOT EXISTS (SELECT 1 FROM host_queues WHERE host_queues.queue_id = feeds.queue_id AND ({}))"
)
IS_OPEN = NO_GATE.format(" OR ".join(f"{at} > %(now)s" for at in ("ready_at", *PAUSES)))
"""Condition that the gate of a host queue is open, so that shut ones do not hide the others."""


def ready_in(of: LeaseFilter) -> str:
    """Return the statement that finds the host queues with a row that a filter matches."""
    if of.feeds:
        where_row = all_of([PAGES_OF_HOSTS] if of.hosts else [])
        where = all_of([IS_OPEN, *in_reach(of)])
        return READY_FEEDS.format(where=where, where_row=where_row)
    conditions = in_reach(of) + ([READY_HOSTS] if of.hosts else [])
    return READY.format(where=all_of(["next_at <= %(now)s", *conditions]))


def rows_in(of: LeaseFilter) -> str:
    """Return the condition on rows of the queue of a filter."""
    kind = "feed IS NOT NULL" if of.feeds else "feed IS NULL"
    return all_of([kind, *([PAGES_OF_HOSTS] if of.hosts else [])])


class QueueSql(UnfinishedSql, HoldsSql, QueueStatements):
    """The statements on the queue that Postgres and SQLite share."""

    @override
    def waiting(self, after: int, last: int) -> Ints:
        return self.ids(WAITING, after=after, last=last)

    @override
    def queue_census(self, now: datetime) -> QueueCensus:
        (row,) = self.read(CENSUS, now=now, before=now + MICROSECOND, day_ago=now - LONGEST)
        return QueueCensus(**row)

    @override
    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        lease = {"page_id": page_id, "token": token, "now": now, "until": until}
        queue_id = self.scalar(EXTEND_LEASE, **lease)
        if queue_id is not None:  # a host queue whose leases are at the limit may open sooner
            self.lower_host_queues(HostQueueBounds.of(queue_id, until))
        return queue_id is not None

    @override
    def next_ready_at(self, of: LeaseFilter = ALL_PAGES) -> datetime | None:
        statement = NEXT_FEED_AT if of.feeds else NEXT_READY_AT
        next_at = "opens_at" if of.feeds else "next_at"
        where = all_of([f"{next_at} IS NOT NULL", *in_reach(of)])
        (row,) = self.read(statement.format(where=where), **filters(of))
        ready_at: datetime | None = row["next_at"]
        return ready_at

    @override
    def ready_since(self) -> datetime | None:
        (row,) = self.read(READY_SINCE, limit=READY_QUEUES)
        ready_at: datetime | None = row["ready_at"]
        return ready_at

    @override
    def filled(self) -> FillMark:
        marks = {row["name"]: row["value"] for row in self.read(MARKS)}
        epoch, _, until = marks.get(FILLED, "").partition(" ")
        if not epoch:
            return NEVER_FILLED
        # an older version writes no begin, so one beside it may be of an earlier fill
        of, _, at = marks.get(FILLED_AT, "").partition(" ")
        begin = datetime.fromisoformat(at) if of == until else None
        return FillMark(int(epoch), datetime.fromisoformat(until), begin)

    @override
    def set_filled(self, filled: FillMark) -> None:
        self.put_meta(FILLED, f"{filled.epoch} {filled.until.isoformat()}")
        if filled.at is not None:
            self.put_meta(FILLED_AT, f"{filled.until.isoformat()} {filled.at.isoformat()}")

    @override
    def redate_leases(self, now: datetime) -> None:
        self.run(REDATE_LEASES, now=now)

    @override
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        for statement in (REDATE_PAGES, REDATE_STATES):
            self.run(statement, after=after, last=last, now=now)
