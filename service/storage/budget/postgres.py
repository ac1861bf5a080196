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
from service.storage.postgres.words import given

ANY_CAPPED = """
SELECT EXISTS (
    SELECT FROM hosts WHERE host_id = ANY({ids})
        AND max_crawl_rate IS NOT NULL AND group_id IS NULL
) OR EXISTS (
    SELECT FROM host_groups WHERE max_crawl_rate IS NOT NULL
        AND group_id = ANY(ARRAY(SELECT -id FROM unnest({ids}) AS host_queue (id) WHERE id < 0))
)
"""
"""Statement that reads whether any of some host queues has a cap, which few have; by arrays of
keys, because a join would look through all hosts for those with a cap."""
SAVE_ALL = SAVE_DAYS.format(rows=f"SELECT * FROM {given(*COUNTS_OF_DAY)} ORDER BY queue_id")


class PostgresCaps(CapsSql, PostgresDialect):
    """The statements on caps by day in the SQL of Postgres."""

    may_be_capped = True
    """False if `ready` has found that none of the host queues that it has locked has a cap."""

    @override
    def ask_capped(self, queue_id: Ints) -> Callable[[], CappedDays]:
        asks, self.may_be_capped = self.may_be_capped, True
        return partial(capped_days, self.later(CAPPED_DAYS, ids=queue_id) if asks else ())

    @override
    def save_capped(self, days: CappedDays) -> None:
        if len(days):
            self.later(SAVE_ALL, **{name: getattr(days, name) for name in COUNTS_OF_DAY})
