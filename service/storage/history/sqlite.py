"""The history in the SQL of SQLite."""

from typing import Any

from typing_extensions import override

from service.model.arrays import element_types
from service.model.freshness import MeasuredPages
from service.storage.history.contract import HistorySql
from service.storage.sqlite.connections import Turns
from service.storage.sqlite.sql import SqliteDialect

MEASURED = ", ".join(element_types(MeasuredPages))


class SqliteHistory(HistorySql, SqliteDialect):
    """The history in the SQL of SQLite."""

    fetching: Turns

    @override
    def read_measured(self, statement: str, **parameters: Any) -> MeasuredPages:
        # one reader at a time, because the driver releases the interpreter at every row
        with self.fetching:
            rows = self.run(f"SELECT {MEASURED} FROM ({statement})", **parameters).fetchall()
        return self.with_hours(self.columns(MeasuredPages, rows))
