"""The store on Postgres, for any number of processes.

An epoch's schedule is one partition, loaded by COPY into a table that nobody sees and attached in
one transaction; a second one, of a single row, puts the epoch in force, so a crash leaves either
the old epoch or the new one, and at most a partition that the next round drops. One process leads
epochs by a session-level advisory lock and publishes over the very connection that holds it: when
that connection is lost, so are the lead and the right to publish.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import psycopg
import sqlalchemy as sa

from service.clock import Clock, FollowingClock
from service.errors import EpochRunning, LeadershipLost, StoreUnavailable
from service.storage import migrations
from service.storage.base import Lead, failing
from service.storage.postgres_connections import (
    LEAD_LOCK,
    as_batch,
    known,
    opened,
    reading,
    release,
    translated,
    watch,
    writing,
)
from service.storage.postgres_deadlines import BATCH, CHECK, Deadlines
from service.storage.postgres_partitions import keep_house
from service.storage.postgres_readiness import Trial
from service.storage.postgres_transaction import PostgresTransaction
from service.storage.statements import Statements
from service.storage.websub import SubscriptionStore


class PostgresStore(SubscriptionStore):
    """Pages, evidence and schedules in a Postgres database, shared by any number of processes."""

    def __init__(
        self,
        url: str,
        width: int,
        *,
        pool_size: int = 10,
        deadlines: Deadlines = BATCH,
        clock: Clock | None = None,
    ) -> None:
        self.width = width
        self.url = url
        self.database_clock = FollowingClock()
        self.clock = clock or self.database_clock
        self.engine, self.silence = opened(url, pool_size, deadlines)
        self.checking, _ = opened(url, 1, CHECK)
        self.trial = Trial()
        self.reading = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        """Open a transaction on a pooled connection.

        Who only reads gets a snapshot per statement in either case: BEGIN and COMMIT are spared.
        """
        self.silence.refuse()
        opening = writing(self.engine) if write else reading(self.reading)
        with translated(self.check_schema), opening as (statements, connect):
            yield self.transaction(statements, connect, write=write)

    def transaction(
        self, statements: Statements, connect: Callable[[], sa.Connection], *, write: bool
    ) -> PostgresTransaction:
        """Return the statements of one transaction, behind the fence if it writes."""
        if write:
            statements.later(migrations.fence(), {})
        tx = PostgresTransaction(statements, connect, self.width)
        tx.clock, tx.database_clock = self.clock, self.database_clock
        return tx

    @contextmanager
    def lead(self) -> Iterator["PostgresLead"]:
        """Hold the advisory lock on a connection of its own."""
        self.silence.refuse()
        with (
            translated(self.check_schema),
            self.engine.connect() as connection,
            as_batch(connection),
        ):
            taken = connection.scalar(sa.select(sa.func.pg_try_advisory_lock(LEAD_LOCK)))
            connection.commit()
            if not taken:
                raise EpochRunning
            try:
                watch(connection)
                yield PostgresLead(connection, self)
            finally:
                release(connection)

    def check_schema(self) -> None:
        """Raise `SchemaBehind` or `SchemaAhead`; a database that cannot be asked decides nothing.

        The pool has no part in this: whoever asks may hold its last connection.
        """
        with suppress(psycopg.Error, sa.exc.SQLAlchemyError), self.checking.connect() as connection:
            migrations.check(connection)

    def check_ready(self) -> None:
        """Try, under the limits of a check, what requests do."""
        with failing("connection"), translated(), writing(self.checking) as (statements, connect):
            with failing("schema"):
                migrations.check(connect())
            with failing("writes"), translated():
                self.trial.run(statements)

    def abort(self) -> None:
        """Let every wait raise `Silent` within moments, and begin nothing more."""
        self.silence.ended = True

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
        """Close the pools."""
        self.engine.dispose()
        self.checking.dispose()


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
        with translated(self.store.check_schema):
            self.connection.execution_options(postgresql_readonly=not write)
            with self.connection.begin():
                statements = known(self.connection)
                yield self.store.transaction(statements, lambda: self.connection, write=write)

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Do each chore in a transaction of its own."""
        keep_house(self.begin, keep_log_since, now)
