"""What both databases say in the same words: single pages and the schedule's rows."""

from abc import abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from service.arrays import EPOCH, UNSAID, Bools, Ints, Keys
from service.columns import PageColumns, ScheduleChanges, ScheduledPages, SchedulePart
from service.domain import (
    Kind,
    LogEntry,
    Observability,
    Page,
    PagePatch,
    ScheduleFilter,
)
from service.errors import CursorExpired, EpochNotKept, PageNotFound
from service.storage import schedule_sql
from service.storage.base import MOST_SCANNED, Brought, Registered
from service.storage.epochs_sql import EpochsSql
from service.storage.hosts_sql import HostsSql
from service.storage.queue import Filled, Lowered
from service.storage.tables import (
    crawls,
    hosts,
    meta,
    observations,
    page_states,
    pages,
    schedule,
)
from service.storage.time_sql import TimeSql
from service.storage.websub_sql import SubscriptionsSql

MOST_PAGE_ID = 2**63 - 1
FIRST = 100
"""Of so many new pages it is asked whether any is known; most batches bring known ones or none."""

FILLED = "queue_filled"

PING_NUMBERS = ("n_pings", "real_pings", "false_pings", "trust")
"""NULL in the tables where they are 0."""

crawl_probability = sa.case(
    (schedule.c.epoch.is_not(None), sa.func.coalesce(schedule.c.crawl_probability, 0.0))
).label("crawl_probability")
"""NULL in the table where it is 0; here only of a page that the schedule does not have."""


class SqlTransaction(EpochsSql, HostsSql, SubscriptionsSql, TimeSql):
    """The statements that Postgres and SQLite share."""

    next_crawl_at: sa.ColumnElement[datetime]
    """When a page is due, as of now (see `service.core.timing`); each dialect's own words."""

    def __init__(self, connection: sa.Connection, width: int) -> None:
        self.connection = connection
        self.width = width

    # -- pages

    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> Registered:
        """Tell the new from the known, insert those, change what was said of these."""
        page_id = self._known(pages.key)
        new = page_id == 0
        if new.any():
            added = self.add_pages(pages.take(new), now, brought and brought.take(new))
            page_id[new], new[new] = added
        said = ~np.isnan(pages.importance) | (pages.observability != UNSAID)
        said |= ~np.isnan(pages.min_crawl_rate) | ~np.isnan(pages.max_crawl_rate)
        if (told := said & ~new).any():
            self.change_pages(page_id[told], pages.take(told), now)
        return Registered(page_id, new)

    def _known(self, key: Keys) -> Ints:
        """Give ids, 0 of new pages; where the first keys are all new, the rest is taken to be."""
        first = self.page_ids(key[:FIRST])
        if len(key) <= FIRST:
            return first
        if first.any():
            return np.append(first, self.page_ids(key[FIRST:]))
        return np.zeros(len(key), np.int64)

    @abstractmethod
    def add_pages(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        """Insert pages, most of which nobody has registered yet, with what is known of them."""

    @abstractmethod
    def change_pages(self, page_id: Ints, said: PageColumns, now: datetime) -> None:
        """Change of known pages what the caller said."""

    def page(self, page_id: int) -> Page:
        """Give one page with its state and its row of the schedule in force."""
        in_force = sa.and_(
            schedule.c.page_id == pages.c.page_id, schedule.c.epoch == self.number_in_force()
        )
        target = pages.alias("target")
        row = self.connection.execute(
            sa.select(
                pages,
                hosts.c.host,
                page_states,
                sa.cast(schedule.c.change_rate, sa.Double).label("change_rate"),
                sa.cast(schedule.c.crawl_rate, sa.Double).label("crawl_rate"),
                crawl_probability,
                schedule.c.pace,
                self.next_crawl_at.label("next_crawl_at"),
                target.c.url.label("redirects_to_url"),
            )
            .join_from(pages, hosts)
            .join(page_states)
            .outerjoin(schedule, in_force)
            .outerjoin(target, target.c.page_id == page_states.c.redirects_to)
            .where(pages.c.page_id == page_id)
        ).one_or_none()
        if row is None:
            raise PageNotFound(f"no page has the id {page_id}; register it with POST /pages")
        values = {name: getattr(row, name) for name in Page.__dataclass_fields__}
        values["observability"] = Observability(row.observability)
        values["gone"] = bool(row.gone)
        values |= {name: values[name] or 0 for name in (*PING_NUMBERS, "n_failures")}
        values["estimate"] = tuple(np.frombuffer(row.estimate).tolist())
        return Page(**values)

    def change_page(self, page_id: int, patch: PagePatch, now: datetime) -> None:
        """Write what was said; becoming `complete` starts a new count of pings."""
        said = {name: getattr(patch, name) for name in PagePatch.__dataclass_fields__}
        cleared = said.pop("cleared")
        values = {name: value for name, value in said.items() if value is not None}
        values |= dict.fromkeys(cleared)
        observability = values.pop("observability", None)
        found = pages.c.page_id == page_id
        locked = sa.select(pages.c.page_id).where(found).with_for_update(key_share=True)
        if self.connection.scalar(locked) is None:
            raise PageNotFound(f"no page has the id {page_id}; register it with POST /pages")
        if values:
            self.connection.execute(pages.update().where(found).values(values))
        if observability is not None:
            self._watch(page_id, observability, now)

    def _watch(self, page_id: int, observability: Observability, now: datetime) -> None:
        found = page_states.c.page_id == page_id
        values: dict[str, Any] = {"observability": observability.value}
        if observability is Observability.complete:
            found &= page_states.c.observability != observability.value
            values |= {"n_pings": None, "pings_since": now, "ping_credit": None}
        self.connection.execute(page_states.update().where(found).values(values))

    def delete_page(self, page_id: int) -> None:
        """Delete the page, its state and its log.

        Its rows of the schedules stay, seen by nobody, until their epoch is dropped: whoever
        asks what has changed since that epoch must learn that it is gone.
        """
        if not self.connection.execute(pages.delete().where(pages.c.page_id == page_id)).rowcount:
            raise PageNotFound(f"no page has the id {page_id}")
        self.connection.execute(page_states.delete().where(page_states.c.page_id == page_id))
        self.connection.execute(observations.delete().where(self.log_of_page(page_id)))
        left = crawls.delete().where(crawls.c.page_id == page_id)
        lease = self.connection.execute(
            left.returning(crawls.c.lane_id, crawls.c.leased_at)
        ).first()
        if lease and lease.leased_at:  # the lane may be full no longer
            self.lower_lanes(Lowered.of(lease.lane_id, lease.leased_at))

    def log_of_page(self, page_id: int) -> sa.ColumnElement[bool]:
        """Give the condition under which a page's entries of the log are found without a scan."""
        return observations.c.page_id == page_id

    def page_log(self, page_id: int, limit: int) -> list[LogEntry]:
        """Read the newest of the page's entries."""
        columns = [observations.c[name] for name in LogEntry.__dataclass_fields__]
        rows = self.connection.execute(
            sa.select(*columns)
            .where(self.log_of_page(page_id))
            .order_by(observations.c.observed_at.desc(), observations.c.kind.desc())
            .limit(limit)
        )
        return [
            LogEntry(at, Kind(kind), None if changed is None else bool(changed), interval, status)
            for at, kind, changed, interval, status in rows
        ]

    def clear_estimates(self, page_id: Ints) -> None:
        """Write the same bytes to a range of pages; the old ones may be of another width."""
        between = page_states.c.page_id.between(int(page_id[0]), int(page_id[-1]))
        zeros = bytes(8 * self.width)
        self.connection.execute(page_states.update().where(between).values(estimate=zeros))

    # -- schedule

    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        """Read along the key, and whether the epoch is still kept as of the same instant."""
        asked = [name for name in schedule_sql.ONLY if getattr(only, name) is not None]
        found = only.host is not None or only.page_id is not None
        last = MOST_PAGE_ID if found else min(after + MOST_SCANNED, MOST_PAGE_ID)
        rows, kept = self.read_schedule(
            asked, epoch=epoch, after=after, last=last, limit=limit,
            **{name: getattr(only, name) for name in asked if name != "host"},
            **({} if only.host is None else {"host_id": self._host_id(only.host)}),
        )  # fmt: skip
        if epoch not in kept:
            raise CursorExpired
        return SchedulePart(there(rows), self._next(rows, limit, last, epoch))

    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        """Read both epochs along their keys; the removed pages up to where the others reach.

        That the epochs are still kept is asked last, when it counts; and first, as no number of an
        epoch that never was may be too large for the database.
        """
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
        return self.connection.scalar(sa.select(hosts.c.host_id).where(hosts.c.host == host)) or 0

    def _next(self, rows: ScheduledPages, limit: int, last: int, *epochs: int) -> int | None:
        if len(rows) and len(rows) == limit:
            return int(rows.page_id[-1])
        newest = sa.func.max(schedule.c.page_id)
        ends = [
            self.connection.scalar(sa.select(newest).where(schedule.c.epoch == epoch)) or 0
            for epoch in epochs
        ]
        return last if last < max(ends) else None

    def kept(self) -> set[int]:
        """Give the published epochs whose schedule is kept."""
        return {epoch for (epoch,) in self.connection.exec_driver_sql(schedule_sql.KEPT)}

    @abstractmethod
    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        """Run `schedule_sql.SCHEDULE`, of what moved where `since` is given; also the kept epochs.

        A page that was deleted since comes without a URL.
        """

    @abstractmethod
    def read_removed(self, **parameters: Any) -> Ints:
        """Run `schedule_sql.REMOVED`."""

    # -- the store itself

    def estimator(self) -> str | None:
        """Give the name of the estimator whose states are stored."""
        return self.connection.scalar(sa.select(meta.c.value).where(meta.c.name == "estimator"))

    def set_estimator(self, name: str) -> None:
        """Record whose states are stored."""
        self.put_meta("estimator", name)

    def filled(self) -> Filled:
        """Read it from `meta`: the epoch and the instant."""
        epoch, _, until = (self.get_meta(FILLED) or f"0 {EPOCH.isoformat()}").partition(" ")
        return Filled(int(epoch), datetime.fromisoformat(until))

    def set_filled(self, filled: Filled) -> None:
        """Write it to `meta`."""
        self.put_meta(FILLED, f"{filled.epoch} {filled.until.isoformat()}")

    def get_meta(self, name: str) -> str:
        """Read one entry of `meta`; "" where there is none."""
        value = self.connection.scalar(sa.select(meta.c.value).where(meta.c.name == name))
        return value or ""

    def put_meta(self, name: str, value: str) -> None:
        """Write one entry of `meta`."""
        insert = self.insert(meta).values(name=name, value=value)
        self.connection.execute(
            insert.on_conflict_do_update(index_elements=["name"], set_={"value": value})
        )


def there(rows: ScheduledPages) -> ScheduledPages:
    """Leave out what was deleted since the epoch."""
    known: Bools = rows.url != ""
    return rows if known.all() else rows.take(known)
