"""The queue on Postgres: arrays in, arrays out, one statement a step."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import numpy as np

from service.arrays import INSTANT, Bools, Columns, Instants, Ints
from service.storage.composing import all_of, in_reach
from service.storage.postgres_sql import NEXT_CRAWL_AT
from service.storage.queue import (
    EVERYWHERE,
    DuePages,
    Lanes,
    Leases,
    Lowered,
    QueuedCrawls,
    QueueTransaction,
    Reach,
    Settled,
    Tokens,
)
from service.storage.schedule_sql import LANE, WANTED
from service.storage.statements import Rows

C = TypeVar("C", bound=Columns)

TRUTH = f"""
SELECT pages.page_id, url, host, {LANE} AS lane_id, {NEXT_CRAWL_AT} AS due_at, created_at,
    last_crawl_at, crawl_rate::float8 * pace AS crawl_rate, {WANTED} AS wanted
FROM pages
JOIN page_states ON page_states.page_id = pages.page_id {{states}}
JOIN {{hosts}}
LEFT JOIN schedule ON schedule.page_id = pages.page_id AND schedule.epoch = %(epoch)s {{schedule}}
WHERE {{which}}
"""
GIVEN = {"states": "", "schedule": "", "which": "pages.page_id = ANY(%(page_id)s::bigint[])"}
OF_PAGES = TRUTH.format(hosts="hosts ON hosts.host_id = pages.host_id", **GIVEN)
CREATED_AT = "(SELECT created_at FROM pages WHERE pages.page_id = page_states.page_id)"
OF_STATES = f"""
SELECT page_states.page_id, {NEXT_CRAWL_AT.replace("pages.created_at", CREATED_AT)} AS due_at,
    last_crawl_at, crawl_rate::float8 * pace AS crawl_rate, {WANTED} AS wanted
FROM page_states
LEFT JOIN schedule ON schedule.page_id = page_states.page_id AND schedule.epoch = %(epoch)s
WHERE page_states.page_id = ANY(%(page_id)s::bigint[])
"""
"""The same without what is in `pages` alone, which is looked up for a page never crawled."""
LANE_OF_PAGE = f"""
SELECT {LANE} FROM pages JOIN hosts USING (host_id) WHERE pages.page_id = given.page_id
"""

BETWEEN = "{table}.page_id > %(after)s AND {table}.page_id <= %(last)s"
OF_BLOCK = TRUTH.format(
    hosts="hosts ON hosts.host_id = pages.host_id",
    states=f"AND {BETWEEN.format(table='page_states')}",
    schedule=f"AND {BETWEEN.format(table='schedule')}",
    which=BETWEEN.format(table="pages"),
)

ENQUEUE = """
WITH queued AS (
    INSERT INTO crawls (page_id, lane_id, next_at, last_crawl_at, crawl_rate, wanted)
    SELECT page_id, lane_id, CASE WHEN wanted THEN timestamptz 'epoch' ELSE due_at END,
        last_crawl_at, crawl_rate, wanted
    FROM ({truth}) AS truth WHERE due_at < %(until)s
    ORDER BY page_id
    ON CONFLICT (page_id) DO UPDATE SET lane_id = excluded.lane_id,
        next_at = least(crawls.next_at, excluded.next_at),
        last_crawl_at = excluded.last_crawl_at, crawl_rate = excluded.crawl_rate,
        wanted = excluded.wanted
    WHERE crawls.token IS NULL AND (excluded.next_at < crawls.next_at
        OR excluded.lane_id <> crawls.lane_id OR excluded.wanted <> crawls.wanted
        OR (excluded.crawl_rate IS NULL) <> (crawls.crawl_rate IS NULL)
        OR abs(excluded.crawl_rate - crawls.crawl_rate) > 0.1 * crawls.crawl_rate)
    RETURNING lane_id, next_at
)
SELECT array_agg(lane_id), array_agg(next_at) FROM (
    SELECT lane_id, min(next_at) AS next_at FROM queued GROUP BY lane_id ORDER BY lane_id
) AS lowered
"""
"""A row under a lease is left alone: when the lease ends the truth is looked up. What a ping asks
for has the lowest bound of all, so that it is the first of its lane."""

LOWER_LANES = """
INSERT INTO lanes (lane_id, next_at)
SELECT * FROM unnest(%(lane_id)s::bigint[], %(next_at)s::timestamptz[]) AS given (lane_id, next_at)
ORDER BY lane_id
ON CONFLICT (lane_id) DO UPDATE SET next_at = least(lanes.next_at,
    greatest(excluded.next_at, lanes.ready_at, lanes.blocked_until))
"""

UNQUEUE = f"""
WITH stale AS (
    SELECT crawls.page_id FROM crawls JOIN ({OF_BLOCK}) AS truth USING (page_id)
    WHERE crawls.token IS NULL AND NOT truth.wanted
        AND (due_at IS NULL OR due_at >= %(until)s)
    ORDER BY crawls.page_id FOR UPDATE OF crawls SKIP LOCKED
)
DELETE FROM crawls USING stale WHERE crawls.page_id = stale.page_id
"""
"""Comes after ENQUEUE and waits for nobody: rows that others are at keep bounds that are too
early, and who holds one of them may wait for a row that has been queued."""

LANES = """
SELECT {note} array_agg(lane_id), array_agg(coalesce(min_delay_s, 'NaN')),
    array_agg(coalesce(robots_delay_s, 'NaN')), array_agg(coalesce(max_concurrency, 0)::bigint),
    array_agg(n_failures::bigint), array_agg(coalesce(blocked_until, '-infinity')),
    array_agg(coalesce(paused_at, '-infinity')), array_agg(coalesce(ready_at, '-infinity')),
    array_agg(coalesce(next_at, '-infinity'))
FROM {locked}
"""
LOCKED = """(
    SELECT * FROM lanes WHERE lane_id = ANY({ids}) ORDER BY lane_id FOR NO KEY UPDATE
) AS locked"""
READY = """
SELECT lane_id FROM lanes WHERE {where} ORDER BY next_at LIMIT %(limit)s
"""
NEXT_LANES = "SELECT lane_id FROM lanes WHERE lane_id > %(after)s ORDER BY lane_id LIMIT %(limit)s"
NOTED = "set_config('recrawl.lanes', array_agg(lane_id)::text, true),"
"""The next statement goes by the lanes that are locked, before anybody here knows of them."""
LANES_NOTED = "nullif(current_setting('recrawl.lanes'), '')::bigint[]"
LANES_OF_HOSTS = f"SELECT {LANE} FROM hosts WHERE host = ANY(%(hosts)s::text[])"
IN_HOSTS = f"lane_id IN ({LANES_OF_HOSTS})"
READY_HOSTS = """lane_id > 0 OR EXISTS (
    SELECT FROM crawls JOIN pages USING (page_id) JOIN hosts USING (host_id)
    WHERE crawls.lane_id = lanes.lane_id AND crawls.next_at <= %(now)s
    AND host = ANY(%(hosts)s::text[])
)"""
"""Of a group's lane its other hosts may have the row that is ready."""
IN_SHARD = "abs(lane_id) %% %(shards)s = %(shard)s"

SAVE_LANES = """
UPDATE lanes SET n_failures = given.n_failures,
    blocked_until = nullif(given.blocked_until, '-infinity'),
    paused_at = nullif(given.paused_at, '-infinity'),
    ready_at = nullif(given.ready_at, '-infinity'), next_at = nullif(given.next_at, '-infinity')
FROM unnest(%(lane_id)s::bigint[], %(n_failures)s::bigint[], %(blocked_until)s::timestamptz[],
    %(paused_at)s::timestamptz[], %(ready_at)s::timestamptz[], %(next_at)s::timestamptz[])
    AS given (lane_id, n_failures, blocked_until, paused_at, ready_at, next_at)
WHERE lanes.lane_id = given.lane_id
"""

QUEUED = f"""
SELECT array_agg(page_id), array_agg(lane_id), array_agg(next_at),
    array_agg(coalesce(last_crawl_at, '-infinity')), array_agg(coalesce(crawl_rate, 'NaN')),
    array_agg(wanted)
FROM unnest({LANES_NOTED}) AS lane (id), LATERAL (
    SELECT * FROM crawls WHERE lane_id = lane.id AND {{where}} ORDER BY next_at
    LIMIT (SELECT %(n_rows)s / cardinality({LANES_NOTED}) + 2)
) AS queued
"""
"""The share of a lane is a query of its own, hence read once and not for every lane."""
PAGES_OF_HOSTS = """EXISTS (
    SELECT FROM pages JOIN hosts USING (host_id)
    WHERE pages.page_id = crawls.page_id AND host = ANY(%(hosts)s::text[])
)"""

RUNNING = """
SELECT array_agg(n ORDER BY position), array_agg(coalesce(ends_at, '-infinity') ORDER BY position)
FROM unnest(%(lane_id)s::bigint[], %(after)s::timestamptz[]) WITH ORDINALITY
    AS lane (id, after, position), LATERAL (
    SELECT count(*) AS n, min(expires_at) AS ends_at FROM crawls
    WHERE lane_id = lane.id AND next_at > lane.after AND token IS NOT NULL
) AS running
"""

LEASE = f"""
WITH given AS (
    SELECT * FROM unnest(%(page_id)s::bigint[], %(token)s::bigint[], %(worker)s::text[],
        %(expires_at)s::timestamptz[]) WITH ORDINALITY
        AS given (page_id, token, worker, expires_at, position)
), truth AS MATERIALIZED (
    {OF_PAGES}
), locked AS (
    SELECT page_id FROM crawls
    WHERE page_id = ANY(ARRAY(SELECT page_id FROM truth WHERE due_at <= %(now)s))
    ORDER BY page_id FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE crawls SET token = given.token, worker = given.worker, leased_at = %(now)s,
        expires_at = given.expires_at, next_at = given.expires_at
    FROM given JOIN locked USING (page_id) WHERE crawls.page_id = given.page_id
    RETURNING crawls.page_id
)
SELECT array_agg(page_id), array_agg(coalesce(url, '')), array_agg(coalesce(host, '')),
    array_agg(coalesce(due_at, '-infinity')), array_agg(coalesce(created_at, '-infinity')),
    array_agg(coalesce(last_crawl_at, '-infinity')), array_agg(coalesce(crawl_rate, 'NaN')),
    array_agg(coalesce(wanted, false)), array_agg(leased)
FROM (
    SELECT given.page_id, url, host, due_at, created_at, last_crawl_at, crawl_rate, wanted,
        leased.page_id IS NOT NULL AS leased
    FROM given LEFT JOIN truth USING (page_id) LEFT JOIN leased USING (page_id)
    ORDER BY position
) AS found
"""

REQUEUE = """
WITH given AS (
    SELECT * FROM unnest(%(page_id)s::bigint[], %(next_at)s::timestamptz[])
        AS given (page_id, next_at)
), locked AS (
    SELECT page_id FROM crawls WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM crawls USING given JOIN locked USING (page_id)
    WHERE crawls.page_id = given.page_id AND given.next_at = '-infinity'
)
UPDATE crawls SET next_at = given.next_at, token = NULL, worker = NULL, leased_at = NULL,
    expires_at = NULL
FROM given JOIN locked USING (page_id)
WHERE crawls.page_id = given.page_id AND given.next_at > '-infinity'
"""

_SETTLE = f"""
WITH given AS (
    SELECT * FROM unnest(%(page_id)s::bigint[], %(token)s::bigint[], %(heard)s::bool[])
        WITH ORDINALITY AS given (page_id, token, heard, position)
), locked AS (
    SELECT page_id, token, lane_id, leased_at FROM crawls
    WHERE page_id = ANY(%(page_id)s::bigint[]) ORDER BY page_id FOR UPDATE
), truth AS MATERIALIZED (
    {OF_STATES}
), settled AS MATERIALIZED (
    SELECT position, heard, given.page_id, due_at, last_crawl_at, crawl_rate, wanted,
        coalesce(locked.lane_id, ({LANE_OF_PAGE}), 0) AS lane_id,
        coalesce(due_at < %(until)s, false) AS soon, locked.page_id IS NOT NULL
        AND row_number() OVER (PARTITION BY given.page_id, token ORDER BY position) = 1 AS held,
        leased_at
    FROM given LEFT JOIN locked USING (page_id, token)
    LEFT JOIN truth ON truth.page_id = given.page_id
), queued AS (
    UPDATE crawls SET token = NULL, worker = NULL, leased_at = NULL, expires_at = NULL,
        lane_id = settled.lane_id, last_crawl_at = settled.last_crawl_at,
        next_at = CASE WHEN settled.wanted THEN timestamptz 'epoch' ELSE due_at END,
        crawl_rate = settled.crawl_rate, wanted = settled.wanted
    FROM settled WHERE crawls.page_id = settled.page_id AND held AND soon
), dropped AS (
    DELETE FROM crawls USING settled
    WHERE crawls.page_id = settled.page_id AND held AND NOT soon
), lanes_of AS (
    SELECT lanes.* FROM lanes JOIN (
        SELECT lane_id, bool_or(heard OR held AND soon) AS moves FROM settled GROUP BY lane_id
    ) AS said USING (lane_id)
    WHERE moves OR n_failures > 0 OR min_delay_s > 0 OR robots_delay_s > 0 OR max_concurrency > 0
    ORDER BY lane_id FOR NO KEY UPDATE OF lanes
)
SELECT items.*, lanes_read.* FROM (
    SELECT array_agg(lane_id ORDER BY position), array_agg(held ORDER BY position),
        array_agg(CASE WHEN held AND soon THEN due_at ELSE '-infinity' END ORDER BY position),
        array_agg(CASE WHEN held THEN leased_at ELSE '-infinity' END ORDER BY position)
    FROM settled
) AS items, ({{lanes}}) AS lanes_read
"""
"""What is held is joined to the rest on the way, not found first: the planner would take it for a
single row and compare all with all."""

LEASED_AT = """
SELECT array_agg(coalesce(leased_at, '-infinity') ORDER BY position)
FROM unnest(%(page_id)s::bigint[], %(token)s::bigint[])
    WITH ORDINALITY AS given (page_id, token, position)
LEFT JOIN crawls USING (page_id, token)
"""

EXTEND_LEASE = """
UPDATE crawls SET expires_at = %(until)s, next_at = %(until)s
WHERE page_id = %(page_id)s AND token = %(token)s AND expires_at > %(now)s
RETURNING lane_id
"""


SETTLE = _SETTLE.format(lanes=LANES.format(note="", locked="lanes_of"))


class PostgresQueue(QueueTransaction):
    """The queue in Postgres's words."""

    @abstractmethod
    def run(self, statement: str, **parameters: Any) -> Rows:
        """Run one statement, which the connection parses but once."""

    @abstractmethod
    def later(self, statement: str, **parameters: Any) -> Rows:
        """Run one statement with the next one: its answer can wait."""

    @abstractmethod
    def ask_epoch(self) -> Rows:
        """Ask which epoch is in force, with the next statement."""

    def enqueue(self, page_id: Ints, until: datetime) -> Lowered:
        """Look the truth up and insert, in the order of the pages."""
        statement = ENQUEUE.format(truth=OF_PAGES)
        epoch = self.number_in_force()
        return self._read(Lowered, statement, page_id=page_id, until=until, epoch=epoch)

    def fill_queue(self, after: int, last: int, until: datetime) -> Lowered:
        """Walk along the keys."""
        said = {"after": after, "last": last, "until": until, "epoch": self.number_in_force()}
        lowered = self._read(Lowered, ENQUEUE.format(truth=OF_BLOCK), **said)
        self.run(UNQUEUE, **said)
        return lowered

    def lower_lanes(self, lowered: Lowered) -> None:
        """Insert or update them in their order."""
        if len(lowered):
            self.later(LOWER_LANES, lane_id=lowered.lane_id, next_at=lowered.next_at)

    def ready(
        self, now: datetime, n_lanes: int, n_rows: int, of: Reach = EVERYWHERE
    ) -> tuple[Lanes, QueuedCrawls]:
        """Find them by their index, lock them in their order, then walk along that of the rows.

        What others have done to the rows before they let go of a lane is seen only by a statement
        that begins when the lane is locked. Who leases asks for the epoch anyway: asked first, its
        way of planning holds here too.
        """
        self.ask_epoch()
        said = _said(of)
        reach = in_reach(of, IN_HOSTS, IN_SHARD) + ([READY_HOSTS] if of.hosts else [])
        ready = READY.format(where=all_of(["next_at <= %(now)s", *reach]))
        ids = f"ARRAY({ready})"
        lock = LANES.format(note=NOTED, locked=LOCKED.format(ids=ids))
        locked = self.later(lock, now=now, limit=n_lanes, **said)
        queued = QUEUED.format(where=all_of([PAGES_OF_HOSTS] if of.hosts else []))
        rows = self._read(QueuedCrawls, queued, n_rows=n_rows, **said)
        (_, *lanes), *_ = locked
        return _columns(Lanes, lanes), rows

    def save_lanes(self, lanes: Lanes) -> None:
        """Update them in one statement."""
        names = ("lane_id", "n_failures", "blocked_until", "paused_at", "ready_at", "next_at")
        if len(lanes):
            self.later(SAVE_LANES, **{name: getattr(lanes, name) for name in names})

    def next_lanes(self, after: int, limit: int) -> Lanes:
        """Walk along the key."""
        statement = LANES.format(note="", locked=LOCKED.format(ids=f"ARRAY({NEXT_LANES})"))
        return self._read(Lanes, statement, after=after, limit=limit)

    def running(self, lane_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        """Count along the index of leases."""
        row = self.run(RUNNING, lane_id=lane_id, after=after).fetchone()
        if row is None or row[0] is None:
            return np.zeros(0, np.int64), np.zeros(0, "M8[us]")
        return row[0], row[1]

    def lease(self, given: Leases, now: datetime) -> tuple[DuePages, Bools]:
        """Look the truth up, and update the rows that nobody has locked."""
        columns = {name: getattr(given, name) for name in Leases.__dataclass_fields__}
        said = {**columns, "now": now, "epoch": self.number_in_force()}
        ((*truth, leased),) = self.run(LEASE, **said)
        return _columns(DuePages, truth), np.zeros(0, np.bool_) if leased is None else leased

    def requeue(self, page_id: Ints, next_at: Instants) -> None:
        """Update or delete the rows that nobody has locked."""
        if len(page_id):
            self.later(REQUEUE, page_id=page_id, next_at=next_at)

    def settle(self, held: Tokens, heard: Bools, until: datetime) -> Settled:
        """Update or delete the rows, lock the lanes."""
        said = {"page_id": held.page_id, "token": held.token, "heard": heard, "until": until}
        row = self.run(SETTLE, **said, epoch=self.number_in_force()).fetchone()
        if row is None or row[0] is None:
            none = Lanes.empty()
            return Settled(none.lane_id, np.zeros(0, np.bool_), none.next_at, none.next_at, none)
        return Settled(row[0], row[1], row[2], row[3], _columns(Lanes, row[4:]))

    def leased_at(self, held: Tokens) -> Instants:
        """Join them to the queue."""
        (row,) = self.run(LEASED_AT, page_id=held.page_id, token=held.token)
        return np.zeros(0, INSTANT) if row[0] is None else row[0]

    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        """Update the row if it has this token; a full lane may open sooner now."""
        said = {"page_id": page_id, "token": token, "now": now, "until": until}
        row = self.run(EXTEND_LEASE, **said).fetchone()
        if row:
            self.lower_lanes(Lowered.of(row[0], until))
        return row is not None

    def next_ready_at(self, of: Reach = EVERYWHERE) -> datetime | None:
        """Read the first entry of the index."""
        where = all_of(["next_at IS NOT NULL", *in_reach(of, IN_HOSTS, IN_SHARD)])
        row = self.run(f"SELECT min(next_at) FROM lanes WHERE {where}", **_said(of)).fetchone()
        return row[0] if row else None

    def _read(self, kind: type[C], statement: str, **parameters: Any) -> C:
        """Name the columns of a statement that gives one array each."""
        (row,) = self.run(statement, **parameters)
        return _columns(kind, row)


def _said(of: Reach) -> dict[str, Any]:
    said: dict[str, Any] = {"hosts": np.array(of.hosts, object)} if of.hosts else {}
    return said | ({"shard": of.shard, "shards": of.shards} if of.shards > 1 else {})


def _columns(kind: type[C], row: Sequence[Any]) -> C:
    """Name arrays; those of no row are NULL."""
    if row[0] is None:
        return kind.empty()
    return kind(**dict(zip(kind.__dataclass_fields__, row, strict=True)))
