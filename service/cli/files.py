"""`recrawl import`: read files of pages, states and captures."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import (
    DownloadColumn,
)

from service.cli.file_steps import (
    MAX_SHOWN,
    ImportCounts,
    add_rows_task,
    checkpoint_of,
    opened_store,
    print_skipped,
    receiver_of,
    regular,
    request_epoch,
    rows_progress,
    show_rows,
)
from service.cli.options import URL, ApiKey, address, connected
from service.cli.plugins import folder_importer
from service.model.words import counted

if TYPE_CHECKING:
    from service.runtime.bootstrap import Opened
    from service.transfer.importing import Checkpoint, ImportStep


def existing(sources: list[Path]) -> list[Path]:
    """Return the sources; refuse those that do not exist. The path - is standard input."""
    # typer's own `exists` refuses - from 0.29 on
    for source in sources:
        if str(source) != "-" and not source.exists():
            message = f"Path '{source}' does not exist; name a file, or - for standard input"
            raise typer.BadParameter(message)
    return sources


Sources = Annotated[
    list[Path],
    typer.Argument(
        callback=existing,
        metavar="SOURCE...",
        help="Lists of URLs; CSV or TSV (with a header), NDJSON or Parquet of pages; indexes of "
        "captures (CDX, CDXJ, JSON); each but Parquet also as .gz; - reads a pipe; or the folder "
        "of the PoliteCrawling data set",
    ),
]
Receiver = Annotated[
    str | None,
    typer.Option(help=f"Address of the service ({URL})", envvar="RECRAWL_URL", callback=address),
]
IntoDatabase = Annotated[
    str | None,
    typer.Option(help="Write directly to this database, even while the service is stopped"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted import")]
Began = Annotated[
    datetime | None,
    typer.Option(help="Start of the data set's 14 weeks (15 weeks ago)"),
]
Kind = Annotated[
    Literal["urls", "csv", "tsv", "ndjson", "parquet", "cdx", "cdxj", "index"] | None,
    typer.Option("--format", help="Format of all sources; by default their content shows it"),
]
HaveCopies = Annotated[
    bool,
    typer.Option("--have-copies", help="The crawler has the newest captures as its copies"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read and count; import nothing")]


def import_(
    sources: Sources,
    to: Receiver = None,
    api_key: ApiKey = None,
    database_url: IntoDatabase = None,
    format: Kind = None,  # noqa: A002 - the option's name
    have_copies: HaveCopies = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    began: Began = None,
) -> None:
    """Import pages from files to a running service, or pages with states to a database.

    A list has one URL a line; blank lines and lines that begin with # do not count. Columns of
    tables have the names of the fields of POST /pages: url, and optionally importance,
    observability, min_crawl_rate and max_crawl_rate.

    Three sources go directly to the database (--database-url or RECRAWL_DATABASE_URL): indexes of
    an archive's captures, files of `recrawl export --states`, and the PoliteCrawling data set.
    Captures teach the change rates of their pages; all files of captures count as one. A state
    replaces the stored one only if the state has newer evidence. The settings of hosts come from
    the file FILE.hosts.ndjson beside FILE.

    Bad lines are printed and skipped; the command then ends with status 1. Importing again changes
    nothing, except that pages of the file come back that were deleted since: take them out of the
    file, too. Repeat an interrupted import, or continue with --resume: a small file beside the
    source contains the position.
    """
    from service.cli.captures import import_captures
    from service.transfer.captures import PARSERS

    good = True
    with regular(sources) as files:
        kinds = {file: _kind(file, format) for file in files}
        captures = {file: kind for file, kind in kinds.items() if kind in PARSERS}
        for file, kind in kinds.items():
            if file not in captures:
                good &= _told(
                    _import_one(
                        *(file, kind, to, api_key, database_url, began),
                        resume=resume,
                        dry_run=dry_run,
                    )
                )
        if captures:
            good &= _told(
                import_captures(
                    captures, database_url, resume=resume, dry_run=dry_run, have_copies=have_copies
                )
            )
    if not good:
        raise typer.Exit(1)


def _told(counts: ImportCounts) -> bool:
    """Print the counts of an import; return whether it had lines and skipped none."""
    typer.echo(counts.summary)
    if counts.hosts:
        typer.echo(counts.hosts)
    return not (counts.skipped or counts.empty)


OF_FOLDER, OF_HOSTS = "folder", "hosts"
"""Kinds of sources beside the formats of files."""


def _kind(source: Path, stated: str | None) -> str:
    """Return the format of a source, or that it is a folder or has settings of hosts."""
    from service.transfer.files import format_of
    from service.transfer.hosts import SUFFIX

    if source.is_dir():
        return OF_FOLDER
    if source.name.endswith(SUFFIX):
        return OF_HOSTS
    return stated or format_of(source)


def _import_one(
    source: Path,
    kind: str,
    to: str | None,
    api_key: str | None,
    database_url: str | None,
    began: datetime | None,
    *,
    resume: bool,
    dry_run: bool,
) -> ImportCounts:
    """Import one source that is no index of captures."""
    from service.transfer.files import holds_states

    if kind in (OF_FOLDER, OF_HOSTS) and dry_run:
        raise typer.BadParameter(f"counts lines of pages and captures only, not those of {source}")
    if kind == OF_HOSTS:
        return _import_hosts(source, database_url)
    if kind == OF_FOLDER:
        folder = folder_importer()(source)
        return _with_states(_import_folder(source, folder, database_url, began, resume))
    states = holds_states(source, kind)
    if dry_run:
        return _checked(source, kind, states=states)
    if states:
        return _with_states(_import_to_database(source, kind, database_url, states, resume))
    if database_url is not None:
        return _import_to_database(source, kind, database_url, states, resume)
    return _import_to_service(source, kind, to or URL, api_key, resume)


def _with_states(counts: ImportCounts) -> ImportCounts:
    sentence = (
        f"{counts.pages}, {counted(counts.restored, 'state')} restored, "
        f"{counted(counts.skipped, 'line')} skipped"
    )
    return counts._replace(sentence=sentence)


def _checked(source: Path, kind: str, *, states: bool) -> ImportCounts:
    """Count the lines of a file."""
    from service.transfer.importing import check_lines

    counts = _follow(check_lines(source, kind, states=states), source, [source], None)
    pages, lines = counted(counts.created, "page"), counted(counts.skipped, "line")
    sentence = f"{pages} could be registered, {lines} skipped; nothing was imported"
    return counts._replace(sentence=sentence)


def _import_folder(
    source: Path, folder: Any, database_url: str | None, began: datetime | None, resume: bool
) -> ImportCounts:
    with opened_store(database_url) as base:
        receiver = receiver_of(base, database_url)
        checkpoint, standing = checkpoint_of(folder.files, receiver, resume, source)
        steps = folder.steps(base, _beginning(began, standing), standing)
        return request_epoch(base, _follow(steps, source, folder.files, checkpoint))


def _import_to_database(
    source: Path, kind: str, database_url: str | None, states: bool, resume: bool
) -> ImportCounts:
    from service.transfer.hosts import settings_file
    from service.transfer.importing import add_pages, add_states

    beside, of_hosts = settings_file(source), ImportCounts()
    with opened_store(database_url) as base:
        checkpoint, standing = checkpoint_of([source], receiver_of(base, database_url), resume)
        line = standing.get("line", 0)
        if states and beside.is_file():  # first, so that the settings hold for every crawl
            of_hosts = _set_hosts(base, beside)
        elif states:
            of_hosts = ImportCounts(hosts=f"no settings of hosts imported: no file {beside}")
        if states:
            estimator = base.plan.estimator
            steps = add_states(source, base.store, estimator, base.store.clock, line, kind)
        else:
            steps = add_pages(source, base.store, base.store.clock, line, kind)
        counts = request_epoch(base, _follow(steps, source, [source], checkpoint))
    skipped = counts.skipped + of_hosts.skipped
    return counts._replace(skipped=skipped, hosts=of_hosts.hosts)


def _import_hosts(source: Path, database_url: str | None) -> ImportCounts:
    with opened_store(database_url) as base:
        return _set_hosts(base, source)


def _set_hosts(base: "Opened", path: Path) -> ImportCounts:
    """Set hosts and groups by a file of settings; return the sentence and the skipped lines."""
    from service.transfer.hosts import add_settings

    n_hosts = n_groups = n_skipped = 0
    for step in add_settings(path, base.store, base.runner.polite):
        print_skipped(step.skipped[: max(MAX_SHOWN - n_skipped, 0)])
        n_hosts, n_groups = n_hosts + step.n_hosts, n_groups + step.n_groups
        n_skipped += len(step.skipped)
    both = f"{counted(n_hosts, 'host')} and {counted(n_groups, 'group')}"
    sentence = f"settings of {both} imported from {path.name}"
    return ImportCounts(skipped=n_skipped, hosts=sentence)


def _import_to_service(
    source: Path, kind: str, url: str, api_key: str | None, resume: bool
) -> ImportCounts:
    from service.transfer.importing import send_pages

    checkpoint, standing = checkpoint_of([source], url, resume)
    with connected(url, api_key, waits=True) as client:
        steps = send_pages(source, client, standing.get("line", 0), kind)
        return _follow(steps, source, [source], checkpoint)


def _beginning(began: datetime | None, standing: dict[str, Any]) -> datetime:
    if standing:
        return datetime.fromisoformat(standing["began"]).replace(tzinfo=UTC)
    return datetime.now(UTC) - timedelta(weeks=15) if began is None else began.replace(tzinfo=UTC)


def _follow(
    steps: Iterator["ImportStep"], source: Path, files: list[Path], checkpoint: "Checkpoint | None"
) -> ImportCounts:
    """Show every step, write its position to the checkpoint, and return the sums."""
    counts, n_rows, resumed = ImportCounts(), 0, checkpoint is not None and checkpoint.resumed
    total = sum(file.stat().st_size for file in files)
    with rows_progress(DownloadColumn()) as progress:
        task = add_rows_task(progress, f"importing {source.name}", total)
        for step in steps:
            if checkpoint is not None:
                checkpoint.write(**step.standing)
            print_skipped(step.skipped[: max(MAX_SHOWN - counts.skipped, 0)])
            counts = ImportCounts(
                counts.created + step.created,
                counts.restored + step.restored,
                counts.skipped + len(step.skipped),
                counts.again + step.again,
            )
            n_rows += step.n_rows
            show_rows(progress, task, n_rows, step.bytes_read)
    if checkpoint is not None:
        checkpoint.clear()
    # what a resumed import had committed before is not read again
    return counts if n_rows or resumed else counts._replace(empty=source.name)
