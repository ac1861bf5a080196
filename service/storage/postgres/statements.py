"""The one way to run a statement on Postgres: parsed once a connection, values in binary.

A statement is its text with parameters `%(name)s`. psycopg finds an adapter for each value and
makes a cursor for each statement, which takes longer than Postgres needs for a few rows. This
module therefore speaks to libpq; connections, waits, errors and COPY are psycopg's.

**Fewer waits.** BEGIN travels with the first statement of a transaction. A statement whose answer
can wait (`later`) travels with the next one that cannot, or with COMMIT. Postgres runs nothing that
comes after a failure, so nothing is committed that failed.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

from service.storage.clock import elapsed
from service.storage.dialect import worded
from service.storage.postgres.binary import dumped, loaded

GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
PLACE = re.compile(r"%(?:%|\((\w+)\)s)")
WORDS = {
    "double": "::float8",
    "greatest": "greatest",
    "least": "least",
    "in_hosts": "= ANY(%(hosts)s)",
    "ids": "unnest(%(ids)s) AS ids (value)",
    "names": "unnest(%(names)s) AS names (value)",
    "lock_rows": "FOR NO KEY UPDATE",
    "days_since": "CAST(extract(epoch FROM %(now)s - pings_since) AS double precision) / 86400.0",
    "log_of_page": "page_id = %(page_id)s",
}
BINARY = pq.Format.BINARY

WRITE, READ_ONLY, AUTOCOMMIT = "BEGIN", "BEGIN READ ONLY", ""
"""How a transaction begins; with `AUTOCOMMIT` each statement is a transaction."""

Row = tuple[Any, ...]


class Rows:
    """The answer to a statement; one put off is sent when its answer is first used."""

    def __init__(self, statements: "Statements") -> None:
        self.statements = statements
        self.answer: pq.abc.PGresult | None = None
        self.sent_at = self.received_at = 0.0
        """Seconds elapsed, as `service.storage.clock.elapsed` counts them."""

    @property
    def result(self) -> pq.abc.PGresult:
        """The answer, once it is there; raises `ProgrammingError` after a rollback."""
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

    def fetchone(self) -> Row | None:
        """Return the first row."""
        return next(iter(self), None)

    def fetchall(self) -> list[Row]:
        """Return all rows."""
        return list(self)

    def __iter__(self) -> Iterator[Row]:
        result = self.result
        kinds = [result.ftype(i) for i in range(result.nfields)]
        for row in range(result.ntuples):
            yield tuple([loaded(kind, result.get_value(row, i)) for i, kind in enumerate(kinds)])


class Statements:
    """The statements of one connection: those it has parsed, and those it has put off."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self.driver = driver
        # else psycopg, when it rolls back, ends all that are prepared
        driver.prepare_threshold = None
        self.opening = AUTOCOMMIT
        self.names: dict[tuple[Any, ...], bytes] = {}
        self.put_off: list[tuple[Callable[[], None], Rows]] = []

    @contextmanager
    def transaction(self, opening: str) -> Iterator["Statements"]:
        """Commit when the block is left, roll back after an exception."""
        self.opening = opening
        try:
            yield self
            self.commit()
        except BaseException:
            self.rollback()
            raise
        finally:
            self.opening = AUTOCOMMIT

    def run(self, statement: str, parameters: dict[str, Any], *, kept: bool = True) -> Rows:
        """Run one statement; a statement that is not `kept` is planned for these parameters alone.

        Raises the error of this statement, or of one put off before it.
        """
        rows = self.later(statement, parameters, kept=kept)
        self.send()
        return rows

    def later(self, statement: str, parameters: dict[str, Any], *, kept: bool = True) -> Rows:
        """Run one statement together with the next that is not put off."""
        self.put_off.append(self._message(statement, parameters, kept=kept))
        return self.put_off[-1][1]

    def _message(
        self, statement: str, parameters: dict[str, Any], *, kept: bool = True
    ) -> tuple[Callable[[], None], Rows]:
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
        return send, Rows(self)

    def send(self) -> None:
        """Begin, send what was put off, and wait for the answers; raises the first error."""
        messages, self.put_off = self.put_off, []
        pgconn = self.driver.pgconn
        if self.opening and pgconn.transaction_status == pq.TransactionStatus.IDLE:
            messages = [self._message(self.opening, {}), *messages]
        if not messages:
            return
        sent_at = elapsed()
        if len(messages) > 1:
            pgconn.enter_pipeline_mode()
        for send, _ in messages:
            send()
        if len(messages) > 1:
            pgconn.pipeline_sync()
            results = self.driver.wait(answers(pgconn, len(messages)))
        else:
            results = self.driver.wait(generators.execute(pgconn))
        received_at = elapsed()
        for result, (_, rows) in zip(results, messages, strict=False):
            if result.status not in GOOD:
                raise psycopg.errors.error_from_result(result)
            rows.answer = result
            rows.sent_at, rows.received_at = sent_at, received_at

    def commit(self) -> None:
        """Commit, with what was put off, unless the transaction has not begun or has failed."""
        status = self.driver.pgconn.transaction_status
        if status == pq.TransactionStatus.INTRANS or (self.put_off and self.opening):
            self.later("COMMIT", {})
        if self.put_off:
            self.send()

    def rollback(self) -> None:
        """Leave out what was put off, and undo the rest; a lost connection has undone it."""
        self.put_off.clear()
        with suppress(psycopg.Error):
            self.driver.rollback()

    def _prepared(self, text: bytes, kinds: list[int]) -> bytes:
        """Return the name of a parsed statement; parse it the first time."""
        key = text, *kinds
        if key not in self.names:
            name = b"recrawl_%d" % len(self.names)
            self.driver.pgconn.send_prepare(name, text, kinds)
            (result,) = self.driver.wait(generators.execute(self.driver.pgconn))
            if result.status not in GOOD:
                raise psycopg.errors.error_from_result(result)
            self.names[key] = name
        return self.names[key]


def answers(pgconn: pq.abc.PGconn, n: int) -> PQGen[list[pq.abc.PGresult]]:
    """Flush a pipeline of n statements; return the answers up to the first failure."""
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
    """Return a statement as Postgres takes it, and the names of its parameters.

    >>> parsed("SELECT 7 %% %(b)s, %(a)s + %(b)s")
    (b'SELECT 7 % $1, $2 + $1', ('b', 'a'))
    """
    names: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return PLACE.sub(place, worded(statement, WORDS)).encode(), tuple(names)
