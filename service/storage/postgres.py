"""The store on Postgres, for any number of processes.

An epoch's schedule is one partition, loaded by COPY into a table that nobody sees and attached in
one transaction; a second one, of a single row, puts the epoch in force, so a crash leaves either
the old epoch or the new one, and at most a partition that the next round drops. One process leads
epochs by a session-level advisory lock and publishes over the very connection that holds it: when
that connection is lost, so are the lead and the right to publish.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import sqlalchemy as sa

from service.clock import Clock, FollowingClock
from service.errors import EpochRunning, LeadershipLost, StoreUnavailable
from service.storage import migrations
from service.storage.base import Lead
from service.storage.postgres_connections import (
    LEAD_LOCK,
    known,
    listen,
    reading,
    release,
    translated,
    watch,
    writing,
)
from service.storage.postgres_partitions import keep_house
from service.storage.postgres_transaction import PostgresTransaction
from service.storage.statements import Statements
from service.storage.websub import SubscriptionStore


class PostgresStore(SubscriptionStore):
    """Pages, evidence and schedules in a Postgres database, shared by any number of processes."""

    def __init__(
        self, url: str, width: int, *, pool_size: int = 10, clock: Clock | None = None
    ) -> None:
        self.width = width
        self.url = url
        self.database_clock = FollowingClock()
        self.clock = clock or self.database_clock
        self.engine = sa.create_engine(
            sa.make_url(url).set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=10,
            pool_reset_on_return=None,  # whoever opens a transaction ends it
            pool_use_lifo=True,  # few backends, whose caches are warm
            connect_args={
                "connect_timeout": 5,
                "application_name": "recrawl",
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
            },
        )
        listen(self.engine)
        self.reading = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        """Open a transaction on a pooled connection.

        Who only reads gets a snapshot per statement in either case: BEGIN and COMMIT are spared.
        """
        with translated(), writing(self.engine) if write else reading(self.reading) as opened:
            yield self.transaction(*opened)

    def transaction(
        self, statements: Statements, connect: Callable[[], sa.Connection]
    ) -> PostgresTransaction:
        """Return the statements of one transaction."""
        tx = PostgresTransaction(statements, connect, self.width)
        tx.clock, tx.database_clock = self.clock, self.database_clock
        return tx

    @contextmanager
    def lead(self) -> Iterator["PostgresLead"]:
        """Hold the advisory lock on a connection of its own."""
        with translated(), self.engine.connect() as connection:
            taken = connection.scalar(sa.select(sa.func.pg_try_advisory_lock(LEAD_LOCK)))
            connection.commit()
            if not taken:
                raise EpochRunning
            try:
                watch(connection)
                yield PostgresLead(connection, self)
            finally:
                release(connection)

    def check(self) -> None:
        """Ask the database for its revision."""
        try:
            with translated(), self.engine.connect() as connection:
                migrations.check(connection)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                "the database does not answer; see that it runs and that RECRAWL_DATABASE_URL is "
                "right, then try again"
            ) from error

    def close(self) -> None:
        """Close the pool."""
        self.engine.dispose()


class PostgresLead(Lead):
    """The advisory lock's own connection: losing it loses the lead and the transaction alike."""

    def __init__(self, connection: sa.Connection, store: PostgresStore) -> None:
        self.connection = connection
        self.store = store

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        """Open a transaction on the connection that holds the lock."""
        if self.connection.invalidated:
            raise LeadershipLost
        with translated():
            self.connection.execution_options(postgresql_readonly=not write)
            with self.connection.begin():
                yield self.store.transaction(known(self.connection), lambda: self.connection)

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Do each chore in a transaction of its own."""
        keep_house(self.begin, keep_log_since, now)
