"""Old stretches of the log on SQLite, for the archive.

Writers may append to an old stretch, or delete a page, while entries are copied. Therefore the
commit that drops a part first compares sums over its entries.
"""

from collections.abc import Generator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.arrays import EPOCH
from service.model.columns import LogColumns
from service.model.errors import PartChanged
from service.storage.archive import LogPart
from service.storage.sqlite.log import DAY_US, LOGGED, OF_A_DAY, SqliteLog
from service.storage.sqlite.values import microseconds

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


class SqliteArchiving(SqliteLog):
    """The parts of the log in the SQL of SQLite."""

    @override
    def log_parts(self, before: datetime) -> list[LogPart]:
        first_kept = microseconds(before) // DAY_US * OF_A_DAY
        rows = self.run(PARTS, first_kept).fetchall()
        parts = []
        for _, some in groupby(rows, lambda row: row[0] // STRETCHES_OF_PART):
            stretches = list(some)
            sums = tuple(sum(column) for column in zip(*stretches, strict=True))[1:]
            first, last = stretches[0][0], stretches[-1][0]
            name = f"{EPOCH + timedelta(days=first // OF_A_DAY):%Y-%m-%d}"
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
