"""Epochs in the SQL of SQLite."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.twins import discounted
from service.model.arrays import ATTACHED, COLUMN, INSTANT, Floats, Instants, Ints, element_types
from service.model.columns import (
    NOT_SHIFTED,
    RARE,
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupScreens,
    ScheduleColumns,
    ScheduledPages,
    ShiftColumns,
)
from service.model.listing import TagColumns
from service.model.urls import URL_GROUPS
from service.storage.column_builder import Gathered, placed
from service.storage.dialect import KEPT
from service.storage.epochs.change_hours import OF_HOURS, RENEW_HOURS, stored
from service.storage.epochs.contract import EpochsSql
from service.storage.epochs.group_hours import (
    OF_RECORD,
    OF_SCREEN,
    RENEW_RECORDS,
    RENEW_SCREENS,
    stored_records,
    stored_screens,
)
from service.storage.epochs.loading import SHARED_DIGEST, LoadSql, no_share
from service.storage.epochs.schedule import ScheduleSql, rows
from service.storage.sqlite.connections import Turns
from service.storage.sqlite.sql import SqliteDialect, add_rows
from service.storage.sqlite.values import (
    NAT,
    RARELY,
    RARELY_DUE,
    columns,
    rarely_due,
    shifts,
    values,
)

BLOCK = 20_000
"""Rows that an epoch reads, writes or deletes at a time: other writers wait at most 0.1 s."""

LOADED = {
    "page_id": COLUMN[Ints],
    "code": COLUMN[Ints],
    "importance": COLUMN[Floats],
    "digest": COLUMN[Ints],
    "last_observed_at": INSTANT,
    "last_interval": COLUMN[Floats],
    "n_observations": COLUMN[Ints],
    "interval_factor": COLUMN[Floats],
    "estimate": COLUMN[Floats],
}
"""Columns that an epoch reads of every page; `code` has observability, URL group and host."""
LOADED_RARE = {name: element_types(EpochColumns)[name] for name in ("page_id", *RARE)}
OBSERVABILITIES = 4
"""Base of the observability in `code`, above the number of its values."""

NO_SHARE = no_share("last_observed_at IS NULL")
LOAD_COLUMNS = f"""
SELECT pages.page_id,
    observability + {OBSERVABILITIES} * (url_group + {URL_GROUPS} * pages.host_id),
    CASE WHEN {NO_SHARE} THEN 0.0 ELSE importance END, {SHARED_DIGEST},
    last_observed_at, last_interval,
    n_observations, interval_factor, estimate
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
ORDER BY pages.page_id
"""

LOAD_RARE = f"""
SELECT pages.page_id, CASE WHEN {NO_SHARE} THEN NULL ELSE min_crawl_rate END, max_crawl_rate,
    coalesce(n_pings, 0), coalesce(recent_pings, 0.0), pings_since, last_ping_at,
    coalesce(real_pings, 0.0), coalesce(false_pings, 0.0), coalesce(trust, 0.0), last_age,
    CASE WHEN n_failures > 0 THEN last_crawl_at END, coalesce(cost, 0.0), born_at
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE n_pings > 0 OR observability = 1 OR n_failures > 0
    OR coalesce(min_crawl_rate, max_crawl_rate, last_age, cost, born_at) IS NOT NULL
ORDER BY pages.page_id
"""

STALE_EPOCH = f"""
SELECT epoch FROM epochs WHERE EXISTS (SELECT 1 FROM schedule WHERE schedule.epoch = epochs.epoch)
    AND epoch NOT IN ({KEPT})
LIMIT 1
"""

DROP_SCHEDULE = """
DELETE FROM schedule WHERE epoch = ?1 AND page_id <= coalesce(
    (SELECT page_id FROM schedule WHERE epoch = ?1 ORDER BY page_id LIMIT 1 OFFSET ?2), 1e300)
"""

ADD_SCHEDULE = """
INSERT INTO schedule (epoch, page_id, change_rate, crawl_rate, crawl_probability, urgency)
VALUES (?, ?, ?, ?, ?, ?)
"""
ADD_WHOLE = """
INSERT INTO schedule (epoch, page_id, change_rate, crawl_rate, crawl_probability, urgency,
    shift, carried, observed_ratio)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0.0))
"""
"""Statement for schedules with shifts or hidden ratios; three more parameters would slow all
others."""

SHIFTS = """
SELECT page_id, shift, carried FROM schedule WHERE epoch = {epoch} AND shift IS NOT NULL
ORDER BY page_id
"""

SAVE_CHANGE_HOURS = f"""
INSERT INTO change_hours ({", ".join(OF_HOURS)}) VALUES ({", ".join("?" * len(OF_HOURS))})
{RENEW_HOURS}
"""

SAVE_RECORDS, SAVE_SCREENS = (
    f"INSERT INTO group_hours ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) {renew}"
    for names, renew in ((OF_RECORD, RENEW_RECORDS), (OF_SCREEN, RENEW_SCREENS))
)

SCHEDULED = [
    f for f in fields(ScheduledPages) if f.name not in RARELY_DUE and f.metadata != ATTACHED
]
SCHEDULE = ", ".join(
    [*(f"coalesce({f.name}, {NAT})" if f.type == Instants else f.name for f in SCHEDULED), RARELY]
)
_KINDS = [(f.name, "i8" if f.type == Instants else COLUMN[f.type]) for f in SCHEDULED]
SCHEDULE_ROW = np.dtype([*_KINDS, ("rarely", "O")])
"""Type of a row of `SCHEDULE`, with which numpy reads rows without a list in between."""


class SqliteEpochs(EpochsSql, ScheduleSql, LoadSql, SqliteDialect):
    """Epochs in the SQL of SQLite."""

    fetching: Turns

    @override
    def load_columns(self) -> EpochColumns:
        columns = self._gathered(LOAD_COLUMNS, LOADED)
        code, observability = np.divmod(columns.pop("code"), OBSERVABILITIES)
        columns["importance"] = discounted(columns["importance"], columns.pop("digest"))
        columns["host_id"], url_group = np.divmod(code, URL_GROUPS)
        columns["observability"] = observability.astype(np.int16)
        columns["url_group"] = url_group.astype(np.int32)
        page_id, seldom = columns["page_id"], self._gathered(LOAD_RARE, LOADED_RARE)
        where = np.searchsorted(page_id, seldom["page_id"])
        for name, absent in RARE.items():
            columns[name] = placed(len(page_id), where, seldom[name], absent)
        return EpochColumns(**columns)

    @override
    def load_tags(self) -> TagColumns:
        kinds = element_types(TagColumns)
        return TagColumns(**self._gathered("SELECT page_id, tag_id FROM page_tags", kinds))

    def _gathered(
        self, statement: str, kinds: Mapping[str, np.dtype[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of a statement, read in blocks of rows."""
        shapes = {name: (0, self.width) if name == "estimate" else 0 for name in kinds}
        gathered = Gathered({n: np.empty(shapes[n], kind) for n, kind in kinds.items()})
        cursor = self.driver.execute(statement)
        while rows := cursor.fetchmany(BLOCK):
            gathered.append(columns(kinds, rows, self.width).values())
        return gathered.columns()

    @override
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        columns = schedule.arrays()
        moves = [shifts(columns.pop(name)) for name in ("shift", "carried")]
        ratio = columns.pop("observed_ratio", np.zeros(len(schedule)))
        whole = (schedule.shift != NOT_SHIFTED).any() or ratio.any()
        rest = [*moves, values(ratio)] if whole else []
        statement = ADD_WHOLE if whole else ADD_SCHEDULE
        listed = map(values, columns.values())
        add_rows(self.driver, statement, repeat(epoch, len(schedule)), *listed, *rest)

    @override
    def shifts(self, epoch: int) -> ShiftColumns:
        kinds = element_types(ShiftColumns)
        return ShiftColumns(**self._gathered(SHIFTS.format(epoch=epoch), kinds))

    @override
    def save_change_hours(self, change_hours: ChangeHours) -> None:
        self.run_many(SAVE_CHANGE_HOURS, *map(values, stored(change_hours).values()))

    @override
    def save_group_rows(self, records: GroupHours, screens: GroupScreens) -> None:
        self.run_many(SAVE_RECORDS, *map(values, stored_records(records).values()))
        self.run_many(SAVE_SCREENS, *map(values, stored_screens(screens).values()))

    @override
    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        # one reader at a time, because the driver releases the interpreter at every row
        statement = rows(only, since="since" in parameters)
        with self.fetching:
            cursor = self.run(f"SELECT {SCHEDULE} FROM ({statement})", **parameters)
            read = np.fromiter(cursor, SCHEDULE_ROW)
        columns = {f.name: read[f.name].view(COLUMN[f.type]) for f in SCHEDULED}
        return ScheduledPages(**columns, **rarely_due(read["rarely"])), self.kept()

    def drop_schedule(self) -> bool:
        """Delete a block of an old schedule; return whether there was one."""
        stale = self.run(STALE_EPOCH).fetchall()
        for (epoch,) in stale:
            self.run(DROP_SCHEDULE, epoch, BLOCK - 1)
        return bool(stale)
