"""Epochs and schedules in arrays of this process."""

from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from recrawl_lab.memory.contents import Contents
from recrawl_lab.memory.growing import GrowingTable, Undo
from service.core.ping_feeds import PingFeeds
from service.core.shared_changes import ShareEvidence
from service.core.twins import discounted
from service.core.wide_revisions import WideRevisions
from service.model.arrays import NO_TIME, Bools, Instants, Ints, UrlGroupRates
from service.model.columns import (
    NOT_SHIFTED,
    CapColumns,
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupProfiles,
    GroupScreens,
    HostDelays,
    HostHours,
    ScheduleChanges,
    ScheduleColumns,
    ScheduledPages,
    SchedulePart,
    ShiftColumns,
)
from service.model.domain import Certificate, Epoch, EpochStatus, ScheduleFilter
from service.model.errors import CursorExpired, EpochNotFound, EpochNotKept
from service.model.outcomes import lacks_content
from service.model.urls import URL_GROUPS
from service.storage.dialect import EPOCHS_KEPT
from service.storage.epochs.contract import NO_TABLES, NOTHING, GroupTables, Learnt
from service.storage.epochs.group_hours import RECORD_KEPT, SCREEN_KEPT
from service.storage.stores.contract import Transaction

UNFINISHED = (EpochStatus.requested, EpochStatus.running)


class MemorySchedule(Transaction):
    """The statements about epochs and their schedules."""

    store: Contents
    pages: GrowingTable
    states: GrowingTable
    undo: Undo

    def set(self, name: str, value: object) -> None:
        """Change one attribute of the store."""
        self.undo.append(partial(setattr, self.store, name, getattr(self.store, name)))
        setattr(self.store, name, value)

    # -- epochs

    @override
    def request_epoch(self, now: datetime) -> Epoch:
        return self._requested() or self._new_epoch(EpochStatus.requested, now, None)

    @override
    def start_epoch(self, now: datetime) -> Epoch:
        for epoch in self._unfinished():
            if epoch.status is EpochStatus.running:
                self.fail_epoch(epoch.epoch, "its process ended before it published", now)
        requested = self._requested()
        if requested is None:
            return self._new_epoch(EpochStatus.running, now, now)
        return self._put_epoch(replace(requested, status=EpochStatus.running, started_at=now))

    @override
    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        failed = replace(self.epoch(epoch), status=EpochStatus.failed, reason=reason)
        self._put_epoch(replace(failed, finished_at=now))

    @override
    def load_columns(self) -> EpochColumns:
        row = np.flatnonzero(self.pages["alive"])
        own = (f.name for f in fields(EpochColumns) if f.name in self.pages.columns)
        state = (f.name for f in fields(EpochColumns) if f.name in self.states.columns)
        columns = {name: self.pages[name][row] for name in own}
        gone, hops = self.states["gone"][row], self.states["hops"][row]
        shareless = gone | lacks_content(gone, self.states["n_failures"][row])
        shareless |= (hops != 0) & np.isnat(self.states["last_observed_at"][row])
        shareless |= self.pages["held"][row] > 0
        columns["importance"][shareless], columns["min_crawl_rate"][shareless] = 0.0, np.nan
        digest, changed = self.states["digest"][row], self.states["n_changes"][row] > 0
        digest = np.where(changed, -1, 1) * (digest & np.iinfo(np.int64).max)
        columns["importance"] = discounted(columns["importance"], digest)
        failed = self.states["n_failures"][row] > 0
        return EpochColumns(
            page_id=row + 1,
            **columns,
            **{name: self.states[name][row] for name in state},
            last_failure_at=np.where(failed, self.states["last_crawl_at"][row], NO_TIME),
        )

    @override
    def load_caps(self) -> CapColumns:
        return self.store.caps

    @override
    def host_delays(self, host_id: Ints) -> HostDelays:
        host_id = np.unique(host_id)
        unset = np.full(len(host_id), np.nan)
        return HostDelays(
            host_id=host_id,
            host=np.array([self.store.host(each) for each in host_id.tolist()], object),
            queue_id=host_id,
            min_delay_s=unset,
            robots_delay_s=unset,
        )

    @override
    def longest_delay(self) -> float:
        return 0.0

    @override
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        copied = schedule.take(np.arange(len(schedule)))
        self.set("written", {**self.store.written, epoch: copied})

    @override
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        learnt: Learnt = NOTHING,
    ) -> None:
        schedules = {**self.store.schedules, epoch: self.store.written[epoch]}
        newest = sorted(schedules)[-EPOCHS_KEPT:]
        self.set("written", {})
        self.set("schedules", {e: schedules[e] for e in newest})
        self.save_learnt(epoch, learnt)
        self.set("learnt", {e: self.store.learnt.get(e, NOTHING) for e in newest})
        published = replace(self.epoch(epoch), status=EpochStatus.published, finished_at=now)
        self._put_epoch(replace(published, certificate=_copy(certificate)))

    @override
    def withdraw(self, epoch: int) -> None:
        self.set("written", {e: rows for e, rows in self.store.written.items() if e != epoch})
        self.set("learnt", {e: each for e, each in self.store.learnt.items() if e != epoch})

    @override
    def save_learnt(self, epoch: int, learnt: Learnt) -> None:
        before = self.store.learnt.get(epoch, NOTHING).of_shards
        both = Learnt({**before, **learnt.of_shards})
        self.set("learnt", {**self.store.learnt, epoch: both})
        if learnt.change_hours is not None:
            self.set("change_hours", _renewed(self.store.change_hours, learnt.change_hours))
            self._save_groups(learnt.change_hours, learnt.group_hours, learnt.group_screens)

    @override
    def url_group_rate(self, epoch: int, shard: int = 0) -> UrlGroupRates | None:
        return self._tables(epoch, shard).url_group_rate

    @override
    def share_evidence(self, epoch: int, shard: int = 0) -> ShareEvidence | None:
        return self._tables(epoch, shard).share_evidence

    @override
    def wide_revisions(self, epoch: int) -> WideRevisions | None:
        return self._tables(epoch, 0).wide_revisions

    @override
    def ping_feeds(self, epoch: int) -> PingFeeds:
        return self._tables(epoch, 0).ping_feeds or PingFeeds.none()

    def _tables(self, epoch: int, shard: int) -> GroupTables:
        if epoch not in self.store.schedules:
            return NO_TABLES
        return self.store.learnt.get(epoch, NOTHING).of_shards.get(shard, NO_TABLES)

    @override
    def host_hours(self) -> HostHours:
        change_hours = self.store.change_hours
        row = np.flatnonzero(change_hours.profile[:, 0] > 0)
        no_delay = np.full(len(row), np.nan)
        return HostHours(
            host_id=change_hours.host_id[row], profile=change_hours.profile[row], delay_s=no_delay
        )

    @override
    def change_hours(self, host_id: Ints) -> ChangeHours:
        return self.store.change_hours.where(np.isin(self.store.change_hours.host_id, host_id))

    def _save_groups(self, learnt: ChangeHours, records: GroupHours, screens: GroupScreens) -> None:
        if not len(learnt):
            return
        at = learnt.learnt_at.max()
        records = _renewed_groups(self.store.group_hours, records)
        idle = records.seen_at < at - np.timedelta64(RECORD_KEPT)
        records = records.where(~idle | ~np.isin(records.host_id, learnt.host_id))
        screens = _renewed_groups(self.store.group_screens, screens)
        idle = screens.seen_at < at - np.timedelta64(SCREEN_KEPT)
        idle &= np.isin(screens.host_id, learnt.host_id)
        self.set("group_hours", records)
        self.set("group_screens", screens.where(~idle & ~_among(screens, records)))

    @override
    def group_profiles(self) -> GroupProfiles:
        groups = self.store.group_hours.where(self.store.group_hours.in_force)
        return GroupProfiles(
            host_id=groups.host_id,
            url_group=groups.url_group,
            certain=groups.certain,
            profile=groups.profile,
            delay_s=np.full(len(groups), np.nan),
        )

    @override
    def group_hours(self, host_id: Ints) -> GroupHours:
        return self.store.group_hours.where(np.isin(self.store.group_hours.host_id, host_id))

    @override
    def group_screens(self, host_id: Ints) -> GroupScreens:
        return self.store.group_screens.where(np.isin(self.store.group_screens.host_id, host_id))

    @override
    def hours_of_group(self, host_id: int, url_group: int) -> GroupHours:
        of_host = self.group_hours(np.array([host_id]))
        return of_host.where(of_host.url_group == url_group)

    @override
    def own_group_hours(self, host_id: int, limit: int) -> GroupHours:
        of_host = self.group_hours(np.array([host_id]))
        return of_host.where(of_host.has_own).take(slice(limit))

    @override
    def urls_of_pages(self, page_id: Ints) -> dict[int, str]:
        there = page_id[self.pages["alive"][page_id - 1]]
        return dict(zip(there.tolist(), self.pages["url"][there - 1].tolist(), strict=True))

    @override
    def registered_at(self, page_id: Ints) -> Instants:
        registered: Instants = self.pages["created_at"][page_id - 1]
        return registered

    @override
    def shifts(self, epoch: int) -> ShiftColumns:
        rows = self.store.schedules.get(epoch)
        if rows is None:
            return ShiftColumns.empty()
        moved = rows.take(rows.shift != NOT_SHIFTED)
        return ShiftColumns(page_id=moved.page_id, shift=moved.shift, carried=moved.carried)

    def _requested(self) -> Epoch | None:
        return next((e for e in self._unfinished() if e.status is EpochStatus.requested), None)

    def _unfinished(self) -> list[Epoch]:
        """Return the requested and running epochs; all earlier epochs are finished."""
        newest = reversed(self.store.epochs)
        return list(takewhile(lambda epoch: epoch.status in UNFINISHED, newest))

    def _new_epoch(self, status: EpochStatus, now: datetime, started_at: datetime | None) -> Epoch:
        number = self.store.epochs[-1].epoch + 1 if self.store.epochs else 1
        epoch = Epoch(number, status, now, started_at)
        self.undo.append(partial(self.store.epochs.__delitem__, len(self.store.epochs)))
        self.store.epochs.append(epoch)
        return epoch

    def _put_epoch(self, epoch: Epoch) -> Epoch:
        position = epoch.epoch - 1
        old = self.store.epochs[position]
        self.undo.append(partial(self.store.epochs.__setitem__, position, old))
        self.store.epochs[position] = epoch
        return epoch

    @override
    def epoch(self, epoch: int) -> Epoch:
        if not 0 < epoch <= len(self.store.epochs):
            raise EpochNotFound(f"no epoch has the number {epoch}; GET /epochs lists them")
        return _own(self.store.epochs[epoch - 1])

    @override
    def number_in_force(self) -> int:
        return max(self.store.schedules, default=0)

    @override
    def epoch_in_force(self) -> Epoch | None:
        newest = self.number_in_force()
        return self.epoch(newest) if newest else None

    @override
    def newest_epoch(self) -> Epoch | None:
        return _own(self.store.epochs[-1]) if self.store.epochs else None

    @override
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        end = len(self.store.epochs)
        end = end if before is None else min(max(before - 1, 0), end)
        return [_own(epoch) for epoch in self.store.epochs[max(end - limit, 0) : end][::-1]]

    # -- schedule

    @override
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        rows = self._after(epoch, after)
        return self._part(rows.where(self._matching(rows.page_id - 1, only)), limit)

    @override
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        rows = self._after(epoch, after)
        if since not in self.store.schedules:
            raise EpochNotKept
        earlier = self._after(since, after)
        there = rows.take(self.pages["alive"][rows.page_id - 1])
        removed = earlier.page_id[~np.isin(earlier.page_id, there.page_id)]
        before = self._rates(self.store.schedules[since], there.page_id)
        part = self._part(there.take(moved(before, there, 1 + min_change)), limit)
        reached = np.inf if part.after is None else part.after
        return ScheduleChanges(part.pages, part.after, removed[removed <= reached])

    def _after(self, epoch: int, after: int) -> ScheduleColumns:
        if epoch not in self.store.schedules:
            raise CursorExpired
        rows = self.store.schedules[epoch]
        return rows.where(rows.page_id > after)

    def _part(self, rows: ScheduleColumns, limit: int) -> SchedulePart:
        whole, rows = len(rows) <= limit, rows.take(slice(limit))
        row = rows.page_id - 1
        names = ("page_id", "change_rate", "crawl_rate", "crawl_probability")
        pages = ScheduledPages(
            **{name: getattr(rows, name) for name in names},
            url=self.pages["url"][row],
            importance=self.pages["importance"][row],
            **self._due_columns(row, rows),
        )
        return SchedulePart(pages, None if whole or not limit else int(rows.page_id[-1]))

    def _due_columns(self, row: Ints, rows: ScheduleColumns) -> dict[str, Any]:
        """Return the columns of `DueColumns` except the page_id."""
        names = (
            "last_crawl_at",
            "requested_at",
            "gone",
            "n_failures",
            "outcome",
            "hops",
            "retry_rate",
        )
        columns = {name: self.states[name][row] for name in (*names, "interval_factor")}
        with np.errstate(over="ignore"):
            due_rate = rows.crawl_rate * rows.urgency
        own = {name: self.pages[name][row] for name in ("created_at", "held")}
        if self.calendars.in_use:
            own["hours"] = self.calendars.of_hosts(self.pages["host_id"][row], self.clock())
        return {**columns, **own, "due_rate": due_rate}

    def _matching(self, row: Ints, only: ScheduleFilter) -> Bools:
        mask: Bools = self.pages["alive"][row]
        if only.host is not None:
            mask &= self.pages["host_id"][row] == self.store.host_ids.get(only.host, -1)
        if only.page_id is not None:
            mask &= row == only.page_id - 1
        if only.observability is not None:
            mask &= self.pages["observability"][row] == only.observability
        return mask

    def _in_force(self, page_id: Ints) -> ScheduleColumns:
        """Return the rows of the schedule in force, NaN for a page without a row."""
        newest = max(self.store.schedules, default=None)
        rows = ScheduleColumns.empty() if newest is None else self.store.schedules[newest]
        return self._rates(rows, page_id)

    def _rates(self, rows: ScheduleColumns, page_id: Ints) -> ScheduleColumns:
        at = np.searchsorted(rows.page_id, page_id)
        has_row = at < len(rows)
        has_row[has_row] = rows.page_id[at[has_row]] == page_id[has_row]
        choices: dict[str, Any] = {}
        for name in ("change_rate", "crawl_rate", "crawl_probability", "urgency"):
            choices[name] = np.full(len(page_id), np.nan)
            choices[name][has_row] = getattr(rows, name)[at[has_row]]
        for name in ("shift", "carried"):
            choices[name] = np.full(len(page_id), NOT_SHIFTED, np.int16)
            choices[name][has_row] = getattr(rows, name)[at[has_row]]
        if rows.observed_ratio is not None:
            choices["observed_ratio"] = np.zeros(len(page_id))
            choices["observed_ratio"][has_row] = rows.observed_ratio[at[has_row]]
        return ScheduleColumns(page_id=page_id, **choices)


def _renewed(before: ChangeHours, new: ChangeHours) -> ChangeHours:
    """Return the evidence of all hosts after some have learnt."""
    others = before.where(~np.isin(before.host_id, new.host_id))
    both = ChangeHours.concatenate([others, new])
    return both.take(np.argsort(both.host_id))


GroupsT = TypeVar("GroupsT", GroupHours, GroupScreens)


def _renewed_groups(before: GroupsT, new: GroupsT) -> GroupsT:
    """Return the rows of all groups after some have learnt."""
    both = type(before).concatenate([before.where(~_among(before, new)), new])
    return both.take(np.lexsort((both.url_group, both.host_id)))


def _among(some: GroupHours | GroupScreens, others: GroupHours | GroupScreens) -> Bools:
    """Return which groups are among others."""
    key, other = (each.host_id * URL_GROUPS + each.url_group for each in (some, others))
    return np.isin(key, other)


def moved(before: ScheduleColumns, now: ScheduleColumns, ratio: float) -> Bools:
    """Return a mask of rows that are new, or whose rate or probability moved by over a ratio."""
    mask: Bools = np.isnan(before.crawl_rate)
    for then, rate in (
        (before.crawl_rate, now.crawl_rate),
        (before.crawl_rate * before.urgency, now.crawl_rate * now.urgency),
        (before.crawl_probability, now.crawl_probability),
    ):
        mask |= np.maximum(then, rate) > ratio * np.minimum(np.minimum(then, rate), 1e300)
    return mask


def _copy(certificate: Certificate) -> Certificate:
    return replace(certificate, prior={**certificate.prior}, seconds={**certificate.seconds})


def _own(epoch: Epoch) -> Epoch:
    return replace(epoch, certificate=epoch.certificate and _copy(epoch.certificate))
