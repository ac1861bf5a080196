"""Parts of all commands that read or write files: the store, progress and skipped lines."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from service.cli.options import console, missing_file, print_new, settings
from service.model.words import counted

if TYPE_CHECKING:
    from service.runtime.bootstrap import Opened
    from service.transfer.importing import Checkpoint, Skipped


NEW = "a service has these pages only if its RECRAWL_DATABASE_URL names this file"
"""Warning that pages may be in another database than that of the service."""
RATE = TextColumn("{task.fields[n_rows]:,} read, {task.fields[rate]:,.0f}/s")


def rows_progress(*columns: Any) -> Progress:
    """Return a progress display with the number of rows, their rate, and more columns."""
    text = "[progress.description]{task.description}"
    return Progress(text, BarColumn(), *columns, RATE, TimeRemainingColumn(), console=console)


def add_rows_task(progress: Progress, title: str, total: int | None) -> TaskID:
    """Return a new progress bar for `show_rows`."""
    return progress.add_task(title, total=total, n_rows=0, rate=0.0)


def show_rows(progress: Progress, task: TaskID, n_rows: int, completed: int) -> None:
    """Move a progress bar and show the mean rate since its start."""
    rate = n_rows / max(progress.tasks[task].elapsed or 0.0, 1e-3)
    progress.update(task, completed=completed, n_rows=n_rows, rate=rate)


MAX_SHOWN = 20
"""Maximum number of printed skipped lines; the count includes all."""


class ImportCounts(NamedTuple):
    """Results of an import."""

    created: int = 0
    """Number of new pages."""
    restored: int = 0
    """Number of restored states."""
    skipped: int = 0
    """Number of lines that were not imported."""
    again: int = 0
    """Number of pages that were registered before."""
    hosts: str = ""
    """Sentence on the imported settings of hosts."""
    sentence: str = ""
    """Sentence on the counts, empty for those of pages alone."""
    empty: str = ""
    """Name of a source that has nothing to import."""

    @property
    def summary(self) -> str:
        """The counts in a sentence."""
        if self.empty:
            return f"{self.empty} has nothing to import: at most a header, comments or blank lines"
        return self.sentence or f"{self.pages}, {counted(self.skipped, 'line')} skipped"

    @property
    def pages(self) -> str:
        """The new pages in words, and those that were there."""
        before = f", {counted(self.again, 'page')} registered before" if self.again else ""
        return f"{counted(self.created, 'new page')} registered{before}"


@contextmanager
def regular(sources: list[Path]) -> Iterator[list[Path]]:
    """Yield files in place of pipes and of `-`: what is read twice would lose its first bytes."""
    with tempfile.TemporaryDirectory(prefix="recrawl-import-") as folder:
        yield [
            source if source.is_file() or source.is_dir() else _copied(source, Path(folder), n)
            for n, source in enumerate(sources)
        ]


def _copied(source: Path, folder: Path, n: int) -> Path:
    """Return a file with the content of a pipe."""
    copy = folder / (f"pipe-{n}" if n else "pipe")
    with copy.open("wb") as file:
        if str(source) == "-":
            shutil.copyfileobj(sys.stdin.buffer, file)
        else:
            with source.open("rb") as pipe:
                shutil.copyfileobj(pipe, file)
    return copy


def checkpoint_of(
    files: list[Path], receiver: str, resume: bool, source: Path | None = None
) -> "tuple[Checkpoint, dict[str, Any]]":
    """Return the checkpoint of an import, and the position from which the import continues.

    The checkpoint lies beside the source, by default the first file.
    """
    from service.transfer.importing import Checkpoint

    checkpoint = Checkpoint(source or files[0], files, receiver)
    return checkpoint, checkpoint.read() if resume else {}


def receiver_of(base: "Opened", database_url: str | None) -> str:
    """Return the name of a database; after a restore it is another one, which lacks some pages."""
    address: str = settings(database_url).database_url.get_secret_value()
    with base.store.begin(write=False) as tx:
        return f"{address} {tx.incarnation()}"


@contextmanager
def opened_store(database_url: str | None, *, existing: bool = False) -> Iterator["Opened"]:
    """Open the store with its users, and close it at the end."""
    from service.runtime.bootstrap import opened

    chosen = settings(database_url)
    new = None if existing else missing_file(chosen.database_url.get_secret_value())
    base = opened(chosen, existing=existing)
    with closing(base.store):
        print_new(new, NEW)
        yield base


def request_epoch(base: "Opened", counts: ImportCounts) -> ImportCounts:
    """Ask a service that runs for an epoch, which plans and admits what came past the service."""
    if counts.created or counts.restored or counts.again:
        with base.store.begin() as tx:
            tx.request_epoch(base.store.clock())
    return counts


def print_skipped(lines: list["Skipped"]) -> None:
    """Print lines that were not imported, each with its reason."""
    for line in lines:
        text = f"{line.path}:{line.line}: {line.reason}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
