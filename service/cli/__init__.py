"""The command line: assemble the parts and run them."""

import re
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import structlog
import typer
from rich.text import Text

from service import __version__
from service.cli.acts import audit, budget, history, pause, resume
from service.cli.archive import archive
from service.cli.changes import changes
from service.cli.database import migrate, rebuild, restored, send_webhooks
from service.cli.export import export
from service.cli.files import import_
from service.cli.groups import groups
from service.cli.hosts import hosts
from service.cli.keys import keys
from service.cli.leases import leases
from service.cli.mcp import mcp
from service.cli.needs import needs
from service.cli.options import console
from service.cli.pages import fresh, pages
from service.cli.plan import plan
from service.cli.plugins import add_commands
from service.cli.savings import savings
from service.cli.serve import openapi, serve, worker
from service.cli.site_documents import watch, websub
from service.cli.status import epochs, status, why
from service.cli.url_groups import url_groups
from service.model.errors import RecrawlError
from service.model.redaction import redacted

app = typer.Typer(
    name="recrawl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="Decide when to crawl which page again.\n\n"
    "The environment, or a file .env, has all other settings: RECRAWL_DATABASE_URL, "
    "RECRAWL_BANDWIDTH, RECRAWL_EPOCH_INTERVAL_S, … See docs/reference/settings.md.",
)


def main() -> None:
    """Run a command; after an error of the model, a file or a disk, print a sentence and exit 2."""
    # the output of a command is for other programs
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        app()
    except RecrawlError as error:
        refuse(reason(error))
    except OSError as error:
        refuse(f"{error.filename or 'a file'}: {error.strerror or error}")


def reason(error: RecrawlError) -> str:
    """Return the sentence of an error and the message of Postgres behind it, without password."""
    cause: BaseException | None = error
    while cause := cause and cause.__cause__:
        message = postgres_message(cause)
        if message is not None and message not in error.detail:
            return f"{error.detail} ({message})"
    return error.detail


def postgres_message(cause: BaseException) -> str | None:
    """Return the message of Postgres in an exception of its driver, None in any other."""
    original = getattr(cause, "orig", cause)
    message: str | None = getattr(getattr(original, "diag", None), "message_primary", None)
    if message is None and (fatal := re.search("FATAL: *(.+)", str(original))):
        return fatal[1]
    return message


def refuse(reason: str) -> NoReturn:
    """Print one sentence and exit with status 2."""
    shown = Text(redacted(reason))
    console.print("[bold red]recrawl:[/]", shown, highlight=False, soft_wrap=True)
    sys.exit(2)


def show_version(requested: bool) -> None:
    """Print the version and stop."""
    if requested:
        typer.echo(f"recrawl {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Read the options before the command."""


RUN, WATCH, ACT, SITES, FILES = (
    "Run the service",
    "See what it does",
    "Act without a restart",
    "Pass on documents of sites",
    "Files and databases",
)
"""Groups of commands in the help."""
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    RUN: (serve, worker, migrate, openapi, mcp),
    WATCH: (status, why, plan, epochs, history, savings, changes, audit, fresh),
    ACT: (pause, resume),
    SITES: (watch,),
    FILES: (export, archive, rebuild, restored, send_webhooks),
}
SUBJECTS = {
    RUN: {"keys": keys},
    ACT: {"budget": budget, "hosts": hosts, "groups": groups, "pages": pages, "leases": leases}
    | {"url-groups": url_groups, "needs": needs},
    SITES: {"websub": websub},
}
"""Commands with commands of their own, by name."""

for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.command(name="import", rich_help_panel=FILES)(import_)
for panel, subjects in SUBJECTS.items():
    for name, subject in subjects.items():
        app.add_typer(subject, name=name, rich_help_panel=panel)
add_commands(app)
