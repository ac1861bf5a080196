"""Statements on Postgres: parsed once for each connection, with binary values.

Because psycopg's adapters and cursors take longer than Postgres for a few rows, this module calls
libpq. **Fewer waits.** BEGIN, and a statement whose answer can wait (`later`), are sent with the
next statement. After a failure Postgres runs no further statement, so a failed transaction never
commits.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, NamedTuple

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

from service.storage.clock import elapsed
from service.storage.dialect import worded
from service.storage.postgres.binary import dumped, loaded
from service.storage.postgres.words import WORDS

GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
PLACE = re.compile(r"%(?:%|\((\w+)\)s)")
BINARY = pq.Format.BINARY

WRITE, AUTOCOMMIT = "BEGIN", ""
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""Statements that begin a transaction; with `AUTOCOMMIT` each statement is a transaction."""

REPLANNED = "RevalidateCachedQuery"
"""Function of Postgres that refuses a parsed statement whose columns have other types now."""

Row = tuple[Any, ...]


class Outdated(psycopg.OperationalError):
    """The tables were changed after the statement was parsed; the transaction is rolled back."""


class Plans:
    """Age of the parsed statements of all connections of a store."""

    def __init__(self) -> None:
        self.n_changes = 0
        """Number of changes of the tables that a connection has met."""


def is_outdated(error: psycopg.Error) -> bool:
    """Return whether a statement must be parsed again; no message, because those are translated."""
    if isinstance(error, psycopg.errors.InvalidSqlStatementName):
        return True
    changed = isinstance(error, psycopg.errors.FeatureNotSupported)
    return changed and error.diag.source_function == REPLANNED


class Message(NamedTuple):
    """A statement with its values, and the place of its answer."""

    statement: str
    parameters: dict[str, Any]
    kept: bool
    rows: "PostgresRows"
    send: Callable[[], None]


class PostgresRows:
    """The answer to a statement; a deferred statement is sent when its answer is first used."""

    def __init__(self, statements: "Statements") -> None:
        self.statements = statements
        self.answer: pq.abc.PGresult | None = None
        self.sent_at = self.received_at = 0.0
        """Times of the statement and of its answer, seconds of `service.storage.clock.elapsed`."""

    @property
    def result(self) -> pq.abc.PGresult:
        """The answer, after waiting for it; raise `ProgrammingError` after a rollback."""
        if self.answer is None:
            self.statements.send()
        if self.answer is None:
            raise psycopg.ProgrammingError("the transaction was rolled back")
        return self.answer

    @property
    def rowcount(self) -> int:
        """Rows read or written."""
        return self.result.command_tuples or 0

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        fields = (self.result.fname(i) for i in range(self.result.nfields))
        return [name.decode() for name in fields if name is not None]

    def __iter__(self) -> Iterator[Row]:
        result = self.result
        kinds = [result.ftype(i) for i in range(result.nfields)]
        for row in range(result.ntuples):
            yield tuple([loaded(kind, result.get_value(row, i)) for i, kind in enumerate(kinds)])


class Statements:
    """The statements of one connection: the parsed ones, and the deferred ones (`put_off`)."""

    def __init__(self, driver: psycopg.Connection[Any], plans: Plans | None = None) -> None:
        self.driver = driver
        self.plans = plans or Plans()
        self.n_changes = self.plans.n_changes
        # otherwise a rollback by psycopg ends all prepared statements
        driver.prepare_threshold = None
        self.opening = AUTOCOMMIT
        self.names: dict[tuple[Any, ...], bytes] = {}
        self.put_off: list[Message] = []
        self.ending: list[Message] = []
        """Statements that are sent in one message with COMMIT (`at_end`)."""

    @contextmanager
    def transaction(self, opening: str) -> Iterator["Statements"]:
        """Commit at the end of the block, roll back after an exception."""
        self.opening = opening
        try:
            if self.n_changes != self.plans.n_changes:
                self._parse_again()
            yield self
            self.commit()
        except BaseException:
            self.rollback()
            raise
        finally:
            self.opening = AUTOCOMMIT

    def run(self, statement: str, parameters: dict[str, Any], *, kept: bool = True) -> PostgresRows:
        """Run one statement; without `kept`, Postgres plans it for these parameters alone.

        Raise the error of this statement, or of a deferred one before it.
        """
        rows = self.later(statement, parameters, kept=kept)
        self.send()
        return rows

    def later(
        self, statement: str, parameters: dict[str, Any], *, kept: bool = True
    ) -> PostgresRows:
        """Defer one statement: it runs together with the next statement that is not deferred."""
        self.put_off.append(self._message(statement, parameters, kept=kept))
        return self.put_off[-1].rows

    def instead(
        self, first: PostgresRows, statement: str, parameters: dict[str, Any]
    ) -> PostgresRows | None:
        """Defer one statement in the place of the first deferred one; None: that one was sent."""
        if not self.put_off or self.put_off[0].rows is not first:
            return None
        self.put_off[0] = self._message(statement, parameters)
        return self.put_off[0].rows

    def at_end(self, statement: str, parameters: dict[str, Any]) -> None:
        """Defer one statement to the end of the transaction: it is sent together with COMMIT."""
        self.ending.append(self._message(statement, parameters))

    def _message(self, statement: str, parameters: dict[str, Any], *, kept: bool = True) -> Message:
        text, names = parsed(statement)
        typed = [dumped(parameters[name]) for name in names]
        kinds, values = [kind for kind, _ in typed], [value for _, value in typed]
        formats = [BINARY] * len(typed)
        pgconn = self.driver.pgconn
        if kept:
            name = self._prepared(text, kinds)
            send = partial(pgconn.send_query_prepared, name, values, formats, BINARY)
        else:
            send = partial(pgconn.send_query_params, text, values, kinds, formats, BINARY)
        return Message(statement, parameters, kept, PostgresRows(self), send)

    def send(self) -> None:
        """Begin, send the deferred statements and wait for the answers; raise the first error.

        Statements that must be parsed again are parsed and sent again, if the transaction begins
        with them. Otherwise raise `Outdated`.
        """
        messages, self.put_off = self.put_off, []
        begins = self.driver.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if self.opening and begins:
            messages = [self._message(self.opening, {}), *messages]
        if not messages:
            return
        try:
            self._exchange(messages)
        except psycopg.Error as error:
            if not is_outdated(error):
                raise
            self.plans.n_changes += 1
            if not begins:
                raise Outdated from error
            self.driver.rollback()
            self._parse_again()
            self._exchange([self._again(message) for message in messages])

    def _again(self, message: Message) -> Message:
        """Return a message with its statement parsed again; its answer has the same place."""
        again = self._message(message.statement, message.parameters, kept=message.kept)
        return again._replace(rows=message.rows)

    def _parse_again(self) -> None:
        """Forget the parsed statements of this connection, which is in no transaction."""
        self.n_changes = self.plans.n_changes
        self.names.clear()
        pgconn = self.driver.pgconn
        pgconn.send_query_params(b"DEALLOCATE ALL", [])
        for result in self.driver.wait(generators.execute(pgconn)):
            _good(result)

    def _exchange(self, messages: Sequence[Message]) -> None:
        pgconn = self.driver.pgconn
        sent_at = elapsed()
        if len(messages) > 1:
            pgconn.enter_pipeline_mode()
        for message in messages:
            message.send()
        if len(messages) > 1:
            pgconn.pipeline_sync()
            results = self.driver.wait(answers(pgconn, len(messages)))
        else:
            results = self.driver.wait(generators.execute(pgconn))
        received_at = elapsed()
        for result, message in zip(results, messages, strict=False):
            rows = message.rows
            rows.answer = _good(result)
            rows.sent_at, rows.received_at = sent_at, received_at

    def commit(self) -> None:
        """Send the deferred statements and commit, unless the transaction has failed."""
        status = self.driver.pgconn.transaction_status
        if status != pq.TransactionStatus.INERROR:
            self.put_off += self.ending
        self.ending = []
        if status == pq.TransactionStatus.INTRANS or (self.put_off and self.opening):
            self.later("COMMIT", {})
        if self.put_off:
            self.send()

    def rollback(self) -> None:
        """Discard the deferred statements and roll back; a lost connection has rolled back."""
        self.put_off.clear()
        self.ending.clear()
        with suppress(psycopg.Error):
            self.driver.rollback()

    def _prepared(self, text: bytes, kinds: list[int]) -> bytes:
        """Return the name of a parsed statement; parse the statement the first time."""
        key = text, *kinds
        if key not in self.names:
            name = b"recrawl_%d" % len(self.names)
            self.driver.pgconn.send_prepare(name, text, kinds)
            for result in self.driver.wait(generators.execute(self.driver.pgconn)):
                _good(result)  # a server that shuts down adds a result
            self.names[key] = name
        return self.names[key]


def _good(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status not in GOOD:
        raise psycopg.errors.error_from_result(result)
    return result


def answers(pgconn: pq.abc.PGconn, n: int) -> PQGen[list[pq.abc.PGresult]]:
    """Send a pipeline of n statements; return the answers up to the first failure."""
    results: list[pq.abc.PGresult] = []
    yield from generators.send(pgconn)
    try:
        for _ in range(n):
            results += yield from generators.fetch_many(pgconn)
        yield from generators.fetch_many(pgconn)
    except psycopg.OperationalError:
        if not results or results[-1].status in GOOD:
            raise
    else:
        pgconn.exit_pipeline_mode()
    return results


@cache
def parsed(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with the parameters of Postgres, and the names of the parameters.

    >>> parsed("SELECT 7 %% %(b)s, %(a)s + %(b)s")
    (b'SELECT 7 % $1, $2 + $1', ('b', 'a'))
    """
    names: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return PLACE.sub(place, worded(statement, WORDS)).encode(), tuple(names)
