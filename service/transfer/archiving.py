"""Old days of the log move from the database into the archive.

A part of the log is copied into files. The files are read back from their place and compared. Then
one commit names the files and drops the part.

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
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import structlog

from service.archive.log_archive import ArchivedFile, LogArchive
from service.model.errors import (
    OUTAGES,
    ArchiveDamaged,
    ArchiveRunning,
    ArchiveUnavailable,
    LeadershipLost,
    PartBusy,
    PartChanged,
)
from service.storage import Lead, Store
from service.storage.archive import LogPart

ATTEMPTS, AGAIN_S = 50, 0.1
"""Maximum attempts to drop a part that others read, and the time between two, seconds."""
EVERY_S = 600.0
"""Time between two rounds of a worker, seconds."""
EXPECTED = (*OUTAGES, LeadershipLost, ArchiveDamaged, ArchiveUnavailable)
"""Conditions that end a round without a fault of the service."""

log = structlog.get_logger()


class ArchiveStep(NamedTuple):
    """Progress of a round."""

    part: LogPart
    n_rows: int
    """Entries that this step has copied."""
    files: tuple[ArchivedFile, ...] = ()
    """Files that a commit has named; none while the part is copied."""
    kept: str | None = None
    """Reason why the part stays in the database until the next round."""


def archive_log(store: Store, older_than: timedelta) -> Iterator[ArchiveStep]:
    """Archive the days that ended before the retention began; yield the progress.

    Raise `ArchiveRunning` while another process archives, and the errors of the archive and of the
    database; what a commit has named stays archived.
    """
    assert store.archive is not None  # noqa: S101 - for mypy
    with store.archiving() as lead:
        before = days_before(store.clock(), older_than)
        lead.seal_log(before)
        with lead.begin(write=False) as tx:
            parts = [part for part in tx.log_parts(before) if is_set_aside(store, part)]
        for part in parts:
            try:
                yield from _archive_part(lead, store, store.archive, part)
            except (PartBusy, PartChanged) as error:
                yield ArchiveStep(part, 0, kept=error.detail)


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


def _archive_part(
    lead: Lead, store: Store, archive: LogArchive, part: LogPart
) -> Iterator[ArchiveStep]:
    files: list[ArchivedFile] = []
    try:
        with lead.begin(write=False) as tx, closing(tx.read_part(part)) as blocks:
            for n_rows in archive.write(blocks, files):
                yield ArchiveStep(part, n_rows)
        for file in files:
            archive.check(file)
    except BaseException:
        archive.delete(files)
        raise
    # from here on a commit may have named the files, even if its answer is lost: none is deleted
    for attempt in range(ATTEMPTS):
        try:
            with lead.begin() as tx:
                tx.drop_part(part, files, store.clock())
            break
        except PartBusy:
            if attempt == ATTEMPTS - 1:
                archive.delete(files)
                raise
            time.sleep(AGAIN_S)
        except PartChanged:
            archive.delete(files)
            raise
    yield ArchiveStep(part, 0, tuple(files))


class Archivist:
    """The archiving of one worker: a round every ten minutes, while no other worker has one."""

    def __init__(self, store: Store, older_than: timedelta | None) -> None:
        self.store = store
        self.older_than = older_than
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
        """Run one round; return the number of archived entries."""
        n_rows = 0
        if self.store.archive is None or self.older_than is None:
            return n_rows
        for step in archive_log(self.store, self.older_than):
            if self.stopped.is_set():
                break
            for file in step.files:
                n_rows += file.n_rows
                log.info("log archived", file=file.name, n_rows=file.n_rows)
            if step.kept is not None:
                log.info("a part of the log stays", part=step.part.name, reason=step.kept)
        return n_rows
