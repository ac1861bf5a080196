"""`recrawl archive`: move old days of the log into Parquet files, check these files."""

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from service.cli.options import DatabaseUrl, console, settings
from service.model.errors import ArchiveDamaged, ArchiveUnavailable, InvalidSettings, RecrawlError

if TYPE_CHECKING:
    from service.storage import Store

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would move; change nothing")]
Check = Annotated[
    bool,
    typer.Option("--check", help="Read all archived files back instead; status 1 if one fails"),
]


def archive(
    dry_run: DryRun = False, check: Check = False, database_url: DatabaseUrl = None
) -> None:
    """Move days of the log beyond RECRAWL_RETENTION_DAYS from the database to RECRAWL_ARCHIVE.

    Each part is read back and compared before the database drops it. A command that was stopped
    loses nothing: run it again. The service may run meanwhile; its worker does the same every ten
    minutes.
    """
    from service.runtime.bootstrap import opened

    chosen = settings(database_url)
    if chosen.archive is None:
        raise InvalidSettings(
            "RECRAWL_ARCHIVE is not set; name a path or an address such as s3://bucket/folder"
        )
    base = opened(chosen, existing=True)
    with closing(base.store):
        if check:
            _check(base.store)
        elif base.plan.retention is None:
            raise InvalidSettings(
                "RECRAWL_RETENTION_DAYS is empty, so the database keeps all days; set the number "
                "of days that stay in the database"
            )
        elif dry_run:
            _show(base.store, base.plan.retention)
        else:
            _move(base.store, base.plan.retention)


def _show(store: "Store", older_than: timedelta) -> None:
    from service.transfer.archiving import days_before

    with store.begin(write=False) as tx:
        parts = tx.log_parts(days_before(store.clock(), older_than))
    about = "" if store.embedded else "about "
    for part in parts:
        typer.echo(f"{part.name}: {about}{part.n_rows:,} entries")
    n_rows = sum(part.n_rows for part in parts)
    typer.echo(f"{about}{n_rows:,} entries in {len(parts)} parts would move to the archive")


def _move(store: "Store", older_than: timedelta) -> None:
    from service.transfer.archiving import archive_log, days_before

    with store.begin(write=False) as tx:
        parts = tx.log_parts(days_before(store.clock(), older_than))
    n_rows = n_files = n_bytes = 0
    with Progress(console=console) as progress:
        task = progress.add_task("archiving", total=sum(part.n_rows for part in parts) or None)
        for step in archive_log(store, older_than):
            progress.advance(task, step.n_rows)
            for file in step.files:
                n_rows, n_files, n_bytes = n_rows + file.n_rows, n_files + 1, n_bytes + file.n_bytes
            if step.kept is not None:
                console.print(f"{step.part.name} stays: {step.kept}", markup=False, soft_wrap=True)
    each = f", {n_bytes / n_rows:.1f} bytes each" if n_rows else ""
    typer.echo(f"{n_rows:,} entries archived in {n_files} files{each}")


def _check(store: "Store") -> None:
    assert store.archive is not None  # noqa: S101 - for mypy
    with store.begin(write=False) as tx:
        files = tx.log_files()
    faults: list[RecrawlError] = []
    with Progress(console=console) as progress:
        for file in progress.track(files, description="reading back"):
            try:
                store.archive.check(file)
            except (ArchiveDamaged, ArchiveUnavailable) as error:
                faults.append(error)
                console.print(error.detail, markup=False, soft_wrap=True)
    others = sorted(store.archive.names() - {file.name for file in files})
    for name in others:
        typer.echo(f"{name} is not in the database; no reader opens it")
    typer.echo(f"{len(files) - len(faults)} of {len(files)} files are as they were written")
    if faults:
        raise typer.Exit(1)
