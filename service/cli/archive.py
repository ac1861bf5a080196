"""`recrawl archive`: write old days of log and feed into Parquet files, check these files."""

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from service.cli.options import DatabaseUrl, console, settings
from service.model.errors import (
    OUTAGES,
    ArchiveDamaged,
    ArchiveUnavailable,
    InvalidSettings,
    RecrawlError,
)
from service.model.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from service.archive.log_archive import ArchivedFile
    from service.archive.parquet import Format
    from service.storage import Store
    from service.transfer.archiving import Retention

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be archived; change nothing")
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Read all archived files back instead; status 1 if one fails"),
]


def archive(
    dry_run: DryRun = False, check: Check = False, database_url: DatabaseUrl = None
) -> None:
    """Archive old days of the log and of the feed of changes in RECRAWL_ARCHIVE.

    Old are the days beyond RECRAWL_RETENTION_DAYS and RECRAWL_CHANGES_DAYS. Each part is read back
    and compared before the database drops it. A command that was stopped loses nothing: run it
    again. The service may run meanwhile; its worker does the same every ten minutes. A database of
    several that is away is left out, and the status is 1.
    """
    from service.runtime.bootstrap import opened

    chosen = settings(database_url)
    if chosen.archive is None:
        raise InvalidSettings(
            "RECRAWL_ARCHIVE is not set; name a path or an address such as s3://bucket/folder"
        )
    base = opened(chosen, existing=True)
    retention = base.archivist.retention
    with closing(base.store):
        if check:
            complete = _check(base.store)
        elif retention.log is None and retention.changes is None:
            raise InvalidSettings(
                "RECRAWL_RETENTION_DAYS and RECRAWL_CHANGES_DAYS are empty, so the database keeps "
                "all days; set the number of days that stay in the database"
            )
        elif dry_run:
            complete = _show(base.store, retention)
        else:
            complete = _move(base.store, retention)
    if not complete:
        raise typer.Exit(1)


def _each(store: "Store", act: "Callable[[Store], None]") -> bool:
    """Act on each database; report those that are away, and return whether there were none."""
    complete = True
    for part in store.parts:
        try:
            act(part)
        except OUTAGES as error:
            if len(store.parts) == 1:
                raise
            complete = False
            _report(f"database {part.name} is left out: {error.detail}")
    return complete


def _report(sentence: str) -> None:
    console.print(sentence, markup=False, soft_wrap=True)


def _show(store: "Store", retention: "Retention") -> bool:
    from service.transfer.archiving import coming

    about = "" if store.embedded else "about "
    n_rows: list[int] = []

    def show(part: "Store") -> None:
        parts, stretch = coming(part, retention)
        by_name: Counter[str] = Counter()
        for one in parts:  # on SQLite, a day with many entries has several parts
            by_name[one.name] += one.n_rows
            n_rows.append(one.n_rows)
        for name, n in by_name.items():
            typer.echo(f"{name}: {about}{counted(n, 'entry', 'entries')}")
        if stretch is not None:
            typer.echo(
                f"changes of {counted(stretch.n_blocks, 'commit')} or more would go to the archive"
            )

    complete = _each(store, show)
    entries, parts = counted(sum(n_rows), "entry", "entries"), counted(len(n_rows), "part")
    typer.echo(f"{about}{entries} in {parts} would go to the archive")
    return complete


def _move(store: "Store", retention: "Retention") -> bool:
    from service.archive.feed_parquet import FEED
    from service.transfer.archiving import archive_days, coming

    n_rows: list[int] = []
    _each(store, lambda part: n_rows.extend(one.n_rows for one in coming(part, retention)[0]))
    files: list[ArchivedFile] = []
    complete = True
    with Progress(console=console) as progress:
        task = progress.add_task("archiving", total=sum(n_rows) or None)
        for step in archive_days(store, retention):
            progress.advance(task, step.n_rows)
            files += step.files
            complete &= not step.away
            if step.kept is not None:
                _report(f"{step.name} stays: {step.kept}")
    changes = [file for file in files if file.name.startswith(FEED.folder)]
    typer.echo(_sum("entry", "entries", [file for file in files if file not in changes]))
    if changes:
        typer.echo(_sum("change", "changes", changes))
    return complete


def _sum(row: str, rows: str, files: "Sequence[ArchivedFile]") -> str:
    n_rows, n_bytes = sum(file.n_rows for file in files), sum(file.n_bytes for file in files)
    each = f", {n_bytes / n_rows:.1f} bytes each" if n_rows else ""
    return f"{counted(n_rows, row, rows)} archived in {counted(len(files), 'file')}{each}"


def _check(store: "Store") -> bool:
    from service.archive.feed_parquet import FEED
    from service.archive.parquet import LOG

    assert store.archive is not None  # noqa: S101 - for mypy
    files: dict[str, tuple[ArchivedFile, Format]] = {}

    def gather(part: "Store") -> None:
        with part.begin(write=False) as tx:
            files.update((file.name, (file, LOG)) for file in tx.log_files())
            files.update((file.name, (file, FEED)) for file in tx.feed_files())

    complete = _each(store, gather)
    faults: list[RecrawlError] = []
    with Progress(console=console) as progress:
        for file, form in progress.track(files.values(), description="reading back"):
            try:
                store.archive.check(file, form)
            except (ArchiveDamaged, ArchiveUnavailable) as error:
                faults.append(error)
                _report(error.detail)
    for name in sorted(store.archive.names() - set(files)) if complete else ():
        typer.echo(f"{name} is not in the database; no reader opens it")
    whole = counted(len(files), "file is as it was written", "files are as they were written")
    typer.echo(f"{len(files) - len(faults)} of {whole}")
    return complete and not faults
