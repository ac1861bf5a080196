"""Incarnations in the SQL of SQLite."""

from typing_extensions import override

from service.model.incarnations import Numbers, Surroundings
from service.storage.incarnations.contract import NEWEST, IncarnationsSql
from service.storage.sqlite.sql import SqliteDialect
from service.storage.sqlite.values import microseconds

LAST = f"""
SELECT {
    ", ".join(
        f"coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0)"
        for table in ("pages", "epochs")
    )
}, coalesce((SELECT max(seq) FROM feed), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0)
"""
"""Statement that reads the highest numbers of tables, also of rows that were deleted."""
FORGET = "DELETE FROM sqlite_sequence WHERE name = ?"
ADVANCE = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"


class SqliteIncarnations(IncarnationsSql, SqliteDialect):
    """Incarnations in the SQL of SQLite.

    The place of a file is the number of its last opening, which a file beside it repeats (`marks`).
    """

    @override
    def surroundings(self) -> Surroundings:
        rows = self.read(NEWEST)
        return Surroundings(rows[0]["place"] if rows else "", "", None)

    @override
    def tables(self) -> str:
        return ""

    @override
    def last_numbers(self) -> Numbers:
        return Numbers(*self.run(LAST).fetchone())

    @override
    def next_change(self) -> int:
        return max(self.last_numbers().change + 1, microseconds(self.now()))

    @override
    def advance(self, first: Numbers) -> None:
        for table, number in ("pages", first.page), ("epochs", first.epoch), ("audit", first.entry):
            self.run(FORGET, table)
            self.run(ADVANCE, table, number - 1)
