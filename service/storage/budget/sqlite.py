"""The caps by day on SQLite."""

from typing_extensions import override

from service.storage.budget.caps import COUNTS_OF_DAY, SAVE_DAYS, CappedDays, CapsSql
from service.storage.sqlite.sql import SqliteDialect

SAVE_DAY = SAVE_DAYS.format(rows="VALUES (?, ?, ?, ?, ?)")


class SqliteCaps(CapsSql, SqliteDialect):
    """The statements on caps by day in the SQL of SQLite."""

    @override
    def save_capped(self, days: CappedDays) -> None:
        self.run_many(SAVE_DAY, *(getattr(days, name).tolist() for name in COUNTS_OF_DAY))
