"""`recrawl status`, `why` and `epochs`: show the work of a running service."""

import json
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, on_terminal
from service.cli.state import show, state_of
from service.model.words import ago, counted, number

if TYPE_CHECKING:
    from recrawl_client import Epoch


def status(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Show what needs you, then the pages, the crawls, the budget and the epoch of a service.

    A terminal gets a table. A pipe gets the JSON of GET /status, as with --json.
    Ends with status 0 if nothing needs you. Ends with status 1 if something does, or if the service
    is not ready.
    """
    with connected(to, api_key) as client:
        state = state_of(client)
    if as_json or not on_terminal():
        typer.echo(json.dumps(state, indent=2))
    else:
        show(state)
    if state["health"] != "ok" or state["needs_you"]:
        raise typer.Exit(1)


def why(
    page: Annotated[str, typer.Argument(metavar="URL", help="URL of a page, or its page_id")],
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Show the next crawl of a page, and the reason for its time."""
    from msgspec import to_builtins

    with connected(to, api_key) as client:
        answer = to_builtins(client.page(int(page) if page.isdecimal() else page))
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    reason, estimate = answer["why"], answer["estimate"]
    typer.echo(answer["url"])
    typer.echo(reason["sentence"])
    next_at = _next_at(answer)
    typer.echo(f"next crawl  {_moment(next_at) if next_at else 'no time is set'}")
    last_at = answer["last_crawl_at"]
    typer.echo(f"last crawl  {_moment(last_at) if last_at else 'never'}")
    counts = [
        counted(estimate["n_observations"], "interval"),
        counted(estimate["n_changes"], "change"),
        counted(estimate["n_pings"], "ping"),
    ]
    none = "; its change rate is assumed" if estimate["assumed"] else ""
    by_captures = not (none or estimate["n_observations"] or estimate["n_pings"])
    captures = ["captures of an archive"] if by_captures else []
    typer.echo(f"evidence    {', '.join(captures + counts)}{none}")


def _next_at(page: dict[str, Any]) -> str | None:
    """Return the earliest time of the next crawl: what holds the page may be later than due."""
    until: str | None = page["why"]["until"]
    due = None if page["schedule"] is None else page["schedule"]["next_crawl_at"]
    return until or due


def epochs(
    limit: Annotated[int, typer.Option(min=1, help="Most epochs, newest first")] = 20,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List epochs, newest first, with the reasons of failures."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    with connected(to, api_key) as client:
        listed = [_as_json(epoch) or {} for epoch in islice(client.epochs(), limit)]
    if as_json or not on_terminal():
        for epoch in listed:
            typer.echo(json.dumps(epoch))
        return
    if not listed:
        typer.echo("no epochs yet; the first one runs once pages are registered")
        return
    view = Table("epoch", "status", "started", "took", "pages", "scheduled a day", "reason")
    for epoch in listed:
        view.add_row(*map(Text, _row(epoch)))
    Console().print(view)


def _row(epoch: dict[str, Any]) -> tuple[str, ...]:
    started, seconds = epoch["started_at"], sum((epoch["seconds"] or {}).values())
    used = epoch["bandwidth_used"]
    return (
        str(epoch["epoch"]),
        epoch["status"],
        started[:19].replace("T", " ") + "Z" if started else "",
        f"{seconds:.1f} s" if epoch["seconds"] else "",
        "" if epoch["n_pages"] is None else f"{epoch['n_pages']:,}",
        "" if used is None else f"{number(used)} {epoch['unit'] or ''}".rstrip(),
        epoch["reason"] or "",
    )


def _as_json(value: "Epoch") -> dict[str, Any] | None:
    from msgspec import to_builtins

    as_json: dict[str, Any] | None = to_builtins(value)
    return as_json


# -- texts


def _moment(at: str) -> str:
    return f"{at[:19].replace('T', ' ')}Z, {_ago(at)}"


def _ago(at: str) -> str:
    return ago((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds())
