"""`recrawl savings`: what the fleet gained against crawling every page equally often."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from service.cli.acts import Since
from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_item, on_terminal
from service.model.words import counted, moment, span

if TYPE_CHECKING:
    from recrawl_client import ComparedStaleness, SavingsAnswer

DAY_S = 86_400.0
SHORTEST = timedelta(hours=1) - timedelta(seconds=10)
"""Shortest window of the service, less the time that a command takes."""


def savings(
    since: Since = None, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False
) -> None:
    """Show what the fleet gained against crawling every page equally often, in 90 days or so.

    A terminal gets a table. A pipe gets the JSON of GET /savings, as with --json.
    Ends with status 1 if the log is too short for a comparison.
    """
    if since is not None and datetime.now(UTC) - since < SHORTEST:
        raise typer.BadParameter("a window of savings has an hour or more, such as 1h or 90d")
    with connected(to, api_key) as client:
        answer = client.savings(since)
    if as_json or not on_terminal():
        echo_item(answer, as_json=True)
    else:
        show(answer)
    if answer.missing is not None:
        raise typer.Exit(1)


def show(answer: "SavingsAnswer") -> None:
    """Print the sentence, and a table of the measures."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text(answer.sentence))
    if answer.harmonic is not None and answer.stale is not None:
        view = Table("", "this fleet", "uniform", "saved", "90% interval")
        view.add_row("stale, share of the time", *_cells(answer.stale, "{:.2%}"))
        view.add_row("harmonic staleness", *_cells(answer.harmonic, "{:.4f}"))
        console.print(view)
    pages = f"{counted(answer.n_pages, 'page')}, {counted(answer.n_crawls, 'crawl')}"
    changes = f"{counted(answer.n_changes, 'change')} found"
    often = ""
    if answer.crawl_interval is not None:
        often = f", a page every {span(answer.crawl_interval * DAY_S)} under uniform crawling"
    of = "" if answer.sampled_share == 1 else f"; a sample of {answer.sampled_share:.1%}"
    at = f"; computed at {moment(answer.at)}"
    console.print(Text(f"{pages}, {changes}{often}{of}{at}"))


def _cells(compared: "ComparedStaleness", form: str) -> tuple[str, ...]:
    values = form.format(compared.fleet), form.format(compared.uniform)
    return *values, f"{compared.saved:+.0%}", f"{compared.low:+.0%} … {compared.high:+.0%}"
