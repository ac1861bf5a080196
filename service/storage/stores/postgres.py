"""The store on Postgres, for any number of processes.

An epoch's schedule is one partition. One transaction loads and attaches the partition, a second
transaction of a single row puts the epoch in force. The leader of epochs holds an advisory lock
and a lease. It publishes over the connection that holds the lock, so a lost connection ends the
right to publish.
"""

import base64
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime

import numpy as np
import psycopg
import sqlalchemy as sa
from typing_extensions import override

from service.model.errors import ArchiveRunning, EpochRunning, LeadershipLost, StoreUnavailable
from service.model.incarnations import Incarnation
from service.storage import migrations
from service.storage.access.acceptances import AcceptancesSql
from service.storage.access.postgres import PostgresAccess
from service.storage.budget.allotments import AllotmentSql
from service.storage.budget.costs import CostSql
from service.storage.budget.orders import OrderSql
from service.storage.budget.pace import PaceSql
from service.storage.budget.stopped import StoppedSql
from service.storage.budget.worth_postgres import PostgresWorth
from service.storage.clock import Clock, FollowingClock
from service.storage.epochs.postgres import PostgresEpochs
from service.storage.feed.postgres import PostgresFeed
from service.storage.history.measured import MeasuredSql
from service.storage.history.postgres import PostgresHistory
from service.storage.incarnations.postgres import PostgresIncarnations
from service.storage.incarnations.recognition import recognise, renewed
from service.storage.log.partitions import keep_house
from service.storage.log.postgres import PostgresLog
from service.storage.log.sealing import seal
from service.storage.pages.postgres import PostgresPages
from service.storage.pages.postgres_lists import PostgresListing
from service.storage.postgres.connections import (
    ARCHIVE_LOCK,
    BATCH,
    CHECK,
    LEAD_LOCK,
    Deadlines,
    as_batch,
    opened,
    taken,
    translated,
)
from service.storage.postgres.leading import Heartbeat, LeadOf, leading
from service.storage.postgres.listening import Listener
from service.storage.postgres.statements import AUTOCOMMIT, SNAPSHOT, WRITE, Statements
from service.storage.queue.askers import AskersSql
from service.storage.queue.postgres import PostgresQueue
from service.storage.queue.signs import SignsSql
from service.storage.stores.contract import Lead, Store, Transaction, failing
from service.storage.topics import Topic
from service.storage.webhooks.contract import WebhooksSql
from service.storage.webhooks.subscriptions import SubscriptionsSql

EPOCHS_LEAD = LeadOf("epochs", LEAD_LOCK, EpochRunning)
ARCHIVE_LEAD = LeadOf("archive", ARCHIVE_LOCK, ArchiveRunning)

N_BYTES = 49_152
"""Random bytes of a trial: 64 KiB of text, or 33 chunks of a long value."""
TRIAL_EVERY_S = 1.0
"""Time for which a successful trial is valid, seconds."""

LONG_S = 1.0
"""Duration from which a transaction that writes may be held up by another session, seconds."""

LOCK = """
LOCK TABLE pages, page_states, hosts, observations, due_pages, host_queues,
    lease_answers, page_validators, epochs IN ROW EXCLUSIVE MODE
"""
"""Statement that takes the locks of every writer; a LOCK TABLE or a migration blocks it."""
INSERT = "INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s)"
DELETE = "DELETE FROM meta WHERE name = %(name)s"


class PostgresTransaction(
    PostgresHistory,
    PostgresPages,
    PostgresListing,
    PostgresFeed,
    PostgresQueue,
    PostgresLog,
    PostgresEpochs,
    PostgresAccess,
    PostgresIncarnations,
    PaceSql,
    AllotmentSql,
    OrderSql,
    PostgresWorth,
    WebhooksSql,
    SubscriptionsSql,
    CostSql,
    MeasuredSql,
    SignsSql,
    AskersSql,
    AcceptancesSql,
    StoppedSql,
    Transaction,
):
    """The statements on Postgres."""


class Trial:
    """A trial of the needs of every writer: its locks, and room for a small batch.

    Because a short row fits into existing pages on a full disk, the trial writes as many random
    bytes as a small batch. Each trial has its own row, so servers never wait for each other.
    """

    def __init__(self) -> None:
        self.succeeded_at = -TRIAL_EVERY_S

    def run(self, statements: Statements) -> None:
        """Write and commit, at most once a second; raise the errors of the driver."""
        if time.monotonic() - self.succeeded_at < TRIAL_EVERY_S:
            return
        name = f"trial {uuid.uuid4()}"
        value = base64.b64encode(os.urandom(N_BYTES)).decode()
        statements.later(INSERT, {"name": name, "value": value})
        statements.later(DELETE, {"name": name})
        statements.run(LOCK, {}, kept=False)
        statements.commit()
        self.succeeded_at = time.monotonic()


class PostgresStore(Store):
    """Pages, evidence and schedules in a Postgres database, shared by any number of processes."""

    setting = "RECRAWL_DATABASE_URL"
    """Setting that has the address of the database."""

    def __init__(
        self,
        url: str,
        width: int,
        *,
        pool_size: int = 17,
        deadlines: Deadlines = BATCH,
        clock: Clock | None = None,
    ) -> None:
        self.width = width
        self.url = url
        self.database_clock = FollowingClock()
        self.clock = clock or self.database_clock
        self.engine, self.silence = opened(url, pool_size, deadlines)
        self.checking, _ = opened(url, 1, CHECK)
        self.listener = Listener(self.checking)
        self.rings_of_keys = 0
        self.writing: dict[object, float] = {}
        """Beginnings of the transactions that write now, seconds of the monotonic clock."""
        self.trial = Trial()
        self.rng = np.random.default_rng()

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        # a snapshot per statement is enough for readers, so readers need no BEGIN and COMMIT
        self.silence.refuse()
        opening = WRITE if write else AUTOCOMMIT
        with (
            translated(self.check_schema),
            taken(self.engine) as driver,
            self._writing() if write else nullcontext(),
            driver.statements.transaction(opening) as statements,
        ):
            tx = self.transaction(statements, write=write)
            yield tx
        self.counter.add(tx.counted)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        turn = object()
        self.writing[turn] = time.monotonic()
        try:
            yield
        finally:
            del self.writing[turn]

    @override
    def writes_long(self) -> bool:
        before = time.monotonic() - LONG_S
        return any(began < before for began in list(self.writing.values()))

    @override
    @contextmanager
    def read_whole(self) -> Iterator[PostgresTransaction]:
        self.silence.refuse()
        with (
            translated(self.check_schema),
            taken(self.engine) as driver,
            as_batch(driver),
            driver.statements.transaction(SNAPSHOT) as statements,
        ):
            yield self.transaction(statements, write=False)

    def transaction(self, statements: Statements, *, write: bool) -> PostgresTransaction:
        """Return the statements of one transaction, behind the fence if it writes."""
        tx = self.new_transaction(statements)
        if write:
            tx.put_up_fence()
        tx.clock, tx.database_clock = self.clock, self.database_clock
        tx.archive, tx.holds_new, tx.counted = self.archive, self.holds_new, []
        tx.calendars = self.calendars
        return tx

    def new_transaction(self, statements: Statements) -> PostgresTransaction:
        """Return a transaction of these statements."""
        return PostgresTransaction(statements, self.width)

    @override
    def rings(self, topic: Topic) -> int:
        return self.listener.rings(topic)

    @override
    def wait_for_keys(self, within_s: float, ended: threading.Event) -> None:
        seen = self.rings_of_keys
        self.rings_of_keys = self.listener.wait(Topic.keys, seen, within_s, ended)

    @override
    @contextmanager
    def lead(self) -> Iterator["PostgresLead"]:
        self.silence.refuse()
        with self._leading(EPOCHS_LEAD) as heartbeat:
            yield PostgresLead(heartbeat, self)

    @override
    @contextmanager
    def archiving(self) -> Iterator["PostgresLead"]:
        self.silence.refuse()
        with self._leading(ARCHIVE_LEAD) as heartbeat:
            yield PostgresLead(heartbeat, self)

    @contextmanager
    def _leading(self, of: LeadOf) -> Iterator[Heartbeat]:
        with (
            translated(self.check_schema),
            leading(self.engine, self.silence, self.checking, of) as heartbeat,
        ):
            yield heartbeat

    def check_schema(self) -> None:
        """Raise `SchemaBehind` or `SchemaAhead`; return if the database does not answer."""
        with suppress(psycopg.Error, sa.exc.SQLAlchemyError), self.checking.connect() as connection:
            migrations.check(connection)

    @override
    def check_ready(self) -> Sequence[str]:
        with failing("connection"), translated():
            with self.checking.connect() as connection, failing("schema"):
                migrations.check_whole(connection)
            with taken(self.checking) as driver, failing("writes"), translated():
                self._try(driver.statements)
        return ()

    def _try(self, statements: Statements) -> None:
        with statements.transaction(WRITE):
            self.trial.run(statements)

    @override
    def recognise(self) -> None:
        recognise(self.begin, self.rng)

    @override
    def begin_incarnation(self) -> Sequence[Incarnation]:
        return (renewed(self.begin, self.rng),)

    @override
    def abort(self) -> None:
        self.silence.ended = True

    @override
    def check(self) -> None:
        try:
            with translated(), self.engine.connect() as connection:
                migrations.check_whole(connection)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"the database does not answer; see that it runs and that {self.setting} is right, "
                "then try again"
            ) from error

    @override
    def close(self) -> None:
        self.counter.close()
        self.listener.close()
        self.engine.dispose()
        self.checking.dispose()


class PostgresLead(Lead):
    """The lead, bound to the connection that holds the advisory lock."""

    def __init__(self, heartbeat: Heartbeat, store: PostgresStore) -> None:
        self.heartbeat = heartbeat
        self.driver = heartbeat.driver
        self.store = store

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        if self.driver.closed or self.heartbeat.lost:
            raise LeadershipLost
        opening = WRITE if write else SNAPSHOT
        statements = self.driver.statements
        with translated(self.store.check_schema), statements.transaction(opening):
            yield self.store.transaction(statements, write=write)

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        keep_house(self.begin, keep_log_since, now)

    @override
    def seal_log(self, before: datetime) -> None:
        seal(self.begin, before)
