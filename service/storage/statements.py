"""Statements over libpq itself: parsed once a connection, numpy arrays in, numpy arrays out.

psycopg finds an adapter for each value and makes a cursor for each statement, which takes longer
than Postgres needs for a few rows. Here a statement is its text, parameters `%(name)s`, and all
values travel in binary. Connections, errors and COPY are psycopg's.

**Fewer waits.** BEGIN goes with the first statement of a transaction; one whose answer can wait
(`later`) goes with the next that cannot, or with COMMIT. Nothing is committed that failed: what
comes after a failure is not run.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

from service.clock import elapsed
from service.storage.pgbinary import dumped, loaded

GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
PLACE = re.compile(r"%(?:%|\((\w+)\)s)")
BINARY = pq.Format.BINARY

Row = tuple[Any, ...]


class Rows:
    """What a statement gave; one put off is sent when this is first asked for."""

    def __init__(self, statements: "Statements") -> None:
        self.statements = statements
        self.answer: pq.abc.PGresult | None = None
        self.sent_at = self.received_at = 0.0
        """Seconds elapsed, as `service.clock.elapsed` counts them."""

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
        """How many rows were read or written."""
        return self.result.command_tuples or 0

    def fetchone(self) -> Row | None:
        """Give the first row."""
        return next(iter(self), None)

    def fetchall(self) -> list[Row]:
        """Give all rows."""
        return list(self)

    def __iter__(self) -> Iterator[Row]:
        result = self.result
        kinds = [result.ftype(i) for i in range(result.nfields)]
        for row in range(result.ntuples):
            yield tuple([loaded(kind, result.get_value(row, i)) for i, kind in enumerate(kinds)])


class Statements:
    """Those that one connection has parsed, and those that it has put off."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self.driver = driver
        # else psycopg, when it rolls back, ends all that are prepared
        driver.prepare_threshold = None
        self.names: dict[tuple[Any, ...], bytes] = {}
        self.put_off: list[tuple[Callable[[], None], Rows]] = []

    def run(self, statement: str, parameters: dict[str, Any], *, kept: bool = True) -> Rows:
        """Run one statement, in a transaction unless the connection commits by itself.

        One that is not `kept` is parsed and planned for these parameters alone. Raises what it,
        or one put off before, has failed with.
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
        given = [dumped(parameters[name]) for name in names]
        kinds, values = [kind for kind, _ in given], [value for _, value in given]
        formats = [BINARY] * len(given)
        pgconn = self.driver.pgconn
        if kept:
            name = self._prepared(text, kinds)
            send = partial(pgconn.send_query_prepared, name, values, formats, BINARY)
        else:
            send = partial(pgconn.send_query_params, text, values, kinds, formats, BINARY)
        return send, Rows(self)

    def send(self) -> None:
        """Send what was put off, and wait for the answers; raises the first error."""
        if not self.put_off:
            return
        pgconn = self.driver.pgconn
        sent, self.put_off = self.put_off, []
        if pgconn.transaction_status == pq.TransactionStatus.IDLE and not self.driver.autocommit:
            begin = "BEGIN READ ONLY" if self.driver.read_only else "BEGIN"
            sent = [self._message(begin, {}), *sent]
        sent_at = elapsed()
        if len(sent) > 1:
            pgconn.enter_pipeline_mode()
        for send, _ in sent:
            send()
        if len(sent) > 1:
            pgconn.pipeline_sync()
            results = self.driver.wait(answers(pgconn, len(sent)))
        else:
            results = self.driver.wait(generators.execute(pgconn))
        received_at = elapsed()
        for result, (_, rows) in zip(results, sent, strict=False):
            if result.status not in GOOD:
                raise psycopg.errors.error_from_result(result)
            rows.answer = result
            rows.sent_at, rows.received_at = sent_at, received_at

    def commit(self) -> None:
        """Commit, with what was put off, unless the transaction has not begun or has failed."""
        status = self.driver.pgconn.transaction_status
        if self.put_off or status == pq.TransactionStatus.INTRANS:
            self.run("COMMIT", {})

    def forget(self) -> None:
        """Leave out what was put off."""
        self.put_off.clear()

    def _prepared(self, text: bytes, kinds: list[int]) -> bytes:
        """Have a statement parsed, unless it is; gives its name."""
        known = text, *kinds
        if known not in self.names:
            name = b"recrawl_%d" % len(self.names)
            self.driver.pgconn.send_prepare(name, text, kinds)
            (result,) = self.driver.wait(generators.execute(self.driver.pgconn))
            if result.status not in GOOD:
                raise psycopg.errors.error_from_result(result)
            self.names[known] = name
        return self.names[known]


def answers(pgconn: pq.abc.PGconn, n: int) -> PQGen[list[pq.abc.PGresult]]:
    """Flush a pipeline of n statements, and give the answers up to its end, or that of all."""
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
    """Give a statement as Postgres takes it, and the names of its parameters.

    >>> parsed("SELECT 7 %% %(b)s, %(a)s + %(b)s")
    (b'SELECT 7 % $1, $2 + $1', ('b', 'a'))
    """
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        return f"${names.setdefault(found[1], len(names) + 1)}"

    return PLACE.sub(place, statement).encode(), tuple(names)
