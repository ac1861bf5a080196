"""Old days of the log and of the feed go from the database into the archive.

A part of the log or a stretch of the feed is copied into files. The files are read back from their
place and compared. Then one commit names the files and drops the part. Each of several databases
has its own folder, lead and commits.

| a process ends, or the archive fails | what remains |
| --- | --- |
| before or while files are written | the part, in the database; at most files that nobody reads |
| between writing and comparing | the same |
| between comparing and the commit | the same |
| in the commit | the part alone, or the named files alone |

The next round archives what remains, under new names. Two processes at once write their own files;
the commit of the second one finds no part and fails. Therefore no entry is lost, and none is there
twice. An entry that arrives for an archived day stays in the database until a later round writes it
to a further file of its day.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

import structlog

from service.archive.feed_parquet import FEED
from service.archive.log_archive import ArchivedFile, LogArchive
from service.archive.parquet import LOG, Format
from service.model.arrays import Columns
from service.model.errors import (
    OUTAGES,
    ArchiveDamaged,
    ArchiveRunning,
    ArchiveUnavailable,
    LeadershipLost,
    PartBusy,
    PartChanged,
)
from service.storage import Lead, Store, Transaction
from service.storage.feed.contract import FeedStretch
from service.storage.log.contract import LogPart

ATTEMPTS, AGAIN_S = 50, 0.1
"""Maximum attempts to drop a part that others read, and the time between two, seconds."""
EVERY_S = 600.0
"""Time between two rounds of a worker, seconds."""
EXPECTED = (*OUTAGES, LeadershipLost, ArchiveDamaged, ArchiveUnavailable, PartChanged)
"""Conditions that end a round without a fault of the service."""

log = structlog.get_logger()


class Retention(NamedTuple):
    """Times that days stay in the database; None: for ever."""

    log: timedelta | None
    changes: timedelta | None


class ArchiveStep(NamedTuple):
    """Progress of a round."""

    name: str
    """Name of a part of the log, of a stretch of the feed, or of a database that is left out."""
    n_rows: int
    """Rows that this step has copied."""
    files: tuple[ArchivedFile, ...] = ()
    """Files that a commit has named; none while the part is copied."""
    kept: str | None = None
    """Reason why the part stays in the database until the next round."""
    away: bool = False
    """True for a database that is left out."""


def archive_days(store: Store, retention: Retention) -> Iterator[ArchiveStep]:
    """Archive the old days of the log and of the feed, one database after the other.

    A database of several is left out if it is away, or if another process archives it. Otherwise
    raise the errors of `archive_log`.
    """
    several = len(store.parts) > 1
    for part in store.parts:
        try:
            if retention.log is not None:
                yield from archive_log(part, retention.log)
            if retention.changes is not None:
                yield from archive_feed(part, retention.changes)
        except (*OUTAGES, ArchiveRunning, LeadershipLost) as error:
            if not several:
                raise
            yield ArchiveStep(f"database {part.name}", 0, kept=error.detail, away=True)


def archive_log(store: Store, older_than: timedelta) -> Iterator[ArchiveStep]:
    """Archive the days of one database that ended before the retention began; yield the progress.

    Raise `ArchiveRunning` while another process archives, and the errors of the archive and of the
    database; what a commit has named stays archived.
    """
    with store.archiving() as lead:
        before = days_before(store.clock(), older_than)
        # first, so that late entries go elsewhere while a part is copied
        lead.seal_log(before)
        with lead.begin(write=False) as tx:
            parts = [part for part in tx.log_parts(before) if is_set_aside(store, part)]
        for part in parts:
            try:
                yield from _archive_part(lead, store, part)
            except (PartBusy, PartChanged) as error:
                yield ArchiveStep(part.name, 0, kept=error.detail)


def archive_feed(store: Store, older_than: timedelta) -> Iterator[ArchiveStep]:
    """Archive the days of one database's feed that ended before the retention began.

    Raise the errors of `archive_log`, and `PartChanged` if another process did the same meanwhile.
    """
    with store.archiving() as lead:
        before = _number(days_before(store.clock(), older_than))
        while True:
            with lead.begin(write=False) as tx:
                stretch = tx.feed_stretch(before)
            if stretch is None:
                return
            yield from _archive_stretch(lead, store, stretch)


def coming(store: Store, retention: Retention) -> tuple[list[LogPart], FeedStretch | None]:
    """Return the parts of one database's log, and the first stretch of its feed, to archive."""
    now = store.clock()
    with store.begin(write=False) as tx:
        log, changes = retention
        parts = [] if log is None else tx.log_parts(days_before(now, log))
        stretch = None if changes is None else tx.feed_stretch(_number(days_before(now, changes)))
    return parts, stretch


def _number(at: datetime) -> int:
    return int(at.timestamp() * 1e6)


def days_before(now: datetime, older_than: timedelta) -> datetime:
    """Return the end of the last whole day that is older than the retention.

    >>> days_before(datetime(2026, 5, 31, 12, tzinfo=UTC), timedelta(days=30)).isoformat()
    '2026-05-01T00:00:00+00:00'
    """
    oldest = now.astimezone(UTC) - older_than
    return oldest.replace(hour=0, minute=0, second=0, microsecond=0)


def is_set_aside(store: Store, part: LogPart) -> bool:
    """Return whether a part can be copied now: on Postgres once it is out of the log."""
    return store.embedded or part.name.startswith("sealed_")


def _archive_part(lead: Lead, store: Store, part: LogPart) -> Iterator[ArchiveStep]:
    files: list[ArchivedFile] = []
    yield from _copied(lead, store, part.name, lambda tx: tx.read_part(part), files, LOG)
    # from here on a commit may have named the files, even if its answer is lost: none is deleted
    for attempt in range(ATTEMPTS):
        try:
            with lead.begin() as tx:
                tx.drop_part(part, files, store.clock())
            break
        except PartBusy:
            if attempt == ATTEMPTS - 1:
                _archive_of(store).delete(files)
                raise
            # a reader holds the part for one transaction only
            time.sleep(AGAIN_S)
        except PartChanged:
            _archive_of(store).delete(files)
            raise
    yield ArchiveStep(part.name, 0, tuple(files))


def _archive_stretch(lead: Lead, store: Store, stretch: FeedStretch) -> Iterator[ArchiveStep]:
    name = f"changes since {datetime.fromtimestamp(stretch.first / 1e6, UTC).isoformat()}"
    files: list[ArchivedFile] = []
    yield from _copied(lead, store, name, lambda tx: tx.read_stretch(stretch), files, FEED)
    try:
        with lead.begin() as tx:
            tx.drop_stretch(stretch, files, store.clock())
    except PartChanged:
        _archive_of(store).delete(files)
        raise
    yield ArchiveStep(name, 0, tuple(files))


def _copied(
    lead: Lead,
    store: Store,
    name: str,
    read: Callable[[Transaction], Generator[Columns]],
    files: list[ArchivedFile],
    form: Format,
) -> Iterator[ArchiveStep]:
    """Write the rows that `read` yields into files, and read the files back."""
    archive = _archive_of(store)
    folder = f"database={quote(store.name, safe='')}/" if store.name else ""
    try:
        with lead.begin(write=False) as tx, closing(read(tx)) as blocks:
            for n_rows in archive.write(blocks, files, form, folder):
                yield ArchiveStep(name, n_rows)
        for file in files:
            # read from the archive itself, because the commit drops the only other copy
            archive.check(file, form)
    # a caller that stops reading ends this too, and no commit will name the files
    except BaseException:
        archive.delete(files)
        raise


def _archive_of(store: Store) -> LogArchive:
    assert store.archive is not None  # noqa: S101 - for mypy
    return store.archive


class Archivist:
    """The archiving of one worker: a round every ten minutes, while no other worker has one."""

    def __init__(self, store: Store, retention: Retention) -> None:
        self.store = store
        self.retention = retention
        self.stopped = threading.Event()

    def stop(self) -> None:
        """End `run_every` after the block in work."""
        self.stopped.set()

    def run_every(self) -> None:
        """Archive until stopped; log errors and continue."""
        while True:
            try:
                self.run_once()
            except ArchiveRunning:
                pass
            except EXPECTED as error:
                log.warning("days were not archived; the next round tries again", reason=str(error))
            except Exception:
                log.exception("days were not archived; the next round tries again")
            if self.stopped.wait(EVERY_S):
                return

    def run_once(self) -> int:
        """Run one round; return the number of archived rows."""
        n_rows = 0
        if self.store.archive is None:
            return n_rows
        for step in archive_days(self.store, self.retention):
            if self.stopped.is_set():
                break
            for file in step.files:
                n_rows += file.n_rows
                log.info("a day was archived", file=file.name, n_rows=file.n_rows)
            if step.kept is not None:
                log.warning("days stay in the database", part=step.name, reason=step.kept)
        return n_rows
