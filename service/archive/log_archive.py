"""The archive: files of log and feed by day, written once under new names, never changed.

A name is never used twice, so no writer can replace the file of another. A writer that dies leaves
at most files that no database names; readers never open such files.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from functools import partial
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from service.archive import parquet
from service.archive.feed_parquet import FEED
from service.archive.parquet import LOG, Format
from service.model.arrays import Columns, Ints
from service.model.changes import FeedColumns, FeedPlace
from service.model.columns import LogColumns
from service.model.errors import ArchiveDamaged, ArchiveUnavailable, InvalidSettings, RecrawlError
from service.model.words import counted

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

ROWS_OF_FILE = 64 * parquet.ROWS_OF_GROUP
"""Maximum entries of a file: 46 MB, whose footer of 20 KB is quickly read."""
AT_ONCE = 8
"""Files that are read at a time, because an object store answers slowly but many at once."""
NEEDS = "RECRAWL_ARCHIVE needs more packages; pip install 'recrawl[arrow]'"
FULL = (errno.ENOSPC, errno.EDQUOT)


class ArchivedFile(NamedTuple):
    """A file of the archive, as the database knows it."""

    name: str
    """Path below the address of the archive, which may move."""
    day: date
    first: int
    """First page_id; of the feed, the first number."""
    last: int
    """Last page_id; of the feed, the last number."""
    n_rows: int
    n_bytes: int
    checksum: str
    """`Checksum` of the rows."""


class LogArchive:
    """Files of old days below one path or address."""

    def __init__(self, address: str) -> None:
        """Raise `InvalidSettings` for an address that no installed package can reach."""
        try:
            import pyarrow.parquet  # noqa: F401 - to fail at once where it is missing
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise InvalidSettings(NEEDS) from error
        try:
            self.files, root = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise InvalidSettings(
                f"RECRAWL_ARCHIVE: {error}; name a path, or an address of fsspec such as "
                "s3://bucket/folder after pip install 'recrawl[s3]'"
            ) from error
        self.root = root.rstrip("/")
        self.is_local = "file" in _listed(self.files.protocol)

    def write(
        self,
        blocks: Iterable[Columns],
        files: list[ArchivedFile],
        form: Format = LOG,
        folder: str = "",
    ) -> Iterator[int]:
        """Write blocks ordered by day and place; append the files, yield the rows of each block.

        `folder` is the start of the names, such as "database=a/". After an error, `files` has the
        files that are complete; the file in work is deleted.
        """
        file: FileWriter | None = None
        try:
            for block in blocks:
                for rows in _by_day(block, form):
                    if file is not None and not file.takes(rows):
                        files.append(file.close())
                        file = None
                    file = file or FileWriter(self, rows, form, folder)
                    file.add(rows)
                yield len(block)
            if file is not None:
                files.append(file.close())
                file = None
        finally:
            if file is not None:
                file.abandon()

    def check(self, file: ArchivedFile, form: Format = LOG) -> None:
        """Read a whole file back; raise `ArchiveDamaged` unless it has the rows it should."""
        sums = parquet.Checksum()
        with self.opened(file.name) as source:
            opened = parquet.reader(source)
            for group in range(opened.num_row_groups):
                sums.add(form.decode(opened.read_row_group(group, use_threads=False)))
        if (sums.n_rows, sums.text) != (file.n_rows, file.checksum):
            raise ArchiveDamaged(
                f"{file.name} has {counted(sums.n_rows, 'row')} with the checksum {sums.text}, not "
                f"{file.n_rows} with {file.checksum}; restore the file from a backup"
            )

    def log_of(self, files: Sequence[ArchivedFile], page_id: Ints) -> LogColumns:
        """Return the entries of pages (ascending) in these files, in any order of files."""
        if len(files) < 2:  # noqa: PLR2004 - a thread costs more than it gains
            return LogColumns.concatenate([self._read(file, page_id) for file in files])
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return LogColumns.concatenate(
                list(threads.map(lambda file: self._read(file, page_id), files))
            )

    def _read(self, file: ArchivedFile, page_id: Ints) -> LogColumns:
        """Return the entries of pages in a file, from the row groups that may have some."""
        parts = []
        with self.opened(file.name) as source:
            opened = parquet.reader(source)
            bounds = _checked_bounds(opened, file)
            for group in range(opened.num_row_groups):
                first = page_id.searchsorted(bounds[2 * group])
                last = page_id.searchsorted(bounds[2 * group + 1], side="right")
                if first < last:
                    rows = parquet.decode(opened.read_row_group(group, use_threads=False))
                    parts.append(rows.take(np.isin(rows.page_id, page_id[first:last])))
        return LogColumns.concatenate(parts)

    def changes(self, file: ArchivedFile, place: FeedPlace, limit: int) -> FeedColumns:
        """Return the changes of a file from a place on, more than `limit` if there are."""
        parts, n_rows = [], 0
        with self.opened(file.name) as source:
            opened = parquet.reader(source)
            last = np.array(_checked_bounds(opened, file)[1::2])
            for group in range(int(last.searchsorted(place.seq)), opened.num_row_groups):
                rows = FEED.decode(opened.read_row_group(group, use_threads=False))
                seen = (rows.seq == place.seq) & (rows.offset < place.offset)
                parts.append(rows.where((rows.seq >= place.seq) & ~seen))
                n_rows += len(parts[-1])
                if n_rows > limit:
                    break
        return FeedColumns.concatenate(parts)

    def delete(self, files: Iterable[ArchivedFile]) -> None:
        """Delete files that no database names, as far as the archive answers."""
        for file in files:
            with suppress(RecrawlError), reaching(file.name):
                self.files.rm_file(self.path(file.name))

    def names(self) -> set[str]:
        """Return the names of all files, also of those that no database names."""
        with reaching("the archive"), suppress(FileNotFoundError):
            self.files.invalidate_cache()
            paths = self.files.find(self.root)
            return {path[len(self.root) + 1 :] for path in paths if path.endswith(".parquet")}
        return set()

    def path(self, name: str) -> str:
        """Return the path of a file in its file system."""
        return f"{self.root}/{name}"

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file to read it."""
        path = self.path(name)
        with reaching(name), self.files.open(path, "rb", cache_type="none") as source:
            yield source

    @contextmanager
    def created(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file to write it; on the end of the block a local file is on the disk."""
        path = self.path(name)
        with reaching(name):
            folder = path.rpartition("/")[0]
            self.files.makedirs(folder, exist_ok=True)
            with self.files.open(path, "wb") as sink:
                yield sink
                sink.flush()
                if self.is_local:
                    os.fsync(sink.fileno())
            if self.is_local:
                for above in (folder, *map(str, PurePath(folder).parents)):
                    if len(above) >= len(os.path.dirname(self.root)):  # noqa: PTH120
                        _sync_folder(above)


class FileWriter:
    """A file in work: rows of one day."""

    def __init__(self, archive: LogArchive, rows: Columns, form: Format, folder: str) -> None:
        self.archive = archive
        self.form = form
        self.day = _first_day(rows, form)
        self.name = f"{form.folder}{folder}day={self.day}/{uuid4().hex}.parquet"
        self.first = self.last = int(form.place(rows)[0])
        self.sums = parquet.Checksum()
        self.pending: list[Columns] = []
        self.n_pending = 0
        self.stack = ExitStack()
        self.sink = self.stack.enter_context(archive.created(self.name))
        try:
            self.parquet = self._reached(partial(parquet.writer, self.sink, form))
        except RecrawlError:
            self.abandon()
            raise

    def takes(self, rows: Columns) -> bool:
        """Return whether these rows belong into this file."""
        n_rows = self.sums.n_rows + self.n_pending
        return _first_day(rows, self.form) == self.day and n_rows < ROWS_OF_FILE

    def add(self, rows: Columns) -> None:
        """Add rows; write them in whole row groups."""
        self.pending.append(rows)
        self.n_pending += len(rows)
        self.last = int(self.form.place(rows)[-1])
        if self.n_pending >= parquet.ROWS_OF_GROUP:
            self._flush(self.n_pending - self.n_pending % parquet.ROWS_OF_GROUP)

    def _flush(self, n_rows: int) -> None:
        rows = type(self.pending[0]).concatenate(self.pending)
        for start in range(0, n_rows, parquet.ROWS_OF_GROUP):
            group = rows.take(slice(start, min(start + parquet.ROWS_OF_GROUP, n_rows)))
            self.sums.add(group)
            self._reached(partial(self.parquet.write_table, self.form.encode(group)))
        self.pending, self.n_pending = [rows.take(slice(n_rows, None))], len(rows) - n_rows

    def close(self) -> ArchivedFile:
        """Write the rest and return the file."""
        if self.n_pending:
            self._flush(self.n_pending)
        self._reached(self.parquet.close)
        n_bytes = self.sink.tell()
        self.stack.close()
        numbers = self.first, self.last, self.sums.n_rows, n_bytes
        return ArchivedFile(self.name, self.day, *numbers, self.sums.text)

    def abandon(self) -> None:
        """Delete the file, as far as the archive answers."""
        with suppress(Exception):
            self.parquet.close()
        with suppress(Exception):
            self.stack.close()
        with suppress(Exception):
            self.archive.files.rm_file(self.archive.path(self.name))

    def _reached(self, act: Callable[[], Any]) -> Any:
        with reaching(self.name):
            return act()


def _checked_bounds(opened: "ParquetFile", file: ArchivedFile) -> list[int]:
    """Return the bounds of the row groups; raise `ArchiveDamaged` unless they are as written."""
    bounds = parquet.bounds(opened)
    ends = bounds[0], bounds[-1], opened.metadata.num_rows
    if ends != (file.first, file.last, file.n_rows) or bounds != sorted(bounds):
        raise ArchiveDamaged(
            f"{file.name} has other bounds than were written; restore it from a backup"
        )
    return bounds


def _by_day(block: Columns, form: Format) -> Iterator[Columns]:
    """Yield the rows of each day of an ordered block."""
    day = form.time(block).astype("M8[D]").view(np.int64)
    ends = [*(np.flatnonzero(np.diff(day)) + 1).tolist(), len(block)]
    start = 0
    for end in ends:
        if end > start:
            yield block.take(slice(start, end))
        start = end


def _first_day(rows: Columns, form: Format) -> date:
    day: date = form.time(rows)[0].astype("M8[D]").item()
    return day


def _sync_folder(path: str) -> None:
    """Make the names in a folder outlast a power cut."""
    descriptor = os.open(path or "/", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _listed(protocol: str | tuple[str, ...]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@contextmanager
def reaching(name: str) -> Iterator[None]:
    """Raise the service's errors for those of file systems, which have no common base."""
    try:
        yield
    except RecrawlError:
        raise
    except FileNotFoundError as error:
        raise ArchiveUnavailable(
            f"the archive has no file {name}; see that RECRAWL_ARCHIVE is right, or restore it"
        ) from error
    except Exception as error:
        if _is_damage(error):
            raise ArchiveDamaged(
                f"{name} is damaged: {_sentence(error)}; restore the file from a backup"
            ) from error
        full = "is full" if getattr(error, "errno", None) in FULL else "cannot be used"
        raise ArchiveUnavailable(
            f"the archive {full} for {name}: {_sentence(error)}; nothing was dropped"
        ) from error


def _is_damage(error: Exception) -> bool:
    """Return whether Parquet refused the bytes: an error of its own, or one without a number."""
    from pyarrow import ArrowException

    return isinstance(error, ArrowException | ValueError) or (
        type(error) is OSError and error.errno is None
    )


def _sentence(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
