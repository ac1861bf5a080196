"""The caps by day on Postgres."""

from collections.abc import Callable
from functools import partial

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
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.statements import PostgresRows
from service.storage.postgres.words import given

SAVE_ALL = SAVE_DAYS.format(rows=f"SELECT * FROM {given(*COUNTS_OF_DAY)} ORDER BY queue_id")


class PostgresCaps(CapsSql, PostgresDialect):
    """The statements on caps by day in the SQL of Postgres."""

    of_locked: PostgresRows | None = None
    """Answer for the host queues that `ready` has locked, which came with their rows."""

    @override
    def ask_capped(self, queue_id: Ints) -> Callable[[], CappedDays]:
        rows, self.of_locked = self.of_locked, None
        if rows is None:
            rows = self.later(CAPPED_DAYS, ids=queue_id)
        return partial(capped_days, rows)

    def ask_capped_of(self, ids: str) -> None:
        """Ask for the host queues of an expression, for the next call of `ask_capped`."""
        table = f"unnest({ids}) AS ids (value)"
        self.of_locked = self.later(CAPPED_DAYS.replace("{ids}", table))

    @override
    def save_capped(self, days: CappedDays) -> None:
        if len(days):
            self.later(SAVE_ALL, **{name: getattr(days, name) for name in COUNTS_OF_DAY})
