"""The queue on SQLite: one writer at a time, so nobody has to be locked out or passed over."""

import json
import sqlite3
from abc import abstractmethod
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from service.arrays import INSTANT, Bools, Columns, Instants, Ints, instant, moment
from service.storage.composing import all_of, in_reach
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
    share,
)
from service.storage.schedule_sql import LANE, WANTED
from service.storage.sqlite_sql import NEXT_CRAWL_AT
from service.storage.sqlite_values import column, listed, microseconds, values

C = TypeVar("C", bound=Columns)

TRUTH = f"""
SELECT pages.page_id, url, host, {LANE} AS lane_id, {NEXT_CRAWL_AT} AS due_at, created_at,
    last_crawl_at, crawl_rate * pace AS crawl_rate, {WANTED} AS wanted
FROM pages
JOIN page_states ON page_states.page_id = pages.page_id
JOIN hosts ON hosts.host_id = pages.host_id
LEFT JOIN schedule ON schedule.page_id = pages.page_id AND schedule.epoch = :epoch
"""
OF_PAGES = TRUTH + "WHERE pages.page_id IN (SELECT value FROM json_each(:page_id))"
OF_BLOCK = TRUTH + "WHERE pages.page_id > :after AND pages.page_id <= :last"

UNQUEUE = f"""
DELETE FROM crawls WHERE page_id > :after AND page_id <= :last AND token IS NULL AND EXISTS (
    SELECT 1 FROM ({TRUTH} WHERE pages.page_id = crawls.page_id)
    WHERE due_at IS NULL OR due_at >= :until
)
"""
"""The truth is looked up of what is queued, which is little beside all pages of a block."""

ENQUEUE = """
INSERT INTO crawls (page_id, lane_id, next_at, last_crawl_at, crawl_rate, wanted)
SELECT page_id, lane_id, CASE WHEN wanted THEN 0 ELSE due_at END, last_crawl_at, crawl_rate, wanted
FROM ({truth}) WHERE due_at < :until
ON CONFLICT (page_id) DO UPDATE SET lane_id = excluded.lane_id,
    next_at = min(crawls.next_at, excluded.next_at),
    last_crawl_at = excluded.last_crawl_at, crawl_rate = excluded.crawl_rate,
    wanted = excluded.wanted
WHERE crawls.token IS NULL
RETURNING lane_id, next_at
"""
"""A row under a lease is left alone: when the lease ends the truth is looked up. What a ping asks
for has the lowest bound of all, so that it is the first of its lane."""

LOWER_LANE = """
INSERT INTO lanes (lane_id, next_at) VALUES (?, ?)
ON CONFLICT (lane_id) DO UPDATE SET next_at = min(coalesce(lanes.next_at, 9e18),
    max(excluded.next_at, coalesce(lanes.ready_at, 0), coalesce(lanes.blocked_until, 0)))
"""

LANES = """
SELECT lane_id, min_delay_s, robots_delay_s, coalesce(max_concurrency, 0), n_failures,
    blocked_until, paused_at, ready_at, next_at
FROM lanes WHERE lane_id IN ({ids}) ORDER BY lane_id
"""
READY = "SELECT lane_id FROM lanes WHERE {where} ORDER BY next_at LIMIT :limit"
HOSTS = "SELECT value FROM json_each(:hosts)"
IN_HOSTS = f"lane_id IN (SELECT {LANE} FROM hosts WHERE host IN ({HOSTS}))"
READY_HOSTS = f"""lane_id > 0 OR EXISTS (
    SELECT 1 FROM crawls JOIN pages ON pages.page_id = crawls.page_id
    JOIN hosts ON hosts.host_id = pages.host_id
    WHERE crawls.lane_id = lanes.lane_id AND crawls.next_at <= :now AND host IN ({HOSTS})
)"""
"""Of a group's lane its other hosts may have the row that is ready."""
IN_SHARD = "abs(lane_id) % :shards = :shard"

SAVE_LANE = """
UPDATE lanes SET n_failures = ?, blocked_until = ?, paused_at = ?, ready_at = ?, next_at = ?
WHERE lane_id = ?
"""

NEXT_LANES = "SELECT lane_id FROM lanes WHERE lane_id > ? ORDER BY lane_id LIMIT ?"

CARRY_LEASES = """
UPDATE crawls SET leased_at = leased_at + :by, expires_at = expires_at + :by,
    next_at = next_at + :by
WHERE token IS NOT NULL
"""
CARRY_LANES = """
UPDATE lanes SET ready_at = ready_at + :by, next_at = next_at + min(:by, 0),
    blocked_until = CASE WHEN paused_at IS NULL THEN blocked_until ELSE blocked_until + :by END,
    paused_at = paused_at + :by
"""
"""What is NULL stays so; a host that was blocked by hand is blocked until the same time."""

QUEUED = """
SELECT page_id, lane_id, next_at, last_crawl_at, crawl_rate, wanted FROM crawls
WHERE lane_id = :lane_id AND {where} ORDER BY next_at LIMIT :each
"""
PAGES_OF_HOSTS = f"""page_id IN (
    SELECT page_id FROM pages JOIN hosts ON hosts.host_id = pages.host_id WHERE host IN ({HOSTS})
)"""

RUNNING = """
SELECT count(*), min(expires_at) FROM crawls
WHERE lane_id = ? AND next_at > ? AND token IS NOT NULL
"""

DUE_PAGES = f"""
SELECT given.value, coalesce(url, ''), coalesce(host, ''), due_at, created_at, last_crawl_at,
    crawl_rate, coalesce(wanted, 0)
FROM json_each(:page_id) AS given LEFT JOIN ({OF_PAGES}) AS truth ON truth.page_id = given.value
ORDER BY given.key
"""

LEASE = """
UPDATE crawls SET token = ?, worker = ?, leased_at = ?, expires_at = ?, next_at = ?
WHERE page_id = ?
"""

REQUEUE = """
UPDATE crawls SET next_at = ?, token = NULL, worker = NULL, leased_at = NULL, expires_at = NULL
WHERE page_id = ?
"""

END_LEASE = "DELETE FROM crawls WHERE page_id = ? AND token = ? RETURNING leased_at"

LEASED_AT = "SELECT leased_at FROM crawls WHERE page_id = ? AND token = ?"

EXTEND_LEASE = """
UPDATE crawls SET expires_at = :until, next_at = :until
WHERE page_id = :page_id AND token = :token AND expires_at > :now
RETURNING lane_id
"""

NEXT_OF = "SELECT page_id, next_at FROM crawls WHERE page_id IN (SELECT value FROM json_each(?))"

LANES_OF = f"""
SELECT page_id, {LANE} FROM pages JOIN hosts ON hosts.host_id = pages.host_id
WHERE page_id IN (SELECT value FROM json_each(?))
"""


class SqliteQueue(QueueTransaction):
    """The queue in SQLite's words."""

    @property
    @abstractmethod
    def driver(self) -> sqlite3.Connection:
        """The sqlite3 connection under this transaction."""

    def enqueue(self, page_id: Ints, until: datetime) -> Lowered:
        """Look the truth up and insert."""
        return self._enqueue(OF_PAGES, until, page_id=listed(page_id))

    def fill_queue(self, after: int, last: int, until: datetime) -> Lowered:
        """Walk along the keys."""
        epoch = self.number_in_force()
        said = {"after": after, "last": last, "until": microseconds(until), "epoch": epoch}
        self.driver.execute(UNQUEUE, said)
        return self._enqueue(OF_BLOCK, until, after=after, last=last)

    def _enqueue(self, truth: str, until: datetime, **of: Any) -> Lowered:
        said = {**of, "until": microseconds(until), "epoch": self.number_in_force()}
        first: dict[int, int] = {}
        for lane_id, next_at in self.driver.execute(ENQUEUE.format(truth=truth), said):
            first[lane_id] = min(next_at, first.get(lane_id, next_at))
        return _columns(Lowered, sorted(first.items()))

    def lower_lanes(self, lowered: Lowered) -> None:
        """Insert or update them by one prepared statement."""
        rows = zip(lowered.lane_id.tolist(), values(lowered.next_at), strict=True)
        self.driver.executemany(LOWER_LANE, rows)

    def ready(
        self, now: datetime, n_lanes: int, n_rows: int, of: Reach = EVERYWHERE
    ) -> tuple[Lanes, QueuedCrawls]:
        """Find them by their index, then walk along that of the rows, lane by lane."""
        reach = in_reach(of, IN_HOSTS, IN_SHARD) + ([READY_HOSTS] if of.hosts else [])
        where = all_of(["next_at <= :now", *reach])
        ready = LANES.format(ids=READY.format(where=where))
        said = {"now": microseconds(now), "limit": n_lanes, **_said(of)}
        lanes = _columns(Lanes, self.driver.execute(ready, said).fetchall())
        queued = QUEUED.format(where=all_of([PAGES_OF_HOSTS] if of.hosts else []))
        said["each"] = share(n_rows, len(lanes)) if len(lanes) else 0
        rows: list[Any] = []
        for lane in lanes.lane_id.tolist():
            rows += self.driver.execute(queued, {**said, "lane_id": lane})
        return lanes, _columns(QueuedCrawls, rows)

    def _lanes(self, lane_id: Ints) -> Lanes:
        statement = LANES.format(ids="SELECT value FROM json_each(?)")
        return _columns(Lanes, self.driver.execute(statement, (listed(lane_id),)).fetchall())

    def save_lanes(self, lanes: Lanes) -> None:
        """Update them by one prepared statement."""
        names = ("n_failures", "blocked_until", "paused_at", "ready_at", "next_at", "lane_id")
        columns = (values(getattr(lanes, name)) for name in names)
        self.driver.executemany(SAVE_LANE, zip(*columns, strict=True))

    def next_lanes(self, after: int, limit: int) -> Lanes:
        """Walk along the key."""
        rows = self.driver.execute(LANES.format(ids=NEXT_LANES), (after, limit)).fetchall()
        return _columns(Lanes, rows)

    def carry_along(self, step: timedelta) -> None:
        """Move leases, delays and pauses by a step of the clock, so that as much is left of them.

        Lanes that may open sooner are looked at again.
        """
        by = {"by": step // timedelta(microseconds=1)}
        self.driver.execute(CARRY_LEASES, by)
        self.driver.execute(CARRY_LANES, by)

    def running(self, lane_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        """Count along the index of leases, lane by lane."""
        of_lanes = zip(lane_id.tolist(), values(after), strict=True)
        rows = [self.driver.execute(RUNNING, lane).fetchone() for lane in of_lanes]
        ends = column([end for _, end in rows], Instants, 0)
        return np.array([n for n, _ in rows], np.int64), ends

    def lease(self, given: Leases, now: datetime) -> tuple[DuePages, Bools]:
        """Look the truth up, and update the rows by one prepared statement."""
        said = {"page_id": listed(given.page_id), "epoch": self.number_in_force()}
        truth = _columns(DuePages, self.driver.execute(DUE_PAGES, said).fetchall())
        due: Bools = truth.due_at <= instant(now)
        leased = given.take(due)
        names = ("token", "worker", "expires_at", "expires_at", "page_id")
        token, worker, *rest = (values(getattr(leased, name)) for name in names)
        at = repeat(microseconds(now), len(leased))
        self.driver.executemany(LEASE, zip(token, worker, at, *rest, strict=True))
        return truth, due

    def requeue(self, page_id: Ints, next_at: Instants) -> None:
        """Update or delete the rows."""
        out = np.isnat(next_at)
        dropped = ((page,) for page in page_id[out].tolist())
        self.driver.executemany("DELETE FROM crawls WHERE page_id = ?", dropped)
        mended = zip(values(next_at[~out]), page_id[~out].tolist(), strict=True)
        self.driver.executemany(REQUEUE, mended)

    def settle(self, held: Tokens, heard: Bools, until: datetime) -> Settled:  # noqa: ARG002
        """Delete the rows that have these tokens, and queue their pages as any others.

        Who writes has locked all lanes.
        """
        pairs = zip(held.page_id.tolist(), held.token.tolist(), strict=True)
        ended_rows = [self.driver.execute(END_LEASE, pair).fetchall() for pair in pairs]
        ended = np.array([bool(rows) for rows in ended_rows], bool)
        leased_at = column([rows[0][0] if rows else None for rows in ended_rows], Instants, 0)
        again = np.unique(held.page_id[ended])
        self.enqueue(again, until)
        queued = dict(self.driver.execute(NEXT_OF, (listed(again),)).fetchall())
        next_at = column([queued.get(page) for page in held.page_id.tolist()], Instants, 0)
        lane_of = dict(self.driver.execute(LANES_OF, (listed(held.page_id),)).fetchall())
        lane_id = np.array([lane_of.get(page, 0) for page in held.page_id.tolist()], np.int64)
        return Settled(lane_id, ended, next_at, leased_at, self._lanes(np.unique(lane_id)))

    def leased_at(self, held: Tokens) -> Instants:
        """Look each of them up."""
        pairs = zip(held.page_id.tolist(), held.token.tolist(), strict=True)
        rows = [self.driver.execute(LEASED_AT, pair).fetchone() for pair in pairs]
        return column([None if row is None else row[0] for row in rows], Instants, 0)

    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        """Update the row if it has this token; a full lane may open sooner now."""
        said = {"page_id": page_id, "token": token}
        said |= {"now": microseconds(now), "until": microseconds(until)}
        row = self.driver.execute(EXTEND_LEASE, said).fetchone()
        if row:
            self.lower_lanes(Lowered.of(row[0], until))
        return row is not None

    def next_ready_at(self, of: Reach = EVERYWHERE) -> datetime | None:
        """Read the first entry of the index."""
        where = all_of(["next_at IS NOT NULL", *in_reach(of, IN_HOSTS, IN_SHARD)])
        statement = f"SELECT min(next_at) FROM lanes WHERE {where}"
        (first,) = self.driver.execute(statement, _said(of)).fetchone()
        return None if first is None else moment(np.int64(first).view(INSTANT))


def _said(of: Reach) -> dict[str, Any]:
    return {"hosts": json.dumps(of.hosts), "shard": of.shard, "shards": of.shards}


def _columns(kind: type[C], rows: list[Any]) -> C:
    if not rows:
        return kind.empty()
    read = zip(fields(kind), zip(*rows, strict=True), strict=True)
    return kind(**{f.name: column(cells, f.type, 0) for f, cells in read})
