"""The log and its archive: the contract, and the SQL that both databases share.

**One commit.** The commit that names a file drops the entries in it. Therefore an entry is at every
instant in the database or in a named file, never in both and never in neither. Files that no commit
names do not count.
**Set aside.** On Postgres, `Lead.seal_log` takes whole partitions out of the log that writers
append to. Entries that arrive later for these days go elsewhere, and a later round archives them in
a further file of their day. On SQLite an entry that arrives meanwhile makes `drop_part` fail.
**Reading.** `log_of`, `evidence_of` and `whole_log` read both; `page_log` and lists read the
database alone. A reader reads the database first and the names of files second. So entries that
move meanwhile are read twice, not missed, and are counted once by page, time and kind.
"""

import math
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.arrays import (
    INSTANT,
    Bools,
    Groups,
    Instants,
    Ints,
    distinct,
    instant,
    moment,
    moments,
)
from service.model.columns import EvidenceColumns, LogColumns
from service.model.domain import Kind, LogEntry
from service.storage.dialect import Dialect, Subject, all_of

MOST_FILES = 128
"""Maximum files that one reading of a page's log opens: 0.6 s of CPU."""

PAGES_TOGETHER = 20_000
"""Pages whose log is read at a time where there is an archive: two years of daily crawls take
0.6 GB, of crawls every five days 0.1 GB. Fewer pages would read each row group more often."""

Place = tuple[datetime, Kind]
"""Place in a page's log, before which a reading goes on."""


class LogPart(NamedTuple):
    """Entries that one commit archives."""

    name: str
    """Name of the table; on SQLite the day, which parts may share."""
    n_rows: int
    """Number of entries; on Postgres an estimate."""
    stretches: tuple[int, int] = (0, 0)
    """First and last stretch; on SQLite only."""
    sums: tuple[int, ...] = ()
    """Sums that show whether entries came or went; on SQLite only."""


class LogStatements(Subject):
    """The statements of the log."""

    @abstractmethod
    def whole_log(
        self, page_id: int, limit: int, before: Place | None = None
    ) -> tuple[list[LogEntry], Place | None]:
        """Return entries of a page from database and archive, newest first, and where to go on.

        A reading opens at most `MOST_FILES` files, so a part with fewer entries than `limit`, even
        none, may not be the last; None is the end.
        """

    @abstractmethod
    def log_files(
        self, first: int = 0, last: int = 2**62, before: datetime | None = None
    ) -> list[ArchivedFile]:
        """Return the files that may have entries of these page_ids, newest day first."""

    @abstractmethod
    def log_parts(self, before: datetime) -> list[LogPart]:
        """Return the parts of the log to archive, oldest first; all are of days before `before`."""

    @abstractmethod
    def read_part(self, part: LogPart) -> Generator[LogColumns]:
        """Yield the entries of a part in blocks, ordered by day, page_id, time and kind."""

    @abstractmethod
    def drop_part(self, part: LogPart, files: Sequence[ArchivedFile], now: datetime) -> None:
        """Name these files and drop the part.

        Raise `PartChanged` unless the part is as it was read, and `PartBusy` while others read it.
        """

    @abstractmethod
    def append_log(self, entries: LogColumns) -> None:
        """Append to the observation log."""

    @abstractmethod
    def log_of(self, page_id: Ints) -> LogColumns:
        """Return the whole log of these pages, archived or not, ordered by page_id and time."""

    @abstractmethod
    def evidence_of(self, page_id: Ints) -> EvidenceColumns:
        """Return the evidence in the log of these pages, ordered by page_id and time."""

    def log_since(self, after: int, last: int, since: datetime) -> LogColumns:
        """Return the log of the pages with after < page_id <= last from an instant on, in order.

        The entries are ordered by page_id and time, archived or not. They have no crawl rates.
        """
        log = self.log_of(np.arange(after + 1, last + 1))
        return _without_rates(log.where(log.observed_at >= instant(since)))

    def pings_after(self, page_id: Ints, at: Instants) -> Ints:
        """Return the (N,) numbers of pings of pages that are dated after an instant.

        The instants are of present crawls, whose pings no archive has yet.
        """
        log = self.log_of(distinct(page_id))
        pings = log.where(log.kind == Kind.ping)
        return n_after(pings.page_id, pings.observed_at, page_id, at)

    def logged(self, page_id: Ints, at: Instants) -> Bools:
        """Return which (N,) crawls of pages the database has, without its archive."""
        log = self.log_of(distinct(page_id))
        crawls = log.where(log.kind == Kind.crawl)
        return pairs_among(page_id, at, crawls.page_id, crawls.observed_at)

    @abstractmethod
    def page_log(
        self,
        page_id: int,
        limit: int,
        before: tuple[datetime, Kind] | None = None,
        kind: Kind | None = None,
    ) -> list[LogEntry]:
        """Return the newest entries of a page in the database before a place, newest first.

        With `kind`, return those of this kind alone.
        """

    @abstractmethod
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Prepare the log for the next months; drop old schedules and old entries of the log.

        Entries since `keep_log_since` stay; older entries may stay for up to a month. With an
        archive no entry is dropped here (`drop_part`).
        `Lead.housekeep` does this while others write.
        """


PAGE_LOG = """
SELECT observed_at, kind, changed, "interval", status, weight FROM {{log}}
WHERE {{log_of_page}} AND {where}
ORDER BY observed_at DESC, kind DESC LIMIT %(limit)s
"""
BEFORE = "(observed_at < %(at)s OR (observed_at = %(at)s AND kind < %(kind)s))"
PINGS_SINCE = f"""
SELECT page_id, observed_at FROM {{log}}
WHERE {{log_since}} AND page_id {{among_ids}} AND observed_at > %(since)s AND kind = {Kind.ping:d}
"""
CRAWLS_SINCE = PINGS_SINCE.replace("> %(since)s", ">= %(since)s").replace(
    f"kind = {Kind.ping:d}", f"kind = {Kind.crawl:d}"
)
LOG_SINCE = """
SELECT page_id, observed_at, kind, coalesce(changed, -1) AS changed,
    coalesce("interval", -1.0) AS span, coalesce(status, -1) AS status FROM {log}
WHERE {log_since} AND page_id > %(after)s AND page_id <= %(last)s AND observed_at >= %(since)s
"""
"""Statement that reads entries without NULL; the interval is -1 where there is none."""

ADD_FILE = """
INSERT INTO log_files
    (name, day, first_page, last_page, n_rows, n_bytes, checksum, archived_at)
VALUES (%(name)s, %(day)s, %(first)s, %(last)s, %(n_rows)s, %(n_bytes)s, %(checksum)s,
    %(archived_at)s)
"""
LOG_FILES = """
SELECT name, day, first_page AS first, last_page AS last, n_rows, n_bytes, checksum
FROM log_files
WHERE last_page >= %(first)s AND first_page <= %(last)s AND {before}
ORDER BY day DESC, first_page
"""
LATEST = datetime.max.replace(tzinfo=UTC)
FILES_TOGETHER = 32
"""Files of a page that are read between two checks for enough entries."""


class ArchivedLog(Dialect, LogStatements):
    """The log in database and archive."""

    @abstractmethod
    def stored_log(self, page_id: Ints) -> LogColumns:
        """Return the entries of these pages in the database, ordered by page_id and time."""

    @abstractmethod
    def stored_evidence(self, page_id: Ints) -> EvidenceColumns:
        """Return the evidence of these pages in the database, ordered by page_id and time."""

    @override
    def log_of(self, page_id: Ints) -> LogColumns:
        stored = self.stored_log(page_id)  # before the files (see the contract)
        files = self._files_of(page_id)
        if not files:
            return stored
        archived = self.needed_archive().log_of(files, np.sort(page_id))
        return _in_order(LogColumns.concatenate([stored, archived]))

    @override
    def evidence_of(self, page_id: Ints) -> EvidenceColumns:
        stored = self.stored_evidence(page_id)
        if not self._files_of(page_id):
            return stored
        log = self.log_of(page_id)
        log = log.take(~np.isnan(log.interval))
        return EvidenceColumns(
            page_id=log.page_id, interval=log.interval, changed=log.changed, weight=log.weight
        )

    @override
    def pings_after(self, page_id: Ints, at: Instants) -> Ints:
        kinds = {"page_id": "i8", "observed_at": "M8[us]"}
        since = moment(at.min())
        pings = self.arrays(PINGS_SINCE, kinds, ids=distinct(page_id), since=since)
        pinged, pinged_at = pings["page_id"].astype(np.int64), pings["observed_at"].astype(INSTANT)
        return n_after(pinged, pinged_at, page_id, at)

    @override
    def logged(self, page_id: Ints, at: Instants) -> Bools:
        kinds = {"page_id": "i8", "observed_at": "M8[us]"}
        since = moment(at.min())
        crawls = self.arrays(CRAWLS_SINCE, kinds, ids=distinct(page_id), since=since)
        stored, stored_at = crawls["page_id"].astype(np.int64), crawls["observed_at"]
        return pairs_among(page_id, at, stored, stored_at.astype(INSTANT))

    @override
    def log_since(self, after: int, last: int, since: datetime) -> LogColumns:
        kinds = {"page_id": "i8", "observed_at": "M8[us]", "kind": "i2", "changed": "i2"}
        kinds |= {"span": "f8", "status": "i2"}
        # before the files (see the contract)
        rows = self.arrays(LOG_SINCE, kinds, after=after, last=last, since=since)
        interval = rows["span"].astype(np.float64)
        stored = LogColumns(
            page_id=rows["page_id"].astype(np.int64),
            observed_at=rows["observed_at"].astype(INSTANT),
            kind=rows["kind"].astype(np.int16),
            changed=rows["changed"].astype(np.int16),
            interval=np.where(interval < 0, np.nan, interval),
            crawl_rate=np.full(len(interval), np.nan),
            status=rows["status"].astype(np.int16),
        )
        files = [f for f in self.log_files(after + 1, last) if f.day >= since.date()]
        if not files:
            return _in_order(stored)
        archived = self.needed_archive().log_of(files, np.arange(after + 1, last + 1))
        archived = _without_rates(archived.where(archived.observed_at >= instant(since)))
        return _in_order(LogColumns.concatenate([stored, archived]))

    def _files_of(self, page_id: Ints) -> list[ArchivedFile]:
        return self.log_files(int(page_id.min()), int(page_id.max())) if len(page_id) else []

    @override
    def whole_log(
        self, page_id: int, limit: int, before: Place | None = None
    ) -> tuple[list[LogEntry], Place | None]:
        stored = self.page_log(page_id, limit, before)  # before the files (see the contract)
        files = self.log_files(page_id, page_id, None if before is None else before[0])
        if len(stored) == limit:  # older days have nothing newer than these entries
            files = [file for file in files if file.day >= stored[-1].observed_at.date()]
        entries = {(entry.observed_at, entry.kind): entry for entry in stored}
        n_read, read_since = 0, LATEST
        for some in _whole_days(files, FILES_TOGETHER):
            if n_read >= MOST_FILES or sum(at >= read_since for at, _ in entries) >= limit:
                break
            log = self.needed_archive().log_of(some, np.array([page_id]))
            entries |= {(entry.observed_at, entry.kind): entry for entry in _entries(log, before)}
            n_read, read_since = n_read + len(some), _begin(some[-1].day)
        whole = n_read == len(files)
        places = sorted((p for p in entries if whole or p[0] >= read_since), reverse=True)
        end = None if whole else (read_since, Kind.crawl)
        if len(places) >= limit:
            places = places[:limit]
            end = places[-1]
        return [entries[place] for place in places], end

    @override
    def log_files(
        self, first: int = 0, last: int = 2**62, before: datetime | None = None
    ) -> list[ArchivedFile]:
        until = {} if before is None else {"until": before}
        statement = LOG_FILES.format(before="day <= %(until)s" if until else "true")
        rows = self.read(statement, first=first, last=last, **until)
        return [file_of(row) for row in rows]

    def name_files(self, files: Sequence[ArchivedFile], now: datetime) -> None:
        """Write the names of files."""
        for file in files:
            self.run(ADD_FILE, **named(file, now))

    @override
    def page_log(
        self,
        page_id: int,
        limit: int,
        before: tuple[datetime, Kind] | None = None,
        kind: Kind | None = None,
    ) -> list[LogEntry]:
        place = {} if before is None else {"at": before[0], "kind": before[1].value}
        only = {} if kind is None else {"only": kind.value}
        conditions = ([BEFORE] if place else []) + (["kind = %(only)s"] if only else [])
        statement = PAGE_LOG.format(where=all_of(conditions))
        return [
            LogEntry(
                row["observed_at"],
                Kind(row["kind"]),
                None if row["changed"] is None else bool(row["changed"]),
                row["interval"],
                row["status"],
                row["weight"],
            )
            for row in self.read(statement, page_id=page_id, limit=limit, **place, **only)
        ]


def pairs_among(page_id: Ints, at: Instants, pages: Ints, times: Instants) -> Bools:
    """Return which (N,) pairs of a page and an instant are among others.

    >>> at = np.array(["2026-05-01", "2026-05-02"], "M8[us]")
    >>> pairs_among(np.array([3, 3]), at, np.array([4, 3]), at).tolist()
    [False, True]
    """
    kind = [("page", "i8"), ("at", "i8")]
    own, others = np.empty(len(at), kind), np.empty(len(times), kind)
    own["page"], own["at"] = page_id, at.astype(INSTANT).astype(np.int64)
    others["page"], others["at"] = pages, times.astype(INSTANT).astype(np.int64)
    among: Bools = np.isin(own, others)
    return among


def _without_rates(log: LogColumns) -> LogColumns:
    return replace(log, crawl_rate=np.full(len(log), np.nan))


def n_after(pinged: Ints, pinged_at: Instants, page_id: Ints, at: Instants) -> Ints:
    """Return the (N,) numbers of pings of each page that are dated after an instant.

    >>> day = np.array(["2026-05-01", "2026-05-02", "2026-05-03"], "M8[us]")
    >>> n_after(np.array([7, 7, 8]), day, np.array([8, 7, 7]), day[[2, 0, 1]]).tolist()
    [0, 1, 0]
    """
    page, time = np.append(pinged, page_id), np.append(pinged_at, at)
    is_ping = np.arange(len(page)) < len(pinged)
    # of one instant, pings come before those that ask: they are not after it
    order = np.lexsort((~is_ping, time, page))
    groups, n_so_far = Groups.of(page[order]), np.cumsum(is_ping[order])
    n_later = np.empty(len(page), np.int64)
    n_later[order] = n_so_far[groups.end][groups.page] - n_so_far
    return n_later[len(pinged) :]


def file_of(row: dict[str, Any]) -> ArchivedFile:
    """Return the file of a row of names."""
    return ArchivedFile(**{**row, "day": row["day"].date()})


def named(file: ArchivedFile, now: datetime) -> dict[str, Any]:
    """Return the parameters of a row of names."""
    return {**file._asdict(), "day": _begin(file.day), "archived_at": now}


def _in_order(log: LogColumns) -> LogColumns:
    """Return entries by page, time and kind, each once."""
    log = log.take(np.lexsort((log.kind, log.observed_at, log.page_id)))
    first = np.ones(len(log), np.bool_)
    first[1:] = log.page_id[1:] != log.page_id[:-1]
    first[1:] |= log.observed_at[1:] != log.observed_at[:-1]
    first[1:] |= log.kind[1:] != log.kind[:-1]
    return log.where(first)


def _begin(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _whole_days(files: Sequence[ArchivedFile], n_files: int) -> Iterator[Sequence[ArchivedFile]]:
    """Yield about `n_files` files at a time, all files of one day together."""
    start = 0
    while start < len(files):
        end = min(start + n_files, len(files))
        while end < len(files) and files[end].day == files[end - 1].day:
            end += 1
        yield files[start:end]
        start = end


def _entries(log: LogColumns, before: Place | None) -> list[LogEntry]:
    if before is not None:
        at, kind = instant(before[0]), before[1].value
        log = log.take((log.observed_at < at) | ((log.observed_at == at) & (log.kind < kind)))
    weights = [math.nan] * len(log) if log.weight is None else log.weight.tolist()
    columns = log.kind.tolist(), log.changed.tolist(), log.interval.tolist(), log.status.tolist()
    return [
        LogEntry(
            at or LATEST,
            Kind(kind),
            None if changed < 0 else changed == 1,
            None if interval != interval else interval,  # noqa: PLR0124 - NaN
            None if status < 0 else status,
            None if math.isnan(weight) else weight,
        )
        for at, kind, changed, interval, status, weight in zip(
            moments(log.observed_at), *columns, weights, strict=True
        )
    ]
