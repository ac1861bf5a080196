"""Stores whose shards move, and all that their databases have."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import psycopg

from recrawl_cluster.moves.move import Move
from recrawl_cluster.moves.move_rows import (
    ACTIVE,
    PAGE_TABLES,
    SCHEDULE,
    Range,
    shard_range,
)
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.shard_map import hashed
from service.ingest.record import record
from service.leases.host_settings import change_group, change_host, delete_host
from service.leases.politeness import Politeness
from service.model.listing import PageTags
from support.crawl_cases import HOUR, RULES, queue, report, take
from support.shard_cases import GROUPED, LOGICAL
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    page_columns,
    publish,
    schedule_columns,
)

SHARD, SOURCE, TARGET = 30, "db1", "db2"
"""Shard of the hosts of a group (`GROUPED`), whose move most tests make."""
ADD_LEARNT = (
    """
    INSERT INTO change_hours (host_id, learnt_at, has_hours, evidence, profile)
    SELECT host_id, TIMESTAMPTZ '2026-05-01 12:00Z', true, 'a', 'b' FROM hosts
    """,
    """
    INSERT INTO group_hours (host_id, url_group, seen_at, has_own, evidence, profile)
    SELECT host_id, 7, TIMESTAMPTZ '2026-05-01 12:00Z', true, 'a', 'b' FROM hosts
    """,
    """
    INSERT INTO host_incidents (host_id, ended_at)
    SELECT host_id, TIMESTAMPTZ '2026-04-01 12:00Z' FROM hosts
    """,
    """
    INSERT INTO crawl_days (queue_id, day, n_crawls, n_first, carried)
    SELECT queue_id, 20574, 1, 0, 0 FROM host_queues
    """,
)
"""What epochs, reports and leases learn of hosts in the course of time."""
EVERY_ID = Range(1, 2**62)
(DUE,) = (table for table in ACTIVE if table.name == "due_pages")


def hosts_of(shard: int, n: int) -> list[str]:
    """Return hosts whose hash is of a shard."""
    names = (f"m{i}.test" for i in count())
    found: list[str] = []
    while len(found) < n:
        name = next(names)
        found += [name] * (hashed(name) % LOGICAL == shard)
    return found


def settled(store: ShardedStore, n_pages: int = 8) -> np.ndarray:
    """Fill a store with pages that have states, logs, tags, validators, leases and a schedule.

    One host of each shard was deleted in a pause.
    """
    hosts = [*GROUPED, *hosts_of(SHARD, 3), *hosts_of(2, 2), *hosts_of(50, 2)]
    urls = [f"https://{host}/{n}" for host in hosts for n in range(n_pages)]
    with store.begin() as tx:
        ids = np.sort(tx.register(page_columns(urls), T0).page_id)
        for tag in ("news", "daily"):
            tx.add_tags(PageTags(page_id=ids[::3], tag=np.full(len(ids[::3]), tag, object)))
    with store.begin() as tx:
        change_group(tx, "cdn", {"min_delay_s": 2.0}, sorted(GROUPED), T0, Politeness())
    for shard in (SHARD, 2, 50):
        *_, deleted = hosts_of(shard, 4)
        with store.begin() as tx:
            change_host(tx, deleted, {"blocked_until": T0 + 3_650 * DAY}, T0, Politeness())
            delete_host(tx, deleted, T0, Politeness())
    for day in range(1, 4):
        observe(store, ids, day)
    publish(store, schedule_columns(ids, crawl_rate=1.0), T0 + 3 * DAY)
    publish(store, schedule_columns(ids, crawl_rate=2.0), T0 + 4 * DAY)
    queue(store, ids, T0 + 5 * DAY)
    crawls = take(store, T0 + 5 * DAY, count=5)
    report(store, crawls[:2], T0 + 5 * DAY + HOUR, changed=1)
    for database in store.databases:
        with database.begin() as tx:
            for statement in ADD_LEARNT:
                tx.run(statement)
    return ids


def observe(store: ShardedStore, ids: np.ndarray, day: float, changed: int = 1) -> None:
    """Record a crawl of pages with validators."""
    with store.begin() as tx:
        columns = crawl_columns(ids, T0 + day * DAY, changed, etag=f'"{day}"', note="n")
        record(tx, columns, RULES)


def contents(urls: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the rows of all databases, by table, as texts."""
    rows: dict[str, Counter[str]] = {}
    for url in urls:
        for name, some in contents_of(url, EVERY_ID).items():
            rows.setdefault(name, Counter()).update(some)
    return rows


def contents_of(url: str, some: Range) -> dict[str, Counter[str]]:
    """Return the rows of some ids of one database, by table, as texts."""
    queries = {table.name: some.rows(table) for table in (*PAGE_TABLES, *ACTIVE, SCHEDULE)}
    queries |= {"log": some.queries()[-2], "tags": some.tags()}
    with psycopg.connect(url) as driver:
        return {
            name: Counter(
                text
                for (text,) in driver.execute(f"SELECT CAST(kept AS text) FROM ({query}) AS kept")
            )
            for name, query in queries.items()
        }


class Killed(BaseException):
    """The end of a process in the middle of a move."""


def moving(
    store: ShardedStore,
    shard: int = SHARD,
    to: str = TARGET,
    report: Callable[[str], None] = lambda _: None,
    **options: float,
) -> Move:
    """Return a move that waits for nothing and copies small blocks."""
    return Move(store, shard, to, report, grace_s=0, wait=lambda _: None, block=10, **options)


def left_behind(url: str, shard: int = SHARD) -> int:
    """Return the number of rows of a shard in a database."""
    some = shard_range(shard)
    return len(due(url, some)) + sum(rows.total() for rows in contents_of(url, some).values())


def due(url: str, some: Range) -> set[int]:
    """Return the pages of some ids that are in the queue of a database without a lease."""
    query = f"SELECT page_id FROM due_pages WHERE token IS NULL AND {some.within(DUE)}"
    with psycopg.connect(url) as driver:
        return {page_id for (page_id,) in driver.execute(query)}


def traces(urls: Sequence[str]) -> list[str]:
    """Return tables, triggers and entries of moves."""
    found: list[str] = []
    for url in urls:
        with psycopg.connect(url) as driver:
            for query in (
                "SELECT relname FROM pg_class WHERE relname LIKE 'moving%' AND relkind = 'r'",
                "SELECT tgname FROM pg_trigger WHERE tgname LIKE 'moving%'",
                "SELECT proname FROM pg_proc WHERE proname LIKE 'moving%'",
                "SELECT name FROM meta WHERE name IN ('moving', 'moving_place')",
            ):
                found += [name for (name,) in driver.execute(query)]
    return found
