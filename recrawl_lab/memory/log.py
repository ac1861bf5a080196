"""The log of observations in arrays of this process."""

from dataclasses import fields
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from recrawl_lab.memory.growing import GrowingTable
from recrawl_lab.memory.incidents import MemoryIncidents
from service.model.arrays import NO_TIME, UNSPECIFIED, Instants, Ints, instant, moment
from service.model.columns import EvidenceColumns, LogColumns
from service.model.domain import Kind, LogEntry, Observability
from service.model.freshness import LoggedChanges
from service.model.outcomes import Outcome


class MemoryLog(MemoryIncidents):
    """The statements about the log."""

    log: GrowingTable

    @override
    def page_log(
        self,
        page_id: int,
        limit: int,
        before: tuple[datetime, Kind] | None = None,
        kind: Kind | None = None,
    ) -> list[LogEntry]:
        log = self.log_of(np.array([page_id]))
        if kind is not None:
            log = log.where(log.kind == kind)
        if before is not None:
            at, first = instant(before[0]), before[1].value
            earlier = (log.observed_at < at) | ((log.observed_at == at) & (log.kind < first))
            log = log.where(earlier)
        newest = log.take(np.arange(len(log))[::-1][:limit])
        columns = (getattr(newest, f.name) for f in fields(LogEntry))
        return [
            LogEntry(*(decode(cell, f.type) for cell, f in zip(row, fields(LogEntry), strict=True)))
            for row in zip(*columns, strict=True)
        ]

    @override
    def logged_changes(self, page_id: Ints, since: Instants) -> LoggedChanges:
        log = self.log_of(page_id)
        log = log.where((log.changed == 1) & ~np.isnan(log.interval))
        if not len(log):
            n, none = np.zeros(len(page_id), np.int64), np.full(len(page_id), np.nan)
            return LoggedChanges(first_at=np.full(len(n), NO_TIME), first_interval=none, n=n)
        # one number for a page and a time, so that one search finds the entries of all pages
        pages, at = np.unique(page_id), (log.observed_at.view(np.int64), since.view(np.int64))
        begin = min(times.min() for times in at)
        span = max(times.max() for times in at) - begin + 1
        entries, asked = (
            np.searchsorted(pages, ids) * span + times - begin
            for ids, times in zip((log.page_id, page_id), at, strict=True)
        )
        first = np.searchsorted(entries, asked, "right")
        n = np.maximum(np.searchsorted(log.page_id, page_id, "right") - first, 0)
        entry = np.minimum(first, len(log) - 1)
        first_at = np.where(n > 0, log.observed_at[entry], NO_TIME)
        interval = np.where(n > 0, log.interval[entry], np.nan)
        return LoggedChanges(first_at=first_at, first_interval=interval, n=n)

    def _there(self, page_id: Ints) -> Ints:
        in_range = page_id[(page_id > 0) & (page_id <= self.pages.n)]
        there: Ints = in_range[self.pages["alive"][in_range - 1]]
        return there

    @override
    def append_log(self, entries: LogColumns) -> None:
        # by time, so that the oldest entries come first
        entries = entries.take(np.argsort(entries.observed_at, kind="stable"))
        number = self.store.n_logged + np.arange(len(entries))
        self.store.n_logged += len(entries)
        columns = {"weight": np.nan, **entries.arrays()}
        self.log.append(self.undo, len(entries), number=number, **columns)

    @override
    def log_of(self, page_id: Ints) -> LogColumns:
        where = np.flatnonzero(np.isin(self.log["page_id"], page_id))
        page, at, kind = (self.log[name][where] for name in ("page_id", "observed_at", "kind"))
        where = where[np.lexsort((kind, at, page))]
        return LogColumns(**{f.name: self.log[f.name][where] for f in fields(LogColumns)})

    @override
    def evidence_of(self, page_id: Ints) -> EvidenceColumns:
        evidence = self.store.evidence.of(self.log)
        page_id = np.sort(self._there(page_id))
        starts, ends = (evidence.page_id.searchsorted(page_id, side) for side in ("left", "right"))
        between = evidence.take(slice(starts.min(initial=0), ends.max(initial=0)))
        if (ends - starts).sum() == len(between):  # no entries of other pages in between
            return between
        return between.take(np.isin(between.page_id, page_id))


def decode(cell: Any, kind: Any) -> Any:
    """Return a cell as the type of its annotation; "none" is None."""
    if isinstance(cell, np.datetime64):
        return moment(cell)
    if isinstance(cell, np.ndarray):
        return tuple(cell.tolist())
    if isinstance(cell, np.floating):
        return None if np.isnan(cell) else float(cell)
    if isinstance(cell, np.integer) and cell == UNSPECIFIED:
        return None
    if kind == bool | None:
        return bool(cell)
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return kind(plain) if kind in (Observability, Kind, Outcome) else plain
