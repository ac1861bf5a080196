"""`recrawl export`: write files of pages and states."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.file_steps import add_rows_task, opened_store, rows_progress, show_rows
from service.cli.options import DatabaseUrl, console
from service.model.words import counted

if TYPE_CHECKING:
    from service.runtime.bootstrap import Opened
    from service.storage import Transaction

Target = Annotated[
    Path,
    typer.Argument(help="A .csv, .tsv, .ndjson (each also .gz) or .parquet file; - is stdout"),
]
States = Annotated[bool, typer.Option("--states", help="Include the state of each page")]
Format = Annotated[
    Literal["csv", "tsv", "ndjson", "parquet"] | None,
    typer.Option(help="Format, by default that of the name; on stdout ndjson"),
]


def expected_pages(tx: "Transaction") -> int | None:
    """Return the number of pages of the epoch in force; None before the first epoch."""
    in_force = tx.epoch_in_force()
    return in_force.certificate.n_pages if in_force and in_force.certificate else None


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
        opened_store(database_url, existing=True) as base,
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
