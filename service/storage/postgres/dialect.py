"""A transaction that runs text on Postgres: arrays in, columns out, and the epoch in force."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

import numpy as np
import psycopg
from typing_extensions import override

from service.model.arrays import Columns, Ints, element_types
from service.storage import migrations
from service.storage.clock import FollowingClock
from service.storage.dialect import NUMBER_IN_FORCE, Arrays, Dialect
from service.storage.postgres.statements import PostgresRows, Row, Statements
from service.storage.topics import Topic

ColumnsT = TypeVar("ColumnsT", bound=Columns)

HURRY = """set_config('lock_timeout', least(%(ms)s, extract(epoch FROM
    nullif(current_setting('lock_timeout')::interval, '0')) * 1000)::int::text, true)"""
"""Expression that shortens the wait for locks until the end of the transaction."""
ASK_EPOCH = f"""
SELECT epoch, clock_timestamp(), set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('recrawl.epoch', coalesce(epoch, 0)::text, true),
    EXISTS (SELECT FROM host_incidents)
FROM ({NUMBER_IN_FORCE}) AS published (epoch)
"""
"""Statement that reads the epoch in force, the database's time and whether any host is under
suspicion (`queue.incidents`), the first of most transactions.

Later statements read rows of the schedule by their keys, so one plan suits all parameters. The
first setting avoids planning, which takes longer than reading a few rows. The second keeps indexes
in their order: without statistics of `due_pages`, Postgres would read and sort all pages of a host
for each lease. All settings last until the end of the transaction."""
ASK_IN_A_HURRY = ASK_EPOCH.replace("EXISTS", f"{HURRY},\n    EXISTS", 1)


@cache
def fenced(ask: str) -> str:
    """Return the question for the epoch with the fence of `migrations` as one of its columns.

    Postgres locks the tables of a statement before it takes the snapshot, so the statement reads
    the epoch behind the fence.
    """
    return ask.replace("EXISTS", f"({migrations.fence()}),\n    EXISTS", 1)


NOTIFY = "SELECT pg_notify(%(channel)s, '')"
EPOCH_IN_FORCE = "current_setting('recrawl.epoch')::int"
"""Expression of the epoch that `ASK_EPOCH` has read, for statements in the same message."""


Key = tuple[Any, ...]
"""Statement and its parameters."""


class Foreseen(Exception):
    """The statement of a read is deferred, which ends the read; no error."""


class PostgresDialect(Dialect):
    """A transaction that runs text on Postgres."""

    database_clock: FollowingClock

    def __init__(self, statements: Statements, width: int) -> None:
        self.statements = statements
        self.width = width
        self.fence: PostgresRows | None = None
        """The answer to the fence of a transaction that writes."""
        self.asked: PostgresRows | None = None
        """The answer to `ASK_EPOCH`; None before the statement was sent or deferred."""
        self.number: int | None = None
        """The epoch in force; None before the answer was read."""
        self.any_incidents = False
        """True if any host was under suspicion then."""
        self.foreseen: dict[Key, PostgresRows] = {}
        """Answers to deferred statements that a read will ask for."""
        self.foresees = False
        """True while reads only defer their statements."""

    @property
    def driver(self) -> psycopg.Connection[Any]:
        """The psycopg connection of this transaction, after sending the deferred statements."""
        self.statements.send()
        return self.statements.driver

    @override
    def run(self, statement: str, **parameters: Any) -> PostgresRows:
        if self.foresees:
            rows = self.statements.later(statement, parameters)
            self.foreseen[key_of(statement, parameters)] = rows
            raise Foreseen
        if self.foreseen:
            foreseen = self.foreseen.pop(key_of(statement, parameters), None)
            if foreseen is not None:
                return foreseen
        return self.statements.run(statement, parameters)

    @override
    def foresee(self, *reads: Callable[[], object]) -> None:
        self.foresees = True
        try:
            for read in reads:
                with suppress(Foreseen):
                    read()
        finally:
            self.foresees = False

    def later(self, statement: str, **parameters: Any) -> PostgresRows:
        """Defer one statement, whose answer can wait; it runs with the next one."""
        return self.statements.later(statement, parameters)

    def once(self, statement: str, **parameters: Any) -> PostgresRows:
        """Run one statement that is planned for these parameters alone."""
        return self.statements.run(statement, parameters, kept=False)

    @override
    def read(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        rows = self.run(statement, **parameters)
        names = rows.names
        return [dict(zip(names, row, strict=True)) for row in rows]

    @override
    def ids(self, statement: str, **parameters: Any) -> Ints:
        return self.id_array(f"SELECT array_agg(id) FROM ({statement}) AS ids (id)", **parameters)

    def id_array(self, statement: str, **parameters: Any) -> Ints:
        """Return the array that a statement reads; NULL, the array of no row, becomes empty."""
        ids = self.scalar(statement, **parameters)
        return np.zeros(0, np.int64) if ids is None else ids

    @override
    def arrays(self, statement: str, dtypes: Mapping[str, str], **parameters: Any) -> Arrays:
        names = ", ".join(f"array_agg({name})" for name in dtypes)
        (row,) = self.run(f"SELECT {names} FROM ({statement}) AS rows", **parameters)
        if row[0] is None:
            return {name: np.empty(0, dtype) for name, dtype in dtypes.items()}
        return dict(zip(dtypes, row, strict=True))

    def columns(self, kind: type[ColumnsT], statement: str, **parameters: Any) -> ColumnsT:
        """Return the columns of a statement that reads one array for each column."""
        (row,) = self.run(statement, **parameters)
        return named(kind, row)

    @override
    def number_in_force(self) -> int:
        # This is a separate statement, because Postgres plans a statement before it takes the
        # snapshot: the plan could be older than the partition of the epoch in the snapshot.
        if self.number is None:
            rows = self.ask_epoch()
            ((epoch, reading, *_, self.any_incidents),) = rows
            self.database_clock.read(reading, sent=rows.sent_at, received=rows.received_at)
            self.number = epoch or 0
        return self.number

    @override
    def ring(self, topic: Topic) -> None:
        self.statements.at_end(NOTIFY, {"channel": topic.value})

    def put_up_fence(self) -> None:
        """Defer the fence of `migrations`, as the first statement of the transaction."""
        self.fence = self.later(migrations.fence())

    def ask_epoch(self, ask: str = ASK_EPOCH, **parameters: Any) -> PostgresRows:
        """Return the answer to `ASK_EPOCH`, which is sent once, with the next statement.

        A fence that is still deferred becomes a part of the question: a statement takes time.
        """
        if self.asked is None and self.fence is not None:
            self.asked = self.statements.instead(self.fence, fenced(ask), parameters)
        if self.asked is None:
            self.asked = self.later(ask, **parameters)
        return self.asked

    def forget_epoch(self) -> None:
        """Ask for the epoch in force again at its next use."""
        self.asked = self.number = None

    @override
    def now(self) -> datetime:
        # the database's time comes with the epoch; later calls add the elapsed time
        self.number_in_force()
        return self.clock()

    def copy(self, statement: str, blocks: Iterable[bytes]) -> None:
        """Copy blocks of rows into a table."""
        with self.driver.cursor().copy(statement) as copy:
            for block in blocks:
                copy.write(block)

    def epoch_dropped(self) -> bool:
        """Return whether the epoch in force was dropped after this reader read its number.

        If so, the next statement reads the number again. Only readers need this check, because
        housekeeping waits for the transactions of writers.
        """
        dropped = self.number_in_force() not in (0, *self.kept())
        if dropped:
            self.forget_epoch()
        return dropped


def key_of(statement: str, parameters: dict[str, Any]) -> Key:
    """Return what two equal statements have in common."""
    values = parameters.values()
    plain = (tuple(each.tolist()) if isinstance(each, np.ndarray) else each for each in values)
    return (statement, *plain)


def named(kind: type[ColumnsT], row: Row) -> ColumnsT:
    """Return arrays as columns; NULL, the arrays of no row, become empty columns."""
    if row[0] is None:
        return kind.empty()
    return kind(**dict(zip(element_types(kind), row, strict=True)))
