"""`recrawl import` and `recrawl export`: pages and states from and to files."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from service.cli.parts import URL, ApiKey, DatabaseUrl, address, console, settings

if TYPE_CHECKING:
    from service.opening import Opened
    from service.sources.checkpoint import Checkpoint
    from service.sources.importing import Step

MAX_SHOWN = 20
"""Skipped lines told one by one; the rest are only counted."""
RATE = TextColumn("{task.fields[n_rows]:,} rows {task.fields[rate]:,.0f}/s")


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            exists=True,
            help="CSV or TSV (with a header), NDJSON, any of them as .gz, or Parquet; or the "
            "folder of the PoliteCrawling data set",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            help=f"Where the service listens ({URL})", envvar="RECRAWL_URL", callback=address
        ),
    ] = None,
    api_key: ApiKey = None,
    database_url: Annotated[
        str | None,
        typer.Option(help="Write straight to this database instead, service running or not"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted import stopped")
    ] = False,
    began: Annotated[
        datetime | None,
        typer.Option(help="When the data set's 14 weeks are to have begun (15 weeks ago)"),
    ] = None,
) -> None:
    """Bring pages from a file to a running service, or pages with states into a database.

    Columns are named as the fields of POST /pages: url, and optionally importance,
    observability, min_crawl_rate, max_crawl_rate. A file that `recrawl export --states` wrote
    goes straight to the database (--database-url or RECRAWL_DATABASE_URL), as does the
    PoliteCrawling data set; a state is taken over only if it has newer evidence than the stored
    one.

    Bad lines are told and skipped; the command then ends with status 1. Importing again changes
    nothing, so an interrupted import may be repeated, or taken up with --resume: how far it came
    is kept in a small file beside the source.
    """
    from service.arrays import instant
    from service.sources.checkpoint import Checkpoint
    from service.sources.importing import add_pages, add_states, holds_states, send_pages
    from service.sources.polite import TABLES, find_table
    from service.sources.polite_import import import_polite
    from service.sources.polite_learning import Learning
    from service.sources.posting import Poster

    polite = source.is_dir()
    files = [find_table(source, name) for name in TABLES] if polite else [source]
    states = not polite and holds_states(source)
    with ExitStack() as stack:
        if polite or states or database_url is not None:
            base = stack.enter_context(_opened(database_url))
            receiver = settings(database_url).database_url.get_secret_value()
        else:
            receiver = to or URL
        checkpoint = Checkpoint(source, files, receiver)
        standing = checkpoint.read() if resume else {}
        line = standing.get("line", 0)
        if polite:
            learning = Learning(
                base.rules.estimator, base.rules.timing, base.rules.rng,
                instant(_began(began, standing)), base.now(),
            )  # fmt: skip
            steps = import_polite(source, base.store, learning, standing)
        elif states:
            steps = add_states(source, base.store, base.plan.estimator, base.now, line)
        elif database_url is not None:
            steps = add_pages(source, base.store, base.now, line)
        else:
            poster = stack.enter_context(Poster(receiver, api_key))
            steps = send_pages(source, poster, line)
        total = sum(file.stat().st_size for file in files)
        created, restored, skipped = _follow(steps, f"importing {source.name}", total, checkpoint)
    taken = f", {restored} states taken over" if polite or states else ""
    typer.echo(f"{created} new pages registered{taken}, {skipped} lines skipped")
    if skipped:
        raise typer.Exit(1)


def _began(told: datetime | None, standing: dict[str, Any]) -> datetime:
    if standing:
        return datetime.fromisoformat(standing["began"]).replace(tzinfo=UTC)
    return datetime.now(UTC) - timedelta(weeks=15) if told is None else told.replace(tzinfo=UTC)


@contextmanager
def _opened(database_url: str | None, *, existing: bool = False) -> Iterator["Opened"]:
    from service.opening import opened

    base = opened(settings(database_url), existing=existing)
    with closing(base.store):
        yield base


def _follow(
    steps: Iterator["Step"], title: str, total: int, checkpoint: "Checkpoint"
) -> tuple[int, int, int]:
    """Show every step and remember it; gives new pages, states taken over, lines skipped."""
    created = restored = skipped = n_rows = 0
    with _progress(DownloadColumn()) as progress:
        task = progress.add_task(title, total=total, n_rows=0, rate=0.0)
        for step in steps:
            checkpoint.write(**step.standing)
            for bad in step.skipped:
                skipped += 1
                if skipped <= MAX_SHOWN:
                    told = f"{bad.path}:{bad.line}: {bad.reason}"
                    console.print(told, highlight=False, markup=False, soft_wrap=True)
            created, restored = created + step.created, restored + step.restored
            n_rows += step.n_rows
            rate = n_rows / max(progress.tasks[task].elapsed or 0.0, 1e-3)
            progress.update(task, completed=step.bytes_read, n_rows=n_rows, rate=rate)
    checkpoint.clear()
    return created, restored, skipped


def _progress(*more: Any) -> Progress:
    text = "[progress.description]{task.description}"
    return Progress(text, BarColumn(), *more, RATE, TimeRemainingColumn(), console=console)


def export(
    file: Annotated[
        Path,
        typer.Argument(help="Ends in .csv, .tsv, .ndjson (each also .gz) or .parquet; - is stdout"),
    ],
    states: Annotated[
        bool, typer.Option("--states", help="With all that is known of each page")
    ] = False,
    format: Annotated[  # noqa: A002 - the option's name
        Literal["csv", "tsv", "ndjson", "parquet"] | None,
        typer.Option(help="Instead of the one the name tells; on stdout ndjson"),
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write all pages to a file that `recrawl import` takes.

    With --states the file holds all it needs to go on elsewhere, on SQLite or Postgres: estimates,
    last crawls, counts, digests and pings. The service may run meanwhile; each page is as of
    one instant. Schedules are not exported: the next epoch writes one.
    """
    from service.sources.exporting import exported, writer

    n_rows = 0
    with (
        _opened(database_url, existing=True) as base,
        writer(file, format, states=states) as write,
        _progress() as progress,
    ):
        with base.store.begin(write=False) as tx:
            in_force = tx.epoch_in_force()
        total = in_force.certificate.n_pages if in_force and in_force.certificate else None
        task = progress.add_task(f"exporting {file.name}", total=total, n_rows=0, rate=0.0)
        estimator = base.plan.estimator if states else None
        for block in exported(base.store, estimator):
            write(block)
            n_rows += len(block["url"])
            rate = n_rows / max(progress.tasks[task].elapsed or 0.0, 1e-3)
            progress.update(task, completed=n_rows, n_rows=n_rows, rate=rate)
    console.print(f"{n_rows} pages exported", highlight=False)
