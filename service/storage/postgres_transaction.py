"""Transactions on Postgres: arrays in, arrays out, one statement a step.

Pages are locked with `FOR NO KEY UPDATE` in page_id order, a page before its state.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import psycopg
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.dialects import postgresql

from service.arrays import UNSAID, Ints, Keys, SectionRates, instant, nothing
from service.clock import FollowingClock
from service.columns import (
    RARE,
    EpochColumns,
    EvidenceColumns,
    LogColumns,
    LoggedT,
    PageColumns,
    PageStates,
    ScheduleColumns,
    ScheduledPages,
    StoredPages,
)
from service.domain import Certificate, Observability, Page
from service.sections import sections
from service.storage import pgbinary
from service.storage import postgres_sql as sql
from service.storage.base import Brought, Registered
from service.storage.epochs_sql import NUMBER_IN_FORCE
from service.storage.postgres_partitions import keep_house
from service.storage.postgres_queue import PostgresQueue
from service.storage.postgres_values import (
    KEPT_SHORT,
    KINDS,
    SHORT,
    broad,
    eventful,
    masked,
    narrow,
    short,
    stored,
)
from service.storage.sql import SqlTransaction
from service.storage.statements import Rows, Statements
from service.storage.tables import Instant

FEW = 100
"""So many entries of the log are inserted rather than copied in."""

OWN = len(sql.OF_CRAWLS) + 1 + len(sql.OF_EVENTS)
"""Columns of a state without the rates in force, which are read with it or not."""


class Locked(NamedTuple):
    """What `lock_states` has locked last, until this transaction writes it."""

    page_id: Ints
    place: NDArray[np.void]
    """(N,) where each row lies, Postgres's ctid: sound as long as the lock is held."""


ASK_EPOCH = f"""
SELECT ({NUMBER_IN_FORCE}), clock_timestamp(),
    set_config('plan_cache_mode', 'force_generic_plan', true)
"""
"""What most transactions ask first: the epoch in force and the database's time.

Who goes by a schedule looks rows up by their keys: one plan is as good as another, and planning
takes longer than looking up a few. The setting lasts as long as the transaction."""

NOTHING = Locked(np.zeros(0, np.int64), np.zeros(0, "V6"))


class PostgresTransaction(SqlTransaction, PostgresQueue):
    """The statements in Postgres's words."""

    next_crawl_at = sa.literal_column(sql.NEXT_CRAWL_AT, Instant)

    def __init__(
        self, statements: Statements, connect: Callable[[], sa.Connection], width: int
    ) -> None:
        self.statements = statements
        """Those that the connection knows."""
        self.connect = connect
        self.width = width

    database_clock: FollowingClock
    locked = NOTHING
    eventful = False
    """Whether any page that this transaction has locked has what most pages have not."""
    asked: Rows | None = None
    """The epoch that this transaction goes by, once it has asked."""

    def run(self, statement: str, **parameters: Any) -> Rows:
        """Run one statement, which the connection parses but once."""
        return self.statements.run(statement, parameters)

    def later(self, statement: str, **parameters: Any) -> Rows:
        """Run one statement with the next one: its answer can wait."""
        return self.statements.later(statement, parameters)

    def once(self, statement: str, **parameters: Any) -> Rows:
        """Run one statement that is planned for these parameters alone."""
        return self.statements.run(statement, parameters, kept=False)

    @property
    def connection(self) -> sa.Connection:  # type: ignore[override]
        """SQLAlchemy's connection over the same driver; what it runs may write any row."""
        self.locked = NOTHING
        return self.connect()

    @property
    def driver(self) -> psycopg.Connection[Any]:
        """The psycopg connection under this transaction, with nothing put off."""
        self.statements.send()
        return self.statements.driver

    def insert(self, table: sa.Table) -> postgresql.Insert:
        """Give the INSERT that knows ON CONFLICT."""
        return postgresql.insert(table)

    def days_before(self, now: datetime, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        """Turn an interval into seconds."""
        return sa.extract("epoch", sa.literal(now, Instant) - column) / 86_400.0

    def add_pages(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        """Insert in key order, so that two callers with the same new pages cannot deadlock."""
        given = {name: getattr(new, name) for name in PageColumns.__dataclass_fields__}
        section = sections(new.url)
        self.run(sql.ADD_HOSTS, host=new.host)
        if brought is None:
            zeros = bytes(8 * self.width)
            row = self.run(
                sql.ADD_PAGES, **given, section=section, now=now, estimate=zeros
            ).fetchone()
        else:
            told = ~np.isnat(brought.created_at)
            created_at = np.where(told, brought.created_at, instant(now))
            row = self.run(sql.BRING_PAGES, **given, created_at=created_at).fetchone()
        page_id: Ints = np.zeros(0, np.int64) if row is None or row[0] is None else row[0].copy()
        created = page_id > 0
        if brought is not None and created.any():
            states = replace(
                brought.states, page_id=page_id,
                observability=np.where(
                    new.observability == UNSAID, Observability.auto, new.observability
                ).astype(np.int16),
            )  # fmt: skip
            self._copy(sql.BRING_STATES, [*stored(states.take(created)), section[created]])
        if not created.all():  # somebody else has added them meanwhile
            page_id[~created] = self.page_ids(new.key[~created])
        return Registered(page_id, created)

    def change_pages(self, page_id: Ints, said: PageColumns, now: datetime) -> None:
        """Lock in page_id order what is about to change, then change it."""
        names = ("importance", "observability", "min_crawl_rate", "max_crawl_rate")
        given = {name: getattr(said, name) for name in names}
        self.locked = NOTHING
        self.run(sql.CHANGE_PAGES, page_id=page_id, now=now, **given)

    def page_ids(self, key: Keys) -> Ints:
        """Look all keys up in one statement."""
        found = self.run(sql.PAGE_IDS, key=key).fetchone()
        return np.zeros(0, np.int64) if found is None or found[0] is None else found[0]

    def number_in_force(self) -> int:
        """Ask once, in a statement of its own.

        Postgres plans a statement before it takes the snapshot that it runs on, so one that finds
        the epoch by itself may have been planned when that epoch's partition was not there yet.
        """
        rows = self.ask_epoch()
        (epoch, reading, _), *_ = rows
        self.database_clock.read(reading, sent=rows.sent_at, received=rows.received_at)
        return epoch or 0

    def now(self) -> datetime:
        """Read the database's clock, which comes with the epoch; later calls add what passed."""
        self.number_in_force()
        return self.clock()

    def ask_epoch(self) -> Rows:
        """Ask with the next statement."""
        if self.asked is None:
            self.asked = self.later(ASK_EPOCH)
        return self.asked

    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        """Lock in page_id order and read one array a column, and where the rows lie.

        Who learns asks for the epoch anyway: it goes along.
        """
        self.ask_epoch()
        if scheduled:
            epoch = self.number_in_force()
            row = self.run(sql.LOCK_SCHEDULED_STATES, page_id=page_id, epoch=epoch).fetchone()
        else:
            row = self.run(sql.LOCK_STATES, page_id=page_id).fetchone()
        if row is None or row[0] is None:
            return PageStates.empty(estimate=(self.width,))
        states = self._states((*row[:OWN], *row[OWN + 1 :]))
        self.locked = Locked(states.page_id.copy(), row[OWN])
        return states

    def _states(self, row: Sequence[Any]) -> PageStates:
        """Name the columns; rates in force that were not read are NaN."""
        states = dict(zip(sql.OF_CRAWLS, row, strict=False))
        states["estimate"] = states["estimate"].view("<f8").reshape(-1, self.width)
        n, (some, *events) = len(row[0]), row[len(sql.OF_CRAWLS) : OWN]
        states |= {name: nothing(KINDS[name], n) for name in sql.OF_EVENTS}
        if some is not None:
            self.eventful = True
            where = row[0].searchsorted(some)
            for name, values in zip(sql.OF_EVENTS, events, strict=True):
                states[name][where] = values
        crawl_rate, crawl_probability = row[OWN:] or np.full((2, n), np.nan)
        return PageStates(**states, crawl_rate=crawl_rate, crawl_probability=crawl_probability)

    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        """Read both in one statement, hence one snapshot."""
        row = self.run(sql.READ_PAGES, after=after, limit=limit).fetchone()
        if row is None or row[0] is None:
            return StoredPages.empty(), PageStates.empty(estimate=(self.width,))
        columns = row[0], *row[OWN:]
        read = dict(zip(StoredPages.__dataclass_fields__, columns, strict=True))
        return StoredPages(**read), self._states(row[:OWN])

    def restore_states(self, states: PageStates) -> None:
        """Update them in one statement."""
        self._save(sql.RESTORE_STATES, states)

    def save_states(self, states: PageStates) -> None:
        """Update all of them in one statement, without the columns that none of them uses."""
        either = self.eventful or eventful(states)
        self._save(sql.SAVE_STATES if either else sql.SAVE_PLAIN_STATES, states)

    def _save(self, statement: str, states: PageStates) -> None:
        """Update rows where they lie.

        A row that was written since it was locked lies elsewhere by now, and one may have been
        locked before the last ones: then all are looked up once more.
        """
        if not len(states):
            return
        if not np.isin(states.page_id, self.locked.page_id).all():
            self.lock_states(states.page_id)
        page_id, place = self.locked
        given = {n: getattr(states, n) for n in PageStates.__dataclass_fields__}
        given |= {n: short(given[n]) for n in SHORT}
        self.later(statement, place=place[page_id.searchsorted(states.page_id)], **given)
        self.locked = NOTHING

    def wake(self, page_id: Ints, now: datetime) -> Ints:
        """Lock in page_id order, then update."""
        self.locked = NOTHING
        row = self.run(sql.WAKE, page_id=page_id, now=now).fetchone()
        return np.zeros(0, np.int64) if row is None or row[0] is None else row[0]

    def append_log(self, entries: LogColumns) -> None:
        """Copy them in; few are inserted, which takes one message instead of three."""
        if len(entries) <= FEW:
            given = {n: getattr(entries, n) for n in LogColumns.__dataclass_fields__}
            self.later(sql.INSERT_LOG, **given)
            return
        columns = [masked(getattr(entries, n)) for n in LogColumns.__dataclass_fields__]
        self._copy(sql.APPEND_LOG, columns)

    def _copy(self, statement: str, columns: list[NDArray[Any]]) -> None:
        with self.driver.cursor().copy(statement) as copy:
            for block in pgbinary.copy_in(columns):
                copy.write(block)

    def log_of(self, page_id: Ints) -> LogColumns:
        """Read along the log's key."""
        return self._logged(sql.LOG_OF, page_id, LogColumns)

    def evidence_of(self, page_id: Ints) -> EvidenceColumns:
        """Read along the log's key."""
        return self._logged(sql.EVIDENCE_OF, page_id, EvidenceColumns)

    def _logged(self, statement: str, page_id: Ints, kind: type[LoggedT]) -> LoggedT:
        row = self.run(statement, page_id=page_id).fetchone()
        columns = dict(zip(kind.__dataclass_fields__, row or (), strict=True))
        return kind.empty() if columns["page_id"] is None else kind(**columns)

    def load_columns(self) -> EpochColumns:
        """Copy them out in one statement, hence one snapshot."""
        columns = pgbinary.copy_out(
            self.driver,
            sql.LOAD_COLUMNS,
            {
                "page_id": "i8", "importance": "f8", "observability": "i2", "host_id": "i8",
                "section": "i4", "last_observed_at": "M8[us]", "last_interval": "f8", "gap": "f8",
                "estimate": f"V{8 * self.width}",
            },
            rare=RARE,
        )  # fmt: skip
        columns["estimate"] = columns["estimate"].view("<f8").reshape(-1, self.width)
        return EpochColumns(**columns)

    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Copy into a table of its own, index it, then attach it; the CHECK spares a scan."""
        table = f"schedule_{epoch}"
        of_one_epoch = f"(LIKE schedule, CHECK (epoch = {epoch}))"
        self.once(f"CREATE TABLE {table} {of_one_epoch} WITH (autovacuum_enabled = false)")
        columns: list[NDArray[Any]] = [
            np.broadcast_to(np.int32(epoch), len(schedule)),
            narrow(schedule.change_rate),
            schedule.page_id,
            narrow(schedule.crawl_rate),
            schedule.pace.astype(np.float32),
            np.ma.masked_equal(schedule.crawl_probability, 0.0, copy=False),  # few have pings
        ]
        self._copy(f"COPY {table} FROM STDIN (FORMAT BINARY, FREEZE)", columns)
        self.once(f"CREATE INDEX ON {table} (page_id) WITH (fillfactor = 100)")
        self.once(f"ANALYZE {table}")
        self.once(f"ALTER TABLE schedule ATTACH PARTITION {table} FOR VALUES IN ({epoch})")

    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        section_rate: SectionRates | None = None,
    ) -> None:
        """Put the epoch in force, which is asked for anew."""
        super().publish(epoch, certificate, now, section_rate)
        self.asked = None

    def page(self, page_id: int) -> Page:
        """Give its rates as they are kept."""
        page = super().page(page_id)
        if page.crawl_rate is None:
            return page
        kept = broad(np.array([getattr(page, name) for name in KEPT_SHORT])).tolist()
        return replace(page, **dict(zip(KEPT_SHORT, kept, strict=True)))

    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        """Read one array a column; planned anew for every place, as the statistics are."""
        statement = sql.schedule(only, since="since" in parameters)
        row = self.once(statement, **parameters).fetchone()
        columns = dict(zip((*ScheduledPages.__dataclass_fields__, "kept"), row or (), strict=True))
        kept = columns.pop("kept")
        if columns["page_id"] is None:
            return ScheduledPages.empty(), kept
        columns["url"] = np.array(columns["url"].split("\n"), object)
        columns |= {name: broad(columns[name]) for name in KEPT_SHORT}
        return ScheduledPages(**columns), kept

    def read_removed(self, **parameters: Any) -> Ints:
        """Read one array."""
        statement = sql.REMOVED
        row = self.once(statement, **parameters).fetchone()
        return np.zeros(0, np.int64) if row is None or row[0] is None else row[0]

    def next_page_ids(self, after: int, limit: int) -> Ints:
        """Read along the key of the pages."""
        row = self.run(sql.NEXT_PAGE_IDS, after=after, limit=limit).fetchone()
        return np.zeros(0, np.int64) if row is None or row[0] is None else row[0]

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Make the log's months ahead; drop months and schedules that are no longer kept.

        What a reader still holds is left for the next round.
        """
        keep_house(lambda: nullcontext(self), keep_log_since, now)
