"""The log of observations on SQLite, in order of day, stretch of the day, page and time.

A stretch has entries that arrived one after the other. Because a commit writes whole leaves of the
index, the entries of a commit should share few leaves. Without stretches each entry would be on
another leaf.
"""

import sqlite3
from collections.abc import Generator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import numpy as np
from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.arrays import UNIX_ZERO, Ints
from service.model.columns import EvidenceColumns, LogColumns
from service.model.errors import PartChanged
from service.storage.log.contract import ArchivedLog, LogPart
from service.storage.sqlite.sql import STRETCHES, SqliteDialect, add_rows
from service.storage.sqlite.values import listed, microseconds, values

STRETCH = 32_768
"""Maximum entries of a stretch. Reading a page's log takes a look-up for each stretch, while
longer stretches rewrite more leaves."""

OF_A_DAY = 10_000
"""Maximum number of stretches of a day."""

DAY_US = 86_400_000_000
"""Length of a day, microseconds."""

APPEND = """
INSERT INTO observations
    (stretch, page_id, observed_at, kind, changed, "interval", crawl_rate, status)
VALUES (?, ?, ?, ?, nullif(?, -1), ?, ?, nullif(?, -1))
"""
APPEND_WEIGHED = """
INSERT INTO observations
    (stretch, page_id, observed_at, kind, changed, "interval", crawl_rate, status, weight)
VALUES (?, ?, ?, ?, nullif(?, -1), ?, ?, nullif(?, -1), ?)
"""

NEWEST_STRETCH = """
SELECT max(stretch) FROM observations WHERE stretch >= ?1 AND stretch < ?2
"""

N_ENTRIES = f"""
SELECT count(*) FROM (SELECT 1 FROM observations WHERE stretch = ? LIMIT {STRETCH})
"""

OF_PAGES = f"""
FROM observations WHERE stretch IN ({STRETCHES}) AND page_id BETWEEN ?1 AND ?2
    AND +page_id IN (SELECT value FROM json_each(?3))
"""

LOGGED = """page_id, observed_at, kind, coalesce(changed, -1), "interval", crawl_rate,
    coalesce(status, -1), weight"""
"""Columns of `LogColumns` in their order."""

LOG_OF = f"SELECT {LOGGED} {OF_PAGES}"

EVIDENCE_OF = f"""
SELECT page_id, "interval", coalesce(changed, -1), weight
{OF_PAGES} AND "interval" IS NOT NULL
ORDER BY page_id, observed_at, kind
"""

OLD_STRETCH = """
SELECT stretch FROM observations WHERE stretch < ? ORDER BY stretch LIMIT 1
"""

DROP = """
DELETE FROM observations WHERE stretch = ?1 AND page_id <= coalesce(
    (SELECT page_id FROM observations WHERE stretch = ?1 ORDER BY page_id LIMIT 1 OFFSET ?2), 1e300)
"""

STRETCHES_OF_PART = 8
"""Stretches that one commit drops, 262,144 entries: other writers wait about 0.2 s."""
BLOCK = 65_536
"""Entries that are read at a time."""

SUMS = "count(*), sum(page_id), sum(observed_at - stretch / 10000 * 86400000000), sum(kind)"
PARTS = f"""
SELECT stretch, {SUMS} FROM observations WHERE stretch < ? GROUP BY stretch ORDER BY stretch
"""
OF_PART = "FROM observations WHERE stretch BETWEEN ? AND ?"
READ = f"SELECT {LOGGED} {OF_PART} ORDER BY page_id, observed_at, kind"


class NewestStretches:
    """The newest stretch of each day, as this process counts; the counts may be inexact."""

    def __init__(self) -> None:
        self.filled: dict[int, tuple[int, int]] = {}
        """Number of the newest stretch and number of its entries, by day."""

    def take(self, driver: sqlite3.Connection, day: int, n: int) -> int:
        """Return the stretch for n entries of a day; read the newest stretch the first time."""
        newest, n_entries = self.filled.get(day) or _newest(driver, day)
        if n_entries > 0 and n_entries + n > STRETCH and newest % OF_A_DAY < OF_A_DAY - 1:
            newest, n_entries = newest + 1, 0
        self.filled[day] = newest, n_entries + n
        return newest


def _newest(driver: sqlite3.Connection, day: int) -> tuple[int, int]:
    first = day * OF_A_DAY
    (newest,) = driver.execute(NEWEST_STRETCH, (first, first + OF_A_DAY)).fetchone()
    if newest is None:
        return first, 0
    (n_entries,) = driver.execute(N_ENTRIES, (newest,)).fetchone()
    return newest, n_entries


class SqliteLog(ArchivedLog, SqliteDialect):
    """The log in the SQL of SQLite."""

    stretches: NewestStretches

    @override
    def append_log(self, entries: LogColumns) -> None:
        days, which = np.unique(entries.observed_at.astype("M8[D]"), return_inverse=True)
        counts = zip(days.astype(np.int64).tolist(), np.bincount(which).tolist(), strict=True)
        taken = [self.stretches.take(self.driver, day, n) for day, n in counts]
        stretch = np.array(taken, np.int64)[which]
        append = APPEND if entries.weight is None else APPEND_WEIGHED
        add_rows(self.driver, append, values(stretch), *map(values, entries.arrays().values()))

    @override
    def stored_log(self, page_id: Ints) -> LogColumns:
        log = self.columns(LogColumns, self._of_pages(LOG_OF, page_id))
        return log.take(np.lexsort((log.kind, log.observed_at, log.page_id)))

    @override
    def stored_evidence(self, page_id: Ints) -> EvidenceColumns:
        return self.columns(EvidenceColumns, self._of_pages(EVIDENCE_OF, page_id))

    def _of_pages(self, statement: str, page_id: Ints) -> sqlite3.Cursor:
        first, last = int(page_id.min(initial=0)), int(page_id.max(initial=0))
        return self.driver.execute(statement, (first, last, listed(page_id)))

    def drop_log(self, since: datetime, limit: int) -> bool:
        """Delete up to `limit` entries of days before `since`; return whether there were any."""
        first_kept = microseconds(since) // DAY_US * OF_A_DAY
        old = self.driver.execute(OLD_STRETCH, (first_kept,)).fetchall()
        for (stretch,) in old:
            self.driver.execute(DROP, (stretch, limit - 1))
        return bool(old)

    @override
    def log_parts(self, before: datetime) -> list[LogPart]:
        first_kept = microseconds(before) // DAY_US * OF_A_DAY
        rows = self.run(PARTS, first_kept).fetchall()
        parts = []
        for _, some in groupby(rows, lambda row: row[0] // STRETCHES_OF_PART):
            stretches = list(some)
            sums = tuple(sum(column) for column in zip(*stretches, strict=True))[1:]
            first, last = stretches[0][0], stretches[-1][0]
            name = f"{UNIX_ZERO + timedelta(days=first // OF_A_DAY):%Y-%m-%d}"
            parts.append(LogPart(name, sums[0], (first, last), sums))
        return parts

    @override
    def read_part(self, part: LogPart) -> Generator[LogColumns]:
        cursor = self.run(READ, *part.stretches)
        while rows := cursor.fetchmany(BLOCK):
            yield self.columns(LogColumns, rows)

    @override
    def drop_part(self, part: LogPart, files: Sequence[ArchivedFile], now: datetime) -> None:
        sums = self.run(f"SELECT {SUMS} {OF_PART}", *part.stretches).fetchone()
        if tuple(sums) != part.sums or part.n_rows != sum(file.n_rows for file in files):
            raise PartChanged
        self.name_files(files, now)
        self.run(f"DELETE {OF_PART}", *part.stretches)
