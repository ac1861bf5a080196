"""Statements over libpq itself: parsed once a connection, numpy arrays in, numpy arrays out.

psycopg finds an adapter for each value and makes a cursor for each statement, which takes longer
than Postgres needs for a few rows. Here a statement is its text, parameters `%(name)s`, and all
values travel in binary. Connections, commits, errors and COPY are psycopg's.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import psycopg
from psycopg import generators, pq

from service.storage.pgbinary import dumped, loaded

GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
PLACE = re.compile(r"%(?:%|\((\w+)\)s)")
BINARY = pq.Format.BINARY

Row = tuple[Any, ...]


class Rows:
    """What a statement gave."""

    def __init__(self, result: pq.abc.PGresult) -> None:
        self.result = result

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
            values = (result.get_value(row, i) for i in range(len(kinds)))
            yield tuple(map(loaded, kinds, values))


class Statements:
    """Those that one connection has parsed."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self.driver = driver
        # else psycopg, when it rolls back, ends all that are prepared
        driver.prepare_threshold = None
        self.names: dict[tuple[Any, ...], bytes] = {}

    def run(self, statement: str, parameters: dict[str, Any], *, kept: bool = True) -> Rows:
        """Run one statement, in a transaction unless the connection commits by itself.

        One that is not `kept` is parsed and planned for these parameters alone.
        """
        pgconn = self.driver.pgconn
        text, names = parsed(statement)
        given = [dumped(parameters[name]) for name in names]
        kinds, values = [kind for kind, _ in given], [value for _, value in given]
        formats = [BINARY] * len(given)
        if pgconn.transaction_status == pq.TransactionStatus.IDLE and not self.driver.autocommit:
            pgconn.send_query(b"BEGIN READ ONLY" if self.driver.read_only else b"BEGIN")
            self._answer()
        if kept:
            name = self._prepared(text, kinds)
            pgconn.send_query_prepared(name, values, formats, BINARY)
        else:
            pgconn.send_query_params(text, values, kinds, formats, BINARY)
        return Rows(self._answer())

    def _prepared(self, text: bytes, kinds: list[int]) -> bytes:
        """Have a statement parsed, unless it is; gives its name."""
        known = text, *kinds
        if known not in self.names:
            name = b"recrawl_%d" % len(self.names)
            self.driver.pgconn.send_prepare(name, text, kinds)
            self._answer()
            self.names[known] = name
        return self.names[known]

    def _answer(self) -> pq.abc.PGresult:
        """Wait for what was sent; raises psycopg's errors."""
        result: pq.abc.PGresult = self.driver.wait(generators.execute(self.driver.pgconn))[-1]
        if result.status not in GOOD:
            raise psycopg.errors.error_from_result(result)
        return result


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
