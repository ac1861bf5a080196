"""The caps by day on Postgres."""

from collections.abc import Callable

from typing_extensions import override

from service.model.arrays import Ints
from service.storage.budget.caps import (
    CAPPED_DAYS,
    COUNTS_OF_DAY,
    SAVE_DAYS,
    CappedDays,
    CapsSql,
    capped_days,
)
from service.storage.postgres.statements import PostgresDialect
from service.storage.postgres.words import given

SAVE_ALL = SAVE_DAYS.format(rows=f"SELECT * FROM {given(*COUNTS_OF_DAY)} ORDER BY queue_id")


class PostgresCaps(CapsSql, PostgresDialect):
    """The statements on caps by day in the SQL of Postgres."""

    @override
    def ask_capped(self, queue_id: Ints) -> Callable[[], CappedDays]:
        rows = self.later(CAPPED_DAYS, ids=queue_id)
        return lambda: capped_days(rows)

    @override
    def save_capped(self, days: CappedDays) -> None:
        if len(days):
            self.later(SAVE_ALL, **{name: getattr(days, name) for name in COUNTS_OF_DAY})
