"""`recrawl pages` and `recrawl fresh`: many pages of a running service."""

import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.acts import Since
from service.cli.confirming import Yes, confirm
from service.cli.durations import read_moment
from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_act, echo_item, echo_lines
from service.cli.pairs import pairs
from service.cli.queue_settings import settings_of
from service.model.words import counted, moment

if TYPE_CHECKING:
    from recrawl_client import Verdict
    from recrawl_client.wire.listing import BulkAnswer

OF_PAGES = (
    *("url", "state", "next_crawl_at", "crawl_rate", "change_rate", "last_crawl_at", "outcome"),
    *("importance", "page_id"),
)
"""Columns of the table of pages, those first that a narrow terminal keeps."""
OF_LOG = ("observed_at", "kind", "status", "changed", "interval", "robots_denied")
"""Columns of the table of a page's log."""
NO_PAGE = "no pages yet; register them by `recrawl import urls.txt`, one URL a line"
pages = typer.Typer(no_args_is_help=True, help="List, change, delete and recrawl many pages.")

Filters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER…",
        help="host=example.com url_prefix=https://… tag=news state=overdue observability=auto "
        "change_rate_from=1 crawl_rate_to=0.1 changed_since=2026-05-01T00:00:00Z …",
    ),
]
AllPages = Annotated[bool, typer.Option("--all", help="Every page, without a filter")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the pages, and change nothing")]
Limit = Annotated[int | None, typer.Option(min=1, help="Largest number of lines")]


@pages.command(name="list")
def list_pages(
    filters: Filters = None,
    limit: Limit = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List the pages that match all filters."""
    with connected(to, api_key) as service:
        listed = islice(service.pages(**_filters(filters)), limit)
        empty = "no page matches the filters" if filters else NO_PAGE
        echo_lines(listed, *OF_PAGES, as_json=as_json, empty=empty)


@pages.command()
def count(
    filters: Filters = None,
    exact: Annotated[bool, typer.Option("--exact", help="Count up to a million pages")] = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print the number of pages that match all filters, and whether it is exact."""
    with connected(to, api_key) as service:
        answer = service.count_pages(exact=exact, **_filters(filters))
    if as_json:
        echo_item({"count": answer.count, "count_is": answer.count_is}, as_json=True)
    else:
        typer.echo(f"{answer.count} ({answer.count_is})")


@pages.command(name="set")
def set_(
    filters: Filters = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help='importance=5 max_crawl_rate=null add_tags=["news"] …'),
    ] = None,
    all_pages: AllPages = False,
    dry_run: DryRun = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Change settings and tags of the pages that match all filters."""
    changes: Any = settings_of(settings)
    with connected(to, api_key) as service:
        answer = service.change_pages(
            changes, all_pages=all_pages, dry_run=dry_run, **_filters(filters)
        )
    _echo_bulk(answer, "changed", dry_run=dry_run, as_json=as_json)


@pages.command()
def delete(
    filters: Filters = None,
    all_pages: AllPages = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete pages with their states and logs, after a question.

    FILTER is a URL or a page_id, for this page alone, or filters, for all pages that match them.
    """
    if (one := _one_page(filters)) is not None:
        _delete_page(one, dry_run=dry_run, yes=yes, to=to, api_key=api_key, as_json=as_json)
        return
    chosen = _filters(filters, by_option=" `recrawl pages delete {url}` deletes it,")
    with connected(to, api_key) as service:
        # the service refuses a deletion without a filter
        if not (dry_run or yes) and (chosen or all_pages):
            selected = service.count_pages(exact=True, **chosen)
            about = "" if selected.count_is == "exact" else "about "
            n_pages = counted(int(selected.count or 0), "page")
            confirm(f"this deletes {about}{n_pages} with their states and logs", yes=False)
        answer = service.delete_pages(all_pages=all_pages, dry_run=dry_run, **chosen)
    _echo_bulk(answer, "deleted", dry_run=dry_run, as_json=as_json)


def _echo_bulk(answer: "BulkAnswer", done: str, *, dry_run: bool, as_json: bool) -> None:
    """Print how many pages an act has matched and changed, and why it refused some."""
    text = f"{counted(answer.matched, 'page')} would be {done}"
    if not dry_run:
        text = f"{counted(answer.changed, 'page')} of {answer.matched:,} {done}"
    for rejection in answer.rejected:
        typer.echo(rejection.detail, err=True)
    echo_act(answer, text, as_json=as_json)


def _one_page(texts: list[str] | None) -> str | int | None:
    """Return the URL or page_id that is given in place of filters; None: filters are."""
    if texts is None or len(texts) != 1:
        return None
    (text,) = texts
    if text.isascii() and text.isdecimal():
        return int(text)
    return text if "://" in text.partition("=")[0] else None


def _delete_page(
    name: str | int,
    *,
    dry_run: bool,
    yes: bool,
    to: str,
    api_key: str | None,
    as_json: bool,
) -> None:
    with connected(to, api_key) as service:
        page = service.page(name)
        if not (dry_run or yes):
            confirm(f"this deletes 1 page, {page.url}, with its state and log", yes=False)
        if not dry_run:
            service.delete_page(page.page_id)
    done = "would be deleted" if dry_run else "is deleted"
    answer = {"matched": 1, "changed": int(not dry_run)}
    echo_act(answer, f"{page.url} {done}", as_json=as_json)


@pages.command()
def recrawl(
    filters: Filters = None,
    urls: Annotated[
        list[str] | None, typer.Option("--url", help="URL of a page; may be repeated")
    ] = None,
    all_pages: AllPages = False,
    dry_run: DryRun = False,
    yes: Yes = False,  # noqa: ARG001 - as with other acts on pages, without effect
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Crawl pages as soon as politeness allows: those of --url, or those that match all filters."""
    with connected(to, api_key) as service:
        chosen = _filters(filters, by_option=" --url {url} crawls it,")
        answer = service.recrawl(*(urls or ()), all_pages=all_pages, dry_run=dry_run, **chosen)
    waiting = 0 if dry_run else answer.matched - answer.changed
    done = "due"
    if waiting:
        done += f"; {waiting:,} {'was' if waiting == 1 else 'were'} already due by a request"
    _echo_bulk(answer, done, dry_run=dry_run, as_json=as_json)


@pages.command()
def log(
    url: Annotated[str, typer.Argument(help="URL of the page")],
    since: Since = None,
    limit: Limit = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print the log of a page, newest entries first."""
    with connected(to, api_key) as service:
        entries = service.page_log(service.page(url).page_id)
        if since is not None:
            entries = takewhile(lambda entry: entry.observed_at >= since, entries)
        empty = "no crawl and no ping of this page" + " since then" * (since is not None)
        echo_lines(islice(entries, limit), *OF_LOG, as_json=as_json, empty=empty)


def _filters(texts: list[str] | None, *, by_option: str = "") -> dict[str, Any]:
    """Return filters by name; the service refuses those that it does not have.

    A URL is no filter; `by_option` is how the command takes one, with `url` in braces.
    """
    for text in texts or ():
        name, _, value = text.partition("=")
        if name == "url" or "://" in name:
            url, named = (value, "url=") if name == "url" else (text, "a URL")
            way = by_option.format(url=url)
            one = f"{named} names one page:{way} `recrawl why {url}` shows it"
            below = "url_prefix= selects all URLs that begin with it"
            raise typer.BadParameter(f"{one}, {below}", param_hint="FILTER")
    return {
        # `changed_since=1d` as the option --since of other commands
        name: read_moment(value).isoformat() if name == "changed_since" else value
        for name, value in pairs(texts or (), "FILTER")
    }


def fresh(
    urls: Annotated[
        list[str],
        typer.Argument(metavar="URL…", help="URLs; - reads them from stdin, without comments (#)"),
    ],
    fetched_at: Annotated[
        datetime | None,
        typer.Option(
            parser=read_moment,
            metavar="TIME",
            help="Time of the copies, such as 1d or 2026-05-01T12:00:00Z; default each last crawl",
        ),
    ] = None,
    max_stale: Annotated[
        float, typer.Option(min=0, max=1, help="Highest probability of a stale copy to accept")
    ] = 0.5,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each, for programs")
    ] = False,
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """Show for each URL whether a copy is still right; status 1 if one should be fetched."""
    named = list(_lines(urls))
    copies = [{"url": url, "max_stale": max_stale} for url in named]
    if fetched_at is not None:
        copies = [{**copy, "fetched_at": fetched_at.isoformat()} for copy in copies]
    with connected(to, api_key) as service:
        answer = service.freshness(copies)
    for rejection in answer.rejected:
        typer.echo(f"{named[rejection.index]}: {rejection.detail}", err=True)
    judged = [
        (url, verdict) for url, verdict in zip(named, answer.verdicts, strict=True) if verdict
    ]
    if as_json:
        echo_lines((verdict for _, verdict in judged), as_json=True)
    else:
        for url, verdict in judged:
            typer.echo(f"{verdict_words(verdict)}  {url}")
    if answer.n_fetch or answer.rejected:
        raise typer.Exit(1)


def _lines(urls: Iterable[str]) -> Iterable[str]:
    for url in urls:
        if url == "-":
            lines = map(str.strip, sys.stdin)
            yield from (line for line in lines if line and not line.startswith("#"))
        else:
            yield url


def verdict_words(verdict: "Verdict") -> str:
    """Return the advice of a verdict and its reason."""
    if verdict.state in ("gone", "retired"):
        return "drop   the page is gone"
    if verdict.state == "moved":
        return f"drop   the page moved to {verdict.moved_to}"
    has_copy = verdict.stale is not None
    if verdict.state == "refused":
        advice = "keep   " if has_copy else "wait   no copy, and "
        return f"{advice}the site or its robots.txt refuses the page"
    if verdict.no_content and not verdict.fetch:
        at = verdict.next_crawl_at
        next_ = "" if at is None else f", next crawl {moment(at)}"
        return f"{'keep' if has_copy else 'wait'}   no content{next_}"
    if not has_copy:
        return f"fetch  {'no content yet' if verdict.no_content else 'never fetched'}"
    return f"{'fetch' if verdict.fetch else 'keep ':5}  stale with {verdict.stale:6.1%}"
