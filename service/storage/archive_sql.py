"""The archive: the SQL that both databases share, and the log as one whole."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.arrays import Ints, instant, moments
from service.model.columns import EvidenceColumns, LogColumns
from service.model.domain import Kind, LogEntry
from service.storage.archive import MOST_FILES, Place
from service.storage.contract import Transaction
from service.storage.dialect import Dialect

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


class ArchivedLog(Dialect, Transaction):
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
        return EvidenceColumns(page_id=log.page_id, interval=log.interval, changed=log.changed)

    def _files_of(self, page_id: Ints) -> list[ArchivedFile]:
        return self.log_files(int(page_id.min()), int(page_id.max())) if len(page_id) else []

    @override
    def page_history(
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
    columns = log.kind.tolist(), log.changed.tolist(), log.interval.tolist(), log.status.tolist()
    return [
        LogEntry(
            at or LATEST,
            Kind(kind),
            None if changed < 0 else changed == 1,
            None if interval != interval else interval,  # noqa: PLR0124 - NaN
            None if status < 0 else status,
        )
        for at, kind, changed, interval, status in zip(
            moments(log.observed_at), *columns, strict=True
        )
    ]
