"""The store on Postgres: arrays in, arrays out, one statement a step.

Pages are locked with `FOR UPDATE` in page_id order, a page before its state. An epoch's
schedule is one partition, loaded by COPY inside the publishing transaction, where nobody sees
it, and attached at its end, so a crash leaves either the old epoch in force or the new one.
One process leads epochs by a session-level advisory lock and publishes over the very
connection that holds it: when that connection is lost, so are the lead and the right to
publish.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from service.domain import (
    Certificate,
    EpochColumns,
    Ints,
    Keys,
    LogColumns,
    PageColumns,
    PageStates,
    ScheduleColumns,
)
from service.errors import EpochRunning, LeadershipLost, StoreFull, StoreUnavailable
from service.storage import migrations, pgbinary
from service.storage.base import Lead, Registered, Store
from service.storage.sql import MAX_DUE_DAYS, SqlTransaction, kept_epochs
from service.storage.tables import Instant

LEAD_LOCK = 0x7265_6372_6177_6C  # "recrawl"
LOCK_TIMEOUT = "500ms"
"""How long housekeeping waits for readers before it leaves a drop to the next round: shorter
than Postgres's deadlock_timeout of 1 s, so that it is housekeeping that gives way."""

ADD_HOSTS = """
INSERT INTO hosts (host)
SELECT DISTINCT host FROM unnest(%(host)s::text[]) AS given (host)
WHERE NOT EXISTS (SELECT FROM hosts WHERE hosts.host = given.host)
ORDER BY host
ON CONFLICT DO NOTHING
"""

ADD_PAGES = """
WITH added AS (
    INSERT INTO pages
        (key, url, host_id, importance, observability, min_crawl_rate, max_crawl_rate, created_at)
    SELECT key, url, host_id, coalesce(nullif(importance, 'NaN'), 1),
        coalesce(nullif(observability, -1::smallint), 2),
        nullif(min_crawl_rate, 'NaN'), nullif(max_crawl_rate, 'NaN'),
        %(now)s
    FROM unnest(%(key)s::uuid[], %(url)s::text[], %(host)s::text[], %(importance)s::float8[],
        %(observability)s::smallint[], %(min_crawl_rate)s::float8[], %(max_crawl_rate)s::float8[])
        AS given (key, url, host, importance, observability, min_crawl_rate, max_crawl_rate)
    JOIN hosts USING (host)
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING page_id
), states AS (
    INSERT INTO page_states (page_id, gone, n_observations, n_changes, n_pings, pings_since,
        ping_credit, recent_pings, real_pings, false_pings, trust, gap, estimate)
    SELECT page_id, false, 0, 0, 0, %(now)s, 0, 0, 0, 0, 0, 1, %(estimate)s FROM added
)
SELECT array_agg(page_id) FROM added
"""

CHANGE_PAGES = """
WITH given AS (
    SELECT page_id, said.*
    FROM unnest(%(key)s::uuid[], %(importance)s::float8[], %(observability)s::smallint[],
        %(min_crawl_rate)s::float8[], %(max_crawl_rate)s::float8[])
        AS said (key, importance, observability, min_crawl_rate, max_crawl_rate)
    JOIN pages USING (key)
), locked AS (
    SELECT page_id, pages.observability <> 1 AND given.observability = 1 AS became_complete
    FROM pages JOIN given USING (page_id) JOIN page_states USING (page_id)
    WHERE coalesce(nullif(given.importance, 'NaN'), pages.importance) <> pages.importance
        OR given.observability NOT IN (-1, pages.observability)
        OR nullif(given.min_crawl_rate, 'NaN') <> coalesce(pages.min_crawl_rate, -1)
        OR nullif(given.max_crawl_rate, 'NaN') <> coalesce(pages.max_crawl_rate, -1)
    ORDER BY page_id FOR UPDATE OF pages, page_states
), recounted AS (
    UPDATE page_states SET n_pings = 0, pings_since = %(now)s, ping_credit = 0
    FROM locked WHERE locked.page_id = page_states.page_id AND became_complete
)
UPDATE pages SET
    importance = coalesce(nullif(given.importance, 'NaN'), pages.importance),
    observability = CASE given.observability WHEN -1 THEN pages.observability
        ELSE given.observability END,
    min_crawl_rate = coalesce(nullif(given.min_crawl_rate, 'NaN'), pages.min_crawl_rate),
    max_crawl_rate = coalesce(nullif(given.max_crawl_rate, 'NaN'), pages.max_crawl_rate)
FROM locked JOIN given USING (page_id)
WHERE pages.page_id = locked.page_id
"""

PAGE_IDS = """
SELECT array_agg(coalesce(page_id, 0) ORDER BY position)
FROM unnest(%(key)s::uuid[]) WITH ORDINALITY AS given (key, position)
LEFT JOIN pages USING (key)
"""

LOCK_STATES = """
WITH locked AS (
    SELECT page_states.*, observability, schedule.crawl_rate, schedule.crawl_probability
    FROM page_states
    JOIN pages USING (page_id)
    LEFT JOIN schedule ON schedule.page_id = page_states.page_id
        AND schedule.epoch = (SELECT max(epoch) FROM epochs WHERE status = 'published')
    WHERE page_states.page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_states.page_id
    FOR UPDATE OF page_states
)
SELECT array_agg(page_id),
    array_agg(coalesce(last_crawl_at, '-infinity')),
    array_agg(coalesce(last_observed_at, '-infinity')),
    array_agg(coalesce(digest, 0)), array_agg(gone),
    array_agg(n_observations), array_agg(n_changes), array_agg(n_pings),
    array_agg(coalesce(last_ping_at, '-infinity')), array_agg(pings_since),
    array_agg(ping_credit), array_agg(recent_pings), array_agg(real_pings),
    array_agg(false_pings), array_agg(trust), array_agg(coalesce(wanted_at, '-infinity')),
    array_agg(gap),
    array_agg(estimate), array_agg(observability),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(crawl_probability, 'NaN'))
FROM locked
"""

SAVE_STATES = """
UPDATE page_states SET
    last_crawl_at = nullif(given.last_crawl_at, '-infinity'),
    last_observed_at = nullif(given.last_observed_at, '-infinity'),
    digest = nullif(given.digest, 0), gone = given.gone,
    n_observations = given.n_observations, n_changes = given.n_changes, n_pings = given.n_pings,
    last_ping_at = nullif(given.last_ping_at, '-infinity'), ping_credit = given.ping_credit,
    recent_pings = given.recent_pings, real_pings = given.real_pings,
    false_pings = given.false_pings, trust = given.trust,
    wanted_at = nullif(given.wanted_at, '-infinity'), gap = given.gap, estimate = given.estimate
FROM unnest(%(page_id)s::bigint[], %(last_crawl_at)s::timestamptz[],
    %(last_observed_at)s::timestamptz[], %(digest)s::bigint[], %(gone)s::bool[],
    %(n_observations)s::bigint[], %(n_changes)s::bigint[], %(n_pings)s::bigint[],
    %(last_ping_at)s::timestamptz[], %(ping_credit)s::float8[],
    %(recent_pings)s::bigint[], %(real_pings)s::float8[], %(false_pings)s::float8[],
    %(trust)s::float8[], %(wanted_at)s::timestamptz[],
    %(gap)s::float8[], %(estimate)s::bytea[])
    AS given (page_id, last_crawl_at, last_observed_at, digest, gone, n_observations, n_changes,
        n_pings, last_ping_at, ping_credit, recent_pings, real_pings, false_pings, trust,
        wanted_at, gap, estimate)
WHERE page_states.page_id = given.page_id
"""

APPEND_LOG = """
INSERT INTO observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
SELECT page_id, observed_at, kind, nullif(changed, -1), nullif("interval", 'NaN'),
    nullif(crawl_rate, 'NaN'), nullif(status, -1)
FROM unnest(%(page_id)s::bigint[], %(observed_at)s::timestamptz[], %(kind)s::smallint[],
    %(changed)s::smallint[], %(interval)s::float8[], %(crawl_rate)s::float8[],
    %(status)s::smallint[])
    AS given (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
"""

LOG_OF = """
SELECT array_agg(page_id), array_agg(observed_at), array_agg(kind),
    array_agg(coalesce(changed, -1::smallint)), array_agg(coalesce("interval", 'NaN')),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(status, -1::smallint))
FROM (
    SELECT * FROM observations WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id, observed_at, kind
) AS entries
"""

LOAD_COLUMNS = """
COPY (
    SELECT page_id, importance, observability, coalesce(min_crawl_rate, 'NaN'),
        coalesce(max_crawl_rate, 'NaN'), host_id, n_pings, pings_since,
        coalesce(last_ping_at, '-infinity'), real_pings, false_pings, trust, estimate
    FROM pages JOIN page_states USING (page_id)
    ORDER BY page_id
) TO STDOUT (FORMAT BINARY)
"""

NEXT_PAGE_IDS = """
SELECT array_agg(page_id) FROM (
    SELECT page_id FROM pages WHERE page_id > %(after)s ORDER BY page_id LIMIT %(limit)s
) AS ids
"""

PARTITIONS = """
SELECT child.relname FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = %(parent)s::regclass
"""


class PostgresTransaction(SqlTransaction):
    """The statements in Postgres's words."""

    next_crawl_at = sa.literal_column(
        "least(page_states.wanted_at, CASE WHEN page_states.last_crawl_at IS NULL "
        "THEN pages.created_at WHEN schedule.crawl_rate > 0 THEN page_states.last_crawl_at "
        "+ 86400 * least(page_states.gap / least(greatest(schedule.crawl_rate, 1e-100), 1e100), "
        f"{MAX_DUE_DAYS}) * interval '1 second' END)",
        Instant,
    )

    def run(self, statement: str, **parameters: Any) -> psycopg.Cursor[Any]:
        """Run one statement over the driver, in binary."""
        return self.driver.execute(statement, parameters, binary=True)

    @property
    def driver(self) -> psycopg.Connection[Any]:
        """The psycopg connection under this transaction."""
        driver: psycopg.Connection[Any] = self.connection.connection.driver_connection  # type: ignore[assignment]
        return driver

    def insert(self, table: sa.Table) -> postgresql.Insert:
        """Give the INSERT that knows ON CONFLICT."""
        return postgresql.insert(table)

    def register(self, pages: PageColumns, now: datetime) -> Registered:
        """Insert in key order, so that two callers with the same new pages cannot deadlock."""
        given = {name: getattr(pages, name) for name in PageColumns.__dataclass_fields__}
        self.run(ADD_HOSTS, host=pages.host)
        added = self.run(ADD_PAGES, **given, now=now, estimate=bytes(8 * self.width)).fetchone()
        self.run(CHANGE_PAGES, **given, now=now)
        page_id = self.page_ids(pages.key)
        new = np.zeros(0, np.int64) if added is None or added[0] is None else added[0]
        return Registered(page_id, np.isin(page_id, new))

    def page_ids(self, key: Keys) -> Ints:
        """Look all keys up in one statement."""
        found = self.run(PAGE_IDS, key=key).fetchone()
        return np.zeros(0, np.int64) if found is None or found[0] is None else found[0]

    def lock_states(self, page_id: Ints) -> PageStates:
        """Lock in page_id order and read one array a column."""
        row = self.run(LOCK_STATES, page_id=page_id).fetchone()
        columns = dict(zip(PageStates.__dataclass_fields__, row or (), strict=True))
        if columns["page_id"] is None:
            return PageStates.empty(estimate=(self.width,))
        columns["estimate"] = columns["estimate"].view("<f8").reshape(-1, self.width)
        return PageStates(**columns)

    def save_states(self, states: PageStates) -> None:
        """Update all of them in one statement."""
        self.run(SAVE_STATES, **{n: getattr(states, n) for n in PageStates.__dataclass_fields__})

    def append_log(self, entries: LogColumns) -> None:
        """Append all of them in one statement."""
        self.run(APPEND_LOG, **{n: getattr(entries, n) for n in LogColumns.__dataclass_fields__})

    def log_of(self, page_id: Ints) -> LogColumns:
        """Read along the log's key."""
        row = self.run(LOG_OF, page_id=page_id).fetchone()
        columns = dict(zip(LogColumns.__dataclass_fields__, row or (), strict=True))
        return LogColumns.empty() if columns["page_id"] is None else LogColumns(**columns)

    def load_columns(self) -> EpochColumns:
        """Copy them out in one statement, hence one snapshot."""
        columns = pgbinary.copy_out(
            self.driver,
            LOAD_COLUMNS,
            {
                "page_id": "i8", "importance": "f8", "observability": "i2",
                "min_crawl_rate": "f8", "max_crawl_rate": "f8", "host_id": "i8",
                "n_pings": "i8", "pings_since": "M8[us]", "last_ping_at": "M8[us]",
                "real_pings": "f8", "false_pings": "f8", "trust": "f8",
                "estimate": f"V{8 * self.width}",
            },
        )  # fmt: skip
        columns["estimate"] = columns["estimate"].view("<f8").reshape(-1, self.width)
        return EpochColumns(**columns)

    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Copy into a table of its own, then index it."""
        table = f"schedule_{epoch}"
        self.run(f"CREATE TABLE {table} (LIKE schedule, CHECK (epoch = {epoch}))")
        columns = [getattr(schedule, name) for name in ScheduleColumns.__dataclass_fields__]
        copied = f"COPY {table} (epoch, page_id, change_rate, crawl_rate, crawl_probability)"
        with self.driver.cursor().copy(f"{copied} FROM STDIN (FORMAT BINARY)") as copy:
            for block in pgbinary.copy_in([np.full(len(schedule), epoch, np.int64), *columns]):
                copy.write(block)
        self.run(f"ALTER TABLE {table} ADD PRIMARY KEY (epoch, page_id)")
        self.run(f"ANALYZE {table}")

    def publish(self, epoch: int, certificate: Certificate, now: datetime) -> None:
        """Attach the table as a partition; the CHECK spares Postgres a scan of it."""
        self.run(f"ALTER TABLE schedule ATTACH PARTITION schedule_{epoch} FOR VALUES IN ({epoch})")
        self.mark_published(epoch, certificate, now)

    def next_page_ids(self, after: int, limit: int) -> Ints:
        """Read along the key of the pages."""
        row = self.run(NEXT_PAGE_IDS, after=after, limit=limit).fetchone()
        return np.zeros(0, np.int64) if row is None or row[0] is None else row[0]

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Make the log's months ahead; drop months and schedules that are no longer kept.

        What a reader still holds is left for the next round.
        """
        self.run(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        kept = {f"schedule_{e}" for e in self.connection.scalars(kept_epochs())}
        for table in self._partitions("schedule") - kept:
            self._if_possible(f"DROP TABLE {table}")
        months = self._partitions("observations")
        for first, name in months_ahead(now):
            if name not in months:
                self._if_possible(
                    f"CREATE TABLE {name} PARTITION OF observations FOR VALUES "
                    f"FROM ('{first:%Y-%m-01}Z') TO ('{next_month(first):%Y-%m-01}Z')"
                )
        if keep_log_since is not None:
            oldest = f"observations_{keep_log_since:%Y_%m}"
            for name in sorted(m for m in months if m < oldest and not m.endswith("default")):
                self._if_possible(f"DROP TABLE {name}")
            old = "DELETE FROM observations_default WHERE observed_at < %(since)s"
            self.run(old, since=keep_log_since)

    def _partitions(self, parent: str) -> set[str]:
        return {name for (name,) in self.run(PARTITIONS, parent=parent).fetchall()}

    def _if_possible(self, statement: str) -> None:
        try:
            with self.driver.transaction():
                self.run(statement)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.CheckViolation):
            return


def next_month(moment: datetime) -> datetime:
    """Give the first day of the next month."""
    return moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1, day=1)


def months_ahead(now: datetime) -> list[tuple[datetime, str]]:
    """Give the running month and the two after it, with the names of their partitions."""
    first = now.replace(day=1)
    months = [first, next_month(first), next_month(next_month(first))]
    return [(month, f"observations_{month:%Y_%m}") for month in months]


class PostgresStore(Store):
    """Pages, evidence and schedules in a Postgres database, shared by any number of processes."""

    def __init__(self, url: str, width: int, *, pool_size: int = 10) -> None:
        self.width = width
        self.url = url
        self.engine = sa.create_engine(
            sa.make_url(url).set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            pool_timeout=10,
            connect_args={"connect_timeout": 5, "application_name": "recrawl"},
        )
        sa.event.listen(self.engine, "connect", lambda driver, _: pgbinary.register(driver))

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:  # noqa: ARG002
        """Open a transaction on a pooled connection."""
        with translated(), self.engine.begin() as connection:
            yield PostgresTransaction(connection, self.width)

    @contextmanager
    def lead(self) -> Iterator["PostgresLead"]:
        """Hold the advisory lock on a connection of its own."""
        with translated(), self.engine.connect() as connection:
            taken = connection.scalar(sa.select(sa.func.pg_try_advisory_lock(LEAD_LOCK)))
            connection.commit()
            if not taken:
                raise EpochRunning
            try:
                yield PostgresLead(connection, self.width)
            finally:
                release(connection)

    def check(self) -> None:
        """Ask the database for its revision."""
        with translated(), self.engine.connect() as connection:
            migrations.check(connection)

    def close(self) -> None:
        """Close the pool."""
        self.engine.dispose()


class PostgresLead(Lead):
    """The advisory lock's own connection: losing it loses the lead and the transaction alike."""

    def __init__(self, connection: sa.Connection, width: int) -> None:
        self.connection = connection
        self.width = width

    @contextmanager
    def begin(self) -> Iterator[PostgresTransaction]:
        """Open a transaction on the connection that holds the lock."""
        if self.connection.invalidated:
            raise LeadershipLost
        with translated(), self.connection.begin():
            yield PostgresTransaction(self.connection, self.width)


def release(connection: sa.Connection) -> None:
    """Unlock; where that is impossible, close the connection, which unlocks as well."""
    try:
        connection.rollback()
        connection.execute(sa.select(sa.func.pg_advisory_unlock(LEAD_LOCK)))
        connection.commit()
    except sa.exc.DBAPIError:
        connection.invalidate()


@contextmanager
def translated() -> Iterator[None]:
    """Name the driver's conditions in the service's words."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
        raise _named(getattr(error, "orig", None)) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise _named(error) from error


def _named(error: BaseException | None) -> StoreFull | StoreUnavailable:
    full = isinstance(error, psycopg.errors.DiskFull | psycopg.errors.OutOfMemory)
    return StoreFull() if full else StoreUnavailable()
