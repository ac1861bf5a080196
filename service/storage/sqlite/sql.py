"""The words and statements of SQLite alone."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from service.model.arrays import Columns, Ints
from service.model.columns import PageStates
from service.storage.contract import GONE_CHECKS
from service.storage.dialect import NUMBER_IN_FORCE, Arrays, Dialect, worded
from service.storage.sqlite.values import columns, decoded, parameter, typed, values
from service.storage.tables import NULL_FOR_ZERO, SELDOM_SET
from service.storage.validators import NO_NOTE

ColumnsT = TypeVar("ColumnsT", bound=Columns)


TOGETHER = 100
"""Rows that one statement inserts, about a thousand variables."""

ASIDE = ("observability", "host_id", "crawl_rate", "crawl_probability")
NOT_WRITTEN = ("page_id", "pings_since", *ASIDE)
WRITTEN = (*(n for n in PageStates.__dataclass_fields__ if n not in NOT_WRITTEN), "page_id")
"""Columns of a state in the order of `SAVE_STATES`."""
COMMON = tuple(name for name in WRITTEN if name not in SELDOM_SET)
"""Columns of a state in the order of `SAVE_COMMON_STATES`."""


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

ADD_PAGES = """
INSERT OR IGNORE INTO pages
    (key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
VALUES (?, ?, ?, coalesce(?, 1), ?, ?, ?)
"""

ADD_STATES = """
INSERT INTO page_states
    (page_id, host_id, pings_since, interval_factor, n_observations, n_changes, observability, gone,
    url_group, estimate)
VALUES (?, ?, ?, 1, 0, 0, ?, 0, ?, ?)
"""

PLACES = {name: "nullif(?, 0)" if name in NULL_FOR_ZERO else "?" for name in WRITTEN}
BRING_STATES = f"""
INSERT INTO page_states (pings_since, {", ".join(WRITTEN)}, observability, host_id, url_group)
VALUES (?, {", ".join(PLACES.values())}, ?, ?, ?)
"""

CHANGE_PAGES = """
UPDATE pages SET importance = coalesce(?, importance),
    min_crawl_rate = coalesce(?, min_crawl_rate), max_crawl_rate = coalesce(?, max_crawl_rate)
WHERE page_id = ?
"""

CHANGE_STATES = """
UPDATE page_states SET observability = given.observability,
    n_pings = CASE given.observability WHEN 1 THEN NULL ELSE n_pings END,
    pings_since = CASE given.observability WHEN 1 THEN ? ELSE pings_since END,
    ping_credit = CASE given.observability WHEN 1 THEN NULL ELSE ping_credit END
FROM (SELECT ? AS page_id, ? AS observability) AS given
WHERE page_states.page_id = given.page_id
    AND given.observability NOT IN (-1, page_states.observability)
"""

OF_STATES = [*PageStates.__dataclass_fields__][:-2]
STATES = "SELECT " + ", ".join(
    f"coalesce({name}, 0)" if name in NULL_FOR_ZERO else f"page_states.{name}" for name in OF_STATES
)
"""Columns of `PageStates` in their order, without the rates in force."""

LOCK_STATES = f"""
{STATES}, NULL, NULL
FROM page_states WHERE page_id IN (SELECT value FROM json_each(?)) ORDER BY page_id
"""

LOCK_SCHEDULED_STATES = f"""
{STATES}, crawl_rate, CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END
FROM page_states
LEFT JOIN schedule ON schedule.page_id = page_states.page_id
    AND schedule.epoch = ({NUMBER_IN_FORCE})
WHERE page_states.page_id IN (SELECT value FROM json_each(?))
ORDER BY page_states.page_id
"""

_SAVE = ", ".join(f"{name} = {place}" for name, place in PLACES.items() if name != "page_id")
SAVE_STATES = f"UPDATE page_states SET {_SAVE} WHERE page_id = ?"
_SAVE_COMMON = ", ".join(
    f"{name} = NULL" if name in SELDOM_SET else f"{name} = {place}"
    for name, place in PLACES.items()
    if name != "page_id"
)
SAVE_COMMON_STATES = f"UPDATE page_states SET {_SAVE_COMMON} WHERE page_id = ?"
"""Statement for pages without pings, requests and failures, with half as many parameters."""
RESTORE_STATES = f"UPDATE page_states SET pings_since = ?, {_SAVE} WHERE page_id = ?"

WAKE = f"""
UPDATE page_states SET requested_at = ? WHERE page_id IN (SELECT value FROM json_each(?))
    AND gone AND n_failures > {GONE_CHECKS} AND requested_at IS NULL
RETURNING page_id
"""

READ_PAGES = f"""
{STATES}, NULL, NULL, url, importance, min_crawl_rate, max_crawl_rate, created_at
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE pages.page_id > ? ORDER BY pages.page_id LIMIT ?
"""


VALIDATORS = """
SELECT page_id, coalesce(etag, ''), last_modified, coalesce(note, '') FROM page_validators
WHERE page_id IN (SELECT value FROM json_each(?)) ORDER BY page_id
"""
ANY_VALIDATORS = "SELECT EXISTS (SELECT 1 FROM page_validators)"
CLEAR_VALIDATORS = """
UPDATE page_validators SET etag = NULL, last_modified = NULL
WHERE page_id IN (SELECT value FROM json_each(?))
"""
SAVE_VALIDATORS = f"""
INSERT INTO page_validators (page_id, etag, last_modified, note)
VALUES (?1, nullif(?2, ''), ?3, CASE WHEN ?4 NOT IN ('', '{NO_NOTE}') THEN ?4 END)
ON CONFLICT (page_id) DO UPDATE SET
    etag = CASE WHEN ?5 OR ?2 <> '' THEN excluded.etag ELSE etag END,
    last_modified = CASE WHEN ?5 OR ?3 IS NOT NULL THEN excluded.last_modified
        ELSE last_modified END,
    note = CASE ?4 WHEN '' THEN note ELSE excluded.note END
"""
DROP_VALIDATORS = """
DELETE FROM page_validators WHERE etag IS NULL AND last_modified IS NULL AND note IS NULL
    AND page_id IN (SELECT value FROM json_each(?))
"""


OF_PAGE = "LEFT JOIN schedule AS {0} ON {0}.page_id = {1} AND {0}.epoch = {2}"
WORDS = {
    "double": "",
    "observed_at": "page_states.last_observed_at",
    "greatest": "max",
    "least": "min",
    "in_hosts": "IN (SELECT value FROM json_each(%(hosts)s))",
    "among_ids": "IN (SELECT value FROM json_each(%(ids)s))",
    "ids": "json_each(%(ids)s)",
    "names": "json_each(%(names)s)",
    "lock_rows": "",
    "lock_free_rows": "",
    "days_since": "(%(now)s - pings_since) / 86400e6",
    "log_of_page": f"stretch IN ({STRETCHES}) AND page_id = %(page_id)s",
    "log_of_any": f"stretch IN ({STRETCHES})",
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
        return kind(**columns({f.name: f.type for f in fields(kind)}, fetched, self.width))

    @override
    def number_in_force(self) -> int:
        return self.scalar(NUMBER_IN_FORCE) or 0


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


def written(states: PageStates, names: Sequence[str] = WRITTEN) -> Iterator[list[Any]]:
    """Yield columns of states as SQLite stores them; the last has the page_ids."""
    return map(values, attrgetter(*names)(states))
