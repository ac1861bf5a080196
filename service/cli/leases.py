"""`recrawl leases`: leases of a running service, and the workers that hold or lose them."""

from itertools import islice
from typing import Annotated

import typer

from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_item, echo_lines
from service.model.words import counted

leases = typer.Typer(no_args_is_help=True, help="List leases and workers, and return leases.")


NO_LEASE = "no lease runs; `recrawl leases explain` shows why"
NO_WORKER = "no worker holds leases, and none has lost any"


@leases.command(name="list")
def list_leases(
    limit: Annotated[int | None, typer.Option(min=1, help="Largest number of lines")] = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List the leases that run."""
    fields = ("page_id", "url", "worker", "leased_at", "expires_at")
    with connected(to, api_key) as service:
        echo_lines(
            islice(service.running_leases(), limit), *fields, as_json=as_json, empty=NO_LEASE
        )


@leases.command()
def explain(
    host: Annotated[
        list[str] | None, typer.Option(help="Host of the request for leases; repeat it")
    ] = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Show why a request for leases gets nothing now: the due pages by what holds them."""
    with connected(to, api_key) as service:
        why = service.explain_leases(*(host or ()))
    if as_json:
        echo_item(why, as_json=True)
        return
    typer.echo(why.sentence)
    for held in why.holds:
        kind = held.hold if held.by is None else f"{held.hold} ({held.by})"
        amount = f"{counted(held.n_pages, 'page')} of {counted(held.n_hosts, 'host')}"
        typer.echo(f"{kind:22} {amount}: {held.sentence}")


@leases.command()
def workers(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List the workers that hold leases or have lost some."""
    fields = ("worker", "running", "lost", "expired", "returned", "refused")
    with connected(to, api_key) as service:
        echo_lines(service.workers(), *fields, as_json=as_json, empty=NO_WORKER)


@leases.command()
def release(
    worker: Annotated[str, typer.Option(help="Name of a worker that does not run any more")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the leases, and change nothing")
    ] = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Return all leases of a worker that is gone, so that others crawl its pages at once."""
    with connected(to, api_key) as service:
        n = service.return_leases(worker, dry_run=dry_run)
    if as_json:
        echo_item({"worker": worker, "dry_run": dry_run, "ended": n}, as_json=True)
    else:
        typer.echo(f"{counted(n, 'lease')} of {worker} {'would end' if dry_run else 'ended'}")
