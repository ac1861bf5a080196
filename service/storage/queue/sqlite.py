"""The queue on SQLite; because there is one writer at a time, it needs no locks on rows."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from service.model.arrays import INSTANT, Columns, Instants, Ints
from service.model.columns import DueColumns
from service.model.incidents import HostIncidents
from service.storage.dialect import HOST_QUEUE, IS_HELD
from service.storage.epochs.schedule import DUE_RATE, URGENCY
from service.storage.queue.answers import LEASE_ANSWERS, AnswersSql, LeaseAnswers
from service.storage.queue.columns import (
    ALL_PAGES,
    NO_STATUS,
    DuePages,
    HostQueueBounds,
    HostQueues,
    LeaseFilter,
    Leases,
    LeaseTokens,
    LockedLeases,
    LockedPages,
    QueuedPages,
    QueueRows,
    share,
)
from service.storage.queue.contract import (
    FIRST_CREDIT,
    LOWER_ROW,
    NEXT_HOST_QUEUES,
    OWN_FIRST_SHARE,
    QueueSql,
    ready_in,
    rows_in,
)
from service.storage.queue.hosts import HostsSql
from service.storage.queue.incidents import WRITTEN as OF_INCIDENT
from service.storage.queue.incidents import IncidentsSql
from service.storage.queue.reach import filters
from service.storage.queue.unfinished import WAITING_AMONG, UnfinishedRows
from service.storage.sqlite.sql import SqliteDialect, named
from service.storage.sqlite.values import (
    NAT,
    RARELY,
    column,
    listed,
    microseconds,
    parameter,
    rarely_due,
    values,
)

DUE_ROW = np.dtype(
    [
        ("page_id", "i8"),
        ("last_crawl_at", "i8"),
        ("interval_factor", "f8"),
        ("due_rate", "f8"),
        ("rarely", "O"),
    ]
)
DueT = TypeVar("DueT", bound=DueColumns)
ROW = ("next_at", "last_crawl_at", "crawl_rate", "requested", "page_id")
"""Columns of a row of the queue in the order of `ENQUEUE` and `REQUEUE`."""

DUE_RATE_NOW = named(DUE_RATE)
DUE = f"""created_at, last_crawl_at, requested_at, coalesce(gone, 0), coalesce(n_failures, 0),
    coalesce(outcome, 0), coalesce(hops, 0), coalesce(retry_rate, 0.0),
    coalesce(interval_factor, 1.0), {DUE_RATE_NOW}, {IS_HELD}"""
"""Expressions of the `DueColumns` without the page_id."""
STATES = """page_states ON page_states.page_id = pages.page_id
LEFT JOIN schedule ON schedule.page_id = pages.page_id AND schedule.epoch = :epoch"""
GIVEN = "json_each(:page_id) AS given LEFT JOIN pages ON pages.page_id = given.value"
DUE_BLOCK = f"""
SELECT page_states.page_id, coalesce(last_crawl_at, {NAT}), interval_factor, {DUE_RATE_NOW},
    {RARELY}
FROM page_states JOIN pages ON pages.page_id = page_states.page_id
LEFT JOIN schedule ON schedule.page_id = page_states.page_id AND schedule.epoch = :epoch
WHERE page_states.page_id > :after AND page_states.page_id <= :last ORDER BY page_states.page_id
"""
DUE_COLUMNS = f"SELECT given.value, {DUE} FROM {GIVEN} LEFT JOIN {STATES} ORDER BY given.key"
DUE_RATES = f"""
SELECT {DUE_RATE_NOW} FROM json_each(:page_id) AS given
LEFT JOIN schedule ON schedule.page_id = given.value AND schedule.epoch = :epoch
ORDER BY given.key
"""
DUE_PAGES = f"""
SELECT given.value, {DUE}, coalesce(pages.host_id, 0), coalesce(url, ''),
    coalesce(host, ''), coalesce(etag, ''), last_modified, coalesce(note, ''),
    coalesce(doubted, 0), false_304_at, coalesce({URGENCY}, 1.0),
    coalesce(pages.max_crawl_rate, 9e999), coalesce(cost, 0.0), asked_at
FROM {GIVEN} LEFT JOIN {STATES} LEFT JOIN hosts ON hosts.host_id = pages.host_id
LEFT JOIN page_validators ON page_validators.page_id = pages.page_id
ORDER BY given.key
"""

ENQUEUE = named(f"""
INSERT INTO due_pages
    (next_at, last_crawl_at, crawl_rate, requested, page_id, queue_id, first, feed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?2 IS NULL, (SELECT feed FROM pages WHERE page_id = ?5))
{LOWER_ROW}
""")

IDLE = """
SELECT page_id, token IS NOT NULL OR n_unfinished IS NOT NULL FROM due_pages
WHERE page_id IN (SELECT value FROM json_each(?))
    AND (token IS NULL OR next_at <= ?)
"""
"""Statement that reads the pages without a running lease, and whether their last one ended
without a report."""

LOWER_HOST_QUEUE = """
INSERT INTO host_queues (queue_id, next_at) VALUES (?, ?)
ON CONFLICT (queue_id) DO UPDATE SET next_at = min(coalesce(host_queues.next_at, 9e18),
    max(excluded.next_at, coalesce(host_queues.ready_at, 0), coalesce(host_queues.blocked_until,
    0), coalesce(host_queues.paused_until, 0)))
"""

HOST_QUEUES = f"""
SELECT queue_id, min_delay_s, robots_delay_s, coalesce(max_concurrency, 0), n_failures,
    blocked_until, paused_until, paused_at, ready_at, next_at, latency_factor, max_delay_s,
    latency_s, usual_latency_s, coalesce(n_latencies, 0), {FIRST_CREDIT},
    {OWN_FIRST_SHARE.format(queues="host_queues")}, coalesce(paused_status, {NO_STATUS})
FROM host_queues WHERE queue_id IN ({{ids}}) ORDER BY queue_id
"""
ADD_HOST_QUEUE = "INSERT INTO host_queues (queue_id) VALUES (?) ON CONFLICT DO NOTHING"
SAVED = (
    *("n_failures", "paused_until", "paused_at", "ready_at", "next_at"),
    *("latency_s", "usual_latency_s", "n_latencies", "first_credit", "paused_status"),
    "queue_id",
)
"""Columns of `SAVE_HOST_QUEUE`."""
SAVE_HOST_QUEUE = f"""
UPDATE host_queues SET n_failures = ?, paused_until = ?, paused_at = ?, ready_at = ?, next_at = ?,
    latency_s = ?, usual_latency_s = ?, n_latencies = nullif(?, 0), first_credit = ?,
    paused_status = nullif(?, {NO_STATUS})
WHERE queue_id = ?
"""

CARRY_LEASES = """
UPDATE due_pages SET leased_at = leased_at + :by, expires_at = expires_at + :by,
    next_at = next_at + :by
WHERE leased_at IS NOT NULL
"""
CARRY_HOST_QUEUES = """
UPDATE host_queues SET ready_at = ready_at + :by, next_at = next_at + min(:by, 0),
    paused_until = paused_until + :by, paused_at = paused_at + :by
"""
"""Statement that shifts delays and pauses; NULL and the end of a pause by an operator stay."""

QUEUED_OF_KIND = """
SELECT * FROM (
    SELECT page_id, next_at, last_crawl_at, crawl_rate, requested, queue_id, token IS NOT NULL
    FROM due_pages
    WHERE queue_id = :queue_id AND first = {first} AND {{where}} ORDER BY next_at LIMIT :each
)
"""
QUEUED = " UNION ALL ".join(QUEUED_OF_KIND.format(first=first) for first in (0, 1))
RUNNING = """
SELECT count(page_id), min(expires_at) FROM json_each(?1) AS one LEFT JOIN due_pages
ON queue_id = one.value ->> 0 AND first IN (0, 1) AND next_at > one.value ->> 1
    AND (token IS NOT NULL OR ending = 1) AND expires_at > one.value ->> 1
GROUP BY one.key ORDER BY one.key
"""
"""Statement that counts a lease that has expired since then too, though its page waits."""

LEASE = """
UPDATE due_pages SET leased_at = ?, token = ?, worker = ?, expires_at = ?, next_at = ?
WHERE page_id = ?
"""

REQUEUE = """
UPDATE due_pages SET next_at = ?1, last_crawl_at = ?2, crawl_rate = ?3, requested = ?4,
    first = ?2 IS NULL, token = NULL, worker = NULL, leased_at = NULL, expires_at = NULL,
    n_unfinished = NULL, ending = NULL, waits = NULL
WHERE page_id = ?5
"""
SAVE_UNFINISHED = """
UPDATE due_pages SET next_at = ?, n_unfinished = ?, ending = ?, expires_at = ?, requested = ?,
    waits = nullif(?, 0), token = NULL
WHERE page_id = ?
"""

LAST_LEASE = """
SELECT CASE WHEN token = ?2 THEN leased_at END, CASE WHEN token = ?2 THEN queue_id ELSE 0 END,
    coalesce(n_unfinished, 0), token IS NULL AND n_unfinished > 0
FROM due_pages WHERE page_id = ?1
"""

NO_ROW = (None, 0, 0, False)
"""Values of `LAST_LEASE` for a page without a row."""

HOST_QUEUES_OF = f"""
SELECT page_id, {HOST_QUEUE} FROM pages JOIN hosts ON hosts.host_id = pages.host_id
WHERE page_id IN (SELECT value FROM json_each(?))
"""

SAVE_INCIDENT = f"""
UPDATE host_incidents SET {", ".join(f"{name} = ?" for name in OF_INCIDENT)} WHERE host_id = ?
"""

ADD_LEASE_ANSWER = """
INSERT INTO lease_answers (key, body, expires_at, answer) VALUES (?, ?, ?, ?)
"""


class SqliteQueue(HostsSql, IncidentsSql, QueueSql, AnswersSql, SqliteDialect):
    """The queue in the SQL of SQLite."""

    def _due(self, kind: type[DueT], statement: str, page_id: Ints) -> DueT:
        parameters = {"page_id": listed(page_id), "epoch": self.number_in_force()}
        return self.columns(kind, self.driver.execute(statement, parameters))

    @override
    def due_columns(self, page_id: Ints) -> DueColumns:
        return self.with_hours(self._due(DueColumns, DUE_COLUMNS, page_id))

    @override
    def due_block(self, after: int, last: int) -> DueColumns:
        block = {"after": after, "last": last, "epoch": self.number_in_force()}
        rows = np.fromiter(self.driver.execute(DUE_BLOCK, block), DUE_ROW)
        pages = DueColumns(
            page_id=rows["page_id"],
            last_crawl_at=rows["last_crawl_at"].view(INSTANT),
            interval_factor=rows["interval_factor"],
            due_rate=rows["due_rate"],
            **rarely_due(rows["rarely"]),
        )
        return self.with_hours(pages)

    @override
    def enqueue(self, rows: QueueRows) -> HostQueueBounds:
        queue_id = self._queue_of(rows.page_id)
        rows, queue_id = rows.take(queue_id != 0), queue_id[queue_id != 0]
        self.run_many(ENQUEUE, *_cells(rows, *ROW), queue_id.tolist())
        order = np.lexsort((rows.next_at, queue_id))
        ordered = queue_id[order]
        first = order[np.diff(ordered, prepend=0) != 0]
        return HostQueueBounds(queue_id=queue_id[first], next_at=rows.next_at[first])

    def _queue_of(self, page_id: Ints) -> Ints:
        """Return the (N,) host queues of pages; 0: no such page."""
        queues = dict(self.driver.execute(HOST_QUEUES_OF, (listed(page_id),)).fetchall())
        return np.array([queues.get(page, 0) for page in page_id.tolist()], np.int64)

    @override
    def lock_pages(self, page_id: Ints, now: datetime) -> LockedPages:
        ended = dict(self.run(IDLE, listed(page_id), microseconds(now)).fetchall())
        pages = self.with_hours(self._due(DuePages, DUE_PAGES, page_id))
        ids = page_id.tolist()
        locked = np.array([page in ended for page in ids], np.bool_)
        return LockedPages(pages, locked, np.array([ended.get(p, 0) for p in ids], np.bool_))

    @override
    def lower_host_queues(self, bounds: HostQueueBounds) -> None:
        self.run_many(LOWER_HOST_QUEUE, *map(values, bounds.arrays().values()))

    @override
    def ready(
        self,
        now: datetime,
        n_host_queues: int,
        n_rows: int,
        of: LeaseFilter = ALL_PAGES,
        *,
        wait: bool = True,
    ) -> tuple[HostQueues, QueuedPages]:
        ready = HOST_QUEUES.format(ids=ready_in(of))
        host_queues = self._locked(ready, now=now, limit=n_host_queues, **filters(of))
        queued = named(QUEUED.format(where=rows_in(of)))
        filter_values = {name: parameter(value) for name, value in filters(of).items()}
        filter_values["each"] = share(n_rows, len(host_queues)) if len(host_queues) else 0
        rows: list[Any] = []
        for host_queue in host_queues.queue_id.tolist():
            rows += self.driver.execute(queued, {**filter_values, "queue_id": host_queue})
        return host_queues, self.columns(QueuedPages, rows)

    def _locked(self, statement: str, **parameters: Any) -> HostQueues:
        return self.columns(HostQueues, self.run(statement, **parameters))

    def _host_queues(self, queue_id: Ints) -> HostQueues:
        return self._locked(HOST_QUEUES.format(ids="SELECT value FROM {ids}"), ids=queue_id)

    @override
    def lock_host_queues(self, queue_id: Ints) -> HostQueues:
        self.run_many(ADD_HOST_QUEUE, queue_id.tolist())
        return self._host_queues(queue_id)

    @override
    def save_host_queues(self, host_queues: HostQueues) -> None:
        self.run_many(SAVE_HOST_QUEUE, *_cells(host_queues, *SAVED))

    @override
    def next_host_queues(self, after: int, limit: int) -> HostQueues:
        return self._locked(HOST_QUEUES.format(ids=NEXT_HOST_QUEUES), after=after, limit=limit)

    def carry_along(self, step: timedelta) -> None:
        """Shift leases, delays and pauses by a step of the clock; their remaining times stay.

        The method also lowers `next_at` of host queues that may open sooner.
        """
        by = {"by": step // timedelta(microseconds=1)}
        self.driver.execute(CARRY_LEASES, by)
        self.driver.execute(CARRY_HOST_QUEUES, by)

    @override
    def running(self, queue_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        of_host_queues = list(zip(queue_id.tolist(), values(after), strict=True))
        rows = self.run(RUNNING, json.dumps(of_host_queues)).fetchall()
        ends = column([end for _, end in rows], INSTANT, 0)
        return np.array([n for n, _ in rows], np.int64), ends

    @override
    def lock_reported(self, queue_id: Ints) -> HostQueues:
        return self._host_queues(queue_id)

    @override
    def has_incidents(self) -> bool:
        self.number_in_force()
        return self.any_incidents

    @override
    def save_incidents(self, incidents: HostIncidents) -> None:
        self.run_many(SAVE_INCIDENT, *_cells(incidents, *OF_INCIDENT, "host_id"))

    @override
    def lease(self, leases: Leases, now: datetime) -> None:
        cells = _cells(leases, "token", "worker", "expires_at", "expires_at", "page_id")
        self.run_many(LEASE, repeat(microseconds(now), len(leases)), *cells)

    @override
    def requeue(self, rows: QueueRows) -> None:
        out = np.isnat(rows.next_at)
        self.run_many("DELETE FROM due_pages WHERE page_id = ?", rows.page_id[out].tolist())
        self.run_many(REQUEUE, *_cells(rows.where(~out), *ROW))

    @override
    def ask_waiting(self, page_id: Ints) -> Callable[[], Ints]:
        self.number_in_force()
        waiting = self.ids(WAITING_AMONG, ids=page_id) if self.any_unfinished else page_id[:0]
        return lambda: waiting

    @override
    def save_unfinished(self, rows: UnfinishedRows) -> None:
        names = ("next_at", "n_unfinished", "ending", "ended_at", "requested", "waits", "page_id")
        self.run_many(SAVE_UNFINISHED, *_cells(rows, *names))

    @override
    def lease_answers(self, key: Ints) -> Iterable[tuple[int, int, str]]:
        return self.run(LEASE_ANSWERS, ids=key).fetchall()

    @override
    def add_lease_answers(self, answers: LeaseAnswers) -> None:
        self.run_many(ADD_LEASE_ANSWER, *map(values, answers.arrays().values()))

    @override
    def lock_leases(self, tokens: LeaseTokens) -> LockedLeases:
        pairs = zip(tokens.page_id.tolist(), tokens.token.tolist(), strict=True)
        rows = [self.run(LAST_LEASE, *pair).fetchone() or NO_ROW for pair in pairs]
        starts, queues, counts, idle = zip(*rows, strict=True) if rows else ((), (), (), ())
        leased_at = column(starts, INSTANT, 0)
        queue_of_lease = np.array(queues, np.int64)
        parameters = {"page_id": listed(tokens.page_id), "epoch": self.number_in_force()}
        rates = [rate for (rate,) in self.driver.execute(DUE_RATES, parameters)]
        return LockedLeases(
            # the lease of a deleted page knows its host queue alone
            queue_id=np.where(queue_of_lease != 0, queue_of_lease, self._queue_of(tokens.page_id)),
            held=~np.isnat(leased_at),
            leased_at=leased_at,
            due_rate=np.array(rates, np.float64),
            limited=np.ones(len(tokens), np.bool_),  # a writer has locked everything
            n_unfinished=np.array(counts, np.int64),
            idle=np.array(idle, object).astype(np.bool_),
        )


def _cells(rows: Columns, *names: str) -> list[list[Any]]:
    return [values(getattr(rows, name)) for name in names]
