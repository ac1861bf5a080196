"""The words and statements of SQLite alone."""

import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from service.model.arrays import Columns, Ints, element_types
from service.storage.dialect import NUMBER_IN_FORCE, Arrays, Dialect, worded
from service.storage.sqlite.values import columns, decoded, parameter, typed
from service.storage.topics import Topic

ColumnsT = TypeVar("ColumnsT", bound=Columns)

TOGETHER = 100
"""Rows that one statement inserts, about a thousand variables."""

STRETCHES = """
WITH RECURSIVE stretches (stretch) AS (
    SELECT min(stretch) FROM observations
    UNION ALL
    SELECT (SELECT min(stretch) FROM observations WHERE stretch > stretches.stretch)
    FROM stretches WHERE stretches.stretch IS NOT NULL
)
SELECT stretch FROM stretches
"""
"""Statement that lists the stretches of the log, by one look-up for each."""

ASK_EPOCH = f"""
SELECT coalesce(({NUMBER_IN_FORCE}), 0), EXISTS (SELECT 1 FROM host_incidents),
    EXISTS (SELECT 1 FROM due_pages WHERE n_unfinished IS NOT NULL)
"""
"""Statement that reads the epoch in force, once a transaction, and what each report asks too."""

OF_PAGE = "LEFT JOIN schedule AS {0} ON {0}.page_id = {1} AND {0}.epoch = {2}"
WORDS = {
    "double": "",
    "observed_at": "page_states.last_observed_at",
    "greatest": "max",
    "least": "min",
    "microsecond": "1",
    "in_hosts": "IN (SELECT value FROM json_each(%(hosts)s))",
    "among_ids": "IN (SELECT value FROM json_each(%(ids)s))",
    "ids": "json_each(%(ids)s)",
    "names": "json_each(%(names)s)",
    "lock_rows": "",
    "lock_free_rows": "",
    "days_since": "(%(now)s - pings_since) / 86400e6",
    "log_of_page": f"stretch IN ({STRETCHES}) AND page_id = %(page_id)s",
    "log_of_any": f"stretch IN ({STRETCHES})",
    "log_since": f"""stretch IN (
        SELECT stretch FROM ({STRETCHES}) WHERE stretch >= %(since)s / 86400000000 * 10000
    )""",
    "log": "observations",
    "joined_tags": "group_concat(tag, ' ')",
    "of_host_after": "true",
    "of_host_order": "pages.page_id",
    "schedule_of": OF_PAGE,
    "schedule_between": f"{OF_PAGE} AND {{0}}.page_id > %(after)s AND {{0}}.page_id <= %(last)s",
    "scheduled_ids": """(
        SELECT page_id FROM schedule
        WHERE epoch = {0} AND page_id > %(after)s AND page_id <= %(last)s
    )""",
    "last_scheduled": "SELECT max(page_id) FROM schedule WHERE epoch = {0}",
}


class Named(dict[str, str]):
    """Mapping that replaces parameters `%(name)s` by `:name`, the form of SQLite."""

    def __missing__(self, name: str) -> str:
        return f":{name}"


@cache
def named(statement: str) -> str:
    """Return a statement of both databases with parameters and words of SQLite.

    >>> named("SELECT 7 %% %(b)s")
    'SELECT 7 % :b'
    """
    return worded(statement, WORDS) % Named()


class SqliteDialect(Dialect):
    """A transaction that runs text on SQLite."""

    driver: sqlite3.Connection
    width: int
    number: int | None = None
    """The epoch in force; None before it was read."""
    any_incidents = False
    """True if any host was under suspicion then (`queue.incidents`)."""
    any_unfinished = False
    """True if any page had a count of unfinished leases then (`queue.unfinished`)."""
    rung: set[Topic]
    """Topics for which the store rings after the commit."""

    @override
    def ring(self, topic: Topic) -> None:
        self.rung.add(topic)

    @override
    def run(self, statement: str, *row: Any, **parameters: Any) -> sqlite3.Cursor:
        if row:
            return self.driver.execute(statement, row)
        values = {name: parameter(value) for name, value in parameters.items()}
        return self.driver.execute(named(statement), values)

    @override
    def read(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        cursor = self.run(statement, **parameters)
        names = [name for name, *_ in cursor.description]
        rows = (zip(names, row, strict=True) for row in cursor.fetchall())
        return [{name: decoded(name, cell) for name, cell in row} for row in rows]

    @override
    def ids(self, statement: str, **parameters: Any) -> Ints:
        return np.array([row[0] for row in self.run(statement, **parameters)], np.int64)

    @override
    def arrays(self, statement: str, dtypes: Mapping[str, str], **parameters: Any) -> Arrays:
        read = list(zip(*self.run(statement, **parameters), strict=True)) or [()] * len(dtypes)
        cells = zip(dtypes.items(), read, strict=True)
        return {name: typed(some, dtype) for (name, dtype), some in cells}

    def run_many(self, statement: str, *columns: Iterable[Any]) -> None:
        """Run one prepared statement for every row of the columns, inside SQLite."""
        self.driver.executemany(statement, zip(*columns, strict=True))

    def columns(self, kind: type[ColumnsT], rows: Iterable[Any]) -> ColumnsT:
        """Return rows as columns."""
        if not (fetched := list(rows)):
            return kind.empty(estimate=(self.width,))
        return kind(**columns(element_types(kind), fetched, self.width))

    @override
    def number_in_force(self) -> int:
        if self.number is None:
            asked = self.driver.execute(ASK_EPOCH).fetchone()
            self.number, self.any_incidents, self.any_unfinished = asked
        return self.number


def add_rows(driver: sqlite3.Connection, statement: str, *columns: Iterable[Any]) -> None:
    """Run `INSERT … VALUES (…)` for every row of the columns, mostly `TOGETHER` rows at a time.

    The driver releases the interpreter for each statement, which costs too much for a single row.
    """
    rows = list(zip(*columns, strict=True))
    whole = len(rows) - len(rows) % TOGETHER
    head, _, row = statement.rpartition("VALUES")
    several = f"{head}VALUES {','.join([row] * TOGETHER)}"
    parts = (rows[start : start + TOGETHER] for start in range(0, whole, TOGETHER))
    driver.executemany(several, (tuple(chain.from_iterable(part)) for part in parts))
    driver.executemany(statement, rows[whole:])
