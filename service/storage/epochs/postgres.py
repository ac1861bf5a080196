"""Epochs in the SQL of Postgres; a schedule is one partition."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg.pq import TransactionStatus
from typing_extensions import override

from service.core.twins import discounted
from service.model.arrays import element_types
from service.model.columns import (
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupScreens,
    ScheduleColumns,
    ScheduledPages,
    ShiftColumns,
)
from service.model.domain import Certificate
from service.model.host_sets import EVERY_HOST, HostSet, HostSizes
from service.model.listing import TagColumns
from service.storage.dialect import KEPT
from service.storage.epochs import schedule_blocks
from service.storage.epochs.change_hours import HOSTS_TOGETHER, OF_HOURS, RENEW_HOURS, stored
from service.storage.epochs.contract import NOTHING, WITHDRAW_URL_GROUPS, EpochsSql, Learnt
from service.storage.epochs.group_hours import (
    OF_RECORD,
    OF_SCREEN,
    RENEW_RECORDS,
    RENEW_SCREENS,
    stored_records,
    stored_screens,
)
from service.storage.epochs.loading import LoadSql
from service.storage.epochs.postgres_loading import SIZE, load
from service.storage.epochs.schedule import ScheduleSql, rows
from service.storage.postgres import binary
from service.storage.postgres.binary import copy_blocks
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.partitions import partitions
from service.storage.postgres.short_numbers import SHORT_RATES, broad
from service.storage.postgres.statements import SNAPSHOT
from service.storage.postgres.words import given

FROZEN = "(FORMAT BINARY, FREEZE)"
SCREENS_TOGETHER = 100_000
"""Screens that one statement writes: 6 MB."""

SAVE_CHANGE_HOURS = f"""
INSERT INTO change_hours ({", ".join(OF_HOURS)})
SELECT {", ".join(OF_HOURS)} FROM {given(*OF_HOURS)}
{RENEW_HOURS}
"""

SAVE_RECORDS, SAVE_SCREENS = (
    f"INSERT INTO group_hours ({', '.join(names)}) "
    f"SELECT {', '.join(names)} FROM {given(*names)} {renew}"
    for names, renew in ((OF_RECORD, RENEW_RECORDS), (OF_SCREEN, RENEW_SCREENS))
)

HOST_SIZES = """
SELECT array_agg(host_id), array_agg(n_pages) FROM (
    SELECT host_id, count(*) AS n_pages
    FROM page_states TABLESAMPLE SYSTEM ({}) REPEATABLE (1) GROUP BY host_id
) AS sizes
"""
"""Statement that counts the pages of hosts in a percentage of blocks, the same ones each time."""

SCHEDULE = f"""
SELECT array_agg(page_id), array_agg(coalesce(created_at, '-infinity')),
    array_agg(coalesce(last_crawl_at, '-infinity')),
    array_agg(coalesce(requested_at, '-infinity')), array_agg(gone),
    array_agg(n_failures::bigint), array_agg(outcome::smallint), array_agg(hops::smallint),
    array_agg(retry_rate::float8),
    array_agg(interval_factor::float8),
    array_agg(coalesce(due_rate, 'NaN')), array_agg(held::smallint),
    string_agg(url, E'\\n'), array_agg(importance),
    array_agg(change_rate::float8), array_agg(crawl_rate::float8), array_agg(crawl_probability),
    array(SELECT epoch FROM ({KEPT}) AS kept)
FROM ({{rows}}) AS rows
"""


def schedule_rows(only: Collection[str], *, since: bool) -> str:
    """Return the statement that reads rows of the schedule; no URL has a line break."""
    return SCHEDULE.format(rows=rows(only, since=since))


class PostgresEpochs(EpochsSql, ScheduleSql, LoadSql, PostgresDialect):
    """Epochs in the SQL of Postgres."""

    @override
    def load_columns(self) -> EpochColumns:
        columns, digest = self.load_hosts(EVERY_HOST)
        return replace(columns, importance=discounted(columns.importance, digest))

    def load_hosts(self, hosts: HostSet) -> tuple[EpochColumns, NDArray[Any]]:
        """Return the pages of some hosts as `load_columns`, twins in full, and their digests."""
        # one snapshot: outside a transaction, each statement would have its own
        driver = self.driver
        alone = driver.info.transaction_status is TransactionStatus.IDLE
        if alone:
            driver.execute(SNAPSHOT)
        loaded = load(driver, self.width, hosts)
        if alone:
            driver.execute("COMMIT")
        return loaded

    def host_sizes(self, n_blocks: int) -> HostSizes:
        """Return the sizes of hosts by a sample of about as many blocks of their pages' states."""
        ((size,),) = self.once(SIZE.format("page_states"))
        share = min(n_blocks / max(size, 1), 1.0)
        ((host_id, n_pages),) = self.once(HOST_SIZES.format(100.0 * share))
        if host_id is None:
            return HostSizes(np.zeros(0, np.int64), np.zeros(0, np.int64))
        order = np.argsort(host_id)
        return HostSizes(host_id[order], np.rint(n_pages[order] / share).astype(np.int64))

    @override
    def load_tags(self) -> TagColumns:
        copied = "COPY page_tags (page_id, tag_id) TO STDOUT (FORMAT BINARY)"
        return TagColumns(**binary.copy_out(self.driver, copied, {"page_id": "i8", "tag_id": "i8"}))

    @override
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        self.write_stretches(epoch, [schedule], schedule_blocks.seldom(schedule))

    def write_stretches(
        self, epoch: int, stretches: Iterable[ScheduleColumns], seldom: Collection[str]
    ) -> None:
        """Write a schedule whose rows come in stretches of whole blocks, by ascending page_id.

        `seldom` has the columns that some of them need (`schedule_blocks.seldom`).
        """
        # The table is filled and indexed, then attached; the CHECK avoids a scan. All blocks are
        # read by subscripts, so nothing is compressed or shifted to another table.
        table = f"schedule_{epoch}"
        of_one_epoch = f"(LIKE schedule, CHECK (epoch = {epoch}))"
        self.once(f"CREATE TABLE {table} {of_one_epoch} WITH (autovacuum_enabled = false)")
        columns = ", ".join(schedule_blocks.columns(seldom))
        blocks = (b for each in stretches for b in schedule_blocks.blocks(epoch, each, seldom))
        self.copy(f"COPY {table} ({columns}) FROM STDIN {FROZEN}", copy_blocks(blocks))
        self.once(f"CREATE INDEX ON {table} (block) WITH (fillfactor = 100)")
        self.once(f"ANALYZE {table} (block, epoch)")  # else the planner expects no rows
        self.once(f"ALTER TABLE schedule ATTACH PARTITION {table} FOR VALUES IN ({epoch})")

    @override
    def withdraw(self, epoch: int) -> None:
        self.run(WITHDRAW_URL_GROUPS, epoch=epoch)
        if f"schedule_{epoch}" in partitions(self, "schedule"):
            self.once("LOCK TABLE alembic_version")  # as `keep_house` does
            self.once(f"DROP TABLE schedule_{epoch}")

    @override
    def shifts(self, epoch: int) -> ShiftColumns:
        copied = f"COPY ({schedule_blocks.SHIFTED.format(epoch)}) TO STDOUT (FORMAT BINARY)"
        packed = schedule_blocks.OF_BLOCK
        columns = {"block": "i8", "shift": packed, "carried": packed}
        return schedule_blocks.shifts(**binary.copy_out(self.driver, copied, columns))

    @override
    def save_change_hours(self, change_hours: ChangeHours) -> None:
        for start in range(0, len(change_hours), HOSTS_TOGETHER):
            some = change_hours.take(slice(start, start + HOSTS_TOGETHER))
            self.later(SAVE_CHANGE_HOURS, **stored(some))

    @override
    def save_group_rows(self, records: GroupHours, screens: GroupScreens) -> None:
        for start in range(0, len(records), HOSTS_TOGETHER):
            some = records.take(slice(start, start + HOSTS_TOGETHER))
            self.later(SAVE_RECORDS, **stored_records(some))
        for start in range(0, len(screens), SCREENS_TOGETHER):
            few = screens.take(slice(start, start + SCREENS_TOGETHER))
            self.later(SAVE_SCREENS, **stored_screens(few))

    @override
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        learnt: Learnt = NOTHING,
    ) -> None:
        super().publish(epoch, certificate, now, learnt)
        self.forget_epoch()

    @override
    def read_schedule(
        self, only: Collection[str], **parameters: Any
    ) -> tuple[ScheduledPages, Collection[int]]:
        # planned for each reading, because the best plan depends on the range
        statement = schedule_rows(only, since="since" in parameters)
        ((*row, kept),) = self.once(statement, **parameters)
        if row[0] is None:
            return ScheduledPages.empty(), kept
        columns = dict(zip(element_types(ScheduledPages), row, strict=True))
        columns["url"] = np.array(columns["url"].split("\n"), object)
        columns |= {name: broad(columns[name]) for name in SHORT_RATES}
        return ScheduledPages(**columns), kept
