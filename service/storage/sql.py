"""What both databases say in the same words: single pages and the schedule's rows."""

from abc import abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import EPOCH, UNSPECIFIED, Bools, Ints, Keys
from service.model.columns import (
    PageColumns,
    ScheduleChanges,
    ScheduledPages,
    SchedulePart,
)
from service.model.domain import Kind, LogEntry, Observability, Page, PagePatch, ScheduleFilter
from service.model.errors import CursorExpired, EpochNotKept, PageNotFound
from service.storage import schedule_sql
from service.storage.contract import MOST_SCANNED, Brought, Registered
from service.storage.dialect import assignments
from service.storage.epochs_sql import EpochsSql
from service.storage.hosts_sql import HostsSql
from service.storage.queue import FillMark, HostQueueBounds
from service.storage.time_sql import TimeSql
from service.storage.websub_sql import SubscriptionsSql

MOST_PAGE_ID = 2**63 - 1
FIRST = 100
"""Keys of a batch of new pages that are looked up; most batches have known pages or none."""

FILLED = "queue_filled"

PING_NUMBERS = ("n_pings", "real_pings", "false_pings", "trust")
"""NULL in the tables where they are 0."""

PAGE = """
SELECT pages.page_id, pages.url, host, pages.importance, observability, pages.min_crawl_rate,
    pages.max_crawl_rate, pages.created_at, last_crawl_at, last_observed_at, gone, n_failures,
    n_observations, n_changes, n_pings, last_ping_at, pings_since, real_pings, false_pings, trust,
    url_group, estimate, CAST(change_rate AS double precision) AS change_rate,
    CAST(crawl_rate AS double precision) AS crawl_rate, urgency, requested_at, interval_factor,
    CAST(crawl_rate AS double precision) * urgency AS due_rate,
    CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END AS crawl_probability,
    redirects_to, target.url AS redirects_to_url
FROM pages
JOIN hosts ON hosts.host_id = pages.host_id
JOIN page_states ON page_states.page_id = pages.page_id
LEFT JOIN schedule ON schedule.page_id = pages.page_id AND schedule.epoch = %(epoch)s
LEFT JOIN pages AS target ON target.page_id = page_states.redirects_to
WHERE pages.page_id = %(page_id)s
"""
"""A crawl probability of 0 is NULL in the table; here only a page without a schedule has none."""

LOCK_PAGE = "SELECT page_id FROM pages WHERE page_id = %(page_id)s {lock_rows}"
CHANGE_PAGE = "UPDATE pages SET {assignments} WHERE page_id = %(page_id)s"
WATCH = "UPDATE page_states SET observability = %(observability)s WHERE page_id = %(page_id)s"
WATCH_ALL = """
UPDATE page_states SET observability = %(observability)s, n_pings = NULL, pings_since = %(now)s,
    ping_credit = NULL
WHERE page_id = %(page_id)s AND observability <> %(observability)s
"""
"""For a page that becomes `complete`: a new count of pings begins."""

DELETE_PAGE = "DELETE FROM pages WHERE page_id = %(page_id)s"
DELETE_STATE = "DELETE FROM page_states WHERE page_id = %(page_id)s"
DELETE_LOG = "DELETE FROM observations WHERE {log_of_page}"
DELETE_QUEUED = "DELETE FROM due_pages WHERE page_id = %(page_id)s RETURNING queue_id, leased_at"

PAGE_LOG = """
SELECT observed_at, kind, changed, "interval", status FROM observations WHERE {log_of_page}
ORDER BY observed_at DESC, kind DESC LIMIT %(limit)s
"""

CLEAR_ESTIMATES = """
UPDATE page_states SET estimate = %(zeros)s WHERE page_id BETWEEN %(first)s AND %(last)s
"""
"""The old bytes may be of another width."""

HOST_ID = "SELECT host_id FROM hosts WHERE host = %(host)s"
LAST_SCHEDULED = "SELECT max(page_id) FROM schedule WHERE epoch = %(epoch)s"

GET_META = "SELECT value FROM meta WHERE name = %(name)s"
PUT_META = """
INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


class SqlTransaction(EpochsSql, HostsSql, SubscriptionsSql, TimeSql):
    """The statements that Postgres and SQLite share."""

    width: int
    """Numbers of an estimate."""

    # -- pages

    @override
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> Registered:
        page_id = self._known(pages.key)
        new = page_id == 0
        if new.any():
            added = self.add_pages(pages.take(new), now, brought and brought.take(new))
            page_id[new], new[new] = added
        specified = ~np.isnan(pages.importance) | (pages.observability != UNSPECIFIED)
        specified |= ~np.isnan(pages.min_crawl_rate) | ~np.isnan(pages.max_crawl_rate)
        if (changes := specified & ~new).any():
            self.change_pages(page_id[changes], pages.take(changes), now)
        return Registered(page_id, new)

    def _known(self, key: Keys) -> Ints:
        """Return ids, 0 of new pages; where the first keys are all new, take the rest to be."""
        first = self.page_ids(key[:FIRST])
        if len(key) <= FIRST:
            return first
        if first.any():
            return np.append(first, self.page_ids(key[FIRST:]))
        return np.zeros(len(key), np.int64)

    @abstractmethod
    def add_pages(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        """Insert pages, most of which nobody has registered yet, with their states."""

    @abstractmethod
    def change_pages(self, page_id: Ints, settings: PageColumns, now: datetime) -> None:
        """Change the specified settings of registered pages."""

    @override
    def page(self, page_id: int) -> Page:
        rows = self.read(PAGE, page_id=page_id, epoch=self.number_in_force())
        if not rows:
            raise _no_page(page_id)
        (values,) = rows
        values["observability"] = Observability(values["observability"])
        values["gone"] = bool(values["gone"])
        values |= {name: values[name] or 0 for name in (*PING_NUMBERS, "n_failures")}
        values["estimate"] = tuple(np.frombuffer(values["estimate"]).tolist())
        return Page(**values)

    @override
    def change_page(self, page_id: int, patch: PagePatch, now: datetime) -> None:
        fields = {name: getattr(patch, name) for name in PagePatch.__dataclass_fields__}
        cleared = fields.pop("cleared")
        values = {name: value for name, value in fields.items() if value is not None}
        values |= dict.fromkeys(cleared)
        observability = values.pop("observability", None)
        if self.scalar(LOCK_PAGE, page_id=page_id) is None:
            raise _no_page(page_id)
        if values:
            statement = CHANGE_PAGE.format(assignments=assignments(values))
            self.run(statement, page_id=page_id, **values)
        if observability is Observability.complete:
            self.run(WATCH_ALL, page_id=page_id, observability=observability.value, now=now)
        elif observability is not None:
            self.run(WATCH, page_id=page_id, observability=observability.value)

    @override
    def delete_page(self, page_id: int) -> None:
        # its rows of the schedules stay, seen by nobody, until their epoch is dropped: a caller
        # who asks for the changes since that epoch must learn that the page is gone
        if not self.run(DELETE_PAGE, page_id=page_id).rowcount:
            raise PageNotFound(f"no page has the id {page_id}")
        self.run(DELETE_STATE, page_id=page_id)
        self.run(DELETE_LOG, page_id=page_id)
        for row in self.read(DELETE_QUEUED, page_id=page_id):
            if row["leased_at"]:  # the host queue may be full no longer
                self.lower_host_queues(HostQueueBounds.of(row["queue_id"], row["leased_at"]))

    @override
    def page_log(self, page_id: int, limit: int) -> list[LogEntry]:
        return [
            LogEntry(
                row["observed_at"],
                Kind(row["kind"]),
                None if row["changed"] is None else bool(row["changed"]),
                row["interval"],
                row["status"],
            )
            for row in self.read(PAGE_LOG, page_id=page_id, limit=limit)
        ]

    @override
    def clear_estimates(self, page_id: Ints) -> None:
        first, last = int(page_id[0]), int(page_id[-1])
        self.run(CLEAR_ESTIMATES, zeros=bytes(8 * self.width), first=first, last=last)

    # -- schedule

    @override
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        filters = [name for name in schedule_sql.ONLY if getattr(only, name) is not None]
        by_index = only.host is not None or only.page_id is not None
        last = MOST_PAGE_ID if by_index else min(after + MOST_SCANNED, MOST_PAGE_ID)
        rows, kept = self.read_schedule(
            filters,
            epoch=epoch,
            after=after,
            last=last,
            limit=limit,
            **{name: getattr(only, name) for name in filters if name != "host"},
            **({} if only.host is None else {"host_id": self._host_id(only.host)}),
        )
        if epoch not in kept:
            raise CursorExpired
        return SchedulePart(there(rows), self._next(rows, limit, last, epoch))

    @override
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        # whether the epochs are still kept is read last, when it counts; and first, because the
        # number of an epoch that never was may be too large for the database
        if since not in self.kept():
            raise EpochNotKept
        last = min(after + MOST_SCANNED, MOST_PAGE_ID)
        rows, _ = self.read_schedule(
            (), epoch=epoch, since=since, ratio=1 + min_change, after=after, last=last, limit=limit
        )
        going_on = self._next(rows, limit, last, epoch, since)
        removed = self.read_removed(
            epoch=epoch, since=since, after=after, last=last if going_on is None else going_on
        )
        kept = self.kept()
        if epoch not in kept:
            raise CursorExpired
        if since not in kept:
            raise EpochNotKept
        return ScheduleChanges(there(rows), going_on, removed)

    def _host_id(self, host: str) -> int:
        """Look a host up beforehand, so that the planner knows how many pages it has."""
        return self.scalar(HOST_ID, host=host) or 0

    def _next(self, rows: ScheduledPages, limit: int, last: int, *epochs: int) -> int | None:
        if len(rows) and len(rows) == limit:
            return int(rows.page_id[-1])
        ends = [self.scalar(LAST_SCHEDULED, epoch=epoch) or 0 for epoch in epochs]
        return last if last < max(ends) else None

    def kept(self) -> set[int]:
        """Return the published epochs whose schedule is kept."""
        return {epoch for (epoch,) in self.run(schedule_sql.KEPT).fetchall()}

    @abstractmethod
    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        """Run `schedule_sql.rows`, of what moved where `since` is passed; also the kept epochs.

        A page that was deleted since comes without a URL.
        """

    @abstractmethod
    def read_removed(self, **parameters: Any) -> Ints:
        """Run `schedule_sql.REMOVED`."""

    # -- the store itself

    @override
    def estimator(self) -> str | None:
        return self.get_meta("estimator") or None

    @override
    def set_estimator(self, name: str) -> None:
        self.put_meta("estimator", name)

    @override
    def filled(self) -> FillMark:
        epoch, _, until = (self.get_meta(FILLED) or f"0 {EPOCH.isoformat()}").partition(" ")
        return FillMark(int(epoch), datetime.fromisoformat(until))

    @override
    def set_filled(self, filled: FillMark) -> None:
        self.put_meta(FILLED, f"{filled.epoch} {filled.until.isoformat()}")

    def get_meta(self, name: str) -> str:
        """Return one entry of `meta`; "" where there is none."""
        return self.scalar(GET_META, name=name) or ""

    def put_meta(self, name: str, value: str) -> None:
        """Write one entry of `meta`."""
        self.run(PUT_META, name=name, value=value)


def there(rows: ScheduledPages) -> ScheduledPages:
    """Leave out the pages deleted since the epoch."""
    has_url: Bools = rows.url != ""
    return rows if has_url.all() else rows.take(has_url)


def _no_page(page_id: int) -> PageNotFound:
    return PageNotFound(f"no page has the id {page_id}; register it with POST /pages")
