"""`recrawl import` and `recrawl export`: read and write files of pages and states."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from service.cli.options import URL, ApiKey, DatabaseUrl, address, connected, console, settings
from service.cli.plugins import folder_importer
from service.model.words import counted

if TYPE_CHECKING:
    from service.runtime.bootstrap import Opened
    from service.storage import Transaction
    from service.transfer.importing import Checkpoint, ImportStep, Skipped


RATE = TextColumn("{task.fields[n_rows]:,} rows {task.fields[rate]:,.0f}/s")


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


def expected_pages(tx: "Transaction") -> int | None:
    """Return the number of pages of the epoch in force; None before the first epoch."""
    in_force = tx.epoch_in_force()
    return in_force.certificate.n_pages if in_force and in_force.certificate else None


MAX_SHOWN = 20
"""Maximum number of printed skipped lines; the count includes all."""

Source = Annotated[
    Path,
    typer.Argument(
        exists=True,
        help="CSV or TSV (with a header), NDJSON, any of them as .gz, or Parquet; or the "
        "folder of the PoliteCrawling data set",
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
Target = Annotated[
    Path,
    typer.Argument(help="A .csv, .tsv, .ndjson (each also .gz) or .parquet file; - is stdout"),
]
States = Annotated[bool, typer.Option("--states", help="Include the state of each page")]
Format = Annotated[
    Literal["csv", "tsv", "ndjson", "parquet"] | None,
    typer.Option(help="Format, by default that of the name; on stdout ndjson"),
]


class ImportCounts(NamedTuple):
    """Results of an import."""

    created: int = 0
    """Number of new pages."""
    restored: int = 0
    """Number of restored states."""
    skipped: int = 0
    """Number of lines that were not imported."""
    hosts: str = ""
    """Sentence on the imported settings of hosts."""


def import_(
    source: Source,
    to: Receiver = None,
    api_key: ApiKey = None,
    database_url: IntoDatabase = None,
    resume: Resume = False,
    began: Began = None,
) -> None:
    """Import pages from a file to a running service, or pages with states to a database.

    Columns have the names of the fields of POST /pages: url, and optionally importance,
    observability, min_crawl_rate and max_crawl_rate.

    Two sources go directly to the database (--database-url or RECRAWL_DATABASE_URL): a file of
    `recrawl export --states`, and the PoliteCrawling data set. A state replaces the stored one
    only if the state has newer evidence. The settings of hosts come from the file
    FILE.hosts.ndjson beside FILE.

    Bad lines are printed and skipped; the command then ends with status 1. Importing again changes
    nothing. Repeat an interrupted import, or continue with --resume: a small file beside the
    source contains the position.
    """
    from service.transfer.files import holds_states
    from service.transfer.hosts import SUFFIX

    folder = folder_importer()(source) if source.is_dir() else None
    of_hosts = folder is None and source.name.endswith(SUFFIX)
    states = not (folder or of_hosts) and holds_states(source)
    if of_hosts:
        counts = _import_hosts(source, database_url)
    elif folder:
        counts = _import_folder(source, folder, database_url, began, resume)
    elif states or database_url is not None:
        counts = _import_to_database(source, database_url, states, resume)
    else:
        counts = _import_to_service(source, to or URL, api_key, resume)
    restored = f", {counts.restored} states restored" if folder or states else ""
    typer.echo(f"{counts.created} new pages registered{restored}, {counts.skipped} lines skipped")
    if counts.hosts:
        typer.echo(counts.hosts)
    if counts.skipped:
        raise typer.Exit(1)


def _import_folder(
    source: Path, folder: Any, database_url: str | None, began: datetime | None, resume: bool
) -> ImportCounts:
    with _opened(database_url) as base:
        receiver = _receiver(base, database_url)
        checkpoint, standing = _checkpoint(source, folder.files, receiver, resume)
        steps = folder.steps(base, _beginning(began, standing), standing)
        return _follow(steps, source, folder.files, checkpoint)


def _import_to_database(
    source: Path, database_url: str | None, states: bool, resume: bool
) -> ImportCounts:
    from service.transfer.hosts import settings_file
    from service.transfer.importing import add_pages, add_states

    beside, of_hosts = settings_file(source), ImportCounts()
    with _opened(database_url) as base:
        checkpoint, standing = _checkpoint(source, [source], _receiver(base, database_url), resume)
        line = standing.get("line", 0)
        if states and beside.is_file():  # first, so that the settings hold for every crawl
            of_hosts = _set_hosts(base, beside)
        elif states:
            of_hosts = ImportCounts(hosts=f"no settings of hosts imported: no file {beside}")
        if states:
            steps = add_states(source, base.store, base.plan.estimator, base.store.clock, line)
        else:
            steps = add_pages(source, base.store, base.store.clock, line)
        counts = _follow(steps, source, [source], checkpoint)
    skipped = counts.skipped + of_hosts.skipped
    return counts._replace(skipped=skipped, hosts=of_hosts.hosts)


def _import_hosts(source: Path, database_url: str | None) -> ImportCounts:
    with _opened(database_url) as base:
        return _set_hosts(base, source)


def _set_hosts(base: "Opened", path: Path) -> ImportCounts:
    """Set hosts and groups by a file of settings; return the sentence and the skipped lines."""
    from service.transfer.hosts import add_settings

    n_hosts = n_groups = n_skipped = 0
    for step in add_settings(path, base.store, base.runner.polite):
        _print_skipped(step.skipped[: max(MAX_SHOWN - n_skipped, 0)])
        n_hosts, n_groups = n_hosts + step.n_hosts, n_groups + step.n_groups
        n_skipped += len(step.skipped)
    both = f"{counted(n_hosts, 'host')} and {counted(n_groups, 'group')}"
    sentence = f"settings of {both} imported from {path.name}"
    return ImportCounts(skipped=n_skipped, hosts=sentence)


def _import_to_service(source: Path, url: str, api_key: str | None, resume: bool) -> ImportCounts:
    from service.transfer.importing import send_pages

    checkpoint, standing = _checkpoint(source, [source], url, resume)
    with connected(url, api_key, waits=True) as client:
        steps = send_pages(source, client, standing.get("line", 0))
        return _follow(steps, source, [source], checkpoint)


def _checkpoint(
    source: Path, files: list[Path], receiver: str, resume: bool
) -> "tuple[Checkpoint, dict[str, Any]]":
    """Return the checkpoint of an import, and the position from which the import continues."""
    from service.transfer.importing import Checkpoint

    checkpoint = Checkpoint(source, files, receiver)
    return checkpoint, checkpoint.read() if resume else {}


def _receiver(base: "Opened", database_url: str | None) -> str:
    """Return the name of a database; after a restore it is another one, which lacks some pages."""
    address: str = settings(database_url).database_url.get_secret_value()
    with base.store.begin(write=False) as tx:
        return f"{address} {tx.incarnation()}"


def _beginning(began: datetime | None, standing: dict[str, Any]) -> datetime:
    if standing:
        return datetime.fromisoformat(standing["began"]).replace(tzinfo=UTC)
    return datetime.now(UTC) - timedelta(weeks=15) if began is None else began.replace(tzinfo=UTC)


@contextmanager
def _opened(database_url: str | None, *, existing: bool = False) -> Iterator["Opened"]:
    from service.runtime.bootstrap import opened

    base = opened(settings(database_url), existing=existing)
    with closing(base.store):
        yield base


def _follow(
    steps: Iterator["ImportStep"], source: Path, files: list[Path], checkpoint: "Checkpoint"
) -> ImportCounts:
    """Show every step, write its position to the checkpoint, and return the sums."""
    counts, n_rows = ImportCounts(), 0
    total = sum(file.stat().st_size for file in files)
    with rows_progress(DownloadColumn()) as progress:
        task = add_rows_task(progress, f"importing {source.name}", total)
        for step in steps:
            checkpoint.write(**step.standing)
            _print_skipped(step.skipped[: max(MAX_SHOWN - counts.skipped, 0)])
            counts = ImportCounts(
                counts.created + step.created,
                counts.restored + step.restored,
                counts.skipped + len(step.skipped),
            )
            n_rows += step.n_rows
            show_rows(progress, task, n_rows, step.bytes_read)
    checkpoint.clear()
    return counts


def _print_skipped(lines: list["Skipped"]) -> None:
    for line in lines:
        text = f"{line.path}:{line.line}: {line.reason}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def export(
    file: Target,
    states: States = False,
    format: Format = None,  # noqa: A002 - the option's name
    database_url: DatabaseUrl = None,
) -> None:
    """Write all pages to a file for `recrawl import`.

    With --states the file contains the state of each page, for another SQLite or Postgres
    database: estimates, last crawls, counts, digests and pings. The file FILE.hosts.ndjson beside
    FILE then contains the settings of hosts and groups: delays, also those of robots.txt,
    concurrency, caps, groups and blocks.

    The service may run meanwhile; each page is as of one instant. The file contains no schedule:
    the next epoch publishes a new one.
    """
    from service.transfer.exporting import exported, writer

    n_rows, of_hosts = 0, ""
    with (
        _opened(database_url, existing=True) as base,
        writer(file, format, states=states) as write,
        rows_progress() as progress,
    ):
        with base.store.begin(write=False) as tx:
            total = expected_pages(tx)
        task = add_rows_task(progress, f"exporting {file.name}", total)
        for block in exported(base.store, base.plan.estimator if states else None):
            write(block)
            n_rows += len(block["url"])
            show_rows(progress, task, n_rows, n_rows)
        if states:
            of_hosts = _export_hosts(base, file)
    sentence = f"{counted(n_rows, 'page')} exported{of_hosts}"
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _export_hosts(base: "Opened", states: Path) -> str:
    """Write the settings of hosts beside a file of states; return the end of the sentence."""
    from service.transfer.hosts import settings_file, write_settings

    if str(states) == "-" or (states.exists() and not states.is_file()):
        return "; settings of hosts are not exported to stdout: name a file instead of -"
    path = settings_file(states)
    steps = list(write_settings(path, base.store, base.store.clock()))
    n_hosts, n_groups = sum(step.n_hosts for step in steps), sum(step.n_groups for step in steps)
    both = f"{counted(n_hosts, 'host')} and {counted(n_groups, 'group')}"
    return f", and the settings of {both} to {path}"
