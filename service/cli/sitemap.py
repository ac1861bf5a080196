"""`recrawl sitemap`: what sites say of themselves, fetched and passed on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import URL, ApiKey, Private, To, connected, console, finite, header

if TYPE_CHECKING:
    from service.connectors.watching import Step

sitemap = typer.Typer(no_args_is_help=True, help="Fetch sitemaps and pass them on.")


@sitemap.callback()
def common() -> None:
    """Fetch sitemaps and pass them on."""


@sitemap.command()
def watch(
    urls: Annotated[list[str], typer.Argument(metavar="URL…", help="Sitemaps, or their indexes")],
    to: To = URL,
    api_key: ApiKey = None,
    interval: Annotated[
        float, typer.Option(min=1, callback=finite, help="Seconds from one round to the next")
    ] = 3_600,
    once: Annotated[
        bool, typer.Option("--once", help="One round; status 1 if a sitemap failed")
    ] = False,
    delay: Annotated[
        float, typer.Option(min=0, callback=finite, help="Seconds between two fetches")
    ] = 1.0,
    max_bytes: Annotated[
        int, typer.Option(min=1, help="Largest document, as it is sent")
    ] = 52_428_800,
    cross_host: Annotated[
        bool, typer.Option("--cross-host", help="Take entries and children of other hosts too")
    ] = False,
    private: Private = False,
    user_agent: Annotated[
        str | None,
        typer.Option(callback=header, help="How to call at sites; name an address to complain to"),
    ] = None,
    state: Annotated[
        Path, typer.Option(dir_okay=False, help="Where it is kept what was fetched when")
    ] = Path("recrawl-sitemaps.json"),
) -> None:
    """Fetch sitemaps again and again and pass on what has changed; tell a line about each.

    One document is fetched at a time, only if it has changed since, and a site that asks to be
    left alone (Retry-After) is. Children of an index are fetched too.
    """
    from service.connectors.watching import Manners, State, Watcher

    agent = user_agent or Manners().user_agent
    manners = Manners(delay, max_bytes, cross_host, private, agent)
    n_failed = 0
    with connected(to, api_key) as client:
        watcher = Watcher(client, State(state, to), manners)
        for step in watcher.rounds(urls, interval, 1 if once else None):
            _show(step)
            n_failed += step.outcome == "failed"
    if n_failed:
        raise typer.Exit(1)


def _show(step: "Step") -> None:
    """Print the outcome of one sitemap."""
    answer = step.answer
    if answer is None:
        if step.outcome == "unchanged":
            typer.echo(f"{step.url}: unchanged")
        else:
            _warn(f"{step.url}: {step.reason}")
        return
    counts = f"{answer.created} new, {answer.accepted - answer.created} changed"
    if answer.kind == "index":
        counts = f"{len(answer.children)} sitemaps"
    typer.echo(
        f"{step.url}: {answer.kind}, {counts}, {answer.n_rejected} rejected, "
        f"{answer.n_crawl_now} to crawl now"
    )
    for warning in answer.warnings:
        _warn(f"{step.url}: {warning}")


def _warn(sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)
