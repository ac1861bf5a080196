"""A set of pages, half of them due: one made by the store, the others copied from it in SQL."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import psycopg
from numpy.typing import NDArray

from benchmarks.http.data import key_of
from service.epochs.run import FILL_EVERY
from service.leases.queue import fill_queue
from service.model.columns import NOT_SHIFTED, PageColumns, ScheduleColumns
from service.model.domain import Certificate
from service.model.urls import normalise
from service.runtime.settings import DEFAULT_ESTIMATOR
from service.storage import Store, migrations, open_store, tables

WIDTH = 3
"""Width of the state of the default estimator, numbers."""
BLOCK = 100_000
AHEAD = 2 * FILL_EVERY
"""Reach of the queue, as in the service, so that no filling falls into a measurement."""

CERTIFICATE = Certificate(
    bandwidth=1.0,
    bandwidth_used=1.0,
    multiplier=0.0,
    harmonic_cost=0.0,
    binary_cost=0.0,
    kkt_residual=0.0,
    duality_gap=0.0,
    passes=0,
    n_pages=0,
    prior={},
    crawl_rate_quantiles=(),
    seconds={},
    budget_factor=1.0,
    observed_ratios=(),
)


@dataclass(frozen=True)
class Fleet:
    """Pages spread evenly over hosts, each with its rate and its last crawl."""

    n_hosts: int
    crawl_rate: NDArray[np.float64]
    """Crawl rate of each page, 1/day."""
    days_ago: NDArray[np.float64]
    """Age of each page's last crawl, days."""

    @classmethod
    def half_due(cls, n_pages: int, n_hosts: int) -> "Fleet":
        """Return pages due up to half an interval ago or ahead, with rates around one a day."""
        rng = np.random.default_rng(1)
        rate = np.exp(rng.normal(0, 1, n_pages))
        return cls(n_hosts, rate, rng.uniform(0.5, 1.5, n_pages) / rate)

    def host(self, page: int) -> str:
        """Return the host of the k-th page."""
        return f"host{page % self.n_hosts:06}.example"

    def url(self, page: int) -> str:
        """Return the URL of the k-th page: 60 bytes, its own normal form."""
        return f"https://{self.host(page)}/articles/in/the/archive/{page:09}"


def migrate(url: str, now: datetime) -> None:
    """Create the tables, and publish an epoch so that no server starts one by itself."""
    store = open_store(url, WIDTH)
    try:
        migrations.upgrade(store.engine)  # type: ignore[attr-defined]
        with store.begin() as tx:
            new = tx.estimator() is None
            tx.set_estimator(DEFAULT_ESTIMATOR)
        if new:
            _publish(store, np.zeros(0), now)
    finally:
        store.close()


def fill(url: str, fleet: Fleet, now: datetime) -> None:
    """Migrate the database, write the pages, publish their rates and queue the due pages."""
    migrate(url, now)
    store = open_store(url, WIDTH)
    try:
        with store.begin() as tx:
            tx.register(_template(fleet.url(0)), now - timedelta(days=400))
        copy = _copy_on_postgres if url.startswith("postgresql") else _copy_on_sqlite
        copy(url, fleet, now)
        _publish(store, fleet.crawl_rate, now)
        fill_queue(store, now + AHEAD)
    finally:
        store.close()


def tidy(url: str) -> None:
    """Vacuum Postgres, so that no autovacuum falls into a measurement."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")


def _template(url: str) -> PageColumns:
    normal, unsaid = normalise(url), np.full(1, np.nan)
    return PageColumns(
        key=np.array([np.void(normal.key)], "V16"),
        url=np.array([normal.url], object),
        host=np.array([normal.host], object),
        importance=unsaid,
        observability=np.array([-1], np.int16),
        min_crawl_rate=unsaid,
        max_crawl_rate=unsaid,
    )


def _publish(store: Store, crawl_rate: NDArray[np.float64], now: datetime) -> None:
    n = len(crawl_rate)
    schedule = ScheduleColumns(
        page_id=np.arange(1, n + 1),
        change_rate=crawl_rate,
        crawl_rate=crawl_rate,
        crawl_probability=np.zeros(n),
        urgency=np.ones(n),
        shift=np.full(n, NOT_SHIFTED, np.int16),
        carried=np.full(n, NOT_SHIFTED, np.int16),
    )
    with store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(now).epoch
        lead.write_schedule(epoch, schedule)
        with lead.begin() as tx:
            tx.publish(epoch, CERTIFICATE, now)


def _copy_on_postgres(url: str, fleet: Fleet, now: datetime) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            "CREATE UNLOGGED TABLE named "
            "(page_id bigint, host_id bigint, key uuid, url text, crawled_at timestamptz)"
        )
        with connection.cursor().copy("COPY named FROM STDIN") as copy:
            for block in _blocks(fleet, now):
                lines = (
                    f"{page}\t{host}\t{key.hex()}\t{url}\t{at.isoformat()}\n"
                    for page, host, key, url, at in block
                )
                copy.write("".join(lines))
        hosts = [(fleet.host(k),) for k in range(1, min(fleet.n_hosts, len(fleet.crawl_rate)))]
        with connection.cursor().copy("COPY hosts (host) FROM STDIN") as copy:
            for row in hosts:
                copy.write_row(row)
        for statement in _copies():
            connection.execute(statement)
        connection.execute("DROP TABLE named")
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('pages', 'page_id'), max(page_id)) FROM pages"
        )


def _copy_on_sqlite(url: str, fleet: Fleet, now: datetime) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for pragma in ("synchronous = OFF", "cache_size = -262144", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TEMP TABLE named (page_id INTEGER PRIMARY KEY, host_id INTEGER, key BLOB, "
        "url TEXT, crawled_at INTEGER)"
    )
    connection.execute("BEGIN")
    for block in _blocks(fleet, now):
        rows = ((*row, int(at.timestamp() * 1e6)) for *row, at in block)
        connection.executemany("INSERT INTO named VALUES (?, ?, ?, ?, ?)", rows)
    hosts = ((fleet.host(k),) for k in range(1, min(fleet.n_hosts, len(fleet.crawl_rate))))
    connection.executemany("INSERT INTO hosts (host) VALUES (?)", hosts)
    for statement in _copies():
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _blocks(fleet: Fleet, now: datetime) -> Iterator[list[tuple[int, int, bytes, str, datetime]]]:
    """Yield page_id, host_id, key, url and last crawl of all pages but the first."""
    ago = fleet.days_ago.tolist()
    for first in range(1, len(ago), BLOCK):
        yield [
            (
                k + 1,
                k % fleet.n_hosts + 1,
                key_of(url := fleet.url(k)),
                url,
                now - timedelta(days=ago[k]),
            )
            for k in range(first, min(first + BLOCK, len(ago)))
        ]


def _copies() -> Iterator[str]:
    """Yield the statements that copy the first page to each of `named` and mark all crawled."""
    own = {"page_id", "host_id", "key", "url"}
    at = {"last_crawl_at", "last_observed_at"}
    for table in (tables.pages, tables.page_states):
        names = table.columns.keys()
        values = (
            f"named.{c}" if c in own else "named.crawled_at" if c in at else f'a."{c}"'
            for c in names
        )
        yield (
            f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM named JOIN {table.name} AS a ON a.page_id = 1 ORDER BY named.page_id"
        )
    yield (
        "UPDATE page_states SET (last_crawl_at, last_observed_at) = (SELECT min(crawled_at), "
        "min(crawled_at) FROM named) WHERE page_id = 1"
    )
