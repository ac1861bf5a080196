"""The history in the SQL of Postgres."""

from typing import Any

from typing_extensions import override

from service.model.freshness import MeasuredPages
from service.storage.history.contract import HistorySql
from service.storage.pages.postgres_lists import FRESH
from service.storage.postgres.dialect import PostgresDialect

MEASURED = {**FRESH, "importance": "importance"}
ARRAYS = ", ".join(f"array_agg({column})" for column in MEASURED.values())


class PostgresHistory(HistorySql, PostgresDialect):
    """The history in the SQL of Postgres."""

    @override
    def read_measured(self, statement: str, **parameters: Any) -> MeasuredPages:
        # planned for each block, because the best plan depends on the range
        (row,) = self.once(f"SELECT {ARRAYS} FROM ({statement}) AS rows", **parameters)
        if row[0] is None:
            return MeasuredPages.empty(estimate=(self.width,))
        columns = dict(zip(MEASURED, row, strict=True))
        columns["estimate"] = columns["estimate"].view("<f8").reshape(-1, self.width)
        return self.with_hours(MeasuredPages(**columns))
