"""The contract of the archive: which entries of the log are in files, and which are still here.

**One commit.** The commit that names a file drops the entries in it. Therefore an entry is at every
instant in the database or in a named file, never in both and never in neither. Files that no commit
names do not count.
**Set aside.** On Postgres, `Lead.seal_log` takes whole partitions out of the log that writers
append to. Entries that arrive later for these days go elsewhere, and a later round archives them in
a further file of their day. On SQLite an entry that arrives meanwhile makes `drop_part` fail.
**Reading.** `log_of`, `evidence_of` and `page_history` read both; `page_log` and lists read the
database alone. A reader reads the database first and the names of files second. So entries that
move meanwhile are read twice, not missed, and are counted once by page, time and kind.
"""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from datetime import datetime
from typing import NamedTuple

from service.archive.log_archive import ArchivedFile
from service.model.columns import LogColumns
from service.model.domain import Kind, LogEntry
from service.storage.dialect import Subject

MOST_FILES = 128
"""Maximum files that one reading of a page's history opens: 0.6 s of CPU."""

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


class ArchiveStatements(Subject):
    """The statements of the archive."""

    @abstractmethod
    def page_history(
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
