"""Epochs, their certificates and schedules: the SQL that both databases share.

A statement on the schedule walks along the keys of pages from `after` to `last`, so that a filter
with few matches takes bounded time. The statement bounds each table, because planners do not derive
the bounds from joins. A schedule has the form of its database (`storage.dialect`: `schedule_of`).
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from typing_extensions import override

from service.core.shares import ShareEvidence
from service.model.arrays import COLUMN, UrlGroupRates
from service.model.columns import CapColumns, ScheduleChanges, ScheduledPages, SchedulePart
from service.model.domain import Certificate, Epoch, EpochStatus, ScheduleFilter
from service.model.errors import CursorExpired, EpochNotFound, EpochNotKept
from service.storage.clocks_sql import ClocksSql
from service.storage.dialect import KEPT, all_of, assignments
from service.storage.epochs import MOST_EPOCHS, MOST_SCANNED, NOTHING, EpochStatements, Learnt

CERTIFICATE = tuple(Certificate.__dataclass_fields__)
OWN = tuple(name for name in Epoch.__dataclass_fields__ if name != "certificate")
COLUMNS = ", ".join((*OWN, *CERTIFICATE))

REQUEST = f"""
INSERT INTO epochs (status, requested_at) VALUES ('requested', %(now)s)
ON CONFLICT (status) WHERE status = 'requested' DO UPDATE SET status = excluded.status
RETURNING {COLUMNS}
"""
"""Statement that requests an epoch; it returns another caller's request if that one was first."""
WAITING = f"SELECT {COLUMNS} FROM epochs WHERE status = 'requested'"
START = f"""
UPDATE epochs SET status = 'running', started_at = %(now)s WHERE status = 'requested'
RETURNING {COLUMNS}
"""
START_UNASKED = f"""
INSERT INTO epochs (status, requested_at, started_at) VALUES ('running', %(now)s, %(now)s)
RETURNING {COLUMNS}
"""
FAIL = "UPDATE epochs SET status = 'failed', reason = %(reason)s, finished_at = %(now)s"
FAIL_RUNNING = f"{FAIL} WHERE status = 'running'"
FAIL_ONE = f"{FAIL} WHERE epoch = %(epoch)s"
PUBLISH = f"""
UPDATE epochs SET status = 'published', finished_at = %(now)s, {assignments(CERTIFICATE)}
WHERE epoch = %(epoch)s
"""
ADD_URL_GROUPS = """
INSERT INTO url_groups (epoch, shard, rate, share_evidence)
VALUES (%(epoch)s, %(shard)s, %(rate)s, %(share_evidence)s)
"""
WITHDRAW_URL_GROUPS = "DELETE FROM url_groups WHERE epoch = %(epoch)s"
WITHDRAW_SCHEDULE = "DELETE FROM schedule WHERE epoch = %(epoch)s"
DROP_URL_GROUPS = f"DELETE FROM url_groups WHERE epoch NOT IN ({KEPT})"
DROP_EPOCHS = "DELETE FROM epochs WHERE epoch <= %(last)s"
URL_GROUP_RATE = "SELECT rate FROM url_groups WHERE epoch = %(epoch)s AND shard = %(shard)s"
SHARE_EVIDENCE = """
SELECT share_evidence FROM url_groups WHERE epoch = %(epoch)s AND shard = %(shard)s
"""
ONE = f"SELECT {COLUMNS} FROM epochs WHERE epoch = %(epoch)s"
IN_FORCE = f"SELECT {COLUMNS} FROM epochs WHERE status = 'published' ORDER BY epoch DESC LIMIT 1"
NEWEST = f"SELECT {COLUMNS} FROM epochs ORDER BY epoch DESC LIMIT 1"
BEFORE = f"""
SELECT {COLUMNS} FROM epochs WHERE epoch < %(before)s ORDER BY epoch DESC LIMIT %(limit)s
"""

SCHEDULE = """
SELECT pages.page_id, created_at, last_crawl_at, requested_at, coalesce(gone, false) AS gone,
    coalesce(n_failures, 0) AS n_failures, coalesce(interval_factor, 1.0) AS interval_factor,
    {due_rate} AS due_rate, url, importance, schedule.change_rate, schedule.crawl_rate,
    coalesce(schedule.crawl_probability, 0.0) AS crawl_probability
FROM pages
LEFT JOIN page_states ON {states}
{{{scheduled}: schedule, pages.page_id, %(epoch)s}}
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
MEASURES = (RATE, f"{RATE} * {{row}}.urgency", "coalesce({row}.crawl_probability, 0.0)")
"""Numbers whose change makes a row part of `schedule_changes`."""


CAPS = """
SELECT host_id, host, hosts.max_crawl_rate, coalesce(host_groups.group_id, 0), coalesce(name, ''),
    host_groups.max_crawl_rate
FROM hosts LEFT JOIN host_groups
    ON host_groups.group_id = hosts.group_id AND host_groups.max_crawl_rate IS NOT NULL
WHERE coalesce(hosts.max_crawl_rate, host_groups.max_crawl_rate) IS NOT NULL
ORDER BY host_id
"""


def _moved(measure: str) -> str:
    now, before = measure.format(row="schedule"), measure.format(row="before")
    return f"{{greatest}}({now}, {before}) > %(ratio)s * {{least}}({now}, {before}, 1e300)"


JOIN_BEFORE = "{schedule_between: before, pages.page_id, %(since)s}"
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
LAST_SCHEDULED = "{last_scheduled: %(epoch)s}"
MOST_PAGE_ID = 2**63 - 1


class EpochsSql(ClocksSql, EpochStatements):
    """The statements on epochs and schedules that Postgres and SQLite share."""

    @override
    def request_epoch(self, now: datetime) -> Epoch:
        return self._epoch(WAITING) or self._written(REQUEST, now=now)

    @override
    def start_epoch(self, now: datetime) -> Epoch:
        self.run(FAIL_RUNNING, reason="its process ended before it published", now=now)
        return self._epoch(START, now=now) or self._written(START_UNASKED, now=now)

    @override
    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        self.run(FAIL_ONE, epoch=epoch, reason=reason, now=now)

    @override
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        learnt: Learnt = NOTHING,
    ) -> None:
        values = {name: getattr(certificate, name) for name in CERTIFICATE}
        self.run(PUBLISH, epoch=epoch, now=now, **values)
        self.save_learnt(epoch, learnt)
        self.run(DROP_URL_GROUPS)
        self.run(DROP_EPOCHS, last=epoch - MOST_EPOCHS)

    @override
    def withdraw(self, epoch: int) -> None:
        self.run(WITHDRAW_URL_GROUPS, epoch=epoch)
        self.run(WITHDRAW_SCHEDULE, epoch=epoch)

    @override
    def save_learnt(self, epoch: int, learnt: Learnt) -> None:
        for shard, (url_group_rate, share_evidence) in learnt.of_shards.items():
            evidence = None if share_evidence is None else share_evidence.packed()
            rate, packed = _compressed(url_group_rate), _compressed(evidence)
            values = {"rate": rate, "share_evidence": packed}
            self.run(ADD_URL_GROUPS, epoch=epoch, shard=shard, **values)
        if learnt.clocks is not None:
            self.save_clocks(learnt.clocks)

    @override
    def url_group_rate(self, epoch: int, shard: int = 0) -> UrlGroupRates | None:
        return _decompressed(self.scalar(URL_GROUP_RATE, epoch=epoch, shard=shard))

    @override
    def share_evidence(self, epoch: int, shard: int = 0) -> ShareEvidence | None:
        packed = _decompressed(self.scalar(SHARE_EVIDENCE, epoch=epoch, shard=shard))
        return None if packed is None else ShareEvidence.unpacked(packed)

    @override
    def epoch(self, epoch: int) -> Epoch:
        one = self._epoch(ONE, epoch=epoch)
        if one is None:
            raise EpochNotFound(f"no epoch has the number {epoch}; GET /epochs lists them")
        return one

    @override
    def epoch_in_force(self) -> Epoch | None:
        return self._epoch(IN_FORCE)

    @override
    def newest_epoch(self) -> Epoch | None:
        return self._epoch(NEWEST)

    @override
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        last = MOST_PAGE_ID if before is None else before
        return [decode_epoch(row) for row in self.read(BEFORE, before=last, limit=limit)]

    def _epoch(self, statement: str, **parameters: Any) -> Epoch | None:
        rows = self.read(statement, **parameters)
        return decode_epoch(rows[0]) if rows else None

    def _written(self, statement: str, **parameters: Any) -> Epoch:
        (row,) = self.read(statement, **parameters)
        return decode_epoch(row)

    # -- schedule

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
        return SchedulePart(rows, self._next(rows, limit, last, epoch))

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
        return ScheduleChanges(rows, going_on, removed)

    def _next(self, rows: ScheduledPages, limit: int, last: int, *epochs: int) -> int | None:
        if len(rows) and len(rows) == limit:
            return int(rows.page_id[-1])
        ends = [self.scalar(LAST_SCHEDULED, epoch=epoch) or 0 for epoch in epochs]
        return last if last < max(ends) else None

    @abstractmethod
    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        """Return the result of the statement `rows`, and the kept epochs.

        With `since`, return the new and changed rows.
        """

    @override
    def load_caps(self) -> CapColumns:
        rows = list(self.run(CAPS))
        if not rows:
            return CapColumns.empty()
        read = zip(CapColumns.__dataclass_fields__.values(), zip(*rows, strict=True), strict=True)
        return CapColumns(**{f.name: np.array(cells, COLUMN[f.type]) for f, cells in read})


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
        scheduled="schedule_of" if by_index else "schedule_between",
        before=JOIN_BEFORE if since else "",
        where=all_of([*conditions, *([MOVED] if since else [])]),
        due_rate=DUE_RATE,
    )


def _compressed(numbers: NDArray[np.float32] | None) -> bytes | None:
    if numbers is None:
        return None
    return zstandard.compress(numbers.astype("<f4").tobytes(), level=1)


def _decompressed(packed: bytes | None) -> NDArray[np.float32] | None:
    return None if packed is None else np.frombuffer(zstandard.decompress(packed), "<f4")


def decode_epoch(row: Mapping[str, Any]) -> Epoch:
    """Return the epoch in a row of `epochs`."""
    certificate = None
    if row["status"] == EpochStatus.published:
        values = {name: row[name] for name in CERTIFICATE}
        for name in ("crawl_rate_quantiles", "observed_ratios"):
            values[name] = tuple(map(float, values[name]))
        for name in ("prior", "seconds"):  # JSON returns 1e22 as an integer
            values[name] = {key: float(value) for key, value in values[name].items()}
        certificate = Certificate(**values)
    own = {name: row[name] for name in OWN}
    return Epoch(**{**own, "status": EpochStatus(row["status"])}, certificate=certificate)
