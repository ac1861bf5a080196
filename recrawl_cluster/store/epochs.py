"""Epochs over several databases: prepare all, commit one row, announce.

**Prepare.** `write_schedule` attaches the rows of an epoch in each database. In the same
transaction it checks the number of the run, so a leader that was stopped attaches nothing. The
table of URL groups of a logical shard goes to the database of the shard.
**Commit.** The row of the coordinator puts the epoch in force.
**Announce.** Each database gets a copy of the row. A database that was away gets it from the next
reader that needs it, or from housekeeping.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import numpy as np
from typing_extensions import override

from recrawl_cluster.store.database import ShardTransaction
from recrawl_cluster.store.routing import (
    Routing,
    Span,
    ascending,
    by_coordinator,
    by_ids,
    on_all,
)
from service.core.ping_feeds import PingFeeds
from service.core.shared_changes import ShareEvidence
from service.core.wide_revisions import WideRevisions
from service.model.arrays import Ints, UrlGroupRates
from service.model.columns import (
    EpochColumns,
    GroupHours,
    ScheduleChanges,
    ScheduleColumns,
    ScheduledPages,
    SchedulePart,
)
from service.model.domain import Certificate, Epoch, ScheduleFilter
from service.model.errors import EpochNotFound, LeadershipLost, ShardUnavailable, StoreUnavailable
from service.storage.epochs.contract import NOTHING, Learnt
from service.storage.postgres.words import SHIFT

RUN = "epoch_run"
"""Name of the entry of `meta` with the number of the run that may attach a schedule."""
CHECK_RUN = "SELECT value FROM meta WHERE name = %(name)s FOR SHARE"
COPY_EPOCH = """
INSERT INTO epochs (epoch, status, requested_at, started_at)
VALUES (%(epoch)s, 'running', %(requested_at)s, %(started_at)s)
ON CONFLICT (epoch) DO NOTHING
RETURNING epoch
"""
NEXT_BLOCK = f"""
SELECT min(block) FROM (
    SELECT (
        SELECT min(block) FROM schedule WHERE epoch = e AND block >= (%(after)s + 1) >> {SHIFT}
    ) AS block FROM unnest(%(epochs)s::int[]) AS epochs (e)
) AS following
"""
"""Statement that reads the next block with pages of any of these schedules."""

MOST_READINGS = 64
"""Maximum readings of one call; a reading scans a bounded number of pages of one shard."""

PartT = TypeVar("PartT", bound=SchedulePart)


def announce(tx: ShardTransaction, epoch: Epoch) -> None:
    """Copy a published epoch into a database, unless it is there."""
    if epoch.certificate is None or epoch.finished_at is None:
        raise EpochNotFound(f"epoch {epoch.epoch} is not published")
    own = {"requested_at": epoch.requested_at, "started_at": epoch.started_at}
    if list(tx.run(COPY_EPOCH, epoch=epoch.epoch, **own)):
        tx.publish(epoch.epoch, epoch.certificate, epoch.finished_at)


class ShardedEpochs(Routing):
    """The statements on epochs and schedules."""

    request_epoch = by_coordinator("request_epoch")
    fail_epoch = by_coordinator("fail_epoch")
    epoch = by_coordinator("epoch")
    newest_epoch = by_coordinator("newest_epoch")
    epoch_failures = by_coordinator("epoch_failures")
    epochs = by_coordinator("epochs")
    epoch_in_force = by_coordinator("epoch_in_force")

    published: Epoch | None = None
    """Epoch that this transaction has published."""
    last_number = 0
    """Number of the last epoch in force that this process has read."""

    @abstractmethod
    def bring(self, tx: ShardTransaction, epoch: Epoch) -> None:
        """Announce an epoch in a transaction of its own on the database of `tx`."""

    @override
    def number_in_force(self) -> int:
        try:
            self.last_number = self.coordinator.number_in_force()
        except StoreUnavailable:
            if not self.last_number:
                raise
        return self.last_number

    @override
    def start_epoch(self, now: datetime) -> Epoch:
        every = list(self.whole())
        epoch = self.coordinator.start_epoch(now)
        for tx in every:
            tx.put_meta(RUN, str(epoch.epoch))
        return epoch

    @override
    def load_columns(self) -> EpochColumns:
        columns: EpochColumns = ascending((), [tx.load_columns() for tx in self.every()])
        return columns

    load_caps = on_all("load_caps", ascending)
    host_delays = by_ids("host_delays", ascending)
    longest_delay = on_all("longest_delay", lambda _, delays: max(delays))
    shifts = on_all("shifts", ascending)
    host_hours = on_all("host_hours", ascending)
    change_hours = by_ids("change_hours", ascending)
    group_profiles = on_all("group_profiles", ascending)
    group_hours = by_ids("group_hours", ascending)
    group_screens = by_ids("group_screens", ascending)

    @override
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        for tx, rows in shares_of_all(self, schedule.page_id):
            write_share(tx, epoch, schedule.take(rows))

    @override
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        learnt: Learnt = NOTHING,
    ) -> None:
        self.save_learnt(epoch, learnt)
        self.coordinator.publish(epoch, certificate, now)
        self.published = self.coordinator.epoch(epoch)

    @override
    def withdraw(self, epoch: int) -> None:
        for tx in self.every():
            tx.withdraw(epoch)

    @override
    def save_learnt(self, epoch: int, learnt: Learnt) -> None:
        for shard, tables in learnt.of_shards.items():
            self.of_shard(shard).save_learnt(epoch, Learnt({shard: tables}))
        if learnt.change_hours is not None:
            hours, groups, screens = learnt.change_hours, learnt.group_hours, learnt.group_screens
            shares = (shares_of_all(self, each.host_id) for each in (hours, groups, screens))
            for (tx, own), (_, records), (_, few) in zip(*shares, strict=True):
                parts = hours.take(own), groups.take(records), screens.take(few)
                tx.save_learnt(epoch, Learnt({}, *parts))

    @override
    def hours_of_group(self, host_id: int, url_group: int) -> GroupHours:
        return self.of(host_id).hours_of_group(host_id, url_group)

    @override
    def own_group_hours(self, host_id: int, limit: int) -> GroupHours:
        return self.of(host_id).own_group_hours(host_id, limit)

    @override
    def urls_of_pages(self, page_id: Ints) -> dict[int, str]:
        urls: dict[int, str] = {}
        for tx, rows in self.split(page_id):
            urls |= tx.urls_of_pages(page_id[rows])
        return urls

    @override
    def url_group_rate(self, epoch: int, shard: int = 0) -> UrlGroupRates | None:
        return self.of_shard(shard).url_group_rate(epoch, shard)

    @override
    def share_evidence(self, epoch: int, shard: int = 0) -> ShareEvidence | None:
        return self.of_shard(shard).share_evidence(epoch, shard)

    @override
    def wide_revisions(self, epoch: int) -> WideRevisions | None:
        return WideRevisions.of_all([tx.wide_revisions(epoch) for tx in self.every()])

    @override
    def ping_feeds(self, epoch: int) -> PingFeeds:
        return PingFeeds.of_all(tx.ping_feeds(epoch) for tx in self.every())

    # -- schedule

    @override
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        if only.host is not None or only.page_id is not None:
            tx = self.of_host(only.host) if only.host is not None else self.of(only.page_id or 0)
            self.know(tx, epoch)
            return tx.schedule(epoch, after, limit, only)

        def read(span: Span, limit: int) -> SchedulePart:
            return span.tx.schedule(epoch, span.after, limit, only)

        parts, going_on = self._walk(epoch, (epoch,), after, limit, read)
        return SchedulePart(ScheduledPages.concatenate([part.pages for part in parts]), going_on)

    @override
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        def read(span: Span, limit: int) -> ScheduleChanges:
            part = span.tx.schedule_changes(epoch, since, min_change, span.after, limit)
            return replace(part, removed=part.removed[part.removed <= span.last])

        parts, going_on = self._walk(epoch, (epoch, since), after, limit, read)
        pages = ScheduledPages.concatenate([part.pages for part in parts])
        removed = np.concatenate([part.removed for part in parts])
        return ScheduleChanges(pages, going_on, removed)

    def _walk(
        self,
        epoch: int,
        epochs: tuple[int, ...],
        after: int,
        limit: int,
        read: Callable[[Span, int], PartT],
    ) -> tuple[list[PartT], int | None]:
        """Return parts of a schedule with at most `limit` rows in all, and where to go on."""
        parts: list[PartT] = []
        for whole in self.spans(after):
            span: Span | None = whole
            while span is not None:
                try:
                    self.know(span.tx, epoch)
                    part = read(span, limit)
                    going_on = next_place(span, epochs, part.after)
                except ShardUnavailable:
                    if not parts:
                        raise
                    return parts, span.after
                parts.append(replace(part, pages=part.pages.where(part.pages.page_id <= span.last)))
                limit -= len(parts[-1].pages)
                if going_on is not None and (limit <= 0 or len(parts) >= MOST_READINGS):
                    return parts, going_on
                span = None if going_on is None else span._replace(after=going_on)
            if limit <= 0 and not whole.is_end:
                return parts, whole.last
        return parts, None

    def know(self, tx: ShardTransaction, epoch: int) -> None:
        """Announce an epoch to a database that has missed it."""
        if tx.number_in_force() >= epoch:
            return
        try:
            record = self.coordinator.epoch(epoch)
        except EpochNotFound:
            return  # the database answers as for an epoch that is not kept
        if record.certificate is None:
            return
        self.bring(tx, record)
        tx.forget_epoch()


def shares_of_all(tx: Routing, ids: Ints) -> Iterator[tuple[ShardTransaction, Ints]]:
    """Yield each database with its rows, with none too."""
    position = tx.shard_map.databases_of_ids(ids)
    for n, each in enumerate(tx.every()):
        yield each, np.flatnonzero(position == n)


def write_share(
    tx: ShardTransaction, epoch: int, schedule: ScheduleColumns, attempt: int = 0
) -> None:
    """Attach a database's rows of a schedule, in place of those of an earlier attempt.

    Raise `LeadershipLost` after another attempt or another epoch has begun.
    """
    if tx.scalar(CHECK_RUN, name=RUN) != run_name(epoch, attempt):
        raise LeadershipLost(f"another process, or another attempt, took over from epoch {epoch}")
    if attempt:
        tx.withdraw(epoch)
    tx.write_schedule(epoch, schedule)


def run_name(epoch: int, attempt: int) -> str:
    """Return the value of `RUN` for an attempt of an epoch."""
    return f"{epoch}.{attempt}" if attempt else str(epoch)


def next_place(span: Span, epochs: tuple[int, ...], after: int | None) -> int | None:
    """Return where to go on in a span, over the gap between two shards; None: it is read."""
    if after is None or after >= span.last:
        return None
    block: int | None = span.tx.scalar(NEXT_BLOCK, epochs=np.array(epochs), after=after)
    if block is None or block << SHIFT > span.last:
        return None
    return max(after, (block << SHIFT) - 1)
