"""Schedules of epochs: the contract, and the SQL that both databases share.

A statement on the schedule walks along the keys of pages from `after` to `last`, so that a filter
with few matches takes bounded time. The statement bounds each table, because planners do not derive
the bounds from joins. A schedule has the form of its database (`storage.dialect`: `schedule_of`).
"""

from abc import abstractmethod
from collections.abc import Collection
from typing import Any

from typing_extensions import override

from service.model.columns import ScheduleChanges, ScheduleColumns, ScheduledPages, SchedulePart
from service.model.domain import ScheduleFilter
from service.model.errors import CursorExpired, EpochNotKept
from service.storage.dialect import IS_HELD, Dialect, Subject, all_of

MOST_SCANNED = 100_000
"""Maximum page_ids that one reading of the schedule scans, whatever its filter matches."""


class ScheduleStatements(Subject):
    """The statements of schedules; `leases.due` decides when their pages are due."""

    @abstractmethod
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Write the schedule of an epoch; no reader sees the schedule before `publish`.

        `Lead.write_schedule` writes it while others write.
        """

    @abstractmethod
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        """Return rows of a schedule with page_id > after, ascending, at most `limit`.

        Because the method scans at most `MOST_SCANNED` page_ids, a part with fewer rows, even none,
        may not be the last. Raise `CursorExpired` if the store no longer keeps the schedule.
        """

    @abstractmethod
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        """Return the rows of `schedule` that are new or have changed since an epoch.

        A row has changed if its crawl rate, crawl rate times urgency or crawl probability has. A
        number has changed if the larger value over the smaller one is more than 1 + min_change.
        `removed` has pages between `after` and the next part. Raise `EpochNotKept` if the store no
        longer keeps the schedule of `since`, `CursorExpired` if not that of `epoch`.
        """


SCHEDULE = """
SELECT pages.page_id, created_at, last_crawl_at, requested_at, coalesce(gone, false) AS gone,
    coalesce(n_failures, 0) AS n_failures, coalesce(outcome, 0) AS outcome,
    coalesce(hops, 0) AS hops, coalesce(retry_rate, 0.0) AS retry_rate,
    coalesce(interval_factor, 1.0) AS interval_factor,
    {due_rate} AS due_rate, {held} AS held, url, importance,
    schedule.change_rate, schedule.crawl_rate,
    coalesce(schedule.crawl_probability, 0.0) AS crawl_probability
FROM pages
LEFT JOIN page_states ON {states}
{{schedule_of: schedule, pages.page_id, %(epoch)s}}
{before}
WHERE {where}
ORDER BY pages.page_id
LIMIT %(limit)s
"""
"""Statement that reads rows of a schedule. With an inner join of states, Postgres would take the
keys for independent, expect few rows, and look each up instead of merging."""

BETWEEN = "{table}.page_id > %(after)s AND {table}.page_id <= %(last)s"
"""Bounds of a walk along the key; filters by host or page use their own index instead."""

RATE = "{row}.crawl_rate{{double}}"
DUE_RATE = "schedule.crawl_rate{double} * schedule.urgency"
"""Rate at which a page is due, 1/day: `DueColumns.due_rate`."""
URGENCY = "CASE WHEN shift IS NULL THEN urgency END"
"""Urgency of a page without a shift, which is a part of the urgency of others."""
MEASURES = (RATE, f"{RATE} * {{row}}.urgency", "coalesce({row}.crawl_probability, 0.0)")
"""Numbers whose change makes a row part of `schedule_changes`."""


def _moved(measure: str) -> str:
    now, before = measure.format(row="schedule"), measure.format(row="before")
    return f"{{greatest}}({now}, {before}) > %(ratio)s * {{least}}({now}, {before}, 1e300)"


JOIN_BEFORE = "{schedule_of: before, pages.page_id, %(since)s}"
MOVED = f"before.epoch IS NULL OR {' OR '.join(map(_moved, MEASURES))}"
"""Condition on new and changed rows."""

REMOVED = f"""
SELECT before.page_id
FROM {{scheduled_ids: %(since)s}} AS before
{{schedule_between: schedule, before.page_id, %(epoch)s}}
LEFT JOIN pages ON pages.page_id = before.page_id AND {BETWEEN.format(table="pages")}
WHERE schedule.epoch IS NULL OR pages.page_id IS NULL
ORDER BY before.page_id
"""

INDEXED = "pages.page_id IN ({ids}) AND +pages.page_id > %(after)s"
"""Condition that uses an index; the plus keeps both planners from a walk along the pages."""

ONLY = {
    "host": INDEXED.format(ids="SELECT page_id FROM pages WHERE host_id = %(host_id)s"),
    "page_id": INDEXED.format(ids="%(page_id)s"),
    "observability": "observability = %(observability)s",
}
"""Condition of each field of a `ScheduleFilter`."""

HOST_ID = "SELECT host_id FROM hosts WHERE host = %(host)s"
NEXT_PAGE_ID = "SELECT min(page_id) FROM pages WHERE page_id > %(after)s"
LAST_SCHEDULED = "{last_scheduled: %(epoch)s}"
MOST_PAGE_ID = 2**63 - 1


class ScheduleSql(Dialect, ScheduleStatements):
    """The statements of schedules that Postgres and SQLite share."""

    @override
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        filters = [name for name in ONLY if getattr(only, name) is not None]
        by_index = only.host is not None or only.page_id is not None
        last = MOST_PAGE_ID if by_index else min(after + MOST_SCANNED, MOST_PAGE_ID)
        values = {name: getattr(only, name) for name in filters}
        if only.host is not None:  # by id, because the planner knows how many pages an id has
            values["host_id"] = self.scalar(HOST_ID, host=values.pop("host")) or 0
        rows, kept = self.read_schedule(
            filters, epoch=epoch, after=after, last=last, limit=limit, **values
        )
        if epoch not in kept:
            raise CursorExpired
        return SchedulePart(self.with_hours(rows), self._next(rows, limit, last, epoch))

    @override
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        # The kept epochs count at the end. They are also read first, because the number of an
        # epoch that never existed may be too large for the database.
        if since not in self.kept():
            raise EpochNotKept
        last = min(after + MOST_SCANNED, MOST_PAGE_ID)
        rows, _ = self.read_schedule(
            (), epoch=epoch, since=since, ratio=1 + min_change, after=after, last=last, limit=limit
        )
        going_on = self._next(rows, limit, last, epoch, since)
        end = last if going_on is None else going_on
        removed = self.ids(REMOVED, epoch=epoch, since=since, after=after, last=end)
        kept = self.kept()
        if epoch not in kept:
            raise CursorExpired
        if since not in kept:
            raise EpochNotKept
        return ScheduleChanges(self.with_hours(rows), going_on, removed)

    def _next(self, rows: ScheduledPages, limit: int, last: int, *epochs: int) -> int | None:
        if len(rows) and len(rows) == limit:
            return int(rows.page_id[-1])
        end = max(self.scalar(LAST_SCHEDULED, epoch=epoch) or 0 for epoch in epochs)
        if last >= end:
            return None
        # a restore leaves a wide gap between ids, which no reader should cross step by step
        following = self.scalar(NEXT_PAGE_ID, after=last)
        return end if following is None else min(following - 1, end)

    @abstractmethod
    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        """Return the result of the statement `rows`, and the kept epochs.

        With `since`, return the new and changed rows.
        """


def rows(only: Collection[str], *, since: bool) -> str:
    """Return the statement that reads rows under these filters; with `since` the changed rows."""
    by_index = "host" in only or "page_id" in only
    states = "page_states.page_id = pages.page_id"
    conditions = ["schedule.epoch IS NOT NULL", *(ONLY[name] for name in only)]
    if not by_index:
        states = f"{states} AND {BETWEEN.format(table='page_states')}"
        conditions.append(BETWEEN.format(table="pages"))
    return SCHEDULE.format(
        states=states,
        before=JOIN_BEFORE if since else "",
        where=all_of([*conditions, *([MOVED] if since else [])]),
        due_rate=DUE_RATE,
        held=IS_HELD,
    )
