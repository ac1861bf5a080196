"""The queue on Postgres: each step is one statement, which takes and returns arrays."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import INSTANT, Instants, Ints, is_among
from service.model.columns import DueColumns
from service.model.domain import Host, HostPages
from service.storage.budget.postgres import ANY_CAPPED, PostgresCaps
from service.storage.dialect import HOST_QUEUE, IS_HELD
from service.storage.epochs.schedule import BETWEEN, DUE_RATE, URGENCY
from service.storage.postgres.dialect import EPOCH_IN_FORCE, named
from service.storage.postgres.words import given
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
from service.storage.queue.postgres_incidents import PostgresIncidents
from service.storage.queue.reach import filters
from service.storage.queue.unfinished import UnfinishedRows

DUE = {
    "page_id": "page_id",
    "created_at": "coalesce(created_at, '-infinity')",
    "last_crawl_at": "coalesce(last_crawl_at, '-infinity')",
    "requested_at": "coalesce(requested_at, '-infinity')",
    "gone": "coalesce(gone, false)",
    "n_failures": "coalesce(n_failures, 0)::bigint",
    "outcome": "coalesce(outcome, 0)::smallint",
    "hops": "coalesce(hops, 0)::smallint",
    "retry_rate": "coalesce(retry_rate, 0)::float8",
    "interval_factor": "coalesce(interval_factor, 1)::float8",
    "due_rate": "coalesce(due_rate, 'NaN')",
    "held": f"{IS_HELD}::smallint",
}
"""Expression of each of the `DueColumns`, with a value in place of NULL."""
DUE_ARRAYS = ", ".join(f"array_agg({column})" for column in DUE.values())
_STATE = f"""last_crawl_at, requested_at, gone, n_failures, outcome, hops, retry_rate,
    interval_factor, held,
    {DUE_RATE} AS due_rate"""

DUE_BLOCK = f"""
SELECT {DUE_ARRAYS} FROM (
    SELECT pages.page_id, created_at, {_STATE} FROM pages
    JOIN page_states ON page_states.page_id = pages.page_id
        AND {BETWEEN.format(table="page_states")}
    {{schedule_between: schedule, pages.page_id, %(epoch)s}}
    WHERE {BETWEEN.format(table="pages")} ORDER BY pages.page_id
) AS due
"""
GIVEN_STATES = """unnest(%(page_id)s::bigint[]) WITH ORDINALITY AS given (page_id, position)
    LEFT JOIN page_states ON page_states.page_id = given.page_id
    {schedule_of: schedule, given.page_id, %(epoch)s}"""
DUE_COLUMNS = f"""
SELECT {DUE_ARRAYS} FROM (
    SELECT given.page_id, CASE WHEN last_crawl_at IS NULL THEN
        (SELECT created_at FROM pages WHERE pages.page_id = given.page_id) END AS created_at,
        {_STATE}
    FROM {GIVEN_STATES} ORDER BY position
) AS due
"""
"""Statement that reads `created_at` of pages never crawled only; for others it decides nothing."""
DUE_PAGES = f"""
SELECT {DUE_ARRAYS}, array_agg(coalesce(host_id, 0)), array_agg(coalesce(url, '')),
    array_agg(coalesce(host, '')), array_agg(coalesce(etag, '')),
    array_agg(coalesce(last_modified, '-infinity')), array_agg(coalesce(note, '')),
    array_agg(coalesce(doubted, false)), array_agg(coalesce(false_304_at, '-infinity')),
    array_agg(coalesce(urgency, 1)::float8), array_agg(coalesce(max_crawl_rate, 'infinity')),
    array_agg(coalesce(cost, 0)), array_agg(coalesce(asked_at, '-infinity'))
FROM (
    SELECT given.page_id, created_at, pages.host_id, url, host, {_STATE}, etag, last_modified, note,
        doubted, false_304_at, {URGENCY} AS urgency, pages.max_crawl_rate, cost,
        asked_at
    FROM {GIVEN_STATES} LEFT JOIN pages ON pages.page_id = given.page_id
    LEFT JOIN hosts ON hosts.host_id = pages.host_id
    LEFT JOIN page_validators ON page_validators.page_id = given.page_id ORDER BY position
) AS due
"""

ROWS = given("page_id", "next_at", "last_crawl_at", "crawl_rate", "requested")

ENQUEUE = f"""
WITH queued AS (
    INSERT INTO due_pages
        (page_id, queue_id, next_at, last_crawl_at, crawl_rate, requested, first, feed)
    SELECT page_id, {HOST_QUEUE}, next_at, nullif(last_crawl_at, '-infinity'),
        nullif(crawl_rate, 'NaN'), requested, last_crawl_at = '-infinity', feed
    FROM {ROWS} JOIN pages USING (page_id) JOIN hosts USING (host_id)
    ORDER BY page_id
    {LOWER_ROW}
    RETURNING queue_id, next_at
)
SELECT array_agg(queue_id), array_agg(next_at) FROM (
    SELECT queue_id, min(next_at) AS next_at FROM queued GROUP BY queue_id ORDER BY queue_id
) AS bounds
"""

LOCK_PAGES = """
SELECT array_agg(page_id),
    array_agg(page_id) FILTER (WHERE token IS NOT NULL OR n_unfinished IS NOT NULL)
FROM (
    SELECT page_id, token, n_unfinished FROM due_pages WHERE page_id = ANY(%(page_id)s::bigint[])
    AND (token IS NULL OR next_at <= %(now)s) ORDER BY page_id FOR UPDATE SKIP LOCKED
) AS locked
"""

LOWER_HOST_QUEUES = f"""
INSERT INTO host_queues (queue_id, next_at) SELECT * FROM {given("queue_id", "next_at")}
ORDER BY queue_id
ON CONFLICT (queue_id) DO UPDATE SET next_at = least(host_queues.next_at,
    greatest(excluded.next_at, host_queues.ready_at, host_queues.blocked_until,
        host_queues.paused_until))
"""

HOST_QUEUES = f"""
SELECT {{note}} array_agg(queue_id), array_agg(coalesce(min_delay_s, 'NaN')),
    array_agg(coalesce(robots_delay_s, 'NaN')), array_agg(coalesce(max_concurrency, 0)::bigint),
    array_agg(n_failures::bigint), array_agg(coalesce(blocked_until, '-infinity')),
    array_agg(coalesce(paused_until, '-infinity')), array_agg(coalesce(paused_at, '-infinity')),
    array_agg(coalesce(ready_at, '-infinity')), array_agg(coalesce(next_at, '-infinity')),
    array_agg(coalesce(latency_factor, 'NaN')), array_agg(coalesce(max_delay_s, 'NaN')),
    array_agg(coalesce(latency_s, 'NaN')), array_agg(coalesce(usual_latency_s, 'NaN')),
    array_agg(coalesce(n_latencies, 0)::bigint), array_agg({FIRST_CREDIT}),
    array_agg(coalesce({OWN_FIRST_SHARE.format(queues="locked")}, 'NaN')),
    array_agg(coalesce(paused_status, {NO_STATUS})::bigint)
FROM {{locked}}
"""
LOCKED = """(
    SELECT * FROM host_queues WHERE queue_id = ANY({ids}) ORDER BY queue_id FOR NO KEY UPDATE
) AS locked"""
LOCKED_IF_FREE = LOCKED.replace("UPDATE", "UPDATE SKIP LOCKED")
NOTED = "set_config('recrawl.host_queues', array_agg(queue_id)::text, true),"
"""Expression that stores the ids of the locked host queues, for the next statement."""
HOST_QUEUES_NOTED = "nullif(current_setting('recrawl.host_queues'), '')::bigint[]"
ADD_HOST_QUEUES = """
INSERT INTO host_queues (queue_id) SELECT unnest(%(queue_id)s::bigint[]) ON CONFLICT DO NOTHING
"""
SAVED = (
    *("queue_id", "n_failures", "paused_until", "paused_at", "ready_at", "next_at"),
    *("first_credit", "paused_status"),
)
LATENCIES = ("latency_s", "usual_latency_s", "n_latencies")
SAVE_HOST_QUEUES = f"""
UPDATE host_queues SET n_failures = given.n_failures,
    paused_until = nullif(given.paused_until, '-infinity'),
    paused_at = nullif(given.paused_at, '-infinity'),
    ready_at = nullif(given.ready_at, '-infinity'), next_at = nullif(given.next_at, '-infinity'),
    first_credit = given.first_credit,
    paused_status = nullif(given.paused_status, {NO_STATUS}), {{latencies}}
FROM {{rows}} WHERE host_queues.queue_id = given.queue_id
"""
SAVE_UNTIMED = SAVE_HOST_QUEUES.format(
    latencies=", ".join(f"{name} = NULL" for name in LATENCIES), rows=given(*SAVED)
)
"""Statement for host queues without latencies: each array takes time."""
SAVE_TIMED = SAVE_HOST_QUEUES.format(
    latencies="""latency_s = nullif(given.latency_s, 'NaN'),
    usual_latency_s = nullif(given.usual_latency_s, 'NaN'),
    n_latencies = nullif(given.n_latencies, 0)""",
    rows=given(*SAVED, *LATENCIES),
)

QUEUED_OF_KIND = f"""
    SELECT * FROM due_pages WHERE queue_id = host_queue.id AND {{kind}} AND {{{{where}}}}
    ORDER BY next_at LIMIT (SELECT %(n_rows)s / cardinality({HOST_QUEUES_NOTED}) + 2)
"""
QUEUED = f"""
SELECT ({ANY_CAPPED.format(ids=HOST_QUEUES_NOTED)}),
    array_agg(page_id), array_agg(next_at), array_agg(coalesce(last_crawl_at, '-infinity')),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(requested), array_agg(queue_id),
    array_agg(token IS NOT NULL)
FROM unnest({HOST_QUEUES_NOTED}) AS host_queue (id), LATERAL (
    ({QUEUED_OF_KIND.format(kind="NOT first")}) UNION ALL ({QUEUED_OF_KIND.format(kind="first")})
) AS queued
"""
"""Statement that reads the rows of the stored host queues, and whether any of these has a cap. The
limit is a subquery, so that Postgres computes it once and not for every host queue."""
RUNNING = """
SELECT array_agg(n ORDER BY position), array_agg(coalesce(ends_at, '-infinity') ORDER BY position)
FROM unnest(%(queue_id)s::bigint[], %(after)s::timestamptz[]) WITH ORDINALITY
    AS host_queue (id, after, position), LATERAL (
    SELECT count(*) AS n, min(expires_at) AS ends_at FROM due_pages
    WHERE queue_id = host_queue.id AND first IN (false, true) AND next_at > host_queue.after
        AND (token IS NOT NULL OR ending = 1) AND expires_at > host_queue.after
) AS running
"""
"""Statement that counts a lease that has expired since `after` too, though its page waits."""

LEASE = f"""
UPDATE due_pages SET token = given.token, worker = given.worker, leased_at = %(now)s,
    expires_at = given.expires_at, next_at = given.expires_at
FROM {given("page_id", "token", "worker", "expires_at")}
WHERE due_pages.page_id = given.page_id
"""

REQUEUE = f"""
WITH given AS (
    SELECT * FROM {ROWS}
), dropped AS (
    DELETE FROM due_pages USING given
    WHERE due_pages.page_id = given.page_id AND given.next_at = '-infinity'
)
UPDATE due_pages SET next_at = given.next_at, requested = given.requested,
    last_crawl_at = nullif(given.last_crawl_at, '-infinity'),
    first = given.last_crawl_at = '-infinity', crawl_rate = nullif(given.crawl_rate, 'NaN'),
    token = NULL, worker = NULL, leased_at = NULL, expires_at = NULL, n_unfinished = NULL,
    ending = NULL, waits = NULL
FROM given WHERE due_pages.page_id = given.page_id AND given.next_at > '-infinity'
"""

SAVE_UNFINISHED = f"""
UPDATE due_pages SET next_at = given.next_at, requested = given.requested, token = NULL,
    expires_at = given.ended_at, n_unfinished = given.n_unfinished, ending = given.ending,
    waits = CASE WHEN given.waits THEN true END
FROM {given("page_id", "next_at", "n_unfinished", "ending", "ended_at", "requested", "waits")}
WHERE due_pages.page_id = given.page_id
"""

LOCK_LEASES = f"""
WITH locked AS (
    SELECT page_id, token, queue_id, leased_at, n_unfinished FROM due_pages
    WHERE page_id = ANY(%(page_id)s::bigint[]) ORDER BY page_id FOR UPDATE
)
SELECT array_agg(queue_id), array_agg(held), array_agg(coalesce(leased_at, '-infinity')),
    array_agg(coalesce(due_rate, 'NaN')), array_agg(coalesce(limited, false)),
    array_agg(coalesce(n_unfinished, 0)::bigint), array_agg(coalesce(idle, false))
FROM (
    SELECT reported.*, (
        SELECT n_failures > 0 OR min_delay_s > 0 OR robots_delay_s > 0 OR max_concurrency > 0
            OR latency_factor > 0
        FROM host_queues WHERE host_queues.queue_id = reported.queue_id
    ) AS limited
    FROM (
        SELECT position, locked.token IS NOT DISTINCT FROM given.token AS held,
            CASE WHEN locked.token = given.token THEN leased_at END AS leased_at,
            coalesce(CASE WHEN locked.token = given.token THEN queue_id END, (
                SELECT {HOST_QUEUE} FROM pages JOIN hosts USING (host_id)
                WHERE pages.page_id = given.page_id
            ), 0) AS queue_id, {DUE_RATE} AS due_rate,
            n_unfinished, n_unfinished > 0 AND locked.token IS NULL AS idle
        FROM unnest(%(page_id)s::bigint[], %(token)s::bigint[])
            WITH ORDINALITY AS given (page_id, token, position)
        LEFT JOIN locked ON locked.page_id = given.page_id
        {{schedule_of: schedule, given.page_id, {EPOCH_IN_FORCE}}}
    ) AS reported ORDER BY position
) AS leases
"""
"""Statement that reads host queues by a subquery, because a join may scan all of them. Counts
of unfinished leases belong to pages, whatever the token."""

ADD_LEASE_ANSWERS = f"""
INSERT INTO lease_answers (key, body, expires_at, answer)
SELECT key, body, expires_at, answer FROM {given("key", "body", "expires_at", "answer")}
ORDER BY key
"""


OLDEST_SNAPSHOT = """
SELECT min(xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
"""
"""Statement that sees the sessions of its own role, and with `pg_read_all_stats` those of all."""


class PostgresQueue(HostsSql, PostgresIncidents, QueueSql, AnswersSql, PostgresCaps):
    """The queue in the SQL of Postgres.

    A lock is a separate statement, so that the next statement sees all commits before the lock.
    """

    @override
    def due_columns(self, page_id: Ints) -> DueColumns:
        epoch = self.number_in_force()
        pages = self.columns(DueColumns, DUE_COLUMNS, page_id=page_id, epoch=epoch)
        return self.with_hours(pages)

    @override
    def due_block(self, after: int, last: int) -> DueColumns:
        epoch = self.number_in_force()
        pages = self.columns(DueColumns, DUE_BLOCK, after=after, last=last, epoch=epoch)
        return self.with_hours(pages)

    @override
    def enqueue(self, rows: QueueRows) -> HostQueueBounds:
        if not len(rows):
            return HostQueueBounds.empty()
        return self.columns(HostQueueBounds, ENQUEUE, **rows.arrays())

    @override
    def lock_pages(self, page_id: Ints, now: datetime) -> LockedPages:
        epoch = self.number_in_force()
        locked = self.later(LOCK_PAGES, page_id=page_id, now=now)
        pages = self.columns(DuePages, DUE_PAGES, page_id=page_id, epoch=epoch)
        ((locked_id, ended_id),) = locked
        none = page_id[:0]
        return LockedPages(
            self.with_hours(pages),
            is_among(page_id, none if locked_id is None else locked_id),
            is_among(page_id, none if ended_id is None else ended_id),
        )

    @override
    def lower_host_queues(self, bounds: HostQueueBounds) -> None:
        if len(bounds):
            self.later(LOWER_HOST_QUEUES, **bounds.arrays())

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
        self.ask_epoch()  # its setting avoids planning of these statements too
        ids = f"ARRAY({ready_in(of)})"
        locking = LOCKED if wait else LOCKED_IF_FREE
        lock = HOST_QUEUES.format(note=NOTED, locked=locking.format(ids=ids))
        locked = self.later(lock, now=now, limit=n_host_queues, **filters(of))
        queued = QUEUED.format(where=rows_in(of))
        ((self.may_be_capped, *rows),) = self.run(queued, n_rows=n_rows, **filters(of))
        ((_, *host_queues),) = locked
        return named(HostQueues, tuple(host_queues)), named(QueuedPages, tuple(rows))

    @override
    def lock_host_queues(self, queue_id: Ints) -> HostQueues:
        self.later(ADD_HOST_QUEUES, queue_id=queue_id)
        return self._lock("%(queue_id)s::bigint[]", queue_id=queue_id)

    def _lock(self, ids: str, **parameters: Any) -> HostQueues:
        statement = HOST_QUEUES.format(note="", locked=LOCKED.format(ids=ids))
        return self.columns(HostQueues, statement, **parameters)

    @override
    def save_host_queues(self, host_queues: HostQueues) -> None:
        if not len(host_queues):
            return
        timed = host_queues.n_latencies.any() or not np.isnan(host_queues.latency_s).all()
        names = (*SAVED, *LATENCIES) if timed else SAVED
        columns = {name: getattr(host_queues, name) for name in names}
        self.later(SAVE_TIMED if timed else SAVE_UNTIMED, **columns)

    @override
    def next_host_queues(self, after: int, limit: int) -> HostQueues:
        return self._lock(f"ARRAY({NEXT_HOST_QUEUES})", after=after, limit=limit)

    @override
    def oldest_snapshot(self) -> datetime | None:
        oldest: datetime | None = self.scalar(OLDEST_SNAPSHOT)
        return oldest

    @override
    def running(self, queue_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        ((n_running, first_end),) = self.run(RUNNING, queue_id=queue_id, after=after)
        if n_running is None:
            return np.zeros(0, np.int64), np.zeros(0, INSTANT)
        return n_running, first_end

    @override
    def lock_reported(self, queue_id: Ints) -> HostQueues:
        return self._lock("%(queue_id)s::bigint[]", queue_id=queue_id)

    @override
    def lease(self, leases: Leases, now: datetime) -> None:
        if len(leases):
            self.later(LEASE, **leases.arrays(), now=now)

    @override
    def requeue(self, rows: QueueRows) -> None:
        if len(rows):
            self.later(REQUEUE, **rows.arrays())

    @override
    def save_unfinished(self, rows: UnfinishedRows) -> None:
        if len(rows):
            self.later(SAVE_UNFINISHED, **rows.arrays())

    @override
    def lease_answers(self, key: Ints) -> Iterable[tuple[int, int, str]]:
        return self.later(LEASE_ANSWERS, ids=key)

    @override
    def add_lease_answers(self, answers: LeaseAnswers) -> None:
        if len(answers):
            self.later(ADD_LEASE_ANSWERS, **answers.arrays())

    @override
    def lock_leases(self, tokens: LeaseTokens) -> LockedLeases:
        self.ask_epoch()
        return self.columns(LockedLeases, LOCK_LEASES, **tokens.arrays())

    @override
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        pages = super().host_pages(host, now)
        return self.host_pages(host, now) if self.epoch_dropped() else pages
